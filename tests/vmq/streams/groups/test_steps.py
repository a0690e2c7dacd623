"""Commits that publish, in the world of `test_coordinated`: each row is published once, whoever dies or leads.

Of some partitions the members publish what they read. What a node has on its disk outlives it: steps that wait for
an answer, and steps that are accepted and not published yet.
"""

from collections import Counter
from functools import partial

from msgspec import json

from tests.simulator.seeds import each_seed
from tests.vmq.streams.groups.test_coordinated import KEY, PARTITIONS, Node, World
from vmq.streams.groups.machine import GivePartition
from vmq.streams.groups.records import GroupPlaces, decode_row, encode_row, place_row
from vmq.streams.groups.share import GroupShare
from vmq.streams.groups.steps import MOST_STORES, PublishStep, StepMove, StoreSteps
from vmq.streams.groups.talk import GivenPartition, Grant

#: What members publish; of the others they acknowledge.
PUBLISHED = (2, 3)


class SteppingWorld(World):
    """As its base; with the rows that were published."""

    def __init__(self, seed: int) -> None:
        self.published: Counter[tuple[int, int]] = Counter()
        self.refused = 0
        super().__init__(seed)

    def new_node(self, name: str) -> Node:
        return SteppingNode(self, name)

    def publish(self, step: PublishStep) -> None:
        for each in step.moves:
            for row in range(each.since, each.to):
                self.published[each.partition, row] += 1
                assert self.published[each.partition, row] == 1, "published twice"


class SteppingNode(Node):
    """Its members publish, too."""

    world: SteppingWorld

    def __init__(self, world: SteppingWorld, name: str) -> None:
        #: By their names: steps, and whether they are known to be accepted.
        self.disk: dict[tuple[str, tuple[int, int]], tuple[bytes, bool]] = {}
        super().__init__(world, name)

    def new_share(self) -> GroupShare:
        """As after a start: with what is on the disk."""
        share = GroupShare(KEY, self.boots, f"{self.name}@disk")
        share.partitions = PARTITIONS
        share.starts = dict.fromkeys(range(PARTITIONS), 0)
        for raw, _ in self.disk.values():
            share.ask(json.decode(raw, type=PublishStep))
        for name in [name for name, (_, is_accepted) in self.disk.items() if is_accepted]:
            self.publish(share, name)
        return share

    def read(self, number: int) -> None:
        if number not in PUBLISHED:
            super().read(number)
            return
        share, random = self.share, self.world.random
        if any(number == each.partition for step in share.steps.values() for each in step.moves):
            return  # its member waits
        hold = share.holds[number]
        numbers = [number]
        if random.random() < 0.5:
            numbers = [each for each in share.of(hold.member) if each in PUBLISHED]
        moves = [
            StepMove(
                each,
                share.holds[each].generation,
                share.positions[each],
                share.positions[each] + random.randint(1, 3),
            )
            for each in numbers
        ]
        step = share.new_step(hold.member, moves)
        self.world.later(random.uniform(0, 0.3), partial(self.ask, self.boots, share, step))

    def ask(self, boots: int, share: GroupShare, step: PublishStep) -> None:
        """Its messages are on the disk."""
        if boots == self.boots:
            self.disk[step.store, step.number] = json.encode(step), False
            for each in step.moves:
                acknowledged = self.world.acknowledged
                acknowledged[each.partition] = max(acknowledged[each.partition], each.to)
            share.ask(step)

    def on_answer(self, raw: bytes) -> None:
        super().on_answer(raw)
        share = self.share
        for name, is_accepted in list(share.decided.items()):
            step = share.steps[name]
            if not is_accepted:
                self.world.refused += 1
                del self.disk[name]
                share.finish(step)
            elif not self.disk[name][1]:
                self.disk[name] = self.disk[name][0], True
                for each in step.moves:
                    hold = share.holds.get(each.partition)
                    if hold is not None and hold[:2] == (step.member, each.generation):
                        share.positions[each.partition] = each.to
                delay = self.world.random.uniform(0, 1)
                self.world.later(delay, partial(self.publish_later, self.boots, name))

    def publish_later(self, boots: int, name: tuple[str, tuple[int, int]]) -> None:
        if boots == self.boots:
            self.publish(self.share, name)

    def publish(self, share: GroupShare, name: tuple[str, tuple[int, int]]) -> None:
        step = json.decode(self.disk.pop(name)[0], type=PublishStep)
        self.world.publish(step)
        share.finish(step)


def test_each_row_is_published_once() -> None:
    refused = 0
    for seed in each_seed(6):
        with seed as number:
            world = SteppingWorld(number)
            for _ in range(60):
                world.random.choice(world.nodes).disturb()
                if world.random.random() < 0.1:
                    world.elect(world.random.choice(world.nodes))
                world.run(world.random.uniform(0.1, 3))
            world.calm = True
            for node in world.nodes:
                for member in node.share.members:
                    node.share.recover(member)
            world.nodes[1].share.join("last")
            world.run(25)
            before = dict(world.kept.places[KEY].positions)
            world.run(15)
            after = world.kept.places[KEY].positions
            assert all(after[each] > before[each] for each in PUBLISHED)
            world.quiet = True
            world.run(15)
            after = world.kept.places[KEY].positions
            for each in PUBLISHED:
                rows = sorted(row for at, row in world.published if at == each)
                assert rows == list(range(after[each]))
            assert not any(world.kept.places[KEY].steps[store].accepted for store in stores(world))
            refused += world.refused
    assert refused, "no seed has a member that lost its partition"


def stores(world: World) -> list[str]:
    return list(world.kept.places[KEY].steps)


def test_a_store_is_remembered_as_it_was_and_the_least_needed_goes() -> None:
    world = SteppingWorld(1)
    world.calm = True
    world.nodes[1].share.join("m")
    world.run(5)
    place = world.kept.places[KEY]
    assert place.steps["b@disk"].last > (0, 0)
    again = GroupPlaces()
    again.apply([decode_row(encode_row(place_row(KEY, place)))])
    assert again.places[KEY] == place
    many = {f"s{number}": StoreSteps((1, 1)) for number in range(MOST_STORES)}
    many["s0"] = StoreSteps((1, 1), ((1, 1),))
    world.nodes[0].coordinator.kept.places[KEY] = place._replace(steps=many)
    world.run(2)
    found = world.nodes[0].coordinator.kept.places[KEY].steps
    assert len(found) == MOST_STORES
    assert {"s0", "b@disk"} <= set(found)
    assert "s1" not in found


def test_what_was_given_back_is_not_taken_again() -> None:
    """A new coordinator may hear what a node said before; then two nodes would have the partition."""
    share = GroupShare(KEY, 1, "a@disk")
    share.join("m")

    def grant(serial: int) -> Grant:
        number = share.beat(0.0, {}, {}, {}).number
        return Grant(number, serial, *KEY, [GivenPartition(0, 7, "m", 5, 0, False)])

    assert share.on_grant(grant(1), 0.0) == [GivePartition("m", 0, 7)]
    share.release("m", 0, 7)
    share.on_grant(Grant(share.number, 2, *KEY, []), 0.0)
    assert share.on_grant(grant(1 << 32), 0.0) == []
    assert share.holds == {}
    assert [each.generation for each in share.beat(0.0, {}, {}, {}).released] == [7]
