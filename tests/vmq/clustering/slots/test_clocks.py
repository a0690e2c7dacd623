"""Clocks that are wrong by hours, or jump: nothing ends early, and nobody waits longer."""

import pytest

from tests.vmq.clustering.slots.test_owner import ORIGIN, World
from vmq.clustering.messages.fronts import OfferTaken
from vmq.clustering.messages.slots import Beat
from vmq.clustering.slots.subscribers import LONGEST
from vmq.clustering.slots.words import incarnation_of

HOUR = 3_600_000
CLIENT = "c"
#: Before it, no clock shows anything.
BEGIN = 1_000 * HOUR


class Clocks(World):
    """A slot's owner, store 1, and two others; each has a clock, and a client is away."""

    def __init__(self) -> None:
        super().__init__()
        self.deny(2, 3)
        self.here.limits.all.expiry = HOUR
        self.show(0, 0, 0)
        self.subscribe(CLIENT)
        self.show(0, 0, 0)

    def show(self, *hours: float) -> None:
        """So many hours after the beginning it is by the clocks; all have heard of the latest stamp."""
        own, *others = [BEGIN + int(each * HOUR) for each in hours]
        self.here.now = own
        for store, now in enumerate(others, 2):
            self.receive(store, Beat(incarnation_of(store, 1), [1, 2, 3], False, now, now))
        self.owner.look()

    @property
    def has_session(self) -> bool:
        return bool(self.owner.state.registers[CLIENT].session)

    @property
    def has_message(self) -> bool:
        return (ORIGIN, 1) in self.owner.state.messages


@pytest.mark.parametrize("wrong", [0, 1, 2], ids=["its own", "another's", "a third one"])
@pytest.mark.parametrize("hours", [6, -6])
def test_one_wrong_clock_ends_no_session_early_and_keeps_none(wrong: int, hours: int) -> None:
    clocks = Clocks()

    def shown(passed: float) -> list[float]:
        return [passed + hours * (which == wrong) for which in range(3)]

    clocks.show(*shown(0.1))
    clocks.show(*shown(0.9))
    assert clocks.has_session
    clocks.show(*shown(1.1))
    assert not clocks.has_session


def test_of_two_clocks_the_earlier_one_counts() -> None:
    clocks = Clocks()
    clocks.here.reach.set_members({2: "b"})
    clocks.deny(2)
    clocks.show(6, 0.9)
    clocks.show(0.9, 6)
    assert clocks.has_session
    clocks.show(1.1, 6)
    assert not clocks.has_session


@pytest.mark.parametrize("wrong", [0, 1])
def test_no_message_is_too_old_by_one_clock_that_is_wrong(wrong: int) -> None:
    clocks = Clocks()
    clocks.here.limits.all.expiry = 0
    clocks.here.limits.all.age = HOUR
    clocks.offer(1)
    clocks.show(*[6 * (which == wrong) for which in range(3)])
    assert clocks.has_message
    clocks.show(1.1, 1.1, 1.1)
    assert not clocks.has_message


def test_whoever_waits_for_room_waits_no_longer_when_the_clock_is_set_back() -> None:
    clocks = Clocks()
    clocks.now = clocks.here.now
    clocks.tick()
    clocks.deny(2, 3)
    (follower,) = clocks.owner.view.followers
    clocks.follow(follower)
    clocks.owner.attachments.held.hold(CLIENT, 3, (ORIGIN, 1))
    clocks.now -= 6 * HOUR
    clocks.tick()
    assert clocks.sent(OfferTaken) == []
    for _ in range(LONGEST // 100):
        clocks.tick()
        clocks.beat(2)
        clocks.beat(3)
    clocks.owner.look()
    assert [each.dots for each in clocks.sent(OfferTaken)] == [[(ORIGIN, 1)]]
