"""Handshakes by turns, with a clock that goes only while one is under way."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.vmq.support import Clock
from vmq.core.context import Counters
from vmq.listeners.handshakes import SHARE, Handshakes


class Turns:
    """An event loop of which the test takes the turns, and handshakes that cost what it says."""

    def __init__(self) -> None:
        self.clock = Clock(1000.0)
        self.soon: list[Callable[[], None]] = []
        self.counters = Counters()
        self.handshakes = Handshakes(self.clock, self.soon.append, self.counters)
        self.done: list[str] = []

    def turn(self) -> int:
        """Returns how many handshakes went on in it."""
        before = len(self.done)
        soon = list(self.soon)
        self.soon.clear()
        for call in soon:
            call()
        return len(self.done) - before


class Shaking:
    """Stands for a connection in its handshake."""

    def __init__(self, turns: Turns, name: str, cost: float = SHARE / 3.9) -> None:
        self.turns = turns
        self.name = name
        self.cost = cost

    def go_on(self) -> None:
        self.turns.clock.advance(self.cost)
        self.turns.done.append(self.name)


@pytest.fixture
def turns() -> Turns:
    return Turns()


def hello(turns: Turns, name: str, address: str = "192.0.2.1", cost: float = SHARE / 3.9) -> Any:
    tls: Any = Shaking(turns, name, cost)
    turns.handshakes.due(tls, address)
    return tls


def test_a_turn_gives_them_its_share_and_the_rest_waits_and_is_counted(turns: Turns) -> None:
    for number in range(10):
        hello(turns, str(number))
    counts = [len(turns.done)]
    while turns.soon:
        counts.append(turns.turn())
    assert counts == [4, 4, 2]
    assert turns.done == [str(number) for number in range(10)]
    assert turns.counters.tls_handshakes_queued == 6


def test_one_that_is_longer_than_the_share_is_done_all_the_same(turns: Turns) -> None:
    for number in range(3):
        hello(turns, str(number), cost=3 * SHARE)
    assert [turns.turn() for _ in range(3)] == [1, 1, 0]


def test_addresses_take_turns(turns: Turns) -> None:
    for number in range(100):
        hello(turns, f"flood-{number}")
    before = len(turns.done)
    hello(turns, "other", "198.51.100.7")
    turns.turn()
    assert turns.done[before : before + 2] == ["flood-4", "other"]


def test_who_comes_while_others_wait_does_not_push_in(turns: Turns) -> None:
    for number in range(9):
        hello(turns, str(number))
    turns.turn()
    hello(turns, "late")
    assert turns.done[-1] == "7"
    turns.turn()
    assert turns.done[-2:] == ["8", "late"]


def test_more_of_the_same_client_is_no_second_place(turns: Turns) -> None:
    for number in range(4):
        hello(turns, str(number))
    waiting = hello(turns, "waiting")
    turns.handshakes.due(waiting, "192.0.2.1")
    while turns.soon:
        turns.turn()
    assert turns.done.count("waiting") == 1


def test_who_has_gone_costs_nothing(turns: Turns) -> None:
    for number in range(4):
        hello(turns, str(number))
    gone = [hello(turns, f"gone-{number}") for number in range(100)]
    hello(turns, "there")
    for tls in gone:
        turns.handshakes.forget(tls, "192.0.2.1")
        turns.handshakes.forget(tls, "192.0.2.1")
    turns.turn()
    assert turns.done[4:] == ["there"]


class Failing(Shaking):
    def go_on(self) -> None:
        super().go_on()
        raise RuntimeError("a defect")


def test_one_that_fails_leaves_the_others_their_turn(turns: Turns) -> None:
    tls: Any = Failing(turns, "failing")
    with pytest.raises(RuntimeError):
        turns.handshakes.due(tls, "192.0.2.1")
    hello(turns, "other")
    assert turns.done == ["failing", "other"]


def test_one_that_fails_in_its_turn_leaves_the_others_theirs(turns: Turns) -> None:
    for number in range(4):
        hello(turns, str(number))
    tls: Any = Failing(turns, "failing")
    turns.handshakes.due(tls, "192.0.2.1")
    hello(turns, "other")
    with pytest.raises(RuntimeError):
        turns.turn()
    assert turns.turn() == 1
    assert turns.done[-2:] == ["failing", "other"]


def test_while_none_waits_the_loop_is_asked_for_nothing(turns: Turns) -> None:
    for number in range(3):
        hello(turns, str(number))
    assert turns.soon == []
