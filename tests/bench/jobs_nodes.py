"""Jobs on three nodes: CPU of all for a whole job, beside a list of Redis in the same run; how soon one is added.

`python -m tests.bench.jobs_nodes` prints microseconds of CPU a job (added with `REPLICATE 3`, taken and acknowledged at
one node) in alternating rounds, and the median of the ratios; then the median and the 99th percentile of the time that
ADDJOB takes at a steady 1,000 a second.
"""

import argparse
import socket
import statistics
import time
from collections import deque
from select import select

from tests.bench.jobs_cpu import BODY, Cycle, command, measure
from tests.bench.tls_cpu import Meter, received
from tests.cluster_processes.jobs import JobCluster, job_cluster
from tests.support.servers import redis

#: Jobs a second, and how they are written.
RATE = 1000
REPLICATED = command(b"ADDJOB", b"q", BODY, b"10000", b"REPLICATE", b"3")


def whole(jobs: JobCluster, count: int, batch: int) -> float:
    """Microseconds of CPU of all nodes for a job that is added, taken and acknowledged."""
    meters = [Meter(node.process.pid) for node in jobs.cluster.running]
    cycle = Cycle(jobs["a"].port)
    with cycle.socket:
        cycle.jobs(b"q", batch, REPLICATED)
        for meter in meters:
            meter.__enter__()
        for _ in range(count // batch):
            cycle.jobs(b"q", batch, REPLICATED)
        for meter in meters:
            meter.__exit__()
    return sum(each.spent for each in meters) / count * 1e6


def latencies(port: int, count: int) -> list[float]:
    """Seconds from when a job was to be sent to its id, for each at a steady rate."""
    found: list[float] = []
    due: deque[float] = deque()
    with socket.create_connection(("127.0.0.1", port)) as wire:
        wire.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        wire.settimeout(60)

        def read(until: float | None) -> None:
            """Takes ids until all have come, or until it is time to send."""
            while len(found) < count:
                left = None if until is None else until - time.perf_counter()
                if left is not None and left <= 0:
                    return
                if select([wire], [], [], left)[0]:
                    lines = received(wire).count(b"\n")
                    at = time.perf_counter()
                    found.extend(at - due.popleft() for _ in range(lines))

        begin = time.perf_counter()
        for number in range(count):
            at = begin + number / RATE
            read(at)
            due.append(at)
            wire.sendall(REPLICATED)
        read(None)
    return found


def main() -> None:
    """Prints the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=10_000)
    options = parser.parse_args()
    with job_cluster("a", "b", "c") as jobs, redis(jobs.cluster.folder) as other:
        rounds = [
            (measure(*other, "", options.jobs, 50), whole(jobs, options.jobs, 50))
            for _ in range(options.rounds)
        ]
        ratio = statistics.median(three / one for one, three in rounds)
        one, three = (statistics.median(each) for each in zip(*rounds, strict=True))
        print(
            f"50 at a time: redis {one:.2f} us, three nodes {three:.2f} us, {ratio:.1f} times that"
        )
        taken = sorted(latencies(jobs["b"].port, options.jobs))
        p50, p99 = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
        print(f"ADDJOB at {RATE} a second: p50 {p50 * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms")


if __name__ == "__main__":
    main()
