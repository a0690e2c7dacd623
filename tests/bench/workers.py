"""What a second process brings and costs: python -m tests.bench.workers [--workers 2] [--runs 5] [--rate 0 4000] ...

`vmq bench pair` on a broker of one process and on one of several, in turn, each run on fresh processes. The table
shows medians and, as ratios to one process, what several deliver in a second and what a delivery costs all of them
and their supervisor together. The system spreads the clients: of N processes each has a part of them, and of the pairs
about (N - 1) in N publish in one process and subscribe in another.

Several begin by sharing out the slots of durable sessions, once in the life of a broker: the load waits for that.

At full rate (0) much goes along in one pass, from process to process too; paced, nearly each message by itself, and
what the processes cost at rest counts as well.

Rates only grow with the processes where there are cores for all of them and for the load generator, which the last
column is about: the part of the time that it was busy. Where the machine has no more than two cores, the ratio of CPU
is what holds.
"""

import argparse
import json
import os
import subprocess
import sys
from itertools import product
from statistics import median
from typing import Any, NamedTuple

from tests.bench.settled import wait_settled
from vmq import is_compiled
from vmq.testing.process import BrokerProcess


class Run(NamedTuple):
    """One run: deliveries a second, microseconds of all processes a delivery, and how busy the loader was."""

    rate: float
    cpu: float
    loader: float


def measure(workers: int, qos: int, rate: int, arguments: argparse.Namespace) -> Run:
    with BrokerProcess.start(args=("--workers", str(workers), "--allow-anonymous")) as broker:
        if workers > 1:
            wait_settled(broker, workers)
        host, port = broker.tcp
        load = ["--qos", str(qos), "--pubs", str(arguments.pairs), "--size", str(arguments.size)]
        time = ["--seconds", str(arguments.seconds), "--warmup", "1", "--rate", str(rate)]
        where = ["--pid", str(broker.pid), "--url", f"mqtt://{host}:{port}"]
        command = [sys.executable, "-m", "vmq", "bench", "pair", "--json", *load, *time, *where]
        # It fails if a message is lost, repeated or out of order.
        done = subprocess.run(command, check=True, capture_output=True, timeout=120)
        found: dict[str, Any] = json.loads(done.stdout)
        return Run(
            found["receive_rate"],
            found["broker"]["cpu_us_per_message"],
            found["loader"]["cpu_share"],
        )


def medians(runs: list[Run]) -> Run:
    return Run(*(median(column) for column in zip(*runs, strict=True)))


def compare(qos: int, rate: int, arguments: argparse.Namespace) -> None:
    """One process and several, in turn."""
    counts = (1, arguments.workers)
    runs: dict[int, list[Run]] = {count: [] for count in counts}
    for _ in range(arguments.runs):
        for count in counts:
            runs[count].append(measure(count, qos, rate, arguments))
    found = {count: medians(runs[count]) for count in counts}
    for count, each in found.items():
        label = f"QoS {qos}, {f'{rate:,}/s' if rate else 'full'}, {count} worker{'s' if count > 1 else ''}"
        print(f"{label:27} {each.rate:>14,.0f} {each.cpu:>12.3f} {each.loader:>12.0%}")
    one, several = (found[count] for count in counts)
    print(f"{'':27} {several.rate / one.rate:>13.2f}x {several.cpu / one.cpu:>11.2f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--qos", type=int, nargs="+", default=[0, 1])
    parser.add_argument(
        "--rate",
        type=int,
        nargs="+",
        default=[0, 4000],
        help="messages a second; 0 is what there can be",
    )
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    compiled = "compiled" if is_compiled() else "interpreted"
    print(f"{arguments.pairs} pairs, {arguments.size} bytes, {compiled}, {os.cpu_count()} cores")
    print(f"{'':27} {'deliveries/s':>14} {'us CPU each':>12} {'loader busy':>12}")
    for qos, rate in product(arguments.qos, arguments.rate):
        compare(qos, rate, arguments)


if __name__ == "__main__":
    main()
