"""What copies of durable sessions cost: python -m tests.bench.replicas_cpu [--seconds 2] [--rounds 3]

Two clusters of two nodes each, one that keeps no copies (`replicas = 1`) and one that keeps one of each session, in
alternating rounds. Publishers send at QoS 1 into durable sessions that are away, all at node `a`: in bursts of 100, and
one by one. What counts is the CPU of both processes for each message, as a ratio to the cluster without copies.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.bench.durable import Bench, Cpu
from vmq import is_compiled
from vmq.testing.process import BrokerProcess

Nodes = tuple[BrokerProcess, BrokerProcess]


@contextmanager
def node(folder: Path, name: str, join: str, options: str) -> Iterator[BrokerProcess]:
    """A node; `options`: more of its section [cluster], and what comes behind that."""
    config = folder / f"{name}.toml"
    config.write_text(
        '[listeners.a]\nurl = "tcp://127.0.0.1:0"\n'
        f'[cluster]\nnode_name = "{name}"\nlisten = "ipc://{folder}/{name}"\njoin = {join}\n{options}'
    )
    with BrokerProcess.start(
        (), folder / f"{name}.data", None, ("--config", str(config))
    ) as broker:
        yield broker


@contextmanager
def cluster(folder: Path, replicas: int) -> Iterator[Nodes]:
    folder.mkdir()
    options = f"replicas = {replicas}\n[queue]\nmax_offline_messages = -1\n"
    with (
        node(folder, "a", "[]", options) as a,
        node(folder, "b", f'["ipc://{folder}/a"]', options) as b,
    ):
        a.wait_log("node up name=b", 30)
        b.wait_log("node up name=a", 30)
        time.sleep(1)
        yield a, b


def measure(nodes: Nodes, pairs: int, burst: int, seconds: float) -> tuple[float, float, float]:
    """Microseconds of CPU for each message, of the owner and of the keeper, and messages a second."""
    owner, keeper = nodes
    before = sum(Cpu.of(keeper.pid))
    measured = Bench(owner, pairs, 64, burst).to_offline(seconds)
    time.sleep(0.3)  # the keeper's last
    kept = (sum(Cpu.of(keeper.pid)) - before) * 1e6 / measured.messages
    return measured.loop + measured.others, kept, measured.rate


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"compiled: {is_compiled()}")
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        clusters = {
            count: stack.enter_context(cluster(Path(folder) / str(count), count))
            for count in (1, 2)
        }
        for text, pairs, burst in (("bursts of 100", 10, 100), ("one by one", 1, 1)):
            found: dict[int, list[tuple[float, float, float]]] = {1: [], 2: []}
            for _ in range(arguments.rounds):
                for count, nodes in clusters.items():
                    found[count].append(measure(nodes, pairs, burst, arguments.seconds))
            ratios = [sum(two[:2]) / sum(one[:2]) for one, two in zip(*found.values(), strict=True)]
            for count, results in found.items():
                owner, keeper, rate = (
                    statistics.median(each) for each in zip(*results, strict=True)
                )
                print(
                    f"{text}, replicas = {count}: owner {owner:.1f} us, keeper {keeper:.1f} us"
                    f" a message, {rate:.0f} messages a second"
                )
            print(f"{text}: {statistics.median(ratios):.2f} times the CPU of replicas = 1")


if __name__ == "__main__":
    main()
