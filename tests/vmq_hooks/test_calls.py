"""`call` asks a plugin as the broker would, and tells a wrong answer from a wrong question."""

import asyncio
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from vmq_acl import AclConfig, AclPlugin
from vmq_hooks import (
    Accept,
    Cache,
    DeliverModifiers,
    Explanation,
    Message,
    Next,
    Plugin,
    PublishModifiers,
    Question,
    Refuse,
    SubscriberId,
    Subscription,
    hook,
)
from vmq_hooks.answers import AnswerError, read_addresses, read_delivery, read_verdict
from vmq_hooks.testing import FakeBroker, call, call_async, explain, explain_async

WHO = SubscriberId("c")

NO_FILTER: Any = None


class Answers(Plugin):
    def __init__(self, answer: Any = None) -> None:
        self.answer = answer

    @hook
    def auth_on_publish(self, message: Message) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer

    @hook
    async def auth_on_subscribe(self, subscriptions: Any) -> Any:
        return self.answer

    @hook
    def on_deliver(self) -> Any:
        return self.answer

    @hook
    def on_unsubscribe(self) -> Any:
        return self.answer

    @hook
    def on_publish(self) -> Any:
        return self.answer

    def on_register(self) -> None: ...


def publish(answer: Any) -> Any:
    message = Message("t", b"x")
    plugin = Answers(answer)
    return call(plugin, "auth_on_publish", username=None, subscriber_id=WHO, message=message)


def subscribe(answer: Any, *filters: str) -> Any:
    wanted = [Subscription(each) for each in filters]
    plugin = Answers(answer)
    return call(plugin, "auth_on_subscribe", username=None, subscriber_id=WHO, subscriptions=wanted)


def test_every_way_of_saying_something_is_read() -> None:
    assert publish(None) == Next()
    assert publish(True) == Accept()
    assert publish({"qos": 1}) == Accept(PublishModifiers(qos=1))
    assert publish(PublishModifiers(topic="a")) == Accept(PublishModifiers(topic="a"))
    assert publish(Refuse("no")).reason == "no"
    assert publish(Refuse("what a client sent" * 1000)).reason == ("what a client sent" * 28)[:500]
    wanted = [Subscription("b", 128)]
    assert subscribe(wanted, "a") == Accept(subscriptions=wanted)
    where = {"username": None, "subscriber_id": WHO}
    changed = call(Answers({"topic": "b"}), "on_deliver", **where, message=Message("a", b""))
    assert changed == DeliverModifiers(topic="b")
    kept_back = call(Answers(Refuse("no")), "on_deliver", **where, message=Message("a", b""))
    assert kept_back.reason == "no"
    assert call(Answers(["b"]), "on_unsubscribe", **where, topic_filters=["a"]) == ["b"]
    assert call(Answers("x"), "on_publish", **where, message=Message("a", b"")) is None


@pytest.mark.parametrize(
    ("answer", "why"),
    (
        (0, "0 is no answer"),
        ("yes", "'yes' is no answer"),
        ({"colour": 1}, "colour.*accepted keys: topic, payload"),
        ({"qos": 3}, "Invalid enum value 3"),
        ({"topic": "a/#"}, "is no topic name"),
        ({"topic": ""}, "is no topic name"),
        ({"topic": "\ud800"}, "is no topic name"),
        ({"topic": "$jobs/q"}, "is a service's"),
        ({"payload": "base64=="}, "Expected `bytes"),
        ({"mountpoint": "a\0"}, "mountpoint 'a.x00' is no text"),
        ({"throttle": -1}, "throttle = -1"),
        (Accept(subscriptions=[]), "auth_on_subscribe only"),
        (Accept(cache=3), "accepted: Cache"),  # type: ignore[arg-type]
        (Next(Cache(9, frozenset({"payload"}))), "of peer, username"),  # type: ignore[arg-type]
    ),
)
def test_what_is_no_answer_is_named(answer: Any, why: str) -> None:
    with pytest.raises(AnswerError, match=why):
        publish(answer)


@pytest.mark.parametrize(
    ("answer", "why"),
    (
        ([], "0 subscriptions for 1"),
        (["a"], "list of Subscription"),
        ([Subscription("a", 3)], "QoS 3"),
        ([Subscription("a", True)], "QoS True"),
        ([Subscription(NO_FILTER)], "list of Subscription"),
        ([Subscription("a#", 0)], "no topic filter"),
        ([Subscription("a/+b", 0)], "no topic filter"),
        ([Subscription("#/a", 0)], "no topic filter"),
        ([Subscription("$share/g", 0)], "no topic filter"),
        ([Subscription("$share//a", 0)], "no topic filter"),
        ([Subscription("$share/+/a", 0)], "no topic filter"),
        ([Subscription("$share/g/", 0)], "no topic filter"),
        (Accept(modifiers={"qos": 1}), "no modifiers"),
    ),
)
def test_subscriptions_that_cannot_be_are_named(answer: Any, why: str) -> None:
    with pytest.raises(AnswerError, match=why):
        subscribe(answer, "a")


def test_an_error_of_the_plugin_is_the_test_s() -> None:
    with pytest.raises(OSError, match="broken"):
        publish(OSError("broken"))


async def test_questions_that_there_are_not() -> None:
    with pytest.raises(TypeError, match="no hook 'on_sunrise'"):
        await call_async(Answers(), "on_sunrise")
    with pytest.raises(TypeError, match="does not implement on_register"):
        await call_async(Answers(), "on_register")
    with pytest.raises(TypeError, match=r"Answers\.auth_on_publish takes message, too"):
        await call_async(Answers(), "auth_on_publish", username="u")
    with pytest.raises(TypeError, match="has no user; accepted: username, subscriber_id, message"):
        await call_async(Answers(), "auth_on_publish", message=Message("a", b""), user="u")


async def test_a_hook_that_the_broker_could_not_call_is_refused() -> None:
    class Odd(Plugin):
        @hook
        def on_publish(self, *, message: Message) -> None: ...

        @hook
        def on_acked(self) -> Any:
            return asyncio.sleep(0)

    with pytest.raises(TypeError, match="hook on_publish takes 'message' by keyword alone"):
        await call_async(Odd(), "on_publish", message=Message("a", b""))
    with pytest.raises(AnswerError, match="a coroutine of a plain function; accepted: async def"):
        await call_async(Odd(), "on_acked")


async def test_a_question_needs_no_more_than_the_plugin_takes() -> None:
    verdict = await call_async(Answers(True), "auth_on_publish", message=Message("a", b""))
    assert verdict == Accept()


@pytest.mark.parametrize("hook_name", ["auth_on_publish", "on_deliver"])
def test_a_payload_that_fits_into_no_packet_is_no_answer(
    hook_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq_hooks.answers._LARGEST_PAYLOAD", 10)
    read: Any = read_delivery if hook_name == "on_deliver" else partial(read_verdict, hook_name)
    assert read({"payload": b"x" * 10}) is not None
    with pytest.raises(AnswerError, match="payload of 11 bytes; accepted: up to 10 bytes"):
        read({"payload": b"x" * 11})


def test_addresses_are_read() -> None:
    class Finder(Plugin):
        @hook
        def discover_nodes(self) -> list[str]:
            return ["tcp://10.0.0.1:44053", "ipc:///run/vmq"]

    assert call(Finder(), "discover_nodes") == ["tcp://10.0.0.1:44053", "ipc:///run/vmq"]
    for bad in ("tcp://a:1", ["http://a:1"], [5], ["tcp://a"], {"tcp://a:1": 1}):
        with pytest.raises(AnswerError, match="tcp://HOST:PORT"):
            read_addresses(bad)


def test_a_verdict_is_explained_as_why_asks_for_it(tmp_path: Path) -> None:
    (tmp_path / "acl").write_text("user alice\ntopic read news/#\n")
    plugin = AclPlugin()

    async def ask(what: Message | Subscription) -> tuple[Any, Explanation | None]:
        async with FakeBroker(tmp_path) as broker:
            plugin.start(broker, AclConfig())
            publishes = isinstance(what, Message)
            question = Question(
                hook="auth_on_publish" if publishes else "auth_on_subscribe",
                username="alice",
                subscriber_id=SubscriberId("c"),
                message=what if isinstance(what, Message) else None,
                subscription=what if isinstance(what, Subscription) else None,
            )
            return await explain_async(plugin, question)

    verdict, said = asyncio.run(ask(Subscription("news/x")))
    assert isinstance(verdict, Accept)
    assert said is not None
    assert said.reason.endswith("acl, line 2 grants it: topic read news/#")
    verdict, said = asyncio.run(ask(Message("news/x", b"")))
    assert isinstance(verdict, Next)
    assert said is not None
    assert said.remedy == "`topic write news/x` below `user alice` would grant it"


def test_who_says_nothing_more_gives_none() -> None:
    class Bare(Plugin):
        @hook
        def auth_on_publish(self) -> bool:
            return True

    question = Question(
        hook="auth_on_publish",
        username=None,
        subscriber_id=SubscriberId("c"),
        message=Message("t", b""),
    )
    assert explain(Bare(), question) == (Accept(), None)
