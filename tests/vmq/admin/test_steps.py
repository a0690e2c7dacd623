"""What the plugins say, as steps of an explanation."""

from typing import Any

from vmq_hooks import Explanation, Message, Next, Plugin, Refuse, SubscriberId, Subscription, hook

from tests.support.peer import Peer
from vmq.admin.steps import NOTE, OK, STOP, Step, question_of, reasons, remedy_of, rights
from vmq.broker import Broker
from vmq.config.options import Config


class Says(Plugin):
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    @hook
    def auth_on_publish(self) -> Any:
        return self.answer

    def explain(self, question: Any, verdict: Any) -> Explanation | None:
        return Explanation("no line", "a line") if self.answer == Next() else None


async def said(config: Config, **answers: Any) -> list[tuple[str, str, str]]:
    plugins = {name: Says(answer) for name, answer in answers.items()}
    async with Broker(config, plugins=plugins) as node:
        Peer(node.registry(), "me", username="u")
        question = question_of(node.registry(), "me", None, Message("t", b""))
        steps = await rights(node, node.registry(), question, "the end")
    return [(each.verdict, each.plugin, each.reason) for each in steps]


async def test_what_decides_is_told(config: Config) -> None:
    leaves = "it leaves the decision to the next plugin"
    found = await said(config, a=None, b=True)
    assert found == [(NOTE, "a", f"a: {leaves}"), (OK, "b", "b: it accepts")]
    end = (STOP, "b", "b: no: the end")
    assert await said(config, a=None, b=Refuse("no")) == [(NOTE, "a", f"a: {leaves}"), end]
    # A line of its own would have granted it.
    assert await said(config, a=Next(), b=Refuse("no")) == [(STOP, "a", "a: no line: the end"), end]
    assert await said(config, a=None) == [(STOP, "a", f"a: {leaves}: the end")]
    assert await said(config) == [(OK, "", "no plugin is asked: it is free")]


async def test_who_is_not_known_is_asked_about_as_nobody(config: Config) -> None:
    async with Broker(config, plugins={"a": Says(True)}) as node:
        registry = node.registry()
        question = question_of(registry, "away", None, Message("t", b""))
        first, _ = await rights(node, registry, question, "")
        assert (first.step, first.verdict) == ("user", NOTE)
        assert first.reason.endswith("(--user NAME: as for that)")
        question = question_of(registry, "away", "bob", Subscription("t"))
        assert (question.username, question.hook) == ("bob", "auth_on_subscribe")
        assert question.subscriber_id == SubscriberId("away")


def test_lines_are_not_said_twice() -> None:
    steps = [Step("a", STOP, "x", "p", "do"), Step("b", STOP, "x", "q", "do"), Step("c", STOP, "y")]
    assert reasons(steps) == "x; y"
    assert remedy_of(steps) == "do"
