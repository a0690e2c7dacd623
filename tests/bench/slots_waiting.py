"""What waits for clients who are away: python -m tests.bench.slots_waiting [--sessions 1 100 10000]

Two nodes with a copy of each session, or one (`--nodes 1`); durable sessions subscribe at one of them, each to a
topic of its own, and leave; a publisher sends at QoS 1 in bursts of 200. Memory is what the resident set of each node
has grown by, for a message. Then all start anew, at the same moment, until that one is ready (and how much memory it
has then); the sessions come back, 50 at a time, and take what waits.
"""

import argparse
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from time import perf_counter, sleep
from typing import Final

from tests.bench.durable import Cpu, Measured, Peer, Watch
from tests.bench.returning import topic
from tests.support.wire import publish_packet
from vmq import is_compiled
from vmq.testing.process import BrokerProcess

NAMES: Final = "ab"
BURST: Final = 200
GROUP: Final = 50
#: Seconds in which nodes divide slots among them, and write what is late.
SETTLED: Final = 10.0
WRITTEN: Final = 2.0
TIMEOUT: Final = 600.0


def start(folder: Path, name: str) -> BrokerProcess:
    env = {"VMQ_CLUSTER__REPLICAS": "2"}
    env["VMQ_QUEUE__MAX_OFFLINE_MESSAGES"] = env["VMQ_QUEUE__MAX_ONLINE_MESSAGES"] = "-1"
    data = folder / f"{name}.data"
    args = ["--allow-anonymous", "--node-name", name, "--cluster-listen", f"ipc://{folder}/{name}"]
    if name != NAMES[0] and not data.exists():
        args += ["--join", f"ipc://{folder}/{NAMES[0]}"]
    return BrokerProcess.start(data_dir=data, env=env, args=args, timeout=TIMEOUT)


def resident(node: BrokerProcess) -> int:
    """Bytes of memory."""
    return int(Path(f"/proc/{node.pid}/statm").read_text().split()[1]) * 4096


def frame(number: int, packet: int) -> bytes:
    return publish_packet(topic(number), bytes(100), qos=1, packet_id=packet)


def publish(node: BrokerProcess, sessions: int, messages: int) -> Measured:
    publisher, watch = Peer(node.tcp, "publisher", True), Watch(node.pid)
    for first in range(0, messages, BURST):
        left = min(BURST, messages - first)
        frames = [frame((first + each) % sessions, 1 + each) for each in range(left)]
        publisher.socket.sendall(b"".join(frames))
        while left:
            left -= publisher.take_acks()
    publisher.close()
    return watch.stop(messages)


def drain(node: BrokerProcess, sessions: int, messages: int) -> tuple[Measured, int]:
    """All sessions come back; also the most memory that was seen."""
    watch, most = Watch(node.pid), 0
    for first in range(0, sessions, GROUP):
        with ExitStack() as stack:
            peers = []
            for number in range(first, min(sessions, first + GROUP)):
                peer = Peer(node.tcp, f"session-{number}", False)
                stack.callback(peer.close)
                peer.take_frames(frame(number, 1), b"")
                peers.append((peer, number))
            for peer, number in peers:
                while peer.received < messages // sessions:
                    peer.take_frames(frame(number, 1), peer.recv())
            most = max(most, resident(node))
    return watch.stop(messages), most


def start_again(folder: Path, names: str, stack: ExitStack) -> tuple[BrokerProcess, float]:
    """All nodes at once; the first of them, and after how many seconds it was ready."""
    begun = perf_counter()
    with ThreadPoolExecutor(len(names)) as pool:
        starting = [pool.submit(start, folder, name) for name in names]
        node = stack.enter_context(starting[0].result())
        seconds = perf_counter() - begun
        for each in starting[1:]:
            stack.enter_context(each.result())
    return node, seconds


def measure(folder: Path, names: str, sessions: int, messages: int) -> None:
    with ExitStack() as stack:
        nodes = [stack.enter_context(start(folder, name)) for name in names]
        sleep(SETTLED)
        for number in range(sessions):
            peer = Peer(nodes[0].tcp, f"session-{number}", False)
            peer.subscribe(topic(number))
            peer.close()
        sleep(WRITTEN)
        before = [resident(each) for each in nodes]
        taken = publish(nodes[0], sessions, messages)
        sleep(WRITTEN)
        grown = [(resident(each) - was) / messages for each, was in zip(nodes, before, strict=True)]
        for each in nodes:
            each.terminate(TIMEOUT)
    with ExitStack() as stack:
        node, seconds = start_again(folder, names, stack)
        cpu, there = sum(Cpu.of(node.pid)), resident(node)
        sleep(SETTLED)
        drained, most = drain(node, sessions, messages)
    print(
        f"{sessions:>9,}{messages:>10,}{grown[0]:>9.0f}{grown[-1]:>9.0f}{taken.rate:>10,.0f}"
        f"{seconds:>9.2f}{cpu:>9.2f}{there / 1e6:>9.0f}{drained.rate:>10,.0f}{drained.loop:>9.1f}{most / 1e6:>9.0f}",
        flush=True,
    )


def main() -> None:
    """Measures and prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sessions", type=int, nargs="+", default=[1, 100, 10_000])
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, choices=[1, 2], default=2)
    options = parser.parse_args()
    print(
        f"{'compiled' if is_compiled() else 'interpreted'}\n"
        f"{'sessions':>9}{'messages':>10}{'B at a':>9}{'B at b':>9}{'taken/s':>10}"
        f"{'ready s':>9}{'CPU s':>9}{'MB then':>9}{'drained/s':>10}{'µs each':>9}{'most MB':>9}"
    )
    for sessions in options.sessions:
        with tempfile.TemporaryDirectory() as folder:
            measure(Path(folder), NAMES[: options.nodes], sessions, options.messages)


if __name__ == "__main__":
    main()
