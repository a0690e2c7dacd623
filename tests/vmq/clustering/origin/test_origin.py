"""What a node has published, until it is safe."""

from functools import partial

import pytest

from vmq.clustering.messages.fronts import Offer, OfferTaken
from vmq.clustering.messages.slots import SlotView
from vmq.clustering.origin.origin import Origin
from vmq.clustering.origin.outbox import Publication
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.machine import SlotMachine
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.words import Address, incarnation_of

OWNER = incarnation_of(2, 1)


class World:
    """An origin on store 1; all slots are store 2's."""

    def __init__(self, max_bytes: int = 10_000) -> None:
        reach = Reach(1, "a", 1000, 100)
        reach.set_members({1: "a", 2: "b"})
        reach.on_link(2, 5)
        self.here = LocalNode(incarnation_of(1, 1), reach)
        self.view = SlotView(1, OWNER)
        self.origin = Origin(self.here, lambda slot: self.view, max_bytes)
        self.done: list[str] = []

    def publish(self, text: str, *targets: tuple[int, str], connection: int = 1) -> list[Address]:
        addresses = self.origin.reserve(list(targets))
        self.publish_to(addresses, text, connection)
        return addresses

    def publish_to(self, addresses: list[Address], text: str, connection: int = 1) -> None:
        publication = Publication(
            b"t", text.encode(), 1, connection, lambda: self.done.append(text)
        )
        self.origin.publish(addresses, publication)

    def offered(self) -> list[tuple[int, list[str]]]:
        """What goes to the owner now: number of the offer, and the messages in it."""
        self.origin.flush()
        sent, self.here.effects.sent = self.here.effects.sent, []
        found = [message for _, message in sent if isinstance(message, Offer)]
        several = [
            (each.index, [[one.payload, *one.more] for one in each.messages]) for each in found
        ]
        return [(at, [text.decode() for texts in each for text in texts]) for at, each in several]

    def take(self, *addresses: Address, again: bool = False) -> None:
        for slot, dot, _ in addresses:
            self.origin.on_taken(OfferTaken(slot, self.view.lineage, [dot], again))


@pytest.fixture
def world() -> World:
    return World()


def test_a_message_is_done_when_all_its_slots_have_it(world: World) -> None:
    one, other = world.publish("m", (3, ""), (4, ""))
    world.take(one)
    assert world.done == []
    world.take(other)
    assert world.done == ["m"]
    assert world.origin.bytes == 0


def test_subscribers_and_each_share_group_of_a_slot_get_one_of_their_own(world: World) -> None:
    addresses = world.publish("m", (3, ""), (3, "$share/g/t"), (3, "$share/h/t"))
    assert [group for _, _, group in addresses] == ["", "$share/g/t", "$share/h/t"]
    assert len({dot for _, dot, _ in addresses}) == 3
    assert world.offered() == [(0, ["m", "m", "m"])]


def test_what_is_for_nobody_is_done_at_once(world: World) -> None:
    world.publish("m")
    assert world.done == ["m"]


def test_after_a_break_it_offers_from_the_oldest(world: World) -> None:
    first, *_ = world.publish("1", (3, ""))
    world.publish("2", (3, ""))
    assert world.offered() == [(0, ["1", "2"])]
    world.publish("3", (3, ""))
    assert world.offered() == [(1, ["3"])]
    world.take(first)
    world.here.reach.on_break(2, is_dead=False)
    assert world.offered() == []
    world.here.reach.on_link(2, 6)
    world.origin.look()
    assert world.offered() == [(0, ["2", "3"])]
    world.view = SlotView(2, OWNER)
    world.origin.look()
    assert world.offered() == [(0, ["2", "3"])]
    assert world.offered() == []


def test_who_did_not_take_it_is_offered_it_again(world: World) -> None:
    world.publish("1", (3, ""))
    world.offered()
    world.origin.on_taken(OfferTaken(3, world.view.lineage, [], True))
    assert world.offered() == [(0, ["1"])]


def test_an_answer_of_an_earlier_lineage_counts_for_nothing(world: World) -> None:
    addresses = world.publish("1", (3, ""))
    world.view = SlotView(2, OWNER)
    world.origin.look()
    world.origin.on_taken(OfferTaken(3, (1, OWNER), [addresses[0][1]]))
    assert world.done == []


def test_a_repetition_takes_the_place_of_what_it_repeats(world: World) -> None:
    """The same dots by way of a later connection: nobody waits for the first, and no bytes of it stay."""
    addresses = world.publish("m", (3, ""), (4, ""))
    world.publish_to(addresses, "m", connection=2)
    assert sum(len(each) for _, each in world.offered()) == 2
    world.take(*addresses)
    assert world.done == ["m"]
    assert world.origin.bytes == 0


def test_whose_client_is_elsewhere_is_dropped(world: World) -> None:
    world.publish("1", (3, ""), connection=1)
    world.publish("2", (3, ""), connection=2)
    world.origin.drop(1)
    assert world.offered() == [(0, ["2"])]
    assert world.done == []


def test_it_says_when_publishers_have_to_wait() -> None:
    world = World(max_bytes=2000)
    addresses = []
    while not world.origin.is_full():
        addresses += world.publish("x" * 100, (3, ""))
    assert len(addresses) == 7
    world.take(addresses[0])
    assert not world.origin.is_full()


class Near(World):
    """The slots are this node's own, and nobody takes what they are offered."""

    def __init__(self) -> None:
        super().__init__()
        self.told = object()
        self.view = SlotView(1, incarnation_of(1, 1))
        owner = SlotMachine(self.here, 8)
        owner.found()
        owner.take_over(3)
        self.origin.owners = owner.owners

    def run(self, *texts: str, connection: int = 1) -> None:
        """Messages with one answer."""
        for text in texts:
            name, payload = b"t", text.encode()
            if not self.origin.grow((3, ""), name, payload, False, "", self.told):
                then = partial(self.done.append, text)
                publication = Publication(name, payload, 1, connection, then)
                self.origin.publish(self.origin.reserve([(3, "")]), publication, self.told)

    def move(self) -> None:
        """The slots are store 2's from now on."""
        self.view = SlotView(2, OWNER)
        self.origin.on_moved(3)


def test_messages_with_one_answer_are_one_wherever_their_slot_is() -> None:
    world = Near()
    world.run("1", "2", "3")
    assert world.origin.waiting() == 3
    world.publish("4", (3, ""))
    world.move()
    assert world.offered() == [(0, ["1", "2", "3", "4"])]
    places = [(3, (world.here.incarnation, place), "") for place in (1, 2, 3, 4)]
    world.take(*places[1:])
    assert world.done == ["4"]
    world.take(places[0])
    assert world.done == ["4", "1"]
    assert world.origin.bytes == world.origin.waiting() == 0


def test_what_a_client_here_has_is_done_and_counts_anew_when_it_is_offered_again() -> None:
    world = Near()
    world.run("1", "2")
    world.move()
    dot = world.here.incarnation, 1
    world.origin.had(4, dot, 1)  # of another slot
    assert world.offered() == [(0, ["1", "2"])]
    world.origin.had(3, dot, 1)
    world.origin.on_taken(OfferTaken(3, world.view.lineage, [], True))
    assert world.offered() == [(0, ["1", "2"])]
    world.origin.had(3, dot, 1)
    assert world.done == []
    world.origin.had(3, dot, 1)
    assert world.done == ["1"]
    world.origin.had(3, dot, 1)
    assert world.origin.bytes == world.origin.waiting() == 0


def test_nothing_joins_what_something_else_is_behind_or_what_is_offered_or_dropped() -> None:
    world = Near()
    world.run("1")
    world.origin.reserve([(3, "")])
    world.run("2")
    world.run("3")
    world.origin.flush()
    world.run("4")
    world.origin.drop(1)
    world.run("5", "6", connection=2)
    world.move()
    assert world.offered() == [(0, ["5", "6"])]
    assert world.done == []
    world.take(*[(3, (world.here.incarnation, place), "") for place in (6, 7)])
    assert world.done == ["5"]
    assert world.origin.bytes == 0


def test_of_a_message_for_two_slots_each_has_its_own(world: World) -> None:
    (_, one, _), (_, other, _) = world.publish("m", (3, ""), (4, ""))
    world.offered()
    world.origin.had(3, one, 1)
    assert world.done == []
    world.origin.had(4, other, 1)
    assert world.done == ["m"]
