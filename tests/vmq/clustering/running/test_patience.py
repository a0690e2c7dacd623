"""For how long publishers wait for clients of slots, before what they have sent is written."""

import asyncio

from tests.vmq.clustering.front.test_sessions import Alone
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
