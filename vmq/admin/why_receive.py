"""Why a client does not receive a message, or would: `vmq why --receive`. Nothing is published, and nothing changes.

Each step is one of the reasons that there are: no session, another topic tree, no subscription that matches, rights
that were taken, a publisher that may not, a full queue, QoS 0 to a client that is away, another member of a group.
"""

import difflib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from vmq_hooks import Subscription

from vmq.admin.elsewhere import ask_slot, home_of
from vmq.admin.errors import AdminError
from vmq.admin.steps import (
    NOTE,
    OK,
    STOP,
    Step,
    question_of,
    reasons,
    remedy_of,
    rights,
    stops,
)
from vmq.admin.trees import Mountpoint, registry_of
from vmq.admin.why import Publish, Recipient, effective_qos, hook_steps, recipients_of
from vmq.admin.why import explain as explain_publish
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.mqtt.topics import matches, split_shared
from vmq.protocol.connection import Connection

if TYPE_CHECKING:
    from vmq.ports import BrokerView

#: Filters of the client that are shown where none matches.
_SHOWN = 5
_AWAY = Step(
    "client",
    NOTE,
    "it is not connected; its durable session keeps messages of QoS 1 and 2 for it",
)


class Receiving(Struct, frozen=True, kw_only=True):
    """What would become of a message at one client."""

    client_id: str
    mountpoint: Mountpoint
    topic: str
    qos: int
    publisher: str
    receives: Annotated[bool, Meta(description="Whether it would get it, now or later")]
    verdict: str
    remedy: Annotated[str, Meta(description="What would change it, if that is known")]
    steps: list[Step]
    recipients: Annotated[list[Recipient], Meta(description="Its subscriptions that match")]


class Receive(Struct, frozen=True, kw_only=True):
    """A message that nobody published, and the client that is to get it."""

    client_id: str
    topic: str
    mountpoint: str = ""
    qos: int = 0
    size: int = 0
    #: Who publishes; "": somebody who may.
    publisher: str = ""


async def explain(broker: "BrokerView", receive: Receive) -> Receiving:
    """What this client would get of such a message.

    Raises:
        AdminError: the QoS is impossible.
    """
    if receive.qos not in (0, 1, 2):
        raise AdminError(f"qos: {receive.qos}; accepted: 0, 1, 2")
    registry = registry_of(broker, receive.mountpoint)
    subscriber = registry.subscribers.get(receive.client_id)
    home = home_of(broker, receive.mountpoint, receive.client_id)
    in_slot = None
    if subscriber is None and not home:
        in_slot = await ask_slot(broker, receive.mountpoint, receive.client_id)
    steps = [_AWAY if in_slot else _client(broker, registry, receive, home)]
    found: list[Recipient] = []
    publish = Publish(
        client_id=receive.publisher,
        topic=receive.topic,
        mountpoint=receive.mountpoint,
        qos=receive.qos,
        size=receive.size,
    )
    if receive.publisher and (subscriber or in_slot):
        steps += await _publisher(broker, publish)
    if subscriber is not None:
        every = recipients_of(registry, publish)
        found = [each for each in every if each.client_id == receive.client_id]
        asked = {each: subscriber.asked_for(each) for each in subscriber.subscriptions}
        steps += await _subscriptions(broker, registry, None, asked, receive, found)
        steps += _of_itself(subscriber, receive)
        steps += _qos(receive, found)
        steps += _queue(subscriber.queue.dropped, found)
        steps += hook_steps(registry, ("on_deliver",))
    elif in_slot is not None:
        found = _in_slot(registry, publish, receive.client_id, in_slot.subscriptions)
        asked = {each: in_slot.asked.get(each, each) for each in in_slot.subscriptions}
        steps += await _subscriptions(broker, registry, in_slot.user, asked, receive, found)
        steps += [*_qos(receive, found), *_queue(in_slot.dropped, found)]
        steps += hook_steps(registry, ("on_deliver",))
    stopped = stops(steps)
    fates = sorted({each.outcome for each in found} - {"passed over", "dropped"})
    return Receiving(
        client_id=receive.client_id,
        mountpoint=receive.mountpoint,
        topic=receive.topic,
        qos=receive.qos,
        publisher=receive.publisher,
        receives=not stopped,
        verdict=f"It does not receive it: {reasons(stopped)}"
        if stopped
        else f"It receives it: {', '.join(fates)}",
        remedy=remedy_of(stopped),
        steps=steps,
        recipients=found,
    )


def _client(broker: "BrokerView", registry: Registry, receive: Receive, home: str) -> Step:
    """Whether there is anything that a message could go to."""
    subscriber = registry.subscribers.get(receive.client_id)
    if subscriber is None and home:
        return Step("client", STOP, f"node {home} has the client's session: ask there")
    if subscriber is None:
        others = [
            name or "the default one"
            for name, tree in broker.registries.items()
            if receive.client_id in tree.subscribers
        ]
        if others:
            what = (
                f"it has no session in this topic tree, but in: {', '.join(others)} (--mountpoint)"
            )
            return Step("client", STOP, what)
        expiry = broker.config.session.persistent_client_expiration
        what = (
            "it is not connected, and has no session: a clean session ends with its connection, and nothing is kept "
            "for it"
        )
        if expiry != "never":
            what += f"; a durable one expires after session.persistent_client_expiration = {expiry}"
        remedy = "a durable session (clean session off) and a subscription at QoS 1 or 2"
        return Step("client", STOP, what, remedy=remedy)
    kind = "durable" if subscriber.queue.durable else "clean"
    output = subscriber.output
    if output is None:
        return _AWAY
    peer = f" from {output.describe()}" if isinstance(output, Connection) else ""
    return Step("client", OK, f"connected{peer}, with a {kind} session")


async def _publisher(broker: "BrokerView", publish: Publish) -> list[Step]:
    """What keeps the publisher from publishing it."""
    said = await explain_publish(broker, publish)
    stopped = stops(said.steps)
    if not stopped:
        return [Step("publisher", OK, f"{publish.client_id} may publish it")]
    return [
        Step("publisher", STOP, f"{publish.client_id}: {each.reason}", each.plugin, each.remedy)
        for each in stopped
    ]


async def _subscriptions(
    broker: "BrokerView",
    registry: Registry,
    user: str | None,
    asked: Mapping[str, str],
    receive: Receive,
    found: list[Recipient],
) -> list[Step]:
    """Which of its subscriptions match, and whether they would still be granted.

    `asked`: all of them, each with the filter that the client asked for.
    """
    if not found:
        return [_none_matches(list(asked), receive)]
    steps = [Step("match", OK, f"{len(found)} of its subscriptions match")]
    for each in found:
        wanted = Subscription(asked[each.filter], each.qos)
        question = question_of(registry, receive.client_id, user, wanted)
        said = await rights(broker, registry, question, "")
        steps += [
            Step(
                "rights",
                NOTE,
                f"{step.reason}: {each.filter} ends when it is asked anew",
                step.plugin,
                step.remedy,
            )
            if step.verdict == STOP
            else step
            for step in said
        ]
    return steps


def _none_matches(filters: list[str], receive: Receive) -> Step:
    if not filters:
        return Step(
            "match", STOP, "it has no subscription", remedy=f"a subscription to {receive.topic}"
        )
    reason = f"none of its {len(filters)} subscription(s) matches {receive.topic}"
    plain = [split_shared(each)[1] for each in filters]
    if receive.topic.startswith("$") and any(each[:1] in "+#" for each in plain):
        reason += (
            "; a wildcard in the first level matches no topic that begins with $ [MQTT-4.7.2-1]"
        )
    folded = receive.topic.casefold().strip("/")
    alike = [each for each in plain if matches(each.casefold().strip("/"), folded)]
    if alike:
        reason += f"; {alike[0]} would, but for the case of letters or a / at the end"
    else:
        near = difflib.get_close_matches(receive.topic, filters, n=_SHOWN, cutoff=0.4)
        reason += f"; it has {', '.join(near or filters[:_SHOWN])}"
        reason += ", ..." if len(filters) > _SHOWN else ""
    return Step("match", STOP, reason, remedy=f"a subscription to {receive.topic}")


def _in_slot(
    registry: Registry, publish: Publish, client_id: str, subscriptions: Mapping[str, int]
) -> list[Recipient]:
    """What becomes of it by each subscription of a session that waits in a slot."""
    matching = [
        (effective_qos(registry, publish, granted), each)
        for each, granted in subscriptions.items()
        if matches(split_shared(each)[1], publish.topic)
    ]
    best = max((each for each in matching if not split_shared(each[1])[0]), default=None)
    found: list[Recipient] = []
    for qos, topic_filter in matching:
        if split_shared(topic_filter)[0]:
            what, reason = "candidate", "a member of the group gets it, one that is connected first"
        elif best and topic_filter != best[1]:
            what, reason = "passed over", f"the client gets one copy, by {best[1]!r}"
        else:
            what, reason = "stored", "until its client is back"
        if not qos:
            what, reason = "dropped", "the client is not connected, and QoS 0 is kept for nobody"
        found.append(
            Recipient(
                client_id=client_id, filter=topic_filter, qos=qos, outcome=what, reason=reason
            )
        )
    return found


def _of_itself(subscriber: Subscriber, receive: Receive) -> list[Step]:
    if subscriber.queue.bridge and receive.publisher == receive.client_id:
        what = "it is a bridge, to which nothing comes back that it has published itself"
        return [Step("bridge", STOP, what)]
    return []


def _qos(receive: Receive, found: list[Recipient]) -> list[Step]:
    granted = max((each.qos for each in found), default=receive.qos)
    if granted >= receive.qos:
        return []
    what = f"published at QoS {receive.qos}, it goes to this client at QoS {granted}, as it has subscribed"
    if granted == 0:
        what += ": nothing of it is kept while the client is away"
    return [Step("qos", NOTE, what)]


def _queue(dropped: int, found: list[Recipient]) -> list[Step]:
    """What its queue does with it."""
    steps: list[Step] = []
    if dropped:
        what = f"{dropped} messages to it were dropped so far"
        steps.append(Step("drops", NOTE, what))
    best = [each for each in found if each.outcome != "passed over"]
    for each in best or found[:1]:
        goes = each.outcome not in {"dropped", "passed over"}
        verdict = OK if goes else STOP
        steps.append(Step("queue", verdict, f"{each.filter}: {each.outcome}: {each.reason}"))
    if any(each.verdict == OK for each in steps):
        return [each for each in steps if each.verdict != STOP]  # one copy is enough
    return steps
