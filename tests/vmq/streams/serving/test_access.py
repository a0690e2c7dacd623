"""Plugins judge callers of Flight as they judge clients of MQTT."""

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pyarrow import flight
from vmq_hooks import REFUSED_QOS, PublishModifiers, Refuse, Subscription

from vmq.core.context import CoreOptions
from vmq.core.hook_sites import Hooks, Pending
from vmq.streams.serving import access as flight_access
from vmq.streams.serving.access import BrokerAccess

Asked = list[tuple[Any, ...]]


def access(hooks: Hooks, *, anonymous: bool = False) -> BrokerAccess:
    return BrokerAccess("flight", hooks, lambda: anonymous, secure=True, options=CoreOptions())


async def asked(function: Callable[..., bool], *arguments: Any) -> bool:
    """Asks as Flight does: in a thread that is not the loop's."""
    async with asyncio.timeout(60):
        return await asyncio.to_thread(function, *arguments)


def answering(*answers: Any) -> tuple[Callable[..., Any], Asked]:
    """A call site that gives these answers, and the calls that it had."""
    calls: Asked = []

    def hook(*arguments: Any) -> Any:
        assert threading.current_thread() is threading.main_thread(), "plugins live in the loop"
        calls.append(arguments)
        return answers[len(calls) - 1]

    return hook, calls


async def test_without_plugins_the_listener_says_who_may_connect() -> None:
    for anonymous in (True, False):
        rules = access(Hooks(), anonymous=anonymous)
        assert await asked(rules.authenticate, None, b"") is anonymous
        assert await asked(rules.authenticate, "ann", b"x") is anonymous
        assert await asked(rules.may_read, None, ["#"])
        assert await asked(rules.may_write, None, "t")


async def test_a_plugin_hears_user_password_and_listener() -> None:
    hooks = Hooks()
    hooks.auth_on_register, calls = answering(None, Refuse("no"), None)
    rules = access(hooks)
    assert await asked(rules.authenticate, "ann", b"secret")
    assert not await asked(rules.authenticate, "ann", b"wrong")
    assert await asked(rules.authenticate, None, b"")
    peer, subscriber, user, password, clean = calls[0]
    found = (peer.listener, subscriber.client_id, user, password, clean)
    assert found == ("flight", "flight:ann", "ann", b"secret", True)
    assert calls[2][2:4] == (None, None), "no credentials are not empty credentials"


async def test_an_anonymous_listener_asks_nobody() -> None:
    hooks = Hooks()
    hooks.auth_on_register, calls = answering()
    assert await asked(access(hooks, anonymous=True).authenticate, "ann", b"x")
    assert calls == []


@pytest.mark.parametrize(
    ("answer", "verdict"),
    (
        (None, True),
        (Refuse("no"), False),
        ([Subscription("a/#", 0), Subscription("b", 2)], True),
        ([Subscription("a/#", 0), Subscription("b", REFUSED_QOS)], False),
        ([Subscription("a/#", 0), Subscription("c", 0)], False),
    ),
)
async def test_reading_takes_the_right_to_every_filter(answer: Any, verdict: bool) -> None:
    hooks = Hooks()
    hooks.auth_on_subscribe, calls = answering(answer)
    assert await asked(access(hooks).may_read, "ann", ["a/#", "b"]) is verdict
    assert [each.topic_filter for each in calls[0][2]] == ["a/#", "b"]


async def test_writing_takes_the_right_to_publish() -> None:
    hooks = Hooks()
    hooks.auth_on_publish, calls = answering(None, Refuse("no"), PublishModifiers(throttle=1))
    rules = access(hooks)
    verdicts = [await asked(rules.may_write, "ann", topic) for topic in ("a", "b", "c")]
    assert verdicts == [True, False, True]
    assert [call[2].topic for call in calls] == ["a", "b", "c"]


async def test_a_refusal_is_logged_with_its_plugin(caplog: pytest.LogCaptureFixture) -> None:
    hooks = Hooks()
    refusal = Refuse("not here")
    refusal.plugin = "acl"
    hooks.auth_on_publish, _ = answering(refusal)
    hooks.auth_on_subscribe, _ = answering(*[[Subscription("a", REFUSED_QOS)]] * 2)
    with caplog.at_level("INFO", "vmq.streams"):
        assert not await asked(access(hooks).may_write, "ann", "t")
        assert not await asked(access(hooks).may_read, "ann", ["a"])
        assert not await asked(access(hooks).sees, "ann", ["a"]), "and this is no refusal"
    assert caplog.messages == [
        'flight refused right=write user="ann" of="t" plugin=acl reason="not here"',
        'flight refused right=read user="ann" of="a" plugin=none reason="not allowed"',
    ]


@pytest.mark.parametrize(("later", "verdict"), ((None, True), (Refuse("no"), False)))
async def test_verdicts_may_come_later(later: Any, verdict: bool) -> None:
    hooks = Hooks()
    pending: list[Pending] = []

    def hook(*_arguments: Any) -> Pending:
        pending.append(Pending(lambda: None))
        asyncio.get_running_loop().call_soon(pending[-1].finish, later)
        return pending[-1]

    hooks.auth_on_register = hooks.auth_on_subscribe = hooks.auth_on_publish = hook
    rules = access(hooks)
    assert await asked(rules.authenticate, "ann", b"x") is verdict
    assert await asked(rules.may_read, "ann", ["a"]) is verdict
    assert await asked(rules.may_write, "ann", "a") is verdict


async def test_no_verdict_is_no_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flight_access, "PATIENCE", 0.01)
    hooks = Hooks()
    hooks.auth_on_publish, _ = answering(Pending(lambda: None))
    with pytest.raises(flight.FlightUnavailableError, match="no verdict came in time"):
        await asked(access(hooks).may_write, "ann", "a")


async def test_who_could_not_be_judged_is_told_to_try_again() -> None:
    hooks = Hooks()
    busy = Refuse("too many wait", unavailable=True)
    hooks.auth_on_register, _ = answering(busy)
    hooks.auth_on_publish, _ = answering(busy)
    hooks.auth_on_subscribe, _ = answering(busy)
    rules = access(hooks)
    for call in (
        (rules.authenticate, "ann", b"x"),
        (rules.may_read, "ann", ["#"]),
        (rules.may_write, "ann", "t"),
    ):
        with pytest.raises(flight.FlightUnavailableError, match="too many wait"):
            await asked(*call)


def test_a_loop_that_has_ended_answers_nobody() -> None:
    loop = asyncio.new_event_loop()

    async def make() -> BrokerAccess:
        return access(Hooks())

    rules = loop.run_until_complete(make())
    loop.close()
    with pytest.raises(flight.FlightUnavailableError, match="the broker ends"):
        rules.may_write("ann", "a")
