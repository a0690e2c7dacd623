"""Durable sessions in slots: whatever befalls the nodes, clients get what they were promised.

More seeds: `python -m tests.simulator.sessions.run 300 --processes 2`, with `--fault`, `--most`, `--many`, `--without`.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Any

import pytest

from tests.simulator.seeds import over_seeds, seeds
from tests.simulator.sessions import faults, node, row_log
from tests.simulator.sessions.faults import ALL_KINDS, KINDS, TOGETHER
from tests.simulator.sessions.run import faulty, run
from tests.simulator.sessions.scripts import SCRIPTS
from vmq.clustering.slots import machine, turns
from vmq_cluster.raft.dots import Dot
from vmq_cluster.raft.messages import Mark

#: Seeds of which one shows what workers break that take over at once: mostly the first.
HASTY = range(8, 48)


def check(seed: int, kinds: tuple[str, ...], strict: bool = True, **options: Any) -> None:
    found = run(seed, kinds, strict, **options)
    assert faulty(found, strict) == [], found
    assert found["acknowledged"]


@pytest.mark.parametrize("kind", KINDS)
@over_seeds(1)
def test_no_fault_costs_a_promise(kind: str, seed: int) -> None:
    check(seed, (kind,), steps=200)


@pytest.mark.parametrize(
    ("kinds", "seed"),
    [
        # A subscription of a session that was ended meanwhile, asked for on its last connection and read late.
        (("halfopen", "pause"), 20),
        # Subscriptions that end on one side and are asked for on the other.
        (("split", "deaf"), 9),
        # A message for a share group that both sides had when the network split: E1.
        (("split",), 34),
        # One that was published on the other side before its subscriber subscribed: E1.
        (("split",), 59),
        # A session that a client ended while its node did not know yet that the network was split.
        (("split",), 1085),
        # A message for a share group that a member had of an owner which did not live to write that down.
        (KINDS, 1300),
        # What a part of a copy had for a client that it did not know, who finished it before another fork came.
        (KINDS, 1394),
        # A follower that was slow said that it had parts of a copy, and was taken to have all of it.
        (KINDS, 3532),
        # What a slot of this node was offered while it did not serve yet, and what was published behind that.
        (("oneway",), 1062),
        (KINDS, 1220),
        # What an owner that was held up had under way, and the next one as well, under other packet ids.
        (KINDS, 152),
        # What came of one copy after a split was sent before the older messages that came of the next one.
        (KINDS, 40466),
        # A node that was slow found itself alone, and had no copy: it said that there is no session (E1).
        (KINDS, 50049),
        # A packet id that had another message before the client answered PUBREL of a second owner.
        (("kill",), 58),
    ],
)
def test_what_seeds_have_shown_is_mended_or_an_exception(kinds: tuple[str, ...], seed: int) -> None:
    check(seed, kinds)


@pytest.mark.parametrize("script", SCRIPTS)
def test_what_an_owner_has_alone_costs_no_promise_later(script: Callable[[], Counter[str]]) -> None:
    found = script()
    assert faulty(found, strict=True) == [], found


@over_seeds(2)
def test_all_kinds_of_faults_one_after_the_other(seed: int) -> None:
    check(seed, KINDS)


@over_seeds(2)
def test_several_faults_at_once_cost_no_promise_while_each_slot_keeps_a_copy(seed: int) -> None:
    check(seed, TOGETHER, most=3)


@over_seeds(2)
def test_whatever_goes_wrong_at_once_nothing_acknowledged_is_lost(seed: int) -> None:
    check(seed, ALL_KINDS, strict=False, most=3)


@pytest.mark.parametrize(
    ("kinds", "seed"),
    [
        # The first follower of an owner took over with a copy of long ago, as if that had all that was safe.
        (("split", "kill", "deaf"), 127),
        (("split", "kill", "deaf"), 302),
        # What an owner without a current copy kept for clients whom it did not know, in a part of a copy of it.
        (("split", "kill", "deaf"), 252),
        # A session that one side ended, while its client went on with it on another connection on the other.
        (("split", "kill", "deaf"), 340),
        # A message was written anew for a client who had missed it, and not whom it was for besides: a part of a copy.
        (("split", "kill", "deaf"), 497),
        # What a client held of one owner, and another one sent it under another packet id.
        (("split", "kill", "deaf"), 388),
    ],
)
def test_what_seeds_of_many_faults_showed_is_mended(kinds: tuple[str, ...], seed: int) -> None:
    check(seed, kinds, strict=False, most=3)


@pytest.mark.parametrize(
    "options",
    [
        {"replicas": 3},
        # A client with a window of its own has it at each owner.
        {"narrow": True},
        # Nothing gets out of a mountpoint.
        {"mounted": True},
        # Workers of one host are no copies of each other: the slots of one that is killed may go to any.
        {"hosts": "xxyy"},
    ],
    ids=lambda options: next(iter(options)),
)
@over_seeds(1)
def test_the_promises_hold_whatever_is_configured(options: dict[str, Any], seed: int) -> None:
    check(seed, KINDS, **options)


def test_a_worker_that_ends_is_waited_for_where_nobody_has_its_slots(
    monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    """It is back within seconds, on a loaded machine too; whoever did not wait would begin with nothing."""
    kinds = ("kill", "handover", "disk", "halfopen")
    monkeypatch.setattr(faults, "LENGTHS", (3, 10, 30, 70))
    for seed in seeds(2):
        with subtests.test(seed=seed):
            check(seed, kinds, hosts="xxx")
    monkeypatch.setattr(machine, "HOST_WAITS", 0)
    assert any(faulty(run(seed, kinds, hosts="xxx"), strict=True) for seed in HASTY)


@over_seeds(1)
def test_a_heartbeat_of_few_slots_costs_no_promise(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """It looks at all when something is new: here at one more at most, of three."""
    monkeypatch.setattr(turns, "LOOKED_AT_ONCE", 1)
    check(seed, KINDS)


@over_seeds(3)
def test_a_look_at_slots_in_bites_costs_no_promise(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Whatever comes between two bites."""
    coin = Random()
    monkeypatch.setattr(node, "has_time", lambda: coin.random() < 0.6)
    coin.seed(seed)
    check(seed, KINDS)


def test_what_is_published_at_qos_2_is_in_a_log_once_whoever_hands_it_in_again(
    subtests: pytest.Subtests,
) -> None:
    """Its publisher's session knows the dot of its row before a node hands that in."""
    known = 0
    for seed in seeds(1):
        with subtests.test(seed=seed):
            check(seed, KINDS, logged=True)
            check(seed, TOGETHER, most=3, logged=True)
            known += run(seed, ("kill",), logged=True, steps=300)["known rows"]
    assert known, "some were handed in by two nodes"


def test_without_its_dot_such_a_row_is_there_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_log, "marks_of", _another_each_time(count(1)))
    assert any(run(seed, ("kill",), logged=True)["twice"] for seed in range(10))


def _another_each_time(numbers: Iterator[int]) -> Callable[[list[Dot]], list[Mark]]:
    return lambda _dots: [Mark("s", "b", next(numbers), 1)]
