"""Many jobs in one queue: memory of the broker while they are added, and how soon it serves after SIGKILL.

python -m tests.bench.jobs_many --jobs 5000000 --memory 256

`--batch` is how many are sent at a time: few at a time are as many frames in the log. `--indexed` kills the broker once
all full segments have their indexes, as those of jobs that came over days have. `--queues` measures as many queues with
a job each instead. `--keys` gives each job a key. `--copies` adds them at one of three nodes, so that all have a copy;
then that node is killed, and it is measured when it serves again: a job that is new, and one that it served before.
"""

import argparse
import socket
import tempfile
from pathlib import Path
from time import monotonic
from typing import IO
from urllib.parse import urlsplit

import psutil

from tests.cluster_processes.jobs import job_cluster
from tests.support.until import reach
from vmq.bench.load.usage import resident
from vmq.testing.process import BrokerProcess

LISTEN = ("resp://127.0.0.1:0",)
BATCH = 200
MIB = 1 << 20


class Wire:
    """A pipelined connection to a broker."""

    def __init__(self, broker: BrokerProcess) -> None:
        url = next(each for each in broker.urls if each.startswith("resp"))
        self.socket = socket.create_connection(("127.0.0.1", urlsplit(url).port or 0))
        self.replies: IO[bytes] = self.socket.makefile("rb")

    def lines(self, command: bytes, count: int) -> list[bytes]:
        """Sends some commands; the lines of their replies."""
        self.socket.sendall(command)
        return [self.replies.readline().rstrip() for _ in range(count)]

    def add(self, body: bytes, queues: list[bytes], first: int = -1, timeout: int = 0) -> None:
        """Adds a job to each; with keys, if the number of the first is given."""
        words = (4 if first < 0 else 6, len(body), body, len(str(timeout)), timeout)
        end = b"$%d\r\n%b\r\n$%d\r\n%d\r\n" % words[1:]
        head = b"*%d\r\n$6\r\nADDJOB\r\n" % words[0]
        key = b"" if first < 0 else b"$3\r\nKEY\r\n$14\r\norder-%08d\r\n"
        jobs = b"".join(
            head + b"$%d\r\n%b\r\n" % (len(each), each) + end + (key % at if key else b"")
            for at, each in enumerate(queues, first)
        )
        for line in self.lines(jobs, len(queues)):
            assert line.startswith(b"+"), line

    def work(self) -> None:
        head = self.lines(b"GETJOB COUNT %d FROM q\r\n" % BATCH, 1)[0]
        ids = [self.lines(b"", 7)[4] for _ in range(int(head[1:]))]
        assert len(ids) == BATCH
        words = b"".join(b"$40\r\n%b\r\n" % each for each in ids)
        done = self.lines(b"*%d\r\n$6\r\nACKJOB\r\n%b" % (len(ids) + 1, words), 1)
        assert done == [b":%d" % len(ids)], done


def measure_queues(queues: int, folder: Path) -> None:
    """Prints what queues with a job of 16 bytes each take."""
    args = ("--allow-anonymous",)
    with BrokerProcess.start(LISTEN, data_dir=folder, args=args) as broker:
        wire = Wire(broker)
        wire.add(b"x" * 16, [b"warm"] * BATCH)
        idle = resident(broker.pid)
        for first in range(0, queues, BATCH):
            wire.add(b"x" * 16, [b"queue-%d" % each for each in range(first, first + BATCH)])
        print(
            f"{queues} queues with a job each: {(resident(broker.pid) - idle) / queues:.0f} bytes a queue"
        )


def is_indexed(folder: Path) -> bool:
    """Whether all segments but the last have an index."""
    segments, indexes = (list((folder / "jobs").glob(each)) for each in ("*.jobs", "*.index"))
    return len(indexes) >= len(segments) - 1


def measure(
    jobs: int, size: int, memory: int, batch: int, folder: Path, *, indexed: bool, keys: bool
) -> None:
    env = {"VMQ_LIMITS__MAX_JOB_MEMORY": str(memory * MIB)}
    args = ("--allow-anonymous",)
    with BrokerProcess.start(LISTEN, data_dir=folder, env=env, args=args) as broker:
        idle = most = resident(broker.pid)
        wire = Wire(broker)
        began = monotonic()
        for number in range(0, jobs, batch):
            wire.add(b"x" * size, [b"q"] * batch, number if keys else -1)
            if not number % 100_000:
                most = max(most, resident(broker.pid))
        most = max(most, resident(broker.pid))
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
        print(f"{(resident(broker.pid) - idle) / MIB:.0f} MiB above idle")
        for _ in range(min(jobs, 200_000) // BATCH - 1):
            wire.work()
        print(f"after some work {(resident(broker.pid) - idle) / MIB:.0f} MiB above idle")


def measure_copies(jobs: int, size: int, memory: int, batch: int, *, keys: bool) -> None:
    """Prints what it takes where each of three nodes has all of them."""
    env = {"VMQ_LIMITS__MAX_JOB_MEMORY": str(memory * MIB)}
    with job_cluster("a", "b", "c", env=env) as cluster:
        brokers = [node.process for node in cluster.cluster.running]
        idle = [resident(each.pid) for each in brokers]
        most = list(idle)
        wire = Wire(brokers[0])
        began = monotonic()
        for number in range(0, jobs, batch):
            wire.add(b"x" * size, [b"q"] * batch, number if keys else -1, 60_000)
            if not number % 20_000:
                now = [resident(each.pid) for each in brokers]
                most = [max(each) for each in zip(most, now, strict=True)]
        above = [f"{(high - low) / MIB:.0f}" for high, low in zip(most, idle, strict=True)]
        print(
            f"added {jobs} in {monotonic() - began:.0f} s; at most {', '.join(above)} MiB above idle"
        )
        cluster.kill("a")
        began = monotonic()
        cluster.cluster.start_only("a")
        wire = Wire(cluster.cluster["a"].process)
        wire.add(b"x", [b"other"])
        assert wire.lines(b"GETJOB FROM other\r\n", 8)[0] == b"*1"
        print(f"after SIGKILL a new job is given {monotonic() - began:.2f} s after the start")
        assert wire.lines(b"GETJOB FROM q\r\n", 8)[0] == b"*1"
        spent = monotonic() - began
        print(f"one of those that were there {spent:.2f} s after the start")
        above = [
            f"{(resident(node.process.pid) - low) / MIB:.0f}"
            for node, low in zip(cluster.cluster.running, idle, strict=True)
        ]
        print(f"{', '.join(above)} MiB above idle")


def main() -> None:
    """Parses arguments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=200, help="bytes of a body")
    parser.add_argument("--memory", type=int, default=1024, help="limits.max_job_memory, in MiB")
    parser.add_argument("--batch", type=int, default=BATCH, help="jobs that are sent at a time")
    parser.add_argument("--indexed", action="store_true", help="wait for indexes of segments")
    parser.add_argument("--queues", type=int, default=0, help="queues with a job each, instead")
    parser.add_argument("--keys", action="store_true", help="each job has a key")
    parser.add_argument("--copies", action="store_true", help="three nodes that have all jobs")
    options = parser.parse_args()
    if options.copies:
        how = options.jobs, options.size, options.memory, options.batch
        measure_copies(*how, keys=options.keys)
        return
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        if options.queues:
            measure_queues(options.queues, data)
        else:
            how = options.jobs, options.size, options.memory, options.batch
            measure(*how, data, indexed=options.indexed, keys=options.keys)


if __name__ == "__main__":
    main()
