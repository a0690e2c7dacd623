"""What a durable message costs three nodes: python -m tests.bench.slots_cpu [--rate 2000] [--only two-copies]

Clusters of three nodes, with one copy of each session and with two, in alternating rounds of one run. Publishers send
at QoS 1 to durable sessions that are connected; publisher, session and client are all at node `a`: those sessions are
used whose slot is there; with `--anywhere` any, most of which have it at another node.

    paced       so many messages a second, one by one; publishers take turns
    bursts      of 100 from each publisher, the next when everything has come and is acknowledged

CPU is that of all three nodes with all their threads for a message. The ratios are those of medians of one run.
"""

import argparse
import selectors
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from tests.bench.cluster_routing import Frames
from tests.bench.durable import TIMEOUT, Cpu, Peer
from tests.support.until import reach
from vmq import is_compiled
from vmq.cli.admin.client import AdminClient
from vmq.testing.process import BrokerProcess

SLOTS: Final = 1024
NAMES: Final = ("a", "b", "c")
#: Copies of each session.
KINDS: Final = {"one-copy": 1, "two-copies": 2}
#: Seconds that nothing may be missing anywhere before a cluster counts as settled.
STILL: Final = 1.0
#: Samples that may be taken in vain: on a loaded machine a node may seem gone, and its slots go and come back.
ATTEMPTS: Final = 5


def own_rows(nodes: Sequence[BrokerProcess]) -> list[dict[str, object]]:
    """What each node says of itself as a member."""
    found = []
    for each in nodes:
        answer = AdminClient(None, str(each.data_dir), {"limit": 0}).get("/cluster/members")
        rows = answer["rows"] if isinstance(answer, dict) else answer
        assert len(rows) <= len(NAMES)
        found += [row for row in rows if row["is_self"] and len(rows) == len(nodes)]
    return found


def owned(nodes: Sequence[BrokerProcess]) -> list[object]:
    """How many slots each node has."""
    return [row.get("slots_owned") for row in own_rows(nodes)]


def wait_settled(nodes: Sequence[BrokerProcess]) -> None:
    """All nodes know each other, and each slot is served, where it is to be, and has a follower."""
    since, before = perf_counter(), ""

    def is_settled() -> bool:
        nonlocal since, before
        rows = own_rows(nodes)
        lacks = len(rows) < len(nodes)
        slots = [int(str(row["slots_owned"])) for row in rows]
        # Whoever was there first has all of them, until the others are known for a while.
        lacks = lacks or sum(slots) != SLOTS or min(slots) < SLOTS // (2 * len(nodes))
        lacks = lacks or any(row["slots_waiting"] or row["slots_without_follower"] for row in rows)
        found = str([{key: row[key] for key in row if "slots" in key} for row in rows])
        if lacks or found != before:
            since, before = perf_counter(), found
        return perf_counter() > since + STILL

    reach(is_settled, timeout=60)


@contextmanager
def cluster(folder: Path, replicas: int, **options: str) -> Iterator[list[BrokerProcess]]:
    """Three nodes, settled; `options`: more of the environment."""
    folder.mkdir()
    env = {
        "VMQ_CLUSTER__REPLICAS": str(replicas),
        "VMQ_CLUSTER__SLOTS": str(SLOTS),
        "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "-1",
        "VMQ_QUEUE__MAX_OFFLINE_MESSAGES": "-1",
        **options,
    }
    with ExitStack() as stack:
        nodes: list[BrokerProcess] = []
        for name in NAMES:
            args = [
                "--allow-anonymous",
                "--node-name",
                name,
                "--cluster-listen",
                f"ipc://{folder}/{name}",
            ]
            if nodes:
                args += ["--join", f"ipc://{folder}/a"]
            nodes.append(
                stack.enter_context(
                    BrokerProcess.start(data_dir=folder / f"{name}.data", env=env, args=args)
                )
            )
        wait_settled(nodes)
        yield nodes


def clients_at(node: BrokerProcess, count: int, anywhere: bool) -> list[str]:
    """Client ids whose sessions are at a node, when it owns their slots; `anywhere`: or another node does."""
    candidates = [f"reader-{index}" for index in range(count if anywhere else 8 * count)]
    for each in candidates:
        Peer(node.tcp, each, False).close()
    if anywhere:
        return candidates

    def found() -> list[str]:
        client = AdminClient(None, str(node.data_dir), {"limit": 0})
        rows = client.get("/sessions", local=True)
        rows = rows["rows"] if isinstance(rows, dict) else rows
        there = {
            row["client_id"] for row in rows if not row["is_online"] and not row["clean_session"]
        }
        return [each for each in candidates if each in there]

    return list(reach(lambda: here if len(here := found()) >= count else None))[:count]


class Sessions:
    """Publishers and connected durable sessions at one node."""

    def __init__(
        self,
        nodes: Sequence[BrokerProcess],
        pairs: int,
        payload: int,
        burst: int,
        anywhere: bool = False,
    ) -> None:
        self.nodes = nodes
        self.samples: dict[str, list[float]] = {}
        self.slots = owned(nodes)
        names = clients_at(nodes[0], pairs, anywhere)
        topics = [f"bench/{index:03}" for index in range(pairs)]
        self.frames = [Frames(topic, payload, 1, burst) for topic in topics]
        self.burst = burst
        self.publishers = [Peer(nodes[0].tcp, f"publisher-{topic}", True) for topic in topics]
        self.readers = [Peer(nodes[0].tcp, name, False) for name in names]
        self.ready = selectors.SelectSelector()  # that of Linux waits for whole milliseconds
        for index, topic in enumerate(topics):
            self.readers[index].subscribe(topic)
            self.ready.register(self.publishers[index].socket, selectors.EVENT_READ, (index, False))
            self.ready.register(self.readers[index].socket, selectors.EVENT_READ, (index, True))
        #: What has not come, and is not acknowledged.
        self.wanted = self.acks = 0
        self.send_bursts()

    def take(self, timeout: float) -> bool:
        """Takes what comes; whether anything did."""
        found = self.ready.select(timeout)
        for key, _ in found:
            index, is_reader = key.data
            if is_reader:
                reader = self.readers[index]
                self.wanted -= reader.take_frames(self.frames[index].one, reader.recv())
            else:
                self.acks -= self.publishers[index].take_acks()
        return bool(found)

    def finish(self) -> None:
        while self.wanted > 0 or self.acks > 0:
            assert self.take(TIMEOUT), (
                f"{self.wanted} messages are lost, {self.acks} are not acknowledged"
            )

    def send_bursts(self) -> int:
        for publisher, frames in zip(self.publishers, self.frames, strict=True):
            publisher.socket.sendall(frames.burst)
        count = self.burst * len(self.publishers)
        self.wanted += count
        self.acks += count
        self.finish()
        return count

    def bursts(self, seconds: float) -> int:
        begun, count = perf_counter(), 0
        while perf_counter() < begun + seconds:
            count += self.send_bursts()
        return count

    def paced(self, seconds: float, rate: float) -> int:
        """So many a second, each when its time has come, if there is time: what is late follows at once."""
        begun, count = perf_counter(), 0
        while (now := perf_counter() - begun) < seconds:
            while count < now * rate:
                index = count % len(self.publishers)
                self.publishers[index].socket.sendall(self.frames[index].one)
                self.wanted += 1
                self.acks += 1
                count += 1
            self.take(max(0.0, begun + count / rate - perf_counter()))
        self.finish()
        return count

    def measure(self, flow: str, seconds: float, rate: float) -> None:
        """CPU of all nodes for a message, in microseconds; once more if slots were elsewhere meanwhile."""
        for _ in range(ATTEMPTS):
            reach(lambda: owned(self.nodes) == self.slots, timeout=60)
            cpu = self._measure(flow, seconds, rate)
            if owned(self.nodes) == self.slots:
                break
        for name, value in cpu.items():
            self.samples.setdefault(name, []).append(value)

    def _measure(self, flow: str, seconds: float, rate: float) -> dict[str, float]:
        before = [Cpu.of(each.pid) for each in self.nodes]
        begun = perf_counter()
        count = self.bursts(seconds) if flow == "bursts" else self.paced(seconds, rate)
        took = perf_counter() - begun
        after = [Cpu.of(each.pid) for each in self.nodes]
        each = [
            (sum(now) - sum(then)) / count * 1e6 for then, now in zip(before, after, strict=True)
        ]
        return {flow: sum(each), flow + " owner": each[0], flow + " rate": count / took}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rate", type=float, default=2000.0)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each flow in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--payload", type=int, default=64, help="bytes")
    parser.add_argument("--burst", type=int, default=100)
    parser.add_argument("--anywhere", action="store_true", help="their slots may be anywhere")
    parser.add_argument("--durability", default="os", choices=["memory", "os", "fsync"])
    parser.add_argument("--only", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument(
        "--flows", nargs="+", default=["paced", "bursts"], choices=["paced", "bursts"]
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vmq-bench-") as folder, ExitStack() as stack:
        found: dict[str, Sessions] = {}
        for kind in options.only:
            durability = {"VMQ_STORE__DURABILITY": options.durability}
            nodes = stack.enter_context(cluster(Path(folder) / kind, KINDS[kind], **durability))
            found[kind] = Sessions(
                nodes, options.pairs, options.payload, options.burst, options.anywhere
            )
        for _ in range(options.rounds):
            for flow in options.flows:
                for each in found.values():
                    each.measure(flow, options.seconds, options.rate)
        print(
            f"{'compiled' if is_compiled() else 'interpreted'}, {options.pairs} pairs, payload {options.payload} B\n"
            f"{'':<16}{'us CPU each':>12}{'of node a':>12}{'a second':>12}{'ratio to the first':>20}"
        )
        for flow in options.flows:
            first = 0.0
            for kind, each in found.items():
                total, owner, rate = (
                    median(each.samples[flow + end]) for end in ("", " owner", " rate")
                )
                first = first or total
                print(
                    f"{flow:<7} {kind:<8}{total:>12.1f}{owner:>12.1f}{rate:>12.0f}{total / first:>20.2f}"
                )


if __name__ == "__main__":
    main()
