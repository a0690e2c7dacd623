"""The steps of an explanation, and those that several explanations share: the client, and what the plugins say."""

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct
from vmq_hooks import Message, Next, Question, Refuse, SubscriberId, Subscription

from vmq.core.registry import Registry
from vmq.plugins.rehearsal import Said, Verdict, rehearse
from vmq.protocol.connection import Connection

if TYPE_CHECKING:
    from vmq.ports import BrokerView

#: Verdicts of a step.
OK: Final = "ok"
NOTE: Final = "note"
STOP: Final = "stop"


class Step(Struct, frozen=True):
    """One decision on the way."""

    step: str
    verdict: Annotated[
        str, Meta(description="ok; note = goes on, and worth knowing; stop = ends here")
    ]
    reason: str
    plugin: Annotated[str, Meta(description="Whose decision it is; empty: the broker's")] = ""
    remedy: Annotated[str, Meta(description="What would change it, if that is known")] = ""


def stops(steps: list[Step]) -> list[Step]:
    """Those at which it ends."""
    return [each for each in steps if each.verdict == STOP]


def reasons(steps: list[Step]) -> str:
    """Why it ends, in one line."""
    return "; ".join(dict.fromkeys(each.reason for each in steps))


def remedy_of(steps: list[Step]) -> str:
    """What would change it."""
    return "; ".join(dict.fromkeys(each.remedy for each in steps if each.remedy))


def question_of(
    registry: Registry, client_id: str, user: str | None, what: Message | Subscription
) -> Question:
    """What the plugins are to be asked about a client.

    Args:
        registry: the client's topic tree.
        client_id: the client.
        user: its user name; None: that under which it is connected, or was.
        what: what it publishes, or subscribes to.
    """
    subscriber = registry.subscribers.get(client_id)
    if user is None and subscriber is not None:
        output = subscriber.output
        session = output.session if isinstance(output, Connection) else None
        user = subscriber.queue.username if session is None else session.username
    who = SubscriberId(client_id, registry.mountpoint)
    if isinstance(what, Message):
        return Question(hook="auth_on_publish", username=user, subscriber_id=who, message=what)
    return Question(hook="auth_on_subscribe", username=user, subscriber_id=who, subscription=what)


async def rights(
    broker: "BrokerView", registry: Registry, question: Question, consequence: str
) -> list[Step]:
    """What the plugins say to a question, in their order.

    Args:
        broker: whose plugins they are.
        registry: the client's topic tree.
        question: what they are asked.
        consequence: what becomes of a client that is refused.
    """
    subscriber = registry.subscribers.get(question.subscriber_id.client_id)
    output = None if subscriber is None else subscriber.output
    chosen = None
    if isinstance(output, Connection):
        if getattr(output.session.hooks, question.hook) is None:
            return [Step("rights", OK, "no plugin is asked: it is free")]
        listener = broker.config.listeners.get(output.listener.name)
        chosen = None if listener is None else listener.authz_plugins
    found = await rehearse(broker.plugins, question, chosen)
    if found is None:
        return [Step("rights", OK, "no plugin is asked: it is free")]
    unknown: list[Step] = []
    if subscriber is None and question.username is None:
        what = "its user name is not known: the plugins are asked as for one without (--user NAME: as for that)"
        unknown.append(Step("user", NOTE, what))
    if not found:
        reason = "none of the plugins that the listener names in authz_plugins runs, so nobody can accept it"
        return [Step("rights", STOP, f"{reason}: {consequence}")]
    return unknown + [_of_plugin(each, found[-1].verdict, consequence) for each in found]


def _of_plugin(said: Said, decision: Verdict, consequence: str) -> Step:
    reason = f"{said.plugin}: {said.reason}"
    # Who leaves it to another one that refuses is no reason, unless it says how it would have granted it.
    is_left = isinstance(said.verdict, Next) and (
        isinstance(decision, Next) or (isinstance(decision, Refuse) and bool(said.remedy))
    )
    if isinstance(said.verdict, Refuse) or is_left:
        return Step(
            "rights",
            STOP,
            f"{reason}: {consequence}" if consequence else reason,
            said.plugin,
            said.remedy,
        )
    verdict = NOTE if isinstance(said.verdict, Next) else OK
    return Step("rights", verdict, reason, said.plugin)
