"""What the cluster costs, with a bar for each figure: python -m tests.bench.cluster [--keys 1000000]

Run it where vmq can be imported: installed, or with PYTHONPATH=.:hooks:plugins:cluster. It fails if it misses a bar.

Of replicated metadata: nodes on LevelDB in one process, without sockets; every frame is encoded, counted and decoded.
Time is virtual, so bytes and steps are the same in each run; CPU seconds are those of all nodes together.

- **spread**: keys written on one node until the other two have them, by broadcast.
- **join**: an empty node joins, until it has everything; the longest step is what a publisher on that loop would wait.
- **idle**: bytes of anti-entropy in a minute when nothing happens, with few keys and with all.
- **redundancy**: of 16 nodes, once the tree has formed: payloads sent per node that needed one, less one (RMR of the
  paper on Plumtree).

What a publish to another node costs is in `cluster_routing`, what subscriptions and all else grow with in `scaling`.
"""

import argparse
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

from vmq_cluster.effects import Contact, Effect, Transmit
from vmq_cluster.leveldb import LevelStorage
from vmq_cluster.machine import Machine
from vmq_cluster.messages import SyncBatch, SyncRequest, decode, encode
from vmq_cluster.options import Options

#: Writes that one pass of a loop makes.
PASS = 100
#: Seconds between two ticks.
TICK = 0.1
VALUE = b"v" * 60
#: What one step may take on a loop that has clients to serve.
LONGEST_STEP_MS = 100


class Pump:
    """Nodes that hear each other at once."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now = 0.0
        self.machines: dict[str, Machine] = {}
        self.storages: list[LevelStorage] = []
        self._frames: deque[tuple[str, bytes]] = deque()
        self.sent = 0
        self.anti_entropy = 0
        #: The longest that one call of a machine took, in CPU seconds.
        self.longest = 0.0

    def add(self, name: str, join: str = "") -> Machine:
        storage = LevelStorage(self.folder / name)
        self.storages.append(storage)
        machine = Machine(name, name, storage, Options(), Random(name), lambda: 10**12, b"boot")
        self.machines[name] = machine
        self._carry_out(machine.start(self.now))
        if join:
            machine.join(join)
            self.flush(name)
        return machine

    def flush(self, name: str) -> None:
        self._carry_out(self.machines[name].flush(self.now))
        self._deliver()

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += TICK
            for machine in self.machines.values():
                self._timed(machine.tick, self.now)
            self._deliver()

    def close(self) -> None:
        for storage in self.storages:
            storage.close()

    def _deliver(self) -> None:
        while self._frames:
            name, raw = self._frames.popleft()
            frame = decode(raw)
            if any(isinstance(each, SyncRequest | SyncBatch) for each in frame.messages):
                self.anti_entropy += len(raw)
            self._timed(self.machines[name].receive, frame, self.now)

    def _timed(self, call: Callable[..., list[Effect]], *arguments: object) -> None:
        begun = time.thread_time()
        effects = call(*arguments)
        self.longest = max(self.longest, time.thread_time() - begun)
        self._carry_out(effects)

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Transmit | Contact):
                name = effect.peer if isinstance(effect, Transmit) else effect.address
                raw = encode(effect.frame)
                self.sent += len(raw)
                self._frames.append((name, raw))


def fill(pump: Pump, name: str, first: int, keys: int) -> None:
    machine = pump.machines[name]
    for number in range(first, first + keys):
        machine.metadata.put("subscriber", b"client-%08d" % number, VALUE)
        if number % PASS == PASS - 1:
            pump.flush(name)
    pump.flush(name)


def count(machine: Machine) -> int:
    return sum(1 for _ in machine.metadata.items("subscriber"))


class Table:
    """Figures, and whether each keeps its bar."""

    def __init__(self) -> None:
        self.missed: list[str] = []

    def row(self, what: str, figure: float, unit: str, bar: float | None = None) -> None:
        """One figure, which is to be at most the bar."""
        verdict = ""
        if bar is not None:
            verdict = f"at most {bar:,g}: " + ("kept" if figure <= bar else "MISSED")
            if figure > bar:
                self.missed.append(what)
        text = f"{figure:,.0f}" if figure >= 100 else f"{figure:,.2f}"
        print(f"{what:44}{text:>14} {unit:8}{verdict}", flush=True)

    def cost(self, what: str, pump: Pump, sent: int, cpu: float) -> None:
        """What the nodes of a pump spent since it had sent so much, and this process had used so much."""
        self.row(what, pump.sent - sent, "bytes")
        self.row("", time.process_time() - cpu, "s CPU")
        self.row("  longest step", pump.longest * 1000, "ms", LONGEST_STEP_MS)


def spread(table: Table, pump: Pump, keys: int) -> None:
    sent, cpu = pump.sent, time.process_time()
    pump.longest = 0.0
    fill(pump, "a", 0, keys)
    pump.run(1)
    assert all(count(machine) == keys for machine in pump.machines.values())
    table.cost(f"spread {keys:,} keys to 2 nodes", pump, sent, cpu)


def idle(table: Table, pump: Pump, keys: int) -> int:
    pump.run(60)
    before = pump.anti_entropy
    pump.run(60)
    found = pump.anti_entropy - before
    table.row(f"idle, {keys:,} keys, 3 nodes, a minute", found, "bytes")
    return found


def join(table: Table, pump: Pump, keys: int) -> None:
    sent, cpu, begun = pump.sent, time.process_time(), pump.now
    pump.longest = 0.0
    machine = pump.add("c", join="a")
    source = pump.machines["a"]
    while not machine.metadata.clock.dominates(source.metadata.clock):
        pump.run(TICK)
        assert pump.now < begun + 600
    assert count(machine) == keys
    table.cost(f"join of an empty node, {keys:,} keys", pump, sent, cpu)


def redundancy(table: Table, pump: Pump, nodes: int, writes: int) -> None:
    names = [f"n{number:02}" for number in range(nodes)]
    for name in names:
        pump.add(name, join=names[0] if name != names[0] else "")
    pump.run(5)

    def write(first: int) -> None:
        for number in range(first, first + writes):
            # From everywhere: all senders share one tree.
            name = names[number % nodes]
            pump.machines[name].metadata.put("bench", b"%d" % number, VALUE)
            pump.flush(name)

    write(0)
    before = sum(machine.plumtree.counters.pushed for machine in pump.machines.values())
    write(writes)
    pushed = sum(machine.plumtree.counters.pushed for machine in pump.machines.values()) - before
    pump.run(1)
    table.row(
        f"redundancy of broadcasts, {nodes} nodes", pushed / writes / (nodes - 1) - 1, "", 0.05
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    keys: int = parser.parse_args().keys
    table = Table()
    with tempfile.TemporaryDirectory() as folder, closing(Pump(Path(folder) / "tree")) as pump:
        redundancy(table, pump, 16, 320)
    with tempfile.TemporaryDirectory() as folder, closing(Pump(Path(folder))) as pump:
        pump.add("a")
        for name in "bc":
            pump.add(name, join="a")
        pump.run(3)
        spread(table, pump, 1000)
        few = idle(table, pump, 1000)
        spread(table, pump, min(keys, 100_000))
    with tempfile.TemporaryDirectory() as folder, closing(Pump(Path(folder))) as pump:
        pump.add("a")
        fill(pump, "a", 0, keys)
        pump.add("b", join="a")
        pump.run(60)
        join(table, pump, keys)
        many = idle(table, pump, keys)
    table.row("  many keys to few", many / few, "", 2)
    if table.missed:
        sys.exit("missed: " + ", ".join(each.strip() for each in table.missed))


if __name__ == "__main__":
    main()
