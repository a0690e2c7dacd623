"""Members on several nodes, and coordinators that change: in a world of seeds, with clocks of other rates.

The log is as Raft makes it: one leader a term may add to it, an entry that was under way at an election stands or
does not, and an old leader hears of that late.
"""

from collections.abc import Callable
from functools import partial
from heapq import heappop, heappush
from itertools import count
from random import Random

import pytest

from tests.simulator.seeds import over_seeds
from vmq.streams.groups import records, talk
from vmq.streams.groups.coordinator import Answers, GroupCoordinator
from vmq.streams.groups.machine import Effect, GivePartition, LosePartition, PartitionHold
from vmq.streams.groups.share import BEAT, GroupShare

KEY = records.GroupKey("g", "s\0#\0")
PARTITIONS = 4
STEP = 0.1


class World:
    """Nodes, the log, and what the clients of the members have seen."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = 0.0
        self.calm = False
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.order = count()
        self.log: list[records.Row] = []
        self.kept = records.GroupPlaces()
        self.term = 0
        self.pending: list[Entry] = []
        self.acknowledged = dict.fromkeys(range(PARTITIONS), 0)
        self.sent: list[tuple[int, int]] = []
        #: Nobody reads on.
        self.quiet = False
        self.nodes = [self.new_node(name) for name in "abc"]
        self.elect(self.nodes[0])

    def new_node(self, name: str) -> "Node":
        return Node(self, name)

    def later(self, delay: float, what: Callable[[], None]) -> None:
        heappush(self.events, (self.now + delay, next(self.order), what))

    def delay(self) -> float:
        """Of a message: mostly short, at times so long that a lease ends meanwhile."""
        late = not self.calm and self.random.random() < 0.03
        return self.random.uniform(2, 12) if late else self.random.uniform(0.001, 0.2)

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.events and self.events[0][0] <= until:
            self.now, _, what = heappop(self.events)
            what()
            self.one_sender()
        self.now = until

    def one_sender(self) -> None:
        """At any time one node at most may send for a partition."""
        senders = [
            (number, node.name)
            for node in self.nodes
            for number in node.share.holds
            if node.clock() < node.share.lease_until
        ]
        numbers = [number for number, _ in senders]
        assert len(numbers) == len(set(numbers)), f"at {self.now}: {senders}"

    def elect(self, node: "Node") -> None:
        """Another one leads: what was under way stands, or does not."""
        pending, self.pending = self.pending, []
        for entry in pending:
            entry.stands = False
            if self.random.random() < 0.5:
                self.append(entry.rows)
        self.term += 1
        term, places = self.term, dict(self.kept.places)
        for other in self.nodes:
            if other is not node:
                self.later(self.random.uniform(0, 4), other.resign_before(term))
        node.coordinator.lead(term, places, node.clock())

    def append(self, rows: list[bytes]) -> None:
        new = [records.decode_row(each) for each in rows]
        for row in new:
            if isinstance(row, records.PutPlace):
                before = self.kept.places.get(KEY)
                for number, position in row.positions:
                    assert position <= self.acknowledged[number], "a row was skipped"
                    assert before is None or position >= before.positions.get(number, 0), "back"
        self.log += new
        self.kept.apply(new)

    def upset(self) -> None:
        """Nodes and leaders come and go; from then on it is calm."""
        for _ in range(60):
            self.random.choice(self.nodes).disturb()
            if self.random.random() < 0.1:
                self.elect(self.random.choice(self.nodes))
            self.run(self.random.uniform(0.1, 3))
        self.calm = True

    def settle(self) -> dict[int, int]:
        """All members are well, and one joins; returns how far they are once each partition has its own."""
        for node in self.nodes:
            for member in node.share.members:
                node.share.recover(member)
        self.nodes[1].share.join("last")
        self.run(25)
        return dict(self.kept.places[KEY].positions)

    def deliver(self, number: int, row: int) -> None:
        """A client gets a row."""
        place = self.kept.places.get(KEY)
        if place is not None:
            assert row >= place.positions.get(number, 0), "a committed row comes again"
        self.sent.append((number, row))


class Entry:
    def __init__(self, rows: list[bytes], term: int) -> None:
        self.rows = rows
        self.term = term
        self.stands: bool | None = None


class Node:
    """One node: its members, and the coordinator that it may be."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.rate = world.random.uniform(0.92, 1.08)
        self.boots = 1
        self.share = self.new_share()
        self.beaten = -10.0
        self.leaving: dict[int, float] = {}
        self.names = count()
        self.coordinator = GroupCoordinator(lambda: int(world.now * 1000))
        world.later(world.random.uniform(0, STEP), self.step)

    def clock(self) -> float:
        return 1000 + self.rate * self.world.now

    def new_share(self) -> GroupShare:
        share = GroupShare(KEY, self.boots)
        share.partitions = PARTITIONS
        share.starts = dict.fromkeys(range(PARTITIONS), 0)
        return share

    def step(self) -> None:
        world, random, share = self.world, self.world.random, self.share
        self.obey(share.expire(self.clock()))
        for number, hold in list(share.holds.items()):
            if number in self.leaving:
                if world.now >= self.leaving[number]:
                    del self.leaving[number]
                    share.release(hold.member, number, hold.generation)
            elif random.random() < 0.6 and not world.quiet:
                self.read(number)
        if share.is_dirty or self.clock() - self.beaten >= BEAT or random.random() < 0.1:
            self.beaten = self.clock()
            beat = share.beat(self.clock(), share.positions, share.deliveries, {})
            raw = talk.encode_saying(beat)
            for node in world.nodes:
                self.send(partial(node.hear, self.name, raw))
        self.coordinate()
        world.later(STEP, self.step)

    def read(self, number: int) -> None:
        """A member gets the next row of a partition."""
        world, share = self.world, self.share
        row = share.positions[number]
        world.deliver(number, row)
        if world.random.random() < 0.9:  # else it is not acknowledged, and comes again
            share.positions[number] = row + 1
            world.acknowledged[number] = max(world.acknowledged[number], row + 1)

    def send(self, what: Callable[[], None]) -> None:
        random = self.world.random
        if self.world.calm or random.random() > 0.1:
            self.world.later(self.world.delay(), what)
        if not self.world.calm and random.random() < 0.05:
            self.world.later(self.world.delay(), what)

    def hear(self, sender: str, raw: bytes) -> None:
        said = talk.decode_saying(raw)
        assert isinstance(said, talk.GroupBeat)
        self.coordinator.on_beat(sender, said, self.clock())
        self.coordinate()

    def coordinate(self) -> None:
        coordinator, world = self.coordinator, self.world
        if not coordinator.is_due(self.clock()):
            return
        entry = Entry(
            [records.encode_row(each) for each in coordinator.propose(self.clock())],
            coordinator.term,
        )
        world.later(world.random.uniform(0, 0.1), lambda: self.decide(entry))
        world.later(world.random.uniform(0.1, 0.5), lambda: self.learn(entry))
        if coordinator.term == world.term:
            world.pending.append(entry)

    def decide(self, entry: Entry) -> None:
        world = self.world
        if entry in world.pending:
            world.pending.remove(entry)
            entry.stands = True
            world.append(entry.rows)

    def learn(self, entry: Entry) -> None:
        coordinator = self.coordinator
        if coordinator.term != entry.term or coordinator.under_way is None:
            return
        answers = coordinator.committed() if entry.stands else coordinator.failed()
        self.tell(answers)

    def tell(self, answers: Answers) -> None:
        for name, answer in answers:
            node = next(each for each in self.world.nodes if each.name == name)
            raw = talk.encode_saying(answer)
            self.send(partial(node.on_answer, raw))

    def on_answer(self, raw: bytes) -> None:
        said = talk.decode_saying(raw)
        if isinstance(said, talk.Grant):
            self.obey(self.share.on_grant(said, self.clock()))

    def resign_before(self, term: int) -> Callable[[], None]:
        def resign() -> None:
            if self.coordinator.term < term:
                self.coordinator.resign()

        return resign

    def obey(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, GivePartition | LosePartition):
                self.leaving.pop(effect.partition, None)
            else:
                self.leaving[effect.partition] = self.world.now + self.world.random.uniform(0, 2)

    # What happens to it

    def disturb(self) -> None:
        random, share = self.world.random, self.share
        members = list(share.members)
        what = random.random()
        if what < 0.4 and len(members) < 3:
            share.join(f"{self.boots}.{next(self.names)}")
        elif what < 0.6 and members:
            share.leave(random.choice(members))
            self.leaving = {each: at for each, at in self.leaving.items() if each in share.holds}
        elif what < 0.7 and members:
            share.stall(random.choice(members))
            self.leaving = {each: at for each, at in self.leaving.items() if each in share.holds}
        elif what < 0.9 and members:
            share.recover(random.choice(members))
        elif what < 0.93:
            self.boots += 1
            self.share = self.new_share()
            self.leaving.clear()


@over_seeds(6)
def test_one_owner_no_row_skipped_none_again(seed: int) -> None:
    world = World(seed)
    world.upset()
    before = world.settle()
    shares = [node.share for node in world.nodes]
    assert sorted(each for share in shares for each in share.holds) == list(range(PARTITIONS))
    members = sum(len(share.members) for share in shares)
    most = max(len(share.of(each)) for share in shares for each in share.members)
    assert most == -(-PARTITIONS // members)
    world.run(5)
    after = world.kept.places[KEY].positions
    assert all(after[number] > before[number] for number in range(PARTITIONS))


@pytest.fixture
def world() -> World:
    found = World(1)
    found.calm = True
    return found


def answered(world: World, change: talk.ChangeGroup) -> talk.GroupChanged:
    coordinator = world.nodes[0].coordinator
    coordinator.on_change("b", change)
    rows = coordinator.propose(world.nodes[0].clock())
    world.acknowledged = dict.fromkeys(range(PARTITIONS), 1 << 40)
    coordinator_rows = [records.encode_row(each) for each in rows]
    world.log += [records.decode_row(each) for each in coordinator_rows]
    (found,) = [each for _, each in coordinator.committed() if isinstance(each, talk.GroupChanged)]
    return found


def test_an_operator_sets_and_forgets_a_group_without_members(world: World) -> None:
    share = world.nodes[1].share
    share.join("m")
    world.run(3)
    (found,) = world.nodes[0].coordinator.on_ask(talk.AskGroups(1, "g"))
    assert [each.name for each in found.groups[0].members] == ["m"]
    assert [number for number, _ in found.groups[0].holders] == list(range(PARTITIONS))
    assert "has members" in answered(world, talk.ChangeGroup(1, *KEY, [(0, 0)])).error
    share.leave("m")
    world.run(3)
    assert share.is_over
    assert answered(world, talk.ChangeGroup(2, *KEY, [(0, 7)])).error == ""
    assert world.nodes[0].coordinator.kept.places[KEY].positions == {0: 7}
    assert answered(world, talk.ChangeGroup(3, *KEY, None)).error == ""
    assert "there is no group" in answered(world, talk.ChangeGroup(4, *KEY, None)).error
    (found,) = world.nodes[0].coordinator.on_ask(talk.AskGroups(1))
    assert (found.groups, found.is_last) == ([], True)


def test_a_new_group_begins_when_all_partitions_answer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = world.nodes[1]
    node.share.starts = {0: 0}
    node.share.join("m")
    errors: list[str] = []

    def take(raw: bytes) -> None:
        said = talk.decode_saying(raw)
        assert isinstance(said, talk.Grant)
        errors.append(said.error)

    monkeypatch.setattr(node, "on_answer", take)
    world.run(1)
    assert "partition 1, 2, 3 does not answer" in errors[0]
    assert KEY not in world.kept.places


def test_all_places_are_written_again(world: World) -> None:
    """The log from `BeginAll` to its end says all that the whole log says."""
    world.nodes[1].share.join("m")
    world.run(3)
    coordinator = world.nodes[0].coordinator
    before = len(world.log)
    coordinator.rewrite()
    world.run(1)
    names = [type(each).__name__ for each in world.log[before:]]
    begin = before + names.index("BeginAll")
    assert "EndAll" in names
    again = records.GroupPlaces()
    again.apply(world.log[begin:])
    assert again.places == world.kept.places


OLD, NEW = "000000000001-a", "000000001000-b"


def said(
    coordinator: GroupCoordinator, node: str, stream: str, number: int = 1, *, held: int = 0
) -> talk.Grant:
    """What a node is granted that has a member in a stream, and says that it is somewhere in partition 0."""
    share = GroupShare(KEY, 1)
    share.begin(stream, {0: 5})
    share.number = number
    share.join("m")
    if held:
        share.holds[0] = PartitionHold("m", held)
    coordinator.on_beat(node, share.beat(0.0, {0: 70}, {}, {}), 100.0)
    coordinator.propose(100.0)
    (grant,) = [each for to, each in coordinator.committed() if to == node]
    assert isinstance(grant, talk.Grant)
    return grant


@pytest.mark.parametrize(
    ("kept", "used", "position"),
    [(OLD, 9000, 5), (NEW, 9000, 60), ("", 9000, 60), ("", 100, 5)],
    ids=["of another stream", "of this one", "of before ids, used since", "of before ids"],
)
def test_a_place_counts_in_its_own_stream_alone(kept: str, used: int, position: int) -> None:
    coordinator = GroupCoordinator(lambda: 10_000)
    coordinator.lead(1, {KEY: records.GroupPlace({0: 60}, {0: 2}, {0: 9}, used, {}, kept)}, 0.0)
    coordinator.old.clear()
    (given,) = said(coordinator, "a", NEW).given
    assert given.start == position
    place = coordinator.kept.places[KEY]
    assert (place.stream, place.positions) == (NEW, {0: position})


def test_members_in_a_deleted_stream_end_once_others_read_the_new_one() -> None:
    coordinator = GroupCoordinator(lambda: 10_000)
    coordinator.lead(1, {}, 0.0)
    (given,) = said(coordinator, "a", OLD).given
    said(coordinator, "a", OLD, 2, held=given.generation)
    assert coordinator.kept.places[KEY].positions == {0: 70}
    (new,) = said(coordinator, "b", NEW).given
    assert new.start == 5
    assert new.generation > given.generation
    late = said(coordinator, "a", OLD, 3, held=given.generation)
    assert "its stream was deleted" in late.error
    assert coordinator.kept.places[KEY].positions == {0: 5}
    assert said(coordinator, "b", "", 2).given, "a node of before says nothing of its stream"


def test_a_share_takes_nothing_into_another_stream() -> None:
    share = GroupShare(KEY, 1)
    share.begin(OLD, {0: 5})
    share.join("m")
    share.positions[0], share.holds[0] = 60, PartitionHold("m", 3)
    share.leave("m")
    share.begin(NEW, {0: 7})
    beat = share.beat(0.0, share.positions, {}, {})
    assert (beat.starts, beat.released, beat.stream) == ([(0, 7)], [], NEW)
