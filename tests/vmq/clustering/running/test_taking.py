"""What other nodes say of slots is taken in bites: in order, others in between, and nothing of a link that is over."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.support.until import until
from tests.vmq.clustering.front.test_sessions import Alone
from tests.vmq.clustering.running.slotted import service, slotted
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.slots import AskFork, Beat, SlotView
from vmq.clustering.running import taking
from vmq.clustering.running.taking import BITE, MOST_FRAMES, SlotIntake
from vmq.clustering.slots.words import incarnation_of

#: Messages that a bite has here: the clock goes on when it is looked at.
_OF_A_BITE = 10
_STORES = {"b": 2, "c": 3}


@dataclass
class Turn:
    """A turn of the loop: the slots that are owned at its end, looks for time, and slots that were compared."""

    owned: int = 0
    looks: int = 0
    compared: list[int] = field(default_factory=list)


class Taken:
    """A node on a loop whose clock goes on with each look; it hears of slots, one after the other, whose they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        ticks = count()
        loop = asyncio.get_running_loop()
        monkeypatch.setattr(loop, "time", lambda: next(ticks) * BITE / (_OF_A_BITE - 0.5))
        self._machines = Alone().node
        self.turns = 0
        self.intake = SlotIntake(self._machines, _STORES.get, lambda: 0, self._carry_out)

    def _carry_out(self) -> None:
        self.turns += 1

    def say(self, peer: str, *slots: int) -> None:
        view = SlotView(1, incarnation_of(_STORES[peer], 1))
        messages: list[NodeMessage] = [AskFork(slot, view, []) for slot in slots]
        self.intake.take(peer, messages)

    def slots(self, most: int = 10_000) -> list[int]:
        """Those of which it knows, in the order in which it learnt of them; its own aside."""
        return [slot for slot in self._machines.slots.views if 0 < slot < most]

    async def turns_until(self, holds: Callable[[], bool]) -> list[int]:
        """How many it takes in each turn of the loop until something holds."""
        counts, before = [len(self.slots())], len(self.slots())
        while not holds():
            await asyncio.sleep(0)
            counts.append(len(self.slots()) - before)
            before = len(self.slots())
        return counts


async def test_a_thousand_messages_are_taken_in_bites_in_order_and_peers_in_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken = Taken(monkeypatch)
    taken.say("b", *range(1, 600))
    taken.say("b", *range(600, 1001))
    taken.say("c", *range(10_001, 10_004))
    counts = await taken.turns_until(lambda: len(taken.slots(20_000)) == 1003)
    assert taken.slots() == list(range(1, 1001))
    assert max(counts) <= _OF_A_BITE
    assert taken.turns >= 1000 // _OF_A_BITE - 1
    assert 10_003 in taken.slots(20_000)[: 3 * _OF_A_BITE]


async def test_of_a_link_that_breaks_nothing_more_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Taken(monkeypatch)
    taken.say("b", *range(1, 100))
    taken.say("c", 200)
    taken.intake.lose("b")
    had = taken.slots()
    taken.say("b", 300)  # in the link's next life
    await taken.turns_until(lambda: 300 in taken.slots())
    assert taken.slots() == [*had, 200, 300]


async def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = Taken(monkeypatch)
    for first in range(1, 2001, 100):
        taken.say("b", *range(first, first + 100))
    assert len(taken.slots()) >= 2000 - 100 * MOST_FRAMES
    taken.intake.end()
    had = taken.slots()
    for _ in range(3):
        await asyncio.sleep(0)
    assert taken.slots() == had == list(range(1, len(had) + 1))


async def test_a_service_takes_nothing_of_a_link_that_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_one = SlotIntake._take_one
    stamps: list[int] = []

    def noted(self: SlotIntake, peer: str, store: int, message: NodeMessage) -> None:
        if isinstance(message, Beat):
            stamps.append(message.clock)
        take_one(self, peer, store, message)

    async with slotted(tmp_path) as nodes:
        a, b = service(nodes["a"]), service(nodes["b"])
        first = a.here.time() + 10**9
        last = first + 1000
        monkeypatch.setattr(taking, "BITE", 0.0)  # one message a turn
        monkeypatch.setattr(SlotIntake, "_take_one", noted)

        def say(*clocks: int) -> bool:
            for clock in clocks:
                b.links.send("a", Beat(b.here.incarnation, [a.store], clock=clock))
            b.links.flush()
            return clocks[-1] in stamps

        say(*range(first, last))  # in one frame
        await until(lambda: first in stamps)
        had, life = max(stamps), a.links.life("b")
        a.links.renew("b")
        await until(lambda: a.links.life("b") == b.links.life("a") not in (0, life))
        await until(lambda: say(last))
        assert not set(stamps).intersection(range(had + 1, last))


async def test_who_takes_slots_over_serves_clients_between_any_two(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with slotted(tmp_path) as nodes:
        slots, loop = service(nodes["a"]).machines.slots, asyncio.get_running_loop()
        agreement = service(nodes["a"])._agreement
        assert agreement is not None
        monkeypatch.setattr("vmq.clustering.running.agreement.BITE", 0)
        turns: list[Turn] = [Turn()]

        def next_turn() -> None:
            turns[-1].owned = len(slots.owners)
            turns.append(Turn())
            loop.call_soon(next_turn)

        def has_time() -> bool:
            turns[-1].looks += 1
            return turns[-1].looks == 1

        def compare(slot: int, *rest: Any, compare: Any = agreement._compare) -> None:
            turns[-1].compared.append(slot)
            compare(slot, *rest)

        monkeypatch.setattr(agreement, "_compare", compare)
        monkeypatch.setattr(slots.here, "has_time", has_time)
        next_turn()
        before = turns[0].owned
        await nodes.kill("b")
        await until(lambda: len(slots.owners) == slots.slots and not agreement._fresh)
        owned = [each.owned for each in turns[:-1]]
        assert owned[-1] - before > 1
        assert max(b - a for a, b in pairwise(owned)) == 1
        assert max(len(each.compared) for each in turns) == 1
