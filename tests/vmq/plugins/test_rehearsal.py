"""What plugins say to what nobody did, and why."""

from pathlib import Path
from typing import Any

import pytest
from vmq_hooks import (
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

from tests.vmq.plugins.support import serving
from vmq.plugins.rehearsal import Said, rehearse

ME = SubscriberId("me")
PUBLISH = Question(
    hook="auth_on_publish", username="u", subscriber_id=ME, message=Message("t", b"x", 1)
)
SUBSCRIBE = Question(
    hook="auth_on_subscribe", username="u", subscriber_id=ME, subscription=Subscription("a/#", 1)
)


class Says(Plugin):
    """Answers what it is told to, and remembers what it was asked."""

    def __init__(self, answer: Any, explained: Any = None) -> None:
        self.answer = answer
        self.explained = explained
        self.asked: list[tuple[Any, ...]] = []

    @hook
    def auth_on_publish(self, username: str | None, message: Message) -> Any:
        self.asked.append((username, message.topic))
        return self.answer

    @hook
    async def auth_on_subscribe(self, subscriptions: list[Subscription]) -> Any:
        return self.answer

    def explain(self, question: Question, verdict: Any) -> Any:
        if isinstance(self.explained, BaseException):
            raise self.explained
        return self.explained


async def ask(folder: Path, question: Question, **plugins: Plugin) -> list[tuple[str, str]]:
    async with serving(folder, plugins) as broker:
        found = await rehearse(broker.plugins, question, None)
    assert found is not None
    return [(each.plugin, each.reason) for each in found]


async def test_each_is_asked_until_one_decides(tmp_path: Path) -> None:
    first, second, third = Says(None), Says(Refuse("not today")), Says(True)
    found = await ask(tmp_path, PUBLISH, a=first, b=second, c=third)
    assert found == [("a", "it leaves the decision to the next plugin"), ("b", "not today")]
    assert first.asked == second.asked == [("u", "t")]
    assert third.asked == []


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (True, "it accepts"),
        (PublishModifiers(topic="other"), "it accepts, with changes"),
        (Refuse(""), "it refuses, and does not say why"),
        (17, "plugin p failed in auth_on_publish"),
    ],
)
async def test_what_the_plugin_does_not_explain(tmp_path: Path, answer: Any, reason: str) -> None:
    assert await ask(tmp_path, PUBLISH, p=Says(answer)) == [("p", reason)]


async def test_a_plugin_explains_and_says_what_would_help(tmp_path: Path) -> None:
    async with serving(tmp_path, {"p": Says(Next(), Explanation("no rule", "a rule"))}) as broker:
        found = await rehearse(broker.plugins, PUBLISH, None)
    assert found == [Said("p", Next(), "no rule", "a rule")]


async def test_an_async_explanation_is_waited_for(tmp_path: Path) -> None:
    class Later(Says):
        async def explain(self, question: Question, verdict: Any) -> Explanation:
            return Explanation(f"{question.hook}: {type(verdict).__name__}")

    assert await ask(tmp_path, SUBSCRIBE, p=Later(True)) == [("p", "auth_on_subscribe: Accept")]


@pytest.mark.parametrize("error", [ValueError("oh"), SystemExit(0), GeneratorExit()])
async def test_an_explanation_that_fails_takes_nothing_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    plugin = Says(Refuse("not today"), error)
    assert await ask(tmp_path, PUBLISH, p=plugin) == [("p", "not today")]
    assert "plugin p: explain failed" in caplog.text


async def test_one_refused_filter_is_a_refusal(tmp_path: Path) -> None:
    plugin = Says([Subscription("a/#", 128)])
    assert await ask(tmp_path, SUBSCRIBE, p=plugin) == [("p", "it refuses this filter")]
    assert await ask(tmp_path, SUBSCRIBE, p=Says([Subscription("a/#", 0)])) == [("p", "it accepts")]


async def test_the_plugins_of_the_listener_count(tmp_path: Path) -> None:
    async with serving(tmp_path, {"a": Says(True), "b": Says(True)}) as broker:
        found = await rehearse(broker.plugins, PUBLISH, ["b"])
        assert [each.plugin for each in found or ()] == ["b"]
        assert await rehearse(broker.plugins, PUBLISH, ["gone"]) == []
        assert await rehearse(broker.plugins, PUBLISH, []) is None


async def test_without_plugins_nobody_is_asked(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        assert await rehearse(broker.plugins, PUBLISH, None) is None
