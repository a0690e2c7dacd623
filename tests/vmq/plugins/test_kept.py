"""Kept verdicts hold for the calls that they are meant for, and for no others."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vmq_hooks import Cache, Message, Peer, SubscriberId, Subscription

from tests.vmq.support import Clock
from vmq.plugins.kept import FOREVER, MISSING, SHAPES, KeptVerdicts, together

FACTS = ("username", "client_id", "topic", "qos", "retain")


def publish(
    user: str | None = "u", client: str = "c", topic: str = "t", qos: int = 0, retain: bool = False
) -> tuple[Any, ...]:
    return (user, SubscriberId(client), Message(topic, b"x", qos, retain))


def keep(kept: KeptVerdicts, arguments: tuple[Any, ...], cache: Cache, answer: object) -> None:
    until = kept.until(cache)
    assert until
    kept.keep(arguments, cache, until, answer)


CALLS = st.builds(
    publish,
    st.sampled_from((None, "u", "v")),
    st.sampled_from(("c", "d")),
    st.sampled_from(("t", "s")),
    st.integers(0, 2),
    st.booleans(),
)


def facts(arguments: tuple[Any, ...], by: frozenset[str]) -> tuple[Any, ...]:
    user, who, message = arguments
    all_of = dict(
        zip(FACTS, (user, who.client_id, message.topic, message.qos, message.retain), strict=True)
    )
    return tuple(all_of[each] for each in sorted(by))


@given(st.lists(st.tuples(CALLS, st.frozensets(st.sampled_from(FACTS))), max_size=SHAPES), CALLS)
def test_a_verdict_is_found_by_calls_alike_in_what_it_depends_on(
    put: list[tuple[tuple[Any, ...], frozenset[Any]]], asked: tuple[Any, ...]
) -> None:
    kept = KeptVerdicts("auth_on_publish", Clock(1_000.0))
    held: dict[tuple[frozenset[str], tuple[Any, ...]], int] = {}
    for number, (arguments, by) in enumerate(put):
        keep(kept, arguments, Cache(60, by), number)
        held[by, facts(arguments, by)] = number
    fitting = {value for (by, key), value in held.items() if facts(asked, by) == key}
    found = kept.find(asked)
    assert (found is MISSING and not fitting) or found in fitting


def test_a_verdict_runs_out() -> None:
    clock = Clock(1_000.0)
    kept = KeptVerdicts("auth_on_publish", clock)
    keep(kept, publish(), Cache(5), "yes")
    clock.advance(4.9)
    assert kept.find(publish()) == "yes"
    clock.advance(0.1)
    assert kept.find(publish()) is MISSING
    assert len(kept) == 0


@pytest.mark.parametrize(
    ("hook", "by", "short", "long"),
    [
        ("auth_on_publish", "topic", publish(topic="t" * 4000), publish(topic="t" * 4100)),
        (
            "auth_on_subscribe",
            "username",
            ("u", SubscriberId("c"), [Subscription(f"t/{n}", 0) for n in range(500)]),
            ("u", SubscriberId("c"), [Subscription(f"t/{n}", 0) for n in range(5000)]),
        ),
    ],
)
def test_nothing_is_kept_of_calls_that_would_fill_the_memory(
    hook: str, by: Any, short: tuple[Any, ...], long: tuple[Any, ...]
) -> None:
    kept = KeptVerdicts(hook, Clock(0.0))
    for call in (short, long):
        keep(kept, call, Cache(10, frozenset({by})), True)
    assert kept.find(short) is True
    assert kept.find(long) is MISSING


def test_the_least_recently_used_goes_first() -> None:
    kept = KeptVerdicts("auth_on_publish", Clock(1_000.0), limit=2)
    for topic in ("a", "b"):
        keep(kept, publish(topic=topic), Cache(5), topic)
    assert kept.find(publish(topic="a")) == "a"
    keep(kept, publish(topic="c"), Cache(5), "c")
    assert kept.find(publish(topic="b")) is MISSING
    assert kept.find(publish(topic="a")) == "a"


@pytest.mark.parametrize("changed", (2, 3, 4))
def test_a_kept_connect_never_lets_in_another_login(changed: int) -> None:
    kept = KeptVerdicts("auth_on_register", Clock(1_000.0))
    call = [Peer("h", 1), SubscriberId("c"), "u", b"secret", True]
    keep(kept, tuple(call), Cache(60), "in")
    assert kept.find(tuple(call)) == "in"
    call[changed] = {2: "v", 3: b"guess", 4: False}[changed]
    assert kept.find(tuple(call)) is MISSING


def test_mountpoints_and_lists_of_filters_are_told_apart() -> None:
    kept = KeptVerdicts("auth_on_subscribe", Clock(1_000.0))
    wanted = [Subscription("a", 1)]
    keep(kept, ("u", SubscriberId("c"), wanted), Cache(60, frozenset()), "yes")
    assert kept.find(("v", SubscriberId("d"), wanted)) == "yes"
    assert kept.find(("u", SubscriberId("c", "other"), wanted)) is MISSING
    assert kept.find(("u", SubscriberId("c"), [Subscription("a", 2)])) is MISSING


def test_what_a_hook_does_not_show_cannot_be_kept() -> None:
    kept = KeptVerdicts("auth_on_publish", Clock(1_000.0))
    assert kept.until(Cache(60, frozenset({"peer"}))) == 0
    assert kept.until(Cache(0)) == 0
    assert kept.until(FOREVER) == 0


def test_verdicts_together_hold_as_the_first_of_them() -> None:
    first, second = Cache(5, frozenset({"topic"})), Cache(9, frozenset({"username"}))
    assert together(FOREVER, first) == first
    assert together(first, second) == Cache(5, frozenset({"topic", "username"}))
    assert together(first, None) is None
