"""The chains against a naive reading of VerneMQ's rules, with plain and async functions mixed."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from vmq_hooks import Accept, Cache, Message, Next, Refuse, SubscriberId, Subscription
from vmq_hooks.answers import read_delivery, read_filters
from vmq_hooks.types import REFUSED_QOS

from tests.support.until import turns
from vmq.core.hook_sites import AcceptedUntil
from vmq.plugins import chains
from vmq.plugins.compiling import first
from vmq.plugins.guard import PluginGuard
from vmq.plugins.notices import NoticeQueues
from vmq.plugins.steps import AnswerStep, ChainStep, VerdictStep, adapted

GIVEN = ("username", "subscriber_id", "message")
ARGUMENTS = ("u", SubscriberId("c"), Message("t", b"x"))

#: What a plugin does -> what it means.
ACTS: dict[str, str] = {
    "none": "next",
    "next": "next",
    "true": "ok",
    "accept": "ok",
    "changes": "ok",
    "refuse": "error",
    "raise_refuse": "error",
    "raise": "error",
    "false": "error",
    "text": "error",
    "unknown_key": "error",
    "wrong_type": "error",
}


def act(name: str) -> Any:
    if name == "raise":
        raise OSError("broken")
    if name == "raise_refuse":
        raise Refuse("no")
    return {
        "none": None,
        "next": Next(),
        "true": True,
        "accept": Accept(),
        "changes": {"topic": "other"},
        "refuse": Refuse("no"),
        "false": False,
        "text": "ok",
        "unknown_key": {"colour": "red"},
        "wrong_type": {"qos": "one"},
    }[name]


def hook_of(plain: Callable[..., Any], later: bool) -> Any:
    """The function, or a coroutine function that answers the same a little later."""

    async def coroutine(*arguments: Any) -> Any:
        await asyncio.sleep(0)
        return plain(*arguments)

    return coroutine if later else plain


def verdict_step(name: str, later: bool, asked: list[str]) -> VerdictStep:
    def plain() -> Any:
        asked.append(name)
        return act(name)

    return VerdictStep(
        "auth_on_publish", PluginGuard(name, limit=0), hook_of(plain, later), (), GIVEN
    )


@given(st.lists(st.tuples(st.sampled_from(sorted(ACTS)), st.booleans()), max_size=5))
def test_all_till_ok_asks_on_until_ok_or_error(plan: list[tuple[str, bool]]) -> None:
    asked: list[str] = []
    wanted_asked: list[str] = []
    outcome = "error"
    for name, _ in plan:
        wanted_asked.append(name)
        if ACTS[name] != "next":
            outcome = ACTS[name]
            break

    async def run() -> Any:
        steps = [verdict_step(name, later, asked) for name, later in plan]
        return await chains.settled(
            chains.VerdictChain("auth_on_publish", steps, lambda: 0.0)(*ARGUMENTS)
        )

    found = asyncio.run(run())
    assert asked == wanted_asked
    assert isinstance(found, Refuse) == (outcome == "error")
    if outcome == "ok" and plan[len(asked) - 1][0] == "changes":
        assert found.topic == "other"


@pytest.mark.parametrize("later", (False, True))
def test_a_chain_is_kept_if_everybody_says_so(later: bool) -> None:
    answers: list[Any] = [Next(Cache(5, frozenset({"topic"}))), Accept(cache=Cache(9))]
    calls: list[int] = []

    def step(place: int) -> VerdictStep:
        def plain() -> Any:
            calls.append(place)
            return answers[place]

        return VerdictStep("auth_on_publish", PluginGuard("p"), hook_of(plain, later), (), GIVEN)

    async def run() -> None:
        chain = chains.VerdictChain("auth_on_publish", [step(0), step(1)], lambda: 100.0)
        found = await chains.settled(chain(*ARGUMENTS))
        assert isinstance(found, AcceptedUntil)
        assert found.until == 105.0
        assert chain(*ARGUMENTS) is found
        assert calls == [0, 1]
        chain.forget()
        answers[0] = None
        for _ in range(2):
            assert await chains.settled(chain(*ARGUMENTS)) is None
        assert calls == [0, 1] * 3

    asyncio.run(run())


async def test_what_was_asked_before_the_rules_changed_is_not_kept() -> None:
    gate, asked = asyncio.Event(), 0

    async def judge() -> Any:
        nonlocal asked
        asked += 1
        await gate.wait()
        return Accept(cache=Cache(60))

    step = VerdictStep("auth_on_publish", PluginGuard("p"), judge, (), GIVEN)
    chain = chains.VerdictChain("auth_on_publish", [step], lambda: 1.0)
    early = chain(*ARGUMENTS)
    await asyncio.sleep(0)
    chain.forget()
    gate.set()
    assert isinstance(await chains.settled(early), AcceptedUntil), "it has its lifetime"
    for _ in range(2):
        await chains.settled(chain(*ARGUMENTS))
    assert asked == 2


async def test_a_cancelled_verdict_leaves_nothing_behind() -> None:
    asked: list[str] = []
    chain = chains.VerdictChain("auth_on_publish", [verdict_step("true", True, asked)], lambda: 0.0)
    pending = chain(*ARGUMENTS)
    pending.then = lambda _: asked.append("answered")
    pending.cancel()
    await turns()
    assert asked == []


@given(
    st.lists(
        st.tuples(st.sampled_from(("none", "filters", "raise", "text")), st.booleans()), max_size=5
    )
)
def test_the_first_rewriter_ends_the_chain_and_failures_change_nothing(
    plan: list[tuple[str, bool]],
) -> None:
    asked: list[str] = []

    def step(name: str, later: bool) -> AnswerStep:
        def plain() -> Any:
            asked.append(name)
            if name == "raise":
                raise OSError("broken")
            return {"none": None, "filters": ["a/#"], "text": "a"}[name]

        given_names = ("username", "subscriber_id", "topic_filters")
        guard = PluginGuard("p", limit=0)
        return AnswerStep(
            "on_unsubscribe", guard, hook_of(plain, later), (), given_names, read_filters
        )

    async def run() -> Any:
        chain = chains.RewriteChain([step(name, later) for name, later in plan])
        return await chains.settled(chain("u", SubscriberId("c"), ["a"]))

    names = [name for name, _ in plan]
    reached = names[: names.index("filters") + 1] if "filters" in names else names
    assert asyncio.run(run()) == (["a/#"] if "filters" in names else None)
    assert asked == reached


def test_all_tells_everybody_whatever_they_do() -> None:
    told: list[str] = []

    def bad(message: Message) -> None:
        told.append(message.topic)
        raise OSError("broken")

    def forgets(message: Message) -> Any:
        told.append(message.topic)
        return asyncio.sleep(0)  # nobody awaits it

    guard = PluginGuard("p")
    steps = [ChainStep("on_publish", guard, each, ("message",), GIVEN) for each in (bad, forgets)]
    chains.NoticeChain([(step, NoticeQueues(guard)) for step in steps])(*ARGUMENTS)
    assert told == ["t", "t"]
    assert guard.errors == {"on_publish": 2}


def test_a_function_is_given_what_it_takes() -> None:
    def all_three(username: str, subscriber_id: str, message: str) -> tuple[str, ...]:
        return (username, subscriber_id, message)

    def two(message: str, username: str) -> tuple[str, ...]:
        return (message, username)

    def one(message: str) -> str:
        return message

    assert adapted(all_three, GIVEN, GIVEN)("a", "b", "c") == ("a", "b", "c")
    assert adapted(two, ("message", "username"), GIVEN)("a", "b", "c") == ("c", "a")
    assert adapted(one, ("message",), GIVEN)("a", "b", "c") == "c"
    assert adapted(lambda: "none", (), GIVEN)("a", "b", "c") == "none"


class Member:
    """A plugin as far as chains know it."""

    def __init__(self, name: str, steps: dict[str, ChainStep]) -> None:
        self.name = name
        self.steps = steps
        self.notices = NoticeQueues(PluginGuard(name))


#: What a plugin answers to `only` -> what comes of it.
ONLY: dict[str, Any] = {
    "none": None,
    "list": ["a", "b"],
    "empty": [],
    "raise": None,
    "refuse": None,
    "rubbish": None,
}


@given(st.lists(st.tuples(st.booleans(), st.sampled_from(sorted(ONLY)), st.booleans()), max_size=5))
def test_only_asks_the_first_that_has_the_hook_and_nobody_else(
    plan: list[tuple[bool, str, bool]],
) -> None:
    asked: list[int] = []

    def step(place: int, name: str, later: bool) -> ChainStep:
        def plain() -> Any:
            asked.append(place)
            if name == "raise":
                raise OSError("broken")
            if name == "refuse":
                raise Refuse("no")
            return {"rubbish": 5}.get(name, ONLY[name])

        guard = PluginGuard(str(place), limit=0)
        return AnswerStep("on_unsubscribe", guard, hook_of(plain, later), (), GIVEN, read_filters)

    members = [
        Member(str(place), {"hook": step(place, name, later)} if has else {})
        for place, (has, name, later) in enumerate(plan)
    ]
    serving = [place for place, (has, _, _) in enumerate(plan) if has]

    async def run() -> Any:
        chain = first(members, "hook")
        assert (chain is None) == (not serving)
        return None if chain is None else await chains.settled(chain(*ARGUMENTS))

    found = asyncio.run(run())
    assert asked == serving[:1]
    assert found == (ONLY[plan[serving[0]][1]] if serving else None)


async def test_only_waits_no_longer_than_the_deadline_and_not_at_all_for_an_open_breaker() -> None:
    calls: list[str] = []

    async def never() -> Any:
        calls.append("asked")
        await asyncio.Event().wait()

    guard = PluginGuard("p", deadline=0.01, limit=1, pause=60, clock=lambda: 0.0)
    chain = chains.OnlyChain(AnswerStep("h", guard, never, (), (), read_filters))
    assert await chains.settled(chain()) is None
    assert guard.timeouts == {"h": 1}
    assert await chains.settled(chain()) is None
    assert (calls, guard.skipped) == (["asked"], {"h": 1})


@pytest.mark.parametrize("how", ["raises", "no answer", "breaker"])
@pytest.mark.parametrize("withhold", [False, True])
def test_a_failing_on_deliver_lets_through_or_keeps_back_as_its_section_says(
    how: str, withhold: bool
) -> None:
    def fails() -> Any:
        if how == "no answer":
            return 5
        raise OSError("away")

    guard = PluginGuard("p", 5.0, 1, 10.0, lambda: 0.0)
    if withhold:
        guard.failed_delivery = Refuse("plugin p fails")
    chain = chains.RewriteChain([AnswerStep("on_deliver", guard, fails, (), (), read_delivery)])
    if how == "breaker":
        chain()
    assert chain() is guard.failed_delivery


def test_on_deliver_may_raise_its_refusal() -> None:
    refusal = Refuse("not for you")

    def refuse() -> None:
        raise refusal

    guard = PluginGuard("p", 5.0, 1, 10.0, lambda: 0.0)
    chain = chains.RewriteChain([AnswerStep("on_deliver", guard, refuse, (), (), read_delivery)])
    assert chain() is refusal
    assert guard.errors.total() == 0


def knows(name: str, says: dict[str, str], later: bool) -> VerdictStep:
    """A plugin that grants and denies some filters, and leaves the others to those behind it, as vmq_acl does."""

    def plain(_user: str, _who: SubscriberId, wanted: list[Subscription]) -> Any:
        said = [says.get(each.topic_filter, "next") for each in wanted]
        if len(set(said)) == 1:
            return {"ok": Accept(), "no": Refuse("no"), "next": Next()}[said[0]]
        return Accept(
            subscriptions=[
                Subscription(each.topic_filter, each.qos if word == "ok" else REFUSED_QOS)
                for each, word in zip(wanted, said, strict=True)
            ]
        )

    names = ("username", "subscriber_id", "subscriptions")
    return VerdictStep("auth_on_subscribe", PluginGuard(name), hook_of(plain, later), names, names)


@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abc"), st.sampled_from(["ok", "no"])), st.booleans()
        ),
        min_size=1,
        max_size=3,
    )
)
def test_each_filter_of_several_gets_the_answer_that_it_gets_alone(
    plan: list[tuple[dict[str, str], bool]],
) -> None:
    wanted = [Subscription(each, 1) for each in "abc"]

    async def run() -> list[bool]:
        steps = [knows(str(at), says, later) for at, (says, later) in enumerate(plan)]
        chain = chains.SubscribeChain("auth_on_subscribe", steps, lambda: 0.0)
        found = await chains.settled(chain("u", SubscriberId("c"), wanted))
        if isinstance(found, list):
            return [each.qos != REFUSED_QOS for each in found]
        return [not isinstance(found, Refuse)] * 3

    alone = [next((says[each] for says, _ in plan if each in says), "no") == "ok" for each in "abc"]
    assert asyncio.run(run()) == alone
