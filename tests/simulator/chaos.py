"""Random work on a simulated cluster, and an oracle that knows all of its history."""

from functools import partial
from random import Random

from tests.simulator.machines import Sim
from vmq_cluster.clocks import Dot
from vmq_cluster.machine import Machine
from vmq_cluster.metadata.entries import Entry
from vmq_cluster.metadata.records import DELETED
from vmq_cluster.storage import after_prefix

PREFIX = "p"


def entries(machine: Machine) -> dict[bytes, Entry]:
    """Everything that a node holds, deletions included."""
    return dict(machine.metadata.entries_after(b""))


def values(machine: Machine) -> dict[bytes, bytes]:
    """What a reader sees."""
    return dict(machine.metadata.items(PREFIX))


def deletions(machine: Machine) -> list[bytes]:
    """Keys with deletions that are not yet forgotten."""
    return [key for _, key in machine.metadata.index(DELETED, (0, 0), after_prefix(DELETED))]


def live(machine: Machine) -> dict[bytes, set[Dot]]:
    """The dots of the values that a node holds."""
    return {
        key: {sibling[:2] for sibling in entry.siblings if sibling[3] is not None}
        for key, entry in entries(machine).items()
        if not entry.is_deleted
    }


class History:
    """Every write, and what it overwrote."""

    def __init__(self) -> None:
        self.values: dict[Dot, bytes | None] = {}
        self.keys: dict[Dot, bytes] = {}
        self.overwritten: set[Dot] = set()

    def write(self, sim: Sim, name: str, key: bytes, value: bytes | None) -> None:
        """A node writes or deletes a key."""
        machine = sim[name]
        before = {full: entry.dots() for full, entry in entries(machine).items()}
        counter = machine.metadata.clock.last(machine.identity.incarnation)
        if value is None:
            sim.ask(name, partial(machine.metadata.delete, PREFIX, key))
        else:
            sim.ask(name, partial(machine.metadata.put, PREFIX, key, value))
        dot = (machine.identity.incarnation, counter + 1)
        if dot not in machine.metadata.clock:
            return  # there was nothing to delete
        full = bytes([len(PREFIX)]) + PREFIX.encode() + key
        self.values[dot] = value
        self.keys[dot] = full
        self.overwritten.update(before.get(full, ()))

    def heads(self) -> dict[bytes, set[Dot]]:
        """The values that no write overwrote."""
        found: dict[bytes, set[Dot]] = {}
        for dot, value in self.values.items():
            if value is not None and dot not in self.overwritten:
                found.setdefault(self.keys[dot], set()).add(dot)
        return found

    def random_write(self, sim: Sim, names: list[str], keys: int) -> None:
        """One of the nodes that run writes or deletes one of so many keys."""
        random: Random = sim.random
        running = [name for name in names if sim.nodes[name].machine is not None]
        if running:
            key = b"%d" % random.randrange(keys)
            value = None if random.random() < 0.4 else b"%d" % random.getrandbits(20)
            self.write(sim, random.choice(running), key, value)


def is_quiet(sim: Sim) -> bool:
    """Whether all nodes that run have seen the same, hold the same, and have forgotten what was deleted."""
    machines = list(sim)
    first = machines[0]
    return all(
        machine.metadata.clock == first.metadata.clock and not deletions(machine)
        for machine in machines
    )


def check_agreement(sim: Sim) -> None:
    """All nodes that run hold the same, and nothing else is on their disks."""
    first, *others = list(sim)
    for machine in others:
        assert live(machine) == live(first), (machine.name, first.name)
        assert values(machine) == values(first)
    for machine in [first, *others]:
        held = {dot for found in live(machine).values() for dot in found}
        storage = sim.nodes[machine.name].storage
        assert sum(value != b"" for _, value in storage.scan(b"d", b"e")) == len(held)
        assert not list(storage.scan(b"t", b"u"))
