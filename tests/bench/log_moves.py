"""How long publishers wait while copies of a stream move: python -m tests.bench.log_moves [--rounds 5] [--rows 200000]

Four nodes on this machine, and a stream of one partition with three copies and so many rows. At each node a publisher
at QoS 1 sends one message after the other; the longest time from a PUBLISH to its PUBACK at any node is told for each
thing that is done meanwhile: another replica is made to lead (`vmq stream transfer`), the partition goes to other nodes
of which the leader is none (`vmq stream move`), and a node is drained (`vmq cluster drain`), whose publisher goes to
another node. The bar: 0.5 s.
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import cycle
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench.log_copies import Publisher, leader_of, nodes, partition_of, section
from tests.support.until import reach
from tests.vmq.cli.program import here
from vmq import is_compiled
from vmq.testing.process import BrokerProcess

NAMES = "abcd"
STREAM = "s"
BURST = 1000
#: Messages that each publisher sends after what was done is seen to be done: what follows is measured, too.
AFTER = 500


class Publishing:
    """Publishes at one node, one message after the other; knows the longest wait.

    A node that is drained closes its clients' connections: this one goes on at the next node.
    """

    def __init__(self, brokers: list[BrokerProcess]) -> None:
        self.brokers = cycle(brokers)
        self.publisher = Publisher(next(self.brokers), STREAM)
        self.longest = 0.0
        self.count = 0
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self) -> None:
        while not self.ended.wait(0.001):
            sent = time.perf_counter()
            try:
                self.publisher.send(1)
            except ConnectionError:
                self.publisher.peer.close()
                self.publisher = Publisher(next(self.brokers), STREAM)
                self.publisher.send(1)
            self.longest = max(self.longest, time.perf_counter() - sent)
            self.count += 1

    def end(self) -> float:
        self.ended.set()
        self.thread.join()
        self.publisher.peer.close()
        return self.longest


@contextmanager
def publishing(brokers: list[BrokerProcess], waits: list[list[float]]) -> Iterator[None]:
    """Publishers at all nodes; how long they waited at most is put there when it ends."""
    running = [Publishing(brokers[at:] + brokers[:at]) for at in range(len(brokers))]
    try:
        reach(lambda: all(each.count > 10 for each in running))
        for each in running:
            each.longest = 0.0
        yield
        ends = [(each, each.count + AFTER) for each in running]
        reach(lambda: all(each.count >= end for each, end in ends))
    finally:
        waits.append([each.end() for each in running])


def ask(folder: Path, node: str, *words: str) -> Any:
    done = here(*words, "--json", "--data-dir", str(folder / f"{node}.data"))
    assert done.code == 0, done.err
    return json.loads(done.out)


def is_settled(folder: Path, wanted: set[str]) -> bool:
    """Whether these nodes have the copies, and one of them leads."""
    found = partition_of(folder, STREAM)
    is_done = set(found.get("replicas", ())) == wanted and not found["joining"] + found["leaving"]
    return is_done and found["leader"] in wanted


def transfer(folder: Path) -> None:
    found = partition_of(folder, STREAM)
    to = next(each for each in found["replicas"] if each != found["leader"])
    ask(folder, "a", "stream", "transfer", STREAM, "--to", to)
    reach(lambda: leader_of(folder, STREAM) == to)


def move(folder: Path) -> None:
    """To the node that has no copy, in place of the one that leads."""
    found = partition_of(folder, STREAM)
    wanted = [each for each in NAMES if each != found["leader"]]
    words = [word for each in wanted for word in ("--to", each)]
    ask(folder, "a", "stream", "move", STREAM, *words)
    reach(lambda: is_settled(folder, set(wanted)), timeout=120)


def drain(folder: Path) -> None:
    node = leader_of(folder, STREAM)
    ask(folder, node, "cluster", "drain")
    reach(lambda: leader_of(folder, STREAM) not in ("", node))
    ask(folder, node, "cluster", "drain", "--undo")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rows", type=int, default=200_000)
    arguments = parser.parse_args()
    print(f"compiled: {is_compiled()}")
    kinds: dict[str, Callable[[Path], None]] = {"transfer": transfer, "move": move, "drain": drain}
    with tempfile.TemporaryDirectory() as raw, ExitStack() as stack:
        folder = Path(raw)
        brokers = stack.enter_context(nodes(folder, NAMES, section(STREAM, 3, "quorum", "os")))
        reach(lambda: leader_of(folder, STREAM))
        publisher = Publisher(brokers[0], STREAM)
        for _ in range(arguments.rows // BURST):
            publisher.send(BURST)
        publisher.peer.close()
        for name, what in kinds.items():
            waits: list[list[float]] = []
            for _ in range(arguments.rounds):
                with publishing(brokers, waits):
                    what(folder)
            longest = [max(each) * 1e3 for each in waits]
            told = " ".join(f"{each:.0f}" for each in longest)
            print(f"{name:9} longest wait: median {median(longest):.0f} ms, of {told}", flush=True)


if __name__ == "__main__":
    main()
