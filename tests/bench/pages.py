"""What open pages cost a broker: python -m tests.bench.pages [--seconds 20] [--sessions 10000] [--workers 1]

Absent sessions stand for clients. Prints the broker's processor time in percent of a core with no page, with one and
with a hundred, and the bytes that a page takes a second.
"""

import argparse
import asyncio
import json
import subprocess
import sys
from collections.abc import Sequence

import aiohttp
import psutil

from tests.support.wire import Wire, connect_packet
from vmq.testing import BrokerProcess

LISTEN = ("tcp://127.0.0.1:0", "http://127.0.0.1:0")


def seconds_of(broker: BrokerProcess) -> float:
    """Seconds of a processor that all of its processes took so far."""
    process = psutil.Process(broker.pid)
    taken = [each.cpu_times() for each in (process, *process.children(recursive=True))]
    return float(sum(each.user + each.system for each in taken))


def key_of(broker: BrokerProcess) -> str:
    command = ["api-key", "create", "--read-only", "--json", "--data-dir", str(broker.data_dir)]
    done = subprocess.run(
        [sys.executable, "-m", "vmq", *command], capture_output=True, check=True, timeout=60
    )
    return str(json.loads(done.stdout)["key"])


async def watch(
    client: aiohttp.ClientSession, url: str, seen: list[int], settled: asyncio.Event
) -> None:
    """One page: it takes what it is told. `settled` is set once that is only what comes with each tick."""
    async with client.get(url) as answer:
        assert answer.status == 200
        chunks = 0
        async for chunk in answer.content.iter_any():
            seen[0] += len(chunk)
            chunks += 1
            if chunks > 1:
                settled.set()


async def measured(
    broker: BrokerProcess, key: str, pages: int, seconds: float
) -> tuple[float, float]:
    """Percent of a core that the broker takes while so many pages are open, and bytes a second of each."""
    seen = [0]
    timeout = aiohttp.ClientTimeout(total=None)
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, headers={"x-api-key": key}
    ) as client:
        settled = [asyncio.Event() for _ in range(pages)]
        tasks = [
            asyncio.create_task(watch(client, f"{broker.http}/api/v1/live", seen, each))
            for each in settled
        ]
        for event in settled:
            await event.wait()
        before, bytes_before = seconds_of(broker), seen[0]
        await asyncio.sleep(seconds)
        used = seconds_of(broker) - before
        taken = seen[0] - bytes_before
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return 100 * used / seconds, taken / seconds / max(pages, 1)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.pages", description=__doc__)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--sessions", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=1)
    given = parser.parse_args(arguments)
    args = ("--workers", str(given.workers))
    with BrokerProcess.start(LISTEN, args=args, env={"VMQ_LIMITS__FLAPPING_LIMIT": "0"}) as broker:
        for number in range(given.sessions):
            with Wire.connect_tcp(broker.tcp) as wire:
                wire.send(connect_packet(f"client-{number}", clean=False))
                wire.recv_packet()
        key = key_of(broker)
        none, _ = asyncio.run(measured(broker, key, 0, given.seconds))
        print(f"{given.sessions} sessions, no page: {none:.2f} % of a core")
        for pages in (1, 100):
            used, size = asyncio.run(measured(broker, key, pages, given.seconds))
            print(f"{pages} pages: {used - none:+.2f} % of a core, {size:.0f} bytes a second each")


if __name__ == "__main__":
    main()
