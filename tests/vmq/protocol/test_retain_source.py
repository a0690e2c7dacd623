"""Retained messages on their way past the plugins that judge their sources."""

from collections.abc import Callable
from typing import Any

import pytest
from vmq_hooks import PublishModifiers, Refuse

from tests.vmq.hook_sites import later_verdicts
from tests.vmq.support import Client, House
from vmq.core.hook_sites import AcceptedUntil, Hooks, Pending
from vmq.core.retained_burst import allowance_for
from vmq.mqtt.message import Sourced
from vmq.protocol.retain_source import AT_ONCE, STEP


class Judge:
    """Judges the sources of messages; what comes later, and what is due then, is the test's to do."""

    def __init__(self, house: House) -> None:
        self.house = house
        self.asked: list[tuple[str | None, str, str]] = []
        self.answer: Callable[[str], Any] = lambda _topic: None
        self.due: list[Callable[[], None]] = []
        house.core.call_later = lambda _seconds, call: self.due.append(call)
        house.core.hooks.auth_on_publish = self.ask
        house.core.hooks.resolve()

    def ask(self, user: Any, who: Any, message: Any) -> Any:
        self.asked.append((user, str(who.client_id), message.topic))
        return self.answer(message.topic)

    def defer(self) -> list[Pending]:
        """Has verdicts come when the test says so: those that are awaited."""
        pending, self.answer = later_verdicts()
        return pending

    def later(self) -> int:
        """Does what is due; returns how much that was."""
        due, self.due = self.due, []
        for call in due:
            call()
        self.house.settle()
        return len(due)


def keep(house: House, count: int = 3) -> None:
    client = house.client("source", username="alice")
    for number in range(count):
        client.publish(f"t/{number}", b"kept", retain=True)
    client.lose()


def brought(house: House) -> list[str]:
    client = house.subscriber("new", ("t/#", 0))
    return topics(client)


def topics(client: Client) -> list[str]:
    return sorted(topic for topic, _ in client.take_published())


def test_each_source_is_asked_about_and_what_is_refused_stays(house: House) -> None:
    keep(house)
    judge = Judge(house)
    judge.answer = lambda topic: Refuse("no") if topic == "t/1" else None
    assert brought(house) == ["t/0", "t/2"]
    assert sorted(judge.asked) == [("alice", "source", f"t/{number}") for number in range(3)]
    assert house.core.counters.retain_withheld == 1
    judge.answer = lambda _topic: None
    assert brought(house) == ["t/0", "t/1", "t/2"], "it is kept all the same"


def test_a_verdict_that_may_be_kept_is_kept_until_it_ends_or_the_rules_change(house: House) -> None:
    keep(house)
    judge = Judge(house)
    judge.answer = lambda _topic: AcceptedUntil(house.core.clock() + 10)
    for _ in range(2):
        assert len(brought(house)) == 3
    assert len(judge.asked) == 3
    house.core.hooks.forget_kept()
    assert len(brought(house)) == 3
    assert len(judge.asked) == 6
    house.clock.advance(10)
    assert len(brought(house)) == 3
    assert len(judge.asked) == 9


def test_the_plugins_of_the_subscriber_s_listener_judge_and_keep_their_own_verdicts(
    house: House,
) -> None:
    keep(house, 1)
    judge = Judge(house)
    judge.answer = lambda _topic: AcceptedUntil(house.core.clock() + 10)
    assert brought(house) == ["t/0"]
    refuses, asks_nobody = Hooks(), Hooks()
    refuses.auth_on_publish = lambda *_: Refuse("no")
    for hooks, expected in ((refuses, []), (asks_nobody, ["t/0"])):
        client = house.client("new")
        client.connection.session.hooks = hooks
        client.subscribe(("t/#", 0))
        assert topics(client) == expected
    assert len(judge.asked) == 1


def test_nobody_is_asked_about_what_has_no_source_or_where_the_option_is_off(house: House) -> None:
    house.publish("t/own", b"x", retain=True)
    keep(house, 1)
    judge = Judge(house)
    judge.answer = lambda _topic: Refuse("no")
    assert brought(house) == ["t/own"]
    house.options.check_retain_source = False
    assert brought(house) == ["t/0", "t/own"]
    assert len(judge.asked) == 1


def test_what_a_plugin_moved_to_its_topic_has_no_source(house: House) -> None:
    judge = Judge(house)
    judge.answer = lambda topic: (
        PublishModifiers(topic="t/moved", payload=b"x") if topic == "a" else None
    )
    client = house.client("source", username="alice")
    client.publish("a", b"kept", retain=True)
    judge.answer = lambda _topic: PublishModifiers(payload=b"changed")
    client.publish("t/changed", b"kept", retain=True)
    judge.answer = lambda _topic: Refuse("no")
    assert brought(house) == ["t/moved"]


def test_many_are_judged_in_steps(house: House) -> None:
    keep(house, 2 * STEP + 1)
    judge = Judge(house)
    client = house.subscriber("new", ("t/#", 0))
    for step in (1, 2):
        assert (len(judge.asked), topics(client)) == (step * STEP, [])
        assert judge.later() == 1
    assert (len(judge.asked), len(topics(client))) == (2 * STEP + 1, 2 * STEP + 1)
    assert judge.later() == 0


def test_few_verdicts_are_awaited_at_a_time(house: House) -> None:
    keep(house, 2 * AT_ONCE)
    pending = Judge(house).defer()
    client = house.subscriber("new", ("t/#", 0))
    assert len(pending) == AT_ONCE
    for number, each in enumerate(list(pending)):
        each.finish(Refuse("no") if number == 0 else None)
    assert (len(pending), topics(client)) == (2 * AT_ONCE, [])
    # Meanwhile one of them is replaced, and another erased: that is told as it happens.
    house.core.hooks.auth_on_publish = None
    house.publish("t/3", b"new", retain=True)
    house.publish("t/4", b"", retain=True)
    client.take_published()
    for each in pending[AT_ONCE:]:
        each.finish(None)
    house.settle()
    found = topics(client)
    assert len(found) == 2 * AT_ONCE - 3
    assert not {"t/3", "t/4"}.intersection(found)


def test_who_has_ever_more_judged_is_asked_about_no_further_and_cut_off(house: House) -> None:
    """Else a client that subscribes again and again would fill the memory, and ask plugins without end."""
    keep(house, AT_ONCE + 1)
    pending = Judge(house).defer()
    client = house.subscriber("new", ("t/#", 0))
    most = allowance_for(AT_ONCE + 1) // (AT_ONCE + 1)
    for _ in range(most - 1):
        client.subscribe(("t/#", 0))
    for each in pending[:AT_ONCE]:
        each.finish(None)
    assert len(pending) == most * AT_ONCE, "nobody is asked what a later SUBSCRIBE asks"
    client.subscribe(("t/#", 0))
    assert not client.is_closed()
    client.subscribe(("t/#", 0))
    assert client.is_closed()
    assert house.core.counters.retain_bursts_refused == 1


@pytest.mark.parametrize("verdict", [None, Refuse("no")])
@pytest.mark.parametrize("leaves", [False, True])
def test_what_an_earlier_subscribe_asked_for_does_not_come_behind_a_later_one(
    house: House, verdict: Any, *, leaves: bool
) -> None:
    """The verdicts come in reverse order: the message came at the earlier QoS, and if it was refused by now."""
    house.client("source").publish("t/0", b"kept", qos=1, retain=True)
    pending = Judge(house).defer()
    client = house.subscriber("new", ("t/#", 1))
    if leaves:
        client.unsubscribe("t/#")
    client.subscribe(("t/#", 0))
    earlier, newer = pending
    newer.finish(verdict)
    earlier.finish(None)
    house.settle()
    assert [each.qos for each in client.take()] == ([0] if verdict is None else [])


@pytest.mark.parametrize("leaves", [False, True])
def test_who_does_not_want_them_any_more_gets_none(house: House, *, leaves: bool) -> None:
    keep(house, 1)
    judge = Judge(house)
    pending = Pending(lambda: None)
    judge.answer = lambda _topic: pending
    client = house.subscriber("new", ("t/#", 0))
    if leaves:
        client.lose()
    else:
        client.unsubscribe("t/#")
        client.take()
    pending.finish(None)
    house.settle()
    if not leaves:
        assert client.take() == []


def test_the_source_survives_a_restart(durable: House) -> None:
    keep(durable, 1)
    nameless = durable.client("nameless")
    nameless.publish("t/1", b"", retain=True)
    nameless.publish("t/2", b"\x05kept", qos=1, retain=True)
    durable.publish("t/own", b"x", retain=True)
    durable.restart()
    found = {
        each.topic.decode(): (each.payload, each.qos, (each.client_id, each.user))
        if isinstance(each, Sourced)
        else (each.payload, each.qos, None)
        for each in durable.registry.retained.all()
    }
    assert found == {
        "t/0": (b"kept", 0, ("source", "alice")),
        "t/2": (b"\x05kept", 1, ("nameless", None)),
        "t/own": (b"x", 0, None),
    }
