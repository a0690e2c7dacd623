"""What copies of a stream cost: python -m tests.bench.log_copies [--seconds 2] [--rounds 3]

One node, and three nodes with a stream for each of `acks` and `durability`; all on this machine, so the CPU of all
nodes counts. A publisher at QoS 1 sends in bursts of 1,000, each after the PUBACKs of the last; and 1,000 messages a
second, whatever is acknowledged, by chance as a thousand devices would, which do not know of each other (a Poisson
process), with the time from each PUBLISH to its PUBACK.
Ratios are to the stream of one node, of the same round. A stream has two rows: its leader is at the publisher's node
("own"), or at another one ("other"), which costs more.

Then the leader of the stream is killed while one message after the other is published at another node: the longest
time without a PUBACK is how long nothing could be published. Likewise with a leader that is stopped (SIGSTOP), which
nobody notices but by its silence. The bars: CPU 2.5 times in bursts and 4 times paced, p50 3 ms; 1 s and 5 s.
"""

import argparse
import json
import os
import select
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import accumulate, count
from pathlib import Path
from random import Random
from statistics import median, quantiles
from typing import Any, NamedTuple

from tests.bench.durable import Cpu, Peer
from tests.support.until import reach
from tests.support.wire import publish_packet
from tests.vmq.cli.program import here
from vmq import is_compiled
from vmq.testing.process import BrokerProcess

BURST = 1000
PACE = 0.001
ACKS = ("none", "leader", "quorum")
DURABILITY = ("memory", "os", "fsync")
#: Who leads a stream while the publisher is at node a.
LEADERS = {"own": "a", "other": "b"}
TIMEOUT = 60.0
#: Of publishers: they are clients of one cluster.
NUMBERS = count()
HEARTBEATS = "heartbeat_interval = 0.5\nheartbeat_timeout = 2.0\n"


class Figures(NamedTuple):
    """CPU of all nodes in microseconds a message, in bursts and paced; milliseconds from PUBLISH to PUBACK."""

    burst: float
    paced: float
    p50: float
    p99: float


def section(name: str, replicas: int, acks: str, durability: str) -> str:
    return (
        f'[streams.{name}]\nfilters = ["{name}/#"]\nreplicas = {replicas}\nacks = "{acks}"\n'
        f'durability = "{durability}"\n'
    )


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
def nodes(folder: Path, names: str, streams: str) -> Iterator[list[BrokerProcess]]:
    with ExitStack() as stack:
        brokers: list[BrokerProcess] = []
        for name in names:
            join = f'["ipc://{folder}/{names[0]}"]' if brokers else "[]"
            brokers.append(stack.enter_context(node(folder, name, join, HEARTBEATS + streams)))
        for broker in brokers:
            for name in names:
                if broker is not brokers[names.index(name)]:
                    broker.wait_log(f"node up name={name}", TIMEOUT)
        yield brokers


def partition_of(folder: Path, stream: str, node: str = "a") -> dict[str, Any]:
    """The stream's partition, as a node sees it; empty if that does not answer."""
    done = here("stream", "show", stream, "--json", "--data-dir", str(folder / f"{node}.data"))
    found: dict[str, Any] = json.loads(done.out)["partitions"][0] if done.code == 0 else {}
    return found


def leader_of(folder: Path, stream: str) -> str:
    """Who leads the stream's partition, as one node sees it; "" if nobody does."""
    return str(partition_of(folder, stream).get("leader", ""))


def lead(folder: Path, stream: str, node: str) -> None:
    """Has a node lead the stream's partition; returns when it does, as the publisher's node sees it."""
    done = here("stream", "transfer", stream, "--to", node, "--data-dir", str(folder / "a.data"))
    assert done.code == 0, done.err
    reach(lambda: leader_of(folder, stream) == node)


def has_all(folder: Path, stream: str) -> bool:
    """Whether no copy lacks anything that the leader has."""
    name = leader_of(folder, stream)
    return bool(name) and partition_of(folder, stream, name).get("behind") == {}


class Publisher:
    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.peer = Peer(broker.tcp, f"{topic}-{next(NUMBERS)}", clean=True)
        self._topic = f"{topic}/t"
        self._next = 0

    def frame(self) -> bytes:
        self._next = self._next % 60_000 + 1
        return publish_packet(self._topic, b"x" * 64, qos=1, packet_id=self._next)

    def send(self, count: int) -> None:
        """So many messages; returns when all are acknowledged."""
        self.peer.socket.sendall(b"".join(self.frame() for _ in range(count)))
        acknowledged = 0
        while acknowledged < count:
            acknowledged += self.peer.take_acks()

    def keep_pace(self, count: int) -> list[float]:
        """So many messages, `PACE` seconds apart on average; how many milliseconds each waited for its PUBACK."""
        sent: list[float] = []
        waited: list[float] = []
        chance = Random(count)
        due = list(accumulate(chance.expovariate(1 / PACE) for _ in range(count)))
        begun = time.perf_counter()
        while len(waited) < count:
            patience = TIMEOUT
            if len(sent) < count:
                patience = begun + due[len(sent)] - time.perf_counter()
                if patience <= 0:
                    sent.append(time.perf_counter())
                    self.peer.socket.sendall(self.frame())
                    continue
            ready, _, _ = select.select([self.peer.socket], [], [], patience)
            if ready:
                acknowledged = sent[len(waited) :][: self.peer.take_acks()]
                waited += [(time.perf_counter() - each) * 1e3 for each in acknowledged]
            elif len(sent) == count:
                raise TimeoutError(f"{count - len(waited)} messages are not acknowledged")
        return waited


def cpu(brokers: list[BrokerProcess]) -> float:
    return sum(sum(Cpu.of(each.pid)) for each in brokers)


def measure(brokers: list[BrokerProcess], stream: str, seconds: float) -> Figures:
    publisher = Publisher(brokers[0], stream)
    publisher.send(BURST)
    before, begin, count = cpu(brokers), time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        publisher.send(BURST)
        count += BURST
    burst = (cpu(brokers) - before) * 1e6 / count
    before = cpu(brokers)
    times = publisher.keep_pace(int(seconds / PACE))
    paced = (cpu(brokers) - before) * 1e6 / len(times)
    publisher.peer.close()
    return Figures(burst, paced, median(times), quantiles(times, n=100)[98])


def pause(folder: Path, brokers: list[BrokerProcess], stream: str, how: signal.Signals) -> float:
    """Seconds for which nothing is acknowledged at another node when the leader gets a signal."""
    names = "abc"
    name = leader_of(folder, stream)
    leader = brokers[names.index(name)]
    other = next(each for each in brokers if each is not leader)
    publisher = Publisher(other, stream)
    publisher.send(10)
    longest, end = 0.0, time.perf_counter() + 10
    os.kill(leader.pid, how)
    while time.perf_counter() < end:
        sent = time.perf_counter()
        publisher.send(1)
        longest = max(longest, time.perf_counter() - sent)
    publisher.peer.close()
    if how == signal.SIGSTOP:
        os.kill(leader.pid, signal.SIGCONT)
        reach(lambda: has_all(folder, stream))
    return longest


def report(name: str, one: list[Figures], found: list[Figures]) -> None:
    columns = [median(each) for each in zip(*found, strict=True)]
    burst = median(two.burst / single.burst for single, two in zip(one, found, strict=True))
    paced = median(two.paced / single.paced for single, two in zip(one, found, strict=True))
    print(
        f"{name:22} {columns[0]:8.1f} us {burst:5.2f}x {columns[1]:8.1f} us {paced:5.2f}x"
        f" {columns[2]:8.2f} ms {columns[3]:8.2f} ms",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    print(f"compiled: {is_compiled()}")
    kinds = [(acks, durability) for acks in ACKS for durability in DURABILITY]
    streams = "".join(section(f"{a}-{d}", 3, a, d) for a, d in kinds)
    with tempfile.TemporaryDirectory() as raw, ExitStack() as stack:
        folder = Path(raw)
        single = stack.enter_context(nodes(folder, "s", section("one", 1, "leader", "os")))
        three = stack.enter_context(nodes(folder, "abc", streams))
        reach(lambda: all(leader_of(folder, f"{a}-{d}") for a, d in kinds))
        found: dict[str, list[Figures]] = {}
        for _ in range(arguments.rounds):
            found.setdefault("one", []).append(measure(single, "one", arguments.seconds))
            for a, d in kinds:
                stream = f"{a}-{d}"
                for where, node in LEADERS.items():
                    lead(folder, stream, node)
                    figures = measure(three, stream, arguments.seconds)
                    found.setdefault(f"{stream} {where}", []).append(figures)
        print(f"{'stream':22} {'in bursts':>18} {'paced':>18} {'p50':>11} {'p99':>11}")
        for name, rounds in found.items():
            report(name, found["one"], rounds)
        silent = pause(folder, three, "quorum-os", signal.SIGSTOP)
        print(f"leader stopped: nothing is acknowledged for {silent:.2f} s")
        killed = pause(folder, three, "quorum-os", signal.SIGKILL)
        print(f"leader killed: nothing is acknowledged for {killed:.2f} s")


if __name__ == "__main__":
    main()
