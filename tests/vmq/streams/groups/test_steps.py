"""Commits that publish, in the world of `test_coordinated`: each row is published once, whoever dies or leads.

Of some partitions the members publish what they read. What a node has on its disk outlives it: steps that wait for
an answer, and steps that are accepted and not published yet. Disks are lost, too, one at a time: another node has what
was on it, and finds in the streams what was published already.
"""

from collections import Counter
from functools import partial

import pytest
from msgspec import json, structs

from tests.simulator.seeds import seeds
from tests.vmq.streams.groups.test_coordinated import KEY, PARTITIONS, Node, World
from vmq.streams.groups.machine import GivePartition
from vmq.streams.groups.records import GroupPlaces, decode_row, encode_row, place_row
from vmq.streams.groups.share import GroupShare
from vmq.streams.groups.steps import MOST_STORES, PublishStep, StepMove, StoreSteps
from vmq.streams.groups.talk import GivenPartition, Grant

#: What members publish; of the others they acknowledge.
PUBLISHED = (2, 3)

#: A store, and the number of a step in it.
StepName = tuple[str, tuple[int, int]]


class SteppingWorld(World):
    """As its base; with the rows that were published."""

    def __init__(self, seed: int, *, keeps: bool = True) -> None:
        self.published: Counter[tuple[int, int]] = Counter()
        self.refused = 0
        #: Whether another node has what is staged; and the stores that are lost, and since when.
        self.keeps = keeps
        self.lost: dict[str, float] = {}
        self.taken = 0
        #: Steps that are published, or refused.
        self.over: set[StepName] = set()
        super().__init__(seed)

    def new_node(self, name: str) -> Node:
        return SteppingNode(self, name)

    def publish(self, step: PublishStep) -> None:
        for each in step.moves:
            for row in range(each.since, each.to):
                if step.takes_over is not None and self.published[each.partition, row]:
                    continue  # it is found in its stream
                self.published[each.partition, row] += 1
                assert self.published[each.partition, row] == 1, "published twice"


class SteppingNode(Node):
    """Its members publish, too."""

    world: SteppingWorld

    def __init__(self, world: SteppingWorld, name: str) -> None:
        #: By their names: steps, and whether they are known to be accepted.
        self.disk: dict[StepName, tuple[bytes, bool]] = {}
        #: What it keeps for others.
        self.copies: dict[StepName, bytes] = {}
        self.disks = 0
        super().__init__(world, name)

    @property
    def others(self) -> "list[SteppingNode]":
        return [
            each for each in self.world.nodes if each is not self and isinstance(each, SteppingNode)
        ]

    def new_share(self) -> GroupShare:
        """As after a start: with what is on the disk."""
        share = GroupShare(KEY, self.boots, f"{self.name}@disk{self.disks or ''}")
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
        copied = partial(self.copy, self.boots, share, step)
        self.world.later(random.uniform(0, 0.2), copied)

    def copy(self, boots: int, share: GroupShare, step: PublishStep) -> None:
        """Another node has it, if it says so in time; else the next one is asked for a step of its own."""
        random = self.world.random
        if self.world.keeps and boots == self.boots:
            is_there, is_heard = random.random() < 0.9, random.random() < 0.9
            if is_there:
                random.choice(self.others).copies[step.store, step.number] = json.encode(step)
            if not (is_there and is_heard):
                share.finish(step)
                return
        self.world.later(random.uniform(0, 0.1), partial(self.ask, boots, share, step))

    def step(self) -> None:
        """Takes over what was on a disk that is lost."""
        for name in list(self.copies):
            since = self.world.lost.get(name[0])
            if since is not None and self.world.now > since + 3:
                lost = json.decode(self.copies.pop(name), type=PublishStep)
                step = self.share.new_step("heir", lost.moves, name)
                self.disk[step.store, step.number] = json.encode(step), False
                self.share.ask(step)
                self.world.taken += 1
        super().step()

    def disturb(self) -> None:
        if self.world.random.random() < 0.1:
            self.wipe()
        else:
            super().disturb()

    def wipe(self) -> None:
        """It loses its disk, unless that was the last one that has something; it may have published a part of it."""
        elsewhere = {name for each in self.others for name in (*each.disk, *each.copies)}
        if self.world.keeps and not {*self.disk, *self.copies} - self.world.over <= elsewhere:
            return
        for raw, is_accepted in self.disk.values():
            if is_accepted and self.world.random.random() < 0.5:
                step = json.decode(raw, type=PublishStep)
                self.world.publish(structs.replace(step, moves=step.moves[:1]))
        self.world.lost[self.share.store] = self.world.now
        self.disk.clear()
        self.copies.clear()
        self.disks += 1
        self.boots += 1
        self.share = self.new_share()
        self.leaving.clear()

    def end(self, name: StepName) -> None:
        """A step is published, or refused: it needs to be kept no more."""
        self.world.over.add(name)
        for each in self.others:
            self.send(partial(each.drop, name))

    def drop(self, name: StepName) -> None:
        self.copies.pop(name, None)

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
                self.end(name)
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
        self.end(name)


def test_each_row_is_published_once(subtests: pytest.Subtests) -> None:
    refused = taken = 0
    for seed in seeds(6):
        with subtests.test(seed=seed):
            world = SteppingWorld(seed)
            world.upset()
            before = world.settle()
            world.run(15)
            after = world.kept.places[KEY].positions
            assert all(after[each] > before[each] for each in PUBLISHED)
            world.quiet = True
            world.run(15)
            after = world.kept.places[KEY].positions
            for each in PUBLISHED:
                rows = sorted(row for at, row in world.published if at == each)
                assert rows == list(range(after[each]))
            there = [store for store in stores(world) if store not in world.lost]
            assert not any(world.kept.places[KEY].steps[store].accepted for store in there)
            refused += world.refused
            taken += world.taken
    assert refused, "no seed has a member that lost its partition"
    assert taken, "no seed has a disk that is lost"


def test_without_a_second_host_a_disk_takes_rows_with_it() -> None:
    missing = 0
    for number in range(1, 7):
        world = SteppingWorld(number, keeps=False)
        world.upset()
        world.quiet = True
        world.run(30)
        after = world.kept.places[KEY].positions
        missing += sum(after[each] for each in PUBLISHED) - len(world.published)
    assert missing > 0


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
    while world.nodes[0].coordinator.under_way is not None:
        world.run(0.05)
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
