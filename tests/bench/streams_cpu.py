"""CPU that a stream costs, in microseconds a message: `python -m tests.bench.streams_cpu [MESSAGES]`.

Each line is the least of five runs of CPU time (user and system, all threads) of this process. `append` is what
the event loop pays, `whole` is that and the writer's encoding, checksums and writes. `nothing` is the loop that
makes the messages: the figures beside it include it.
"""

import asyncio
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from vmq.config.streams import StreamOptions
from vmq.streams.appender import Appender
from vmq.streams.catalog import Catalog
from vmq.streams.log.commits import Commits
from vmq.streams.log.cursor import LogReader

TOPICS = [b"plant/%d/line/%d/temp" % (number % 10, number) for number in range(100)]
PAYLOAD = b"x" * 64
CHUNK = 1000

Burst = Callable[[Appender, int], None]


def nothing(_: Appender, count: int) -> None:
    """The loop alone."""
    for number in range(count):
        TOPICS[number % 100]


def append(appender: Appender, count: int) -> None:
    """One call a message."""
    now = time.time_ns() // 1000
    for number in range(count):
        appender.append(TOPICS[number % 100], PAYLOAD, 1, False, "client-17", now)


def append_run(appender: Appender, count: int) -> None:
    """One call for many messages of one topic and client."""
    now = time.time_ns() // 1000
    appender.append_run(TOPICS[0], [PAYLOAD] * count, 1, False, "client-17", now)


async def measure(
    folder: Path, burst: Burst, messages: int, **options: object
) -> tuple[float, float]:
    """Microseconds of CPU a message, in the loop's thread and in all."""
    commits = Commits(asyncio.get_running_loop())
    declared = StreamOptions(filters=["#"], **options)  # type: ignore[arg-type]
    catalog = Catalog(folder, {"s": declared}, commits)
    catalog.start()
    appender = catalog.get("s").appender
    loop_time, all_time = time.thread_time(), time.process_time()
    for _ in range(messages // CHUNK):
        burst(appender, CHUNK)
        await asyncio.sleep(0)
    loop_time = time.thread_time() - loop_time
    await commits.wait()
    all_time = time.process_time() - all_time
    assert appender.dropped == 0
    await catalog.close()
    return loop_time / messages * 1e6, all_time / messages * 1e6


async def read(folder: Path, messages: int) -> float:
    """Microseconds of CPU a message of reading it all."""
    catalog = Catalog(folder, {}, Commits(asyncio.get_running_loop()))
    catalog.start()
    began = time.process_time()
    partitions = catalog.get("s").partitions
    rows = sum(chunk.rows.num_rows for each in partitions for chunk in LogReader(each).read(0))
    took = time.process_time() - began
    assert rows == messages
    await catalog.close()
    return took / messages * 1e6


def least(burst: Burst, messages: int, **options: object) -> tuple[float, float, float]:
    """The least of five runs: loop, all, reading."""
    runs = []
    for _ in range(5):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder)
            loop_time, all_time = asyncio.run(measure(path, burst, messages, **options))
            written = burst is not nothing
            runs.append(
                (loop_time, all_time, asyncio.run(read(path, messages)) if written else 0.0)
            )
    first, second, third = zip(*runs, strict=True)
    return min(first), min(second), min(third)


def main(arguments: list[str]) -> None:
    """Print the table."""
    messages = int(arguments[0]) if arguments else 200_000
    cases: list[tuple[str, Burst, dict[str, object]]] = [
        ("nothing", nothing, {}),
        ("append", append, {}),
        ("append, uncompressed", append, {"compression": "none"}),
        ("append, zstd", append, {"compression": "zstd"}),
        ("append, 8 partitions by topic", append, {"partitions": 8, "key": "topic"}),
        ("append, key level:2", append, {"key": "level:2"}),
        ("append_run", append_run, {}),
    ]
    print(f"{messages} messages of {len(PAYLOAD)} bytes, bursts of {CHUNK}; us of CPU a message")
    print(f"{'case':32} {'append':>8} {'whole':>8} {'reading':>8}")
    for name, burst, options in cases:
        figures = least(burst, messages, **options)
        print(f"{name:32} " + " ".join(f"{each:8.2f}" for each in figures))


if __name__ == "__main__":
    main(sys.argv[1:])
