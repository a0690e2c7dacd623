"""The owner of a slot, with what others say to it."""

from collections.abc import Iterator
from typing import TypeVar

import pytest

from vmq.clustering.messages import fronts
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.slots import AskFork, Beat, ForkIncluded, NoFork, SlotStored, StatePart
from vmq.clustering.slots import words
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.limits import QueueLimits
from vmq.clustering.slots.machine import SlotMachine
from vmq.clustering.slots.owner import SlotOwner
from vmq.clustering.slots.queued import StoredMessage
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.records import all_records, load_state
from vmq.clustering.slots.register import SentMessage
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.subscribers import LONGEST
from vmq.clustering.slots.turns import SlotLacks
from vmq_cluster.errors import StorageError
from vmq_cluster.storage import MemoryStorage

T = TypeVar("T", bound=NodeMessage)

SLOT = 0
ORIGIN = words.incarnation_of(9, 1)


class World:
    """An owner on store 1; stores 2 and 3 are this test."""

    def __init__(self) -> None:
        reach = Reach(1, "a", 1000, 100)
        reach.set_members({1: "a", 2: "b", 3: "c"})
        self.disk = MemoryStorage()
        self.here = LocalNode(words.incarnation_of(1, 1), reach, part_bytes=100, disk=self.disk)
        self.slots = SlotMachine(self.here, 1)
        self.now = 0
        for store in (2, 3):
            reach.on_link(store, 10 + store)
        self.tick()
        for store in (2, 3):
            self.beat(store)
        self.slots.take_over(SLOT)
        self.tick()

    @property
    def owner(self) -> SlotOwner:
        return self.slots.owners[SLOT]

    @property
    def lineage(self) -> words.Lineage:
        return self.owner.view.lineage

    def tick(self) -> None:
        self.now += 100
        self.here.now = self.now
        self.slots.look(self.here.reach.tick(self.now))
        self.flush()

    def flush(self) -> None:
        self.slots.turns.touch(SLOT)
        self.slots.flush()
        number, writes, _ = self.here.effects.begin_commit()
        if writes:
            self.disk.write(writes, sync=False)
            self.here.effects.end_commit(number)
        self.slots.flush()

    def beat(self, store: int, boot: int = 1, is_leaving: bool = False) -> None:
        self.receive(store, Beat(words.incarnation_of(store, boot), [1, 2, 3], is_leaving))

    def receive(self, store: int, message: NodeMessage) -> None:
        assert self.slots.receive(store, message)
        self.flush()

    def sent(self, kind: type[T], store: int = 0) -> list[T]:
        """What was sent of this kind; it is looked at once."""
        effects = self.here.effects
        found = [each for to, each in effects.sent if isinstance(each, kind) and store in (0, to)]
        effects.sent = [
            (to, each)
            for to, each in effects.sent
            if not (isinstance(each, kind) and store in (0, to))
        ]
        return found

    def deny(self, *stores: int) -> None:
        """These have no fork."""
        for store in stores:
            self.receive(store, NoFork(SLOT, self.lineage, words.NO_LINEAGE, 0))

    def offer(self, *numbers: int, index: int = 0, link: int = 13) -> None:
        messages = [
            fronts.OfferedMessage((ORIGIN, number), b"t", b"x" * 50, 1) for number in numbers
        ]
        self.receive(3, fronts.Offer(SLOT, self.lineage, link, index, messages))

    def subscribe(self, client: str) -> None:
        state = self.owner.state
        register = state.register(client)
        register.session = state.stamp(0)
        state.subscribe(client, "#", 1, 0, has_forks=not self.owner.has_all_forks())
        self.flush()

    def attach(self, *done: words.Dot) -> None:
        """A connection at store 3, whose client has these messages."""
        self.receive(3, fronts.Attach(SLOT, "c", 7, 0, self.lineage, 13, [], done=list(done)))

    def to_client(self) -> tuple[list[words.Dot], int]:
        """The messages that it is sent, and how many it has that are safe."""
        found = self.sent(fronts.ToClient, 3)
        steps = [step for each in found for step in each.steps if step.kind == words.SEND]
        return [step.addresses[0][1] for step in steps], max([each.done for each in found] or [0])

    def acknowledge(self, *packets: int) -> None:
        steps = [fronts.SessionStep(words.PUBACK, packet) for packet in packets]
        self.receive(3, fronts.FromClient(SLOT, "c", 7, self.lineage, 13, steps))

    def confirm(self, store: int, is_whole: bool) -> None:
        version = self.owner.state.version
        self.receive(store, SlotStored(SLOT, self.lineage, version, is_whole))

    def hand_in(self, store: int, fork: SlotState) -> None:
        """What this store had of an earlier owner."""
        fork.close()
        records: list[tuple[bytes, bytes | None]] = list(all_records(fork).items())
        has, view = (fork.lineage, fork.version), self.owner.view
        self.receive(store, StatePart(SLOT, view, *has, 0, True, True, records, fork.lineage))

    def follow(self, store: int) -> None:
        """A follower takes all that it is sent."""
        while not self.owner.followers.are_whole((store,)):
            part = self.sent(StatePart, store)[-1]
            self.receive(store, SlotStored(SLOT, self.lineage, part.version, part.is_last))
        self.confirm(store, is_whole=True)

    def serve(self) -> int:
        """It serves, with a follower that has all; returns whose store that is."""
        self.deny(2, 3)
        (follower,) = self.owner.view.followers
        self.follow(follower)
        return follower


@pytest.fixture
def world() -> World:
    return World()


def test_a_front_is_told_how_much_of_what_its_client_has_is_safe(world: World) -> None:
    follower = world.serve()
    world.subscribe("c")
    world.attach()
    world.offer(1, 2, 3)
    assert world.to_client() == ([(ORIGIN, 1), (ORIGIN, 2), (ORIGIN, 3)], 0)
    world.confirm(follower, is_whole=True)
    packets = list(world.owner.state.registers["c"].window)
    world.acknowledge(*packets[:2])
    world.tick()
    assert world.to_client() == ([], 0)  # no follower has it
    world.confirm(follower, is_whole=True)
    world.tick()
    assert world.to_client() == ([], 2)
    world.tick()
    assert world.sent(fronts.ToClient) == []
    world.acknowledge(packets[2])
    world.offer(4, index=1)
    world.confirm(follower, is_whole=True)
    world.offer(5, index=2)
    assert world.to_client() == ([(ORIGIN, 4), (ORIGIN, 5)], 3)


def test_what_a_client_has_by_the_word_of_its_front_is_not_sent_again(world: World) -> None:
    follower = world.serve()
    world.subscribe("c")
    world.offer(1, 2)
    world.attach((ORIGIN, 1), (ORIGIN, 3))
    world.offer(3, 4, index=1)  # 3 is of an owner that was ahead
    assert world.to_client() == ([(ORIGIN, 2), (ORIGIN, 4)], 0)
    world.tick()
    world.confirm(follower, is_whole=True)
    world.tick()
    assert world.to_client() == ([], 2)


def test_a_front_gets_nothing_before_it_knows_that_its_client_is_attached(world: World) -> None:
    """Another side knew of the connection, which ends its session: that this one has messages for it, nobody knew."""
    follower = world.serve()
    world.subscribe("c")
    world.offer(1)
    world.owner.state.registers["c"].connection = 7
    world.receive(3, fronts.Attach(SLOT, "c", 7, 0, world.lineage, 13, [], is_clean=True))
    world.tick()
    assert world.to_client() == ([], 0)
    world.confirm(follower, is_whole=True)
    kinds = [type(each) for store, each in world.here.effects.sent if store == 3]
    assert kinds.index(fronts.Attached) < kinds.index(fronts.ToClient)
    assert world.to_client() == ([(ORIGIN, 1)], 0)


def test_what_a_fork_has_under_way_is_finished_with_a_client_that_is_here(world: World) -> None:
    """It holds the ids of what it has until PUBREL comes; what it lacks comes anew, in its order."""
    world.deny(2)
    world.subscribe("c")
    fork = load_state(all_records(world.owner.state))
    world.owner.state.registers["c"].lineage = world.lineage  # it was attached here since
    fork.begin((world.lineage[0] - 1, words.incarnation_of(3, 1)))
    for number in (1, 2, 3):
        fork.see((ORIGIN, number))
        fork.put("c", (ORIGIN, number), 2, StoredMessage(number, b"t", b"x", 2, ""))
    for number in (1, 2):
        fork.send("c", 100 + number, SentMessage((ORIGIN, number), False, 2))
    fork.done("c", (ORIGIN, 1))
    world.hand_in(3, fork)
    world.attach()
    (follower,) = world.owner.view.followers
    world.follow(follower)
    steps = [step for each in world.sent(fronts.ToClient, 3) for step in each.steps]
    released = [step.packet for step in steps if step.kind == words.SEND_PUBREL]
    sent = [step.addresses[0][1] for step in steps if step.kind == words.SEND]
    assert (released, sent) == ([101, 102], [(ORIGIN, 2), (ORIGIN, 3)])


def test_what_a_front_has_asked_again_replaces_no_newer_connection(world: World) -> None:
    world.serve()
    world.attach()
    newer = fronts.Attach(SLOT, "c", 8, 0, world.lineage, 12, [])
    world.receive(2, newer)
    world.sent(fronts.AttachRefused)
    world.attach()  # before its front hears that there is a newer one
    assert [each.connection for each in world.sent(fronts.AttachRefused)] == [7]
    assert world.owner.attachments.serving["c"].connection == 8


def test_nothing_of_a_fork_is_sent_while_another_may_have_what_goes_before_it(world: World) -> None:
    """Of one publisher; a node is back that has to hand in what it has."""
    world.serve()
    world.subscribe("c")
    world.attach()
    records = all_records(world.owner.state)
    world.beat(2, boot=2)
    for store, number in ((3, 2), (2, 1)):
        assert world.to_client()[0] == []
        fork = load_state(records)
        fork.begin((world.lineage[0] - 1, words.incarnation_of(store, 1)))
        fork.see((ORIGIN, number))
        fork.put("c", (ORIGIN, number), 1, StoredMessage(number, b"t", b"x", 1, ""))
        world.hand_in(store, fork)
    assert world.to_client()[0] == [(ORIGIN, 1), (ORIGIN, 2)]


def test_no_client_is_told_of_a_session_that_its_connection_began_or_ended(world: World) -> None:
    """Its front asks again if the answer does not come."""
    world.deny(2, 3)
    world.attach()
    world.attach()
    assert [each.is_present for each in world.sent(fronts.Attached, 3)] == [False, False]
    world.receive(3, fronts.Attach(SLOT, "c", 8, 0, world.lineage, 13, []))
    assert [each.is_present for each in world.sent(fronts.Attached, 3)] == [True]
    (follower,) = world.owner.view.followers
    world.follow(follower)
    for _ in range(2):
        world.receive(3, fronts.Attach(SLOT, "c", 9, 0, world.lineage, 13, [], is_clean=True))
    assert world.sent(fronts.Attached, 3) == [], "the end of the session is not safe yet"
    world.confirm(follower, is_whole=True)
    assert [each.is_present for each in world.sent(fronts.Attached, 3)] == [False, False]


class FailingDisk(MemoryStorage):
    """Does not give records of messages."""

    fails = False

    def scan(self, first: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        for key, value in super().scan(first, end):
            if self.fails and key[7:8] == b"m":
                raise StorageError("no sector there")
            yield key, value


def on_a_failing_disk() -> tuple[World, FailingDisk, int]:
    """An owner that serves with a follower, whose disk will not give all that it has."""
    world = World()
    world.disk = disk = FailingDisk()
    world.here.effects.disk = disk
    follower = world.serve()
    return world, disk, follower


def test_what_the_disk_does_not_give_costs_the_session_that_it_is_of() -> None:
    world, disk, follower = on_a_failing_disk()
    for client in ("c", "d"):
        world.subscribe(client)
    world.receive(3, fronts.Attach(SLOT, "d", 8, 0, world.lineage, 13, []))
    for number in (1, 2, 3):
        world.offer(number, index=number - 1)
        world.confirm(follower, is_whole=True)
    assert world.to_client()[0] == [(ORIGIN, number) for number in (1, 2, 3)]
    assert "c" in world.owner.state.cold, "it is away"
    disk.fails = True
    for _ in range(2):
        world.attach()
        world.tick()
    assert [each.client for each in world.sent(fronts.Attached, 3)] == ["d"]
    assert world.here.effects.unread == [("c", "no sector there")], "told once"
    world.offer(4, index=3)
    assert world.to_client()[0] == [(ORIGIN, 4)], "the other one gets what comes"
    disk.fails = False
    world.attach()
    assert world.to_client()[0] == [(ORIGIN, number) for number in (1, 2, 3, 4)]
    assert world.here.effects.unread[1:] == [("c", "")]


def test_a_session_that_the_disk_does_not_give_ends_when_it_does() -> None:
    world, disk, follower = on_a_failing_disk()
    world.subscribe("c")
    world.offer(1)
    world.confirm(follower, is_whole=True)
    disk.fails = True
    asked = fronts.Attach(SLOT, "c", 7, 0, world.lineage, 13, [], is_clean=True)
    world.receive(3, asked)
    state = world.owner.state
    assert state.registers["c"].session
    assert state.waiting("c") == 1
    disk.fails = False
    world.receive(3, asked)
    assert not state.registers["c"].session
    assert not state.waiting("c")


def test_what_comes_out_of_turn_is_not_taken(world: World) -> None:
    world.deny(2, 3)
    world.offer(1)
    world.offer(3, index=2)
    world.offer(2, index=1)
    world.offer(4, index=2, link=12)
    assert world.owner.state.context.runs == {ORIGIN: [1, 3]}


def test_a_former_followers_copy_goes_when_the_next_one_is_whole(world: World) -> None:
    world.subscribe("c")
    first = world.serve()
    for index, number in enumerate(range(1, 9)):
        world.offer(number, index=index)
    world.confirm(first, is_whole=True)
    world.owner.wish = other = 5 - first
    world.sent(ForkIncluded)
    world.tick()
    assert world.owner.view.followers == (other,)
    world.confirm(other, is_whole=False)
    assert world.sent(ForkIncluded) == []  # only the old copy has all of it, besides this one
    world.follow(other)
    assert [each.slot for each in world.sent(ForkIncluded, first)] == [SLOT]


def test_who_is_to_follow_by_plan_has_a_whole_copy_before_another_goes(world: World) -> None:
    world.subscribe("c")
    first = world.serve()
    other, places = 5 - first, world.slots.places
    places.wanted(SLOT)
    places._wanted = [(1, other)]
    for _ in range(3):
        world.tick()
        assert world.sent(ForkIncluded, first) == []
    assert list(world.owner.view.followers) == [first, other]
    world.follow(other)
    world.tick()
    assert world.owner.view.followers == (other,)
    assert world.sent(ForkIncluded, first)
    world.tick()
    assert world.owner.is_at_rest()


def test_who_is_leaving_follows_no_more_at_once_unless_nobody_else_could(world: World) -> None:
    world.deny(2, 3)
    (first,) = world.owner.view.followers
    other = 5 - first
    world.beat(first, is_leaving=True)
    assert world.owner.view.followers == (other,)
    world.beat(other, is_leaving=True)
    assert world.owner.view.followers == (other,)
    world.beat(first)
    assert world.owner.view.followers == (first,)


def test_the_next_owner_by_plan_that_dies_follows_no_more_at_once(world: World) -> None:
    world.deny(2, 3)
    (first,) = world.owner.view.followers
    world.owner.wish = 5 - first
    world.tick()
    assert world.owner.view.followers == (5 - first,)
    world.here.reach.on_break(5 - first, True)
    world.slots.look(False)
    assert world.owner.view.followers == (first,)


def test_what_a_follower_confirmed_holds_for_one_life_of_it(world: World) -> None:
    follower = world.serve()
    version = world.owner.state.version
    world.beat(follower, boot=2)
    assert not world.owner.serves(1)
    assert world.owner.safe_version() < version
    world.deny(follower)
    assert world.owner.serves(1)
    assert world.owner.safe_version() < version
    world.confirm(follower, is_whole=True)
    assert world.owner.safe_version() == version


def test_who_was_held_up_takes_nothing_until_others_deny_forks_again(world: World) -> None:
    follower = world.serve()
    world.sent(AskFork)
    world.now += 900
    world.tick()
    assert [each.slot for each in world.sent(AskFork)] == [SLOT, SLOT]
    world.offer(1)
    assert (ORIGIN, 1) not in world.owner.state.context
    known = {follower: (world.lineage, world.owner.state.version)}
    for store in (2, 3):
        has = known.get(store, (words.NO_LINEAGE, 0))
        world.receive(store, NoFork(SLOT, world.lineage, *has))
    assert world.sent(StatePart) == [], "the follower has all that it had"
    world.offer(1)
    assert (ORIGIN, 1) in world.owner.state.context


def test_a_newer_lineage_ends_this_one(world: World) -> None:
    world.deny(2, 3)
    view = world.owner.view
    newer = type(view)(view.epoch + 1, words.incarnation_of(2, 1), 1, ())
    world.receive(2, AskFork(SLOT, newer, []))
    assert world.slots.owners == {}
    assert world.slots.view(SLOT) == newer


def test_an_origin_hears_what_a_full_queue_took_when_there_is_room_or_later(world: World) -> None:
    limits = QueueLimits(1)
    limits.online, limits.pauses = 1, True
    world.here.limits.set(limits)
    follower = world.serve()
    world.receive(3, fronts.Attach(SLOT, "c", 77, 0, world.lineage, 13, []))
    world.subscribe("c")
    for index, number in enumerate((1, 2, 3)):
        world.offer(number, index=index)
    world.owner.hurry()
    world.flush()
    world.confirm(follower, is_whole=True)
    found = [dot for each in world.sent(fronts.OfferTaken) for dot in each.dots]
    assert found == [(ORIGIN, 1), (ORIGIN, 2)]
    assert world.owner.attachments.held.has("c")
    assert not world.owner.is_at_rest()
    for _ in range(LONGEST // 100 + 1):
        for store in (2, 3):
            world.beat(store)
        world.tick()
    assert [each.dots for each in world.sent(fronts.OfferTaken)] == [[(ORIGIN, 3)]]
    assert not world.owner.attachments.held.are_any()


def test_what_a_slot_lacks_is_counted_anew_when_something_happens_in_it_and_never_else() -> None:
    world = World()
    lacks = SlotLacks(world.here, world.slots.owners, world.slots.turns)

    def look() -> tuple[int, int, dict[int, int]]:
        lacks.look()
        return lacks.alone, lacks.waiting, lacks.behind

    assert look() == (0, 1, dict.fromkeys(world.owner.view.followers, 1))
    world.deny(2, 3)
    [follower] = world.owner.view.followers
    world.confirm(follower, True)
    assert [look(), look(), lacks.looked_at] == [(0, 0, {}), (0, 0, {}), 0]
    world.offer(1)
    assert look() == (0, 0, {}), "it has a second"
    assert look() == (0, 0, {follower: 1})
    world.confirm(follower, True)
    assert [look(), look(), lacks.looked_at] == [(0, 0, {}), (0, 0, {}), 0]
    world.slots.receive(2, Beat(words.incarnation_of(2, 2), [1, 2, 3]))
    assert look()[1] == 1, "what it said in another life counts no more"
