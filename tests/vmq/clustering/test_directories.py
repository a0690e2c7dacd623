"""Directories of several nodes over a network that splits: in the end all know the same, and it is what the owner says.

`VMQ_SIM_SEED=n` replays one seed, `VMQ_SIM_FACTOR=20` runs twenty times as many.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from tests.simulator.clock import EPOCH
from tests.simulator.machines import Node, Sim
from tests.simulator.network import Network
from tests.simulator.seeds import over_seeds
from tests.vmq.support import House
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.pieces import PIECE
from vmq.clustering.directory.records import SUBSCRIBERS, Record, decode_piece
from vmq.core.ports import SessionListener
from vmq_cluster.effects import Changed, Effect

IDS = ("c", "d")
NAMES = [f"t/{number}" for number in range(4 * PIECE)]
Wish = tuple[str, int, str, bool, bool]


def wishes(record: Record | None) -> Iterator[Wish]:
    if record is not None:
        for name, qos in record.subscriptions.items():
            yield (name, qos, record.node, record.clean, record.online)


class World(Sim):
    """A simulated cluster that tells each node's watchers of changes, before anything else of the step."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, network=Network(loss=0.02, duplicate=0.02))
        self.sides: dict[str, Side] = {}

    def _carry_out(self, node: Node, effects: list[Effect]) -> None:
        side = self.sides.get(node.name)
        changes = [each for each in effects if isinstance(each, Changed)]
        if side is not None and changes:
            for watcher in side.watchers:
                watcher(changes)
        super()._carry_out(node, effects)


class Side:
    """One node with its sessions; also what its directory takes for a `ClusterNode`."""

    is_running = True

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.house = House()
        self.watchers: list[Callable[[list[Changed]], None]] = []
        self.seen: dict[str, Counter[Wish]] = {each: Counter() for each in IDS}
        self.directory = Directory(
            cast("Any", self), self.follow, lambda: EPOCH + int(world.now * 1000), lambda _: None
        )
        self.directory.on_owner(self.on_owner)
        self.house.core.sessions = self.directory

    # What a directory asks of a node

    def get(self, prefix: str, key: bytes) -> bytes | None:
        return self.world[self.name].metadata.get(prefix, key)

    def items(self, prefix: str, begin: bytes = b"") -> Iterable[tuple[bytes, bytes]]:
        return self.world[self.name].metadata.items(prefix, begin)

    def put(self, prefix: str, key: bytes, value: bytes) -> None:
        self.world[self.name].metadata.put(prefix, key, value)

    def delete(self, prefix: str, key: bytes) -> bool:
        return self.world[self.name].metadata.delete(prefix, key)

    def merge_with(self, prefix: str, merge: Any) -> None:
        self.world[self.name].metadata.merge_with(prefix, merge)

    def watch_steps(self, prefix: str, watcher: Callable[[list[Changed]], None]) -> None:
        self.world[self.name].metadata.watch(prefix)
        self.watchers.append(watcher)

    # What happens

    def follow(self, _: str, client_id: str, before: Record | None, after: Record | None) -> None:
        seen = self.seen[client_id]
        seen.subtract(wishes(before))
        assert min(seen.values(), default=0) >= 0
        seen.update(wishes(after))
        self.seen[client_id] = +seen

    def on_owner(self, _: str, client_id: str, before: Record | None, after: Record | None) -> None:
        """The session is where its record says, and moves at once."""
        registry = self.house.registry
        present = registry.subscribers.get(client_id)
        told, self.house.core.sessions = self.house.core.sessions, SessionListener()
        if present is not None and (after is None or after.node != self.name):
            registry.end_session(present)
        elif present is None and after is not None and after.node == self.name:
            made = registry.create(client_id, False)
            for topic_filter, qos in after.subscriptions.items():
                registry.subscribe(made, topic_filter, qos)
        self.house.core.sessions = told

    def act(self, client_id: str) -> None:
        random = self.world.random
        registry = self.house.registry
        present = registry.subscribers.get(client_id)
        what = random.choice(["connect", "many", "many", "few", "end"])
        if what == "connect":
            if present is None:
                present = registry.create(client_id, False)
            self.directory.claim(registry, present)
        elif present is None:
            return
        elif what == "many":
            for name in random.sample(NAMES, random.randint(1, len(NAMES))):
                registry.subscribe(present, name, random.randint(0, 2))
        elif what == "few":
            for name in random.sample(NAMES, len(NAMES) - random.randint(0, 5)):
                registry.unsubscribe(present, name)
        elif random.random() < 0.3:
            registry.end_session(present)

    def flush(self) -> None:
        self.world.ask(self.name, self.directory.flush)

    def pieces(self) -> set[tuple[bytes, str]]:
        places = (decode_piece(key) for key, _ in self.items(SUBSCRIBERS))
        return {(each[0], each[1]) for each in places if each is not None}


def started(seed: int) -> tuple[World, list[Side]]:
    world = World(seed)
    for name in world.cluster(3):
        world.sides[name] = Side(world, name)
    return world, list(world.sides.values())


@over_seeds(10)
def test_who_wins_after_a_split_has_its_pieces_although_another_deleted_them(seed: int) -> None:
    world, [a, b, _] = started(seed)
    registry = a.house.registry
    here = registry.create("c", False)
    a.directory.claim(registry, here)
    for name in NAMES:
        registry.subscribe(here, name, 1)
    a.flush()
    world.until(lambda: all(len(each.pieces()) == 1 for each in world.sides.values()), 60)
    world.split([a.name], [b.name, "n002"])
    there = b.house.registry.create("c", False)
    b.directory.claim(b.house.registry, there)
    b.flush()
    world.run(5)
    assert not b.pieces()
    a.directory.claim(registry, here)
    a.flush()
    world.heal()
    for _ in range(12):
        for side in world.sides.values():
            side.flush()
        world.run(5)
    for side in world.sides.values():
        record = side.directory.record("", "c")
        assert record is not None
        assert (record.node, record.subscriptions) == (a.name, dict.fromkeys(NAMES, 1))
        assert side.seen["c"] == Counter(wishes(record))


@over_seeds(15)
def test_all_agree_with_the_owner_when_a_split_is_over(seed: int) -> None:
    world, sides = started(seed)
    names = list(world.sides)
    for _ in range(world.random.randint(5, 30)):
        if world.random.random() < 0.2:
            alone = world.random.choice(names)
            world.split([alone], [each for each in names if each != alone])
        elif world.random.random() < 0.2:
            world.network.cuts.clear()
        side = world.random.choice(sides)
        side.act(world.random.choice(IDS))
        if world.random.random() < 0.8:
            side.flush()
        world.run(world.random.choice([0.0, 0.01, 0.5, 6.0]))
    world.heal()
    for _ in range(12):
        for side in sides:
            side.flush()
        world.run(5)
    for client_id in IDS:
        records = [side.directory.record("", client_id) for side in sides]
        assert records[0] == records[1] == records[2]
        for side in sides:
            assert side.seen[client_id] == Counter(wishes(records[0]))
            found = side.house.registry.subscribers.get(client_id)
            owner = "" if records[0] is None else records[0].node
            assert (found is not None) == (owner == side.name)
            if found is not None and records[0] is not None:
                present = {name: each.qos for name, each in found.subscriptions.items()}
                assert present == records[0].subscriptions
    # What may be left of a split are pieces that nobody names: they go at the next start.
    for side in sides:
        side.directory.sweep()
        side.flush()
    world.run(30)
    for side in sides:
        named = {
            (b"\0" + client_id.encode(), record.pieces)
            for client_id in IDS
            if (record := side.directory.record("", client_id)) is not None
        }
        assert side.pieces() <= named
