"""What replicated metadata costs: python -m tests.bench.cluster [--keys 1000000]

Run it where vmq_cluster can be imported: installed, or with PYTHONPATH=.:cluster. Three nodes on LevelDB in one
process, without sockets: every frame is encoded, counted and decoded. Time is virtual, so bytes and steps are the same
in each run; CPU seconds are those of all nodes together.

- **spread**: keys written on one node until the other two have them, by broadcast.
- **join**: an empty node joins, until it has everything; the longest step is what a publisher on that loop would wait.
- **idle**: bytes of anti-entropy in a minute when nothing happens, with few keys and with all.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import deque
from collections.abc import Callable
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


def report(what: str, pump: Pump, sent: int, cpu: float) -> None:
    used = time.process_time() - cpu
    print(
        f"{what:32} {pump.sent - sent:>14,} bytes {used:>8.1f} s CPU "
        f"{pump.longest * 1000:>8.1f} ms longest step"
    )


def spread(pump: Pump, keys: int) -> None:
    sent, cpu = pump.sent, time.process_time()
    pump.longest = 0.0
    fill(pump, "a", 0, keys)
    pump.run(1)
    assert all(count(machine) == keys for machine in pump.machines.values())
    report(f"spread {keys:,} keys to 2 nodes", pump, sent, cpu)


def idle(pump: Pump, keys: int) -> int:
    pump.run(60)
    before = pump.anti_entropy
    pump.run(60)
    found = pump.anti_entropy - before
    print(f"{f'idle, {keys:,} keys':32} {found:>14,} bytes of anti-entropy a minute, 3 nodes")
    return found


def join(pump: Pump, keys: int) -> None:
    sent, cpu, begun = pump.sent, time.process_time(), pump.now
    pump.longest = 0.0
    machine = pump.add("c", join="a")
    source = pump.machines["a"]
    while not machine.metadata.clock.dominates(source.metadata.clock):
        pump.run(TICK)
        assert pump.now < begun + 600
    assert count(machine) == keys
    report(f"join of an empty node, {keys:,} keys", pump, sent, cpu)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--keys", type=int, default=1_000_000)
    keys = parser.parse_args().keys
    with tempfile.TemporaryDirectory() as folder:
        pump = Pump(Path(folder))
        pump.add("a")
        for name in "bc":
            pump.add(name, join="a")
        pump.run(3)
        spread(pump, 1000)
        few = idle(pump, 1000)
        spread(pump, min(keys, 100_000))
        pump.close()
        pump = Pump(Path(folder) / "many")
        pump.add("a")
        fill(pump, "a", 0, keys)
        pump.add("b", join="a")
        pump.run(60)
        join(pump, keys)
        many = idle(pump, keys)
        print(f"idle, many keys to few: {many / few:.2f}")
        pump.close()


if __name__ == "__main__":
    main()
