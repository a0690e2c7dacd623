"""Many jobs in one queue: memory of the broker while they are added, and how soon it serves after SIGKILL.

python -m tests.bench.jobs_many --jobs 5000000 --memory 256

`--batch` is how many are sent at a time: few at a time are as many frames in the log. `--indexed` kills the broker once
all full segments have their indexes, as those of jobs that came over days have. `--queues` measures as many queues with
a job each instead.
"""

import argparse
import socket
import tempfile
from pathlib import Path
from time import monotonic
from typing import IO
from urllib.parse import urlsplit

import psutil

from tests.support.until import reach
from vmq.testing.process import BrokerProcess

LISTEN = ("resp://127.0.0.1:0",)
BATCH = 200
MIB = 1 << 20


class Wire:
    """A pipelined connection to a broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.socket = socket.create_connection(("127.0.0.1", urlsplit(broker.urls[0]).port or 0))
        self.replies: IO[bytes] = self.socket.makefile("rb")

    def lines(self, command: bytes, count: int) -> list[bytes]:
        """Sends some commands; the lines of their replies."""
        self.socket.sendall(command)
        return [self.replies.readline().rstrip() for _ in range(count)]

    def add(self, body: bytes, queues: list[bytes]) -> None:
        """Adds a job to each."""
        end = b"$%d\r\n%b\r\n$1\r\n0\r\n" % (len(body), body)
        head = b"*4\r\n$6\r\nADDJOB\r\n"
        jobs = b"".join(head + b"$%d\r\n%b\r\n" % (len(each), each) + end for each in queues)
        for line in self.lines(jobs, len(queues)):
            assert line.startswith(b"+"), line

    def work(self) -> None:
        """Takes a batch, and acknowledges it."""
        head = self.lines(b"GETJOB COUNT %d FROM q\r\n" % BATCH, 1)[0]
        ids = [self.lines(b"", 7)[4] for _ in range(int(head[1:]))]
        assert len(ids) == BATCH
        words = b"".join(b"$40\r\n%b\r\n" % each for each in ids)
        done = self.lines(b"*%d\r\n$6\r\nACKJOB\r\n%b" % (len(ids) + 1, words), 1)
        assert done == [b":%d" % len(ids)], done


def rss(broker: BrokerProcess) -> int:
    """Resident memory of the broker, in bytes."""
    found: int = psutil.Process(broker.pid).memory_info().rss
    return found


def measure_queues(queues: int, folder: Path) -> None:
    """Prints what queues with a job of 16 bytes each take."""
    args = ("--allow-anonymous",)
    with BrokerProcess.start(LISTEN, data_dir=folder, args=args) as broker:
        wire = Wire(broker)
        wire.add(b"x" * 16, [b"warm"] * BATCH)
        idle = rss(broker)
        for first in range(0, queues, BATCH):
            wire.add(b"x" * 16, [b"queue-%d" % each for each in range(first, first + BATCH)])
        print(f"{queues} queues with a job each: {(rss(broker) - idle) / queues:.0f} bytes a queue")


def is_indexed(folder: Path) -> bool:
    """Whether all segments but the last have an index."""
    segments, indexes = (list((folder / "jobs").glob(each)) for each in ("*.jobs", "*.index"))
    return len(indexes) >= len(segments) - 1


def measure(jobs: int, size: int, memory: int, batch: int, folder: Path, *, indexed: bool) -> None:
    """Prints what it takes."""
    env = {"VMQ_LIMITS__MAX_JOB_MEMORY": str(memory * MIB)}
    args = ("--allow-anonymous",)
    with BrokerProcess.start(LISTEN, data_dir=folder, env=env, args=args) as broker:
        idle = most = rss(broker)
        wire = Wire(broker)
        began = monotonic()
        for number in range(0, jobs, batch):
            wire.add(b"x" * size, [b"q"] * batch)
            if not number % 100_000:
                most = max(most, rss(broker))
        most = max(most, rss(broker))
        spent = monotonic() - began
        if indexed:
            reach(lambda: is_indexed(folder), "segments have no indexes", 600)
        print(f"added {jobs} in {spent:.0f} s; at most {(most - idle) / MIB:.0f} MiB above idle")
        broker.kill()
    began = monotonic()
    with BrokerProcess.start(LISTEN, data_dir=folder, env=env, args=args) as broker:
        wire = Wire(broker)
        wire.work()
        spent = monotonic() - began
        cpu = sum(psutil.Process(broker.pid).cpu_times()[:2])
        print(
            f"after SIGKILL a job is given and acknowledged {spent:.2f} s after the start, with {cpu:.2f} s of CPU"
        )
        print(f"{(rss(broker) - idle) / MIB:.0f} MiB above idle")
        for _ in range(min(jobs, 200_000) // BATCH - 1):
            wire.work()
        print(f"after some work {(rss(broker) - idle) / MIB:.0f} MiB above idle")


def main() -> None:
    """Parses arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=200, help="bytes of a body")
    parser.add_argument("--memory", type=int, default=1024, help="limits.max_job_memory, in MiB")
    parser.add_argument("--batch", type=int, default=BATCH, help="jobs that are sent at a time")
    parser.add_argument("--indexed", action="store_true", help="wait for indexes of segments")
    parser.add_argument("--queues", type=int, default=0, help="queues with a job each, instead")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        if options.queues:
            measure_queues(options.queues, data)
        else:
            how = options.jobs, options.size, options.memory, options.batch, data
            measure(*how, indexed=options.indexed)


if __name__ == "__main__":
    main()
