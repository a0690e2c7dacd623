"""For how long publishers wait for clients of slots, before what they have sent is written."""

import asyncio

from tests.vmq.clustering.front.test_sessions import Alone
from vmq.clustering.messages.fronts import OfferTaken
from vmq.clustering.running.patience import SlotPatience
from vmq.persistence.patience import HASTY


class Waiting:
    """A node with a publisher and a client, on a loop."""

    def __init__(self) -> None:
        self.there = Alone()
        self.is_over = asyncio.Event()
        self.patience = SlotPatience(self.there.node, self.is_over.set)

    def publish(self) -> None:
        self.there.publish()
        self.patience.begin()


async def test_what_a_silent_client_leaves_unanswered_is_written_after_a_span() -> None:
    waiting = Waiting()
    waiting.publish()
    assert waiting.there.node.awaited() == 1
    await waiting.is_over.wait()
    assert waiting.there.write()["m", True] == 1
    assert waiting.there.acknowledged == 1


async def test_after_it_was_in_vain_nobody_waits_for_a_while() -> None:
    waiting = Waiting()
    waiting.publish()
    await waiting.is_over.wait()
    waiting.there.write()
    for count in range(HASTY):
        waiting.there.publish()
        assert waiting.there.write()["m", True] == 1
        assert waiting.there.acknowledged == 2 + count
    waiting.there.publish()
    assert waiting.there.node.awaited() == 1


async def test_what_nobody_waits_for_goes_at_last() -> None:
    waiting = Waiting()
    effects, taken = waiting.there.node.effects, OfferTaken(0, (1, 1), [])
    effects.later.append((2, taken))
    waiting.patience.begin_later()
    waiting.patience.begin_later()
    await waiting.is_over.wait()
    assert (effects.sent, effects.later) == ([(2, taken)], [])


async def test_owners_elsewhere_hear_after_a_span_what_may_be_late() -> None:
    waiting = Waiting()
    late = waiting.there.node.front.late
    late[8] = None  # of a connection that has gone
    waiting.patience.begin_late()
    waiting.patience.begin_late()
    await waiting.is_over.wait()
    assert late == {}


async def test_at_the_end_nobody_waits_any_more() -> None:
    waiting = Waiting()
    waiting.publish()
    waiting.there.node.effects.later.append((2, OfferTaken(0, (1, 1), [])))
    waiting.there.node.front.late[8] = None
    waiting.patience.begin_late()
    waiting.patience.begin_later()
    waiting.patience.end()
    after = Waiting()
    after.there.node.effects.later.append((2, OfferTaken(0, (1, 1), [])))
    after.patience.begin_later()  # the longest of the timers
    await after.is_over.wait()
    assert not waiting.is_over.is_set()
