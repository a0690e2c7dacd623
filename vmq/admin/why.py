"""What would happen to a publish, and why: the session's and the registry's decisions, told without taking them.

Nothing is changed: no route is cached, no random member chosen. The plugins are asked for their verdict and its reason.
What it says mirrors `Session.on_publish`, `Registry.publish` and `Queue.deliver`; a test publishes for real and
compares. Each subscription is judged by the state as it is now: that an earlier copy of the same message fills a queue
just before a later one is left out.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace
from vmq_hooks import Message

from vmq.admin.elsewhere import ask_slot, home_of, targets, wanting_in_slots
from vmq.admin.errors import AdminError
from vmq.admin.queue_state import outcome, send_state
from vmq.admin.steps import NOTE, OK, STOP, Step, question_of, reasons, remedy_of, rights, stops
from vmq.admin.trees import Mountpoint, registry_of
from vmq.core.output import REPLIES, Output
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.core.subscription_set import Group, Subscription
from vmq.mqtt.encoder import remaining_length
from vmq.mqtt.packets import MAX_REMAINING_LENGTH, ProtocolError
from vmq.mqtt.topics import decode_topic_name
from vmq.protocol.connection import Connection

if TYPE_CHECKING:
    from vmq.ports import BrokerView

_AWAY: Final = Step("client", STOP, "the client is not connected; its session waits for it")


class Recipient(Struct, frozen=True, kw_only=True):
    """One matching subscription, and what would become of the message there."""

    client_id: str
    filter: str
    qos: Annotated[int, Meta(description="At which the message would be delivered")]
    outcome: Annotated[
        str,
        Meta(
            description="sent = at once; queued; stored = for when the client comes back; dropped; "
            "candidate = of the share group, might be chosen; passed over = is not"
        ),
    ]
    reason: str


class Explanation(Struct, frozen=True, kw_only=True):
    """What would happen to a publish."""

    client_id: str
    mountpoint: Mountpoint
    topic: str
    qos: int
    retain: bool
    size: int
    arrives: Annotated[bool, Meta(description="Whether anybody would get it, now or later")]
    verdict: str
    remedy: Annotated[str, Meta(description="What would change it, if that is known")]
    steps: list[Step]
    recipients: list[Recipient]


class Publish(Struct, frozen=True, kw_only=True):
    """A publish that nobody made."""

    client_id: str
    topic: str
    mountpoint: str = ""
    qos: int = 0
    retain: bool = False
    size: int = 0
    #: As whom the plugins are asked; None: as the client is connected, or was.
    user: str | None = None


async def explain(broker: "BrokerView", publish: Publish) -> Explanation:
    """What would happen if this client published this now.

    Raises:
        AdminError: QoS or size are impossible.
    """
    if publish.qos not in (0, 1, 2):
        raise AdminError(f"qos: {publish.qos}; accepted: 0, 1, 2")
    registry = registry_of(broker, publish.mountpoint)
    client, user = await client_step(broker, registry, publish.mountpoint, publish.client_id)
    if publish.user is None:
        publish = replace(publish, user=user)
    steps = [client, *_limits(registry, publish)]
    steps += _cluster(registry, publish.client_id)
    if not any(each.step in {"topic", "size"} for each in stops(steps)):
        steps += await _rights(broker, registry, publish)
    steps += hook_steps(registry, ("on_publish", "on_deliver"))
    stopped = stops(steps)
    recipients: list[Recipient] = []
    elsewhere = 0
    if not any(each.step == "topic" for each in stopped):
        steps += _store(registry, publish)
        steps += _retained(registry, publish)
        recipients = [*recipients_of(registry, publish), *_in_slots(broker, registry, publish)]
        steps.append(_matches(recipients))
        for arrives, reason in targets(broker, registry, publish.topic, publish.qos):
            elsewhere += arrives
            steps.append(Step("node", OK if arrives else NOTE, reason))
    gets = [each for each in recipients if each.outcome in _ARRIVES]
    arrives = bool(gets or elsewhere) and not stopped
    return Explanation(
        client_id=publish.client_id,
        mountpoint=publish.mountpoint,
        topic=publish.topic,
        qos=publish.qos,
        retain=publish.retain,
        size=publish.size,
        arrives=arrives,
        verdict=_verdict(stopped, recipients, elsewhere, arrives=arrives),
        remedy=remedy_of(stopped),
        steps=steps,
        recipients=recipients,
    )


_ARRIVES: Final = ("sent", "queued", "stored", "candidate")


def _verdict(
    stopped: list[Step], recipients: list[Recipient], elsewhere: int, *, arrives: bool
) -> str:
    if stopped:
        return f"It goes nowhere: {reasons(stopped)}"
    if not recipients and not elsewhere:
        return "It goes nowhere: no subscription matches the topic"
    if not arrives:
        return f"It is lost: {recipients[0].reason}"
    lost = sum(each.outcome == "dropped" for each in recipients)
    count = sum(each.outcome in ("sent", "queued", "stored") for each in recipients)
    groups = len({each.filter for each in recipients if each.outcome == "candidate"})
    parts = [f"{count} of the subscribers below"] if count else []
    if groups:
        parts.append(f"one member of each of {groups} share group(s)")
    if elsewhere:
        parts.append(f"{elsewhere} target(s) on other nodes")
    return f"It goes to {' and '.join(parts)}" + (f"; {lost} would miss it" if lost else "")


# The publisher's side


async def client_step(
    broker: "BrokerView", registry: Registry, mountpoint: str, client_id: str
) -> tuple[Step, str | None]:
    """Whether the client is there to do anything; and whose its session is, if that is in a slot of a cluster."""
    subscriber = registry.subscribers.get(client_id)
    if subscriber is not None:
        return _client_step(registry, subscriber), None
    home = home_of(broker, mountpoint, client_id)
    if home:
        return Step("client", STOP, f"node {home} has the client's session: ask there"), None
    in_slot = await ask_slot(broker, mountpoint, client_id)
    if in_slot is None:
        return Step("client", STOP, "the client is not connected, and has no session"), None
    return _AWAY, in_slot.user


def _client_step(registry: Registry, subscriber: Subscriber) -> Step:
    output = subscriber.output
    if output is None:
        return _AWAY
    if isinstance(output, Connection) and output.pauses:
        reason = _pause_reason(registry, output)
        return Step("client", NOTE, f"connected from {output.describe()}, but not read: {reason}")
    return Step("client", OK, f"connected from {output.describe()}")


def _pause_reason(registry: Registry, connection: Connection) -> str:
    core = registry.core
    if core.memory_is_high:
        return "memory is above limits.max_memory; it is read again when there is some"
    if connection in core.waiting_for_store:
        return "the store has more to write than it can follow; it is read again after the commit"
    if connection.stops & REPLIES:
        return "it does not take what is sent to it"
    return "it passed its rate limit, or a queue is full that its messages go to; it will be"


def _limits(registry: Registry, publish: Publish) -> list[Step]:
    options = registry.core.options
    raw = publish.topic.encode(errors="surrogateescape")
    if len(raw) > 65_535:
        return [Step("topic", STOP, "longer than the 65,535 bytes that a packet can express")]
    try:
        decode_topic_name(raw)
    except ProtocolError as error:
        return [Step("topic", STOP, f"{error}: the connection is closed")]
    steps = [Step("topic", OK, "a good topic name")]
    levels = publish.topic.count("/") + 1
    if options.topic_max_depth and levels > options.topic_max_depth:
        steps[0] = Step(
            "topic",
            STOP,
            f"{levels} levels, and limits.topic_max_depth is {options.topic_max_depth}: "
            "the connection is closed",
        )
    body = 2 + len(raw) + (2 if publish.qos else 0) + publish.size
    size = 1 + len(remaining_length(min(body, MAX_REMAINING_LENGTH))) + body
    for name, value, limit in (
        ("session.max_packet_size", size, options.max_packet_size),
        ("limits.max_message_size", publish.size, options.max_message_size),
    ):
        if limit and value > limit:
            steps.append(
                Step(
                    "size", STOP, f"{value} bytes, and {name} is {limit}: the connection is closed"
                )
            )
    return steps


def _cluster(registry: Registry, client_id: str) -> list[Step]:
    """What a member that cannot be reached keeps from this client."""
    core = registry.core
    if not core.cluster_is_split:
        return []
    subscriber = registry.subscribers.get(client_id)
    output = None if subscriber is None else subscriber.output
    options = output.session.options if isinstance(output, Connection) else core.options
    if options.allow_publish_during_netsplit:
        return [Step("cluster", NOTE, "a member of the cluster cannot be reached")]
    reason = "a member of the cluster cannot be reached, and allow_publish_during_netsplit is off"
    return [Step("cluster", STOP, reason)]


async def _rights(broker: "BrokerView", registry: Registry, publish: Publish) -> list[Step]:
    """Whether the plugins let the client publish it."""
    payload = bytes(min(publish.size, registry.core.options.max_packet_size))
    message = Message(publish.topic, payload, publish.qos, publish.retain)
    question = question_of(registry, publish.client_id, publish.user, message)
    subscriber = registry.subscribers.get(publish.client_id)
    output = None if subscriber is None else subscriber.output
    consequence = ""
    if isinstance(output, Connection):
        is_closed = (
            output.session.level > 3 or registry.core.options.disconnect_on_unauthorized_publish_v3
        )
        consequence = "the connection is closed" if is_closed else "it is acknowledged and dropped"
    return await rights(broker, registry, question, consequence)


def hook_steps(registry: Registry, names: Sequence[str]) -> list[Step]:
    """Which of these hooks, that give no verdict, plugins serve."""
    hooks = registry.core.hooks
    said = {
        "on_publish": "on_publish is told",
        "on_deliver": "on_deliver may rewrite topic and payload for each subscriber, or keep the message back",
    }
    return [Step("hooks", NOTE, said[name]) for name in names if getattr(hooks, name) is not None]


def _store(registry: Registry, publish: Publish) -> list[Step]:
    store = registry.core.store
    if store is None or not (publish.qos or publish.retain):
        return []
    if not (store.failing or store.is_short or store.is_full()):
        return []
    reason = f"{store.why_refused()}: what had to be stored is refused"
    return [Step("store", NOTE, reason)]


def _retained(registry: Registry, publish: Publish) -> list[Step]:
    present = registry.retained.get(publish.topic)
    if not publish.retain:
        if present is None:
            return []
        return [Step("retain", NOTE, "the topic's retained message stays: this one has no RETAIN")]
    if not publish.size:
        what = "nothing: there is none" if present is None else "the topic's retained message"
        return [Step("retain", NOTE, f"an empty payload with RETAIN erases {what}")]
    options = registry.core.options
    limits = options.max_retained_messages, options.max_retained_bytes
    if not registry.retained.has_room(publish.topic, publish.size, *limits):
        reason = "limits.max_retained_messages or limits.max_retained_bytes is reached"
        return [Step("retain", NOTE, f"it is delivered and not kept: {reason}")]
    what = "is kept" if present is None else f"replaces one of {len(present.payload)} bytes"
    return [Step("retain", OK, f"it {what}, for later subscribers")]


# The subscribers' side


def _matches(recipients: list[Recipient]) -> Step:
    if not recipients:
        return Step("match", NOTE, "no subscription matches the topic")
    return Step("match", OK, f"{len(recipients)} subscription(s) match")


def recipients_of(registry: Registry, publish: Publish) -> list[Recipient]:
    """The subscriptions that match, and what would become of the message at each."""
    plain: dict[str, list[Subscription]] = {}
    groups: list[Group] = []
    for node in registry.trie.match(publish.topic):
        if node.one is not None:
            plain.setdefault(node.one.queue.client_id, []).append(node.one)
        if node.several is not None:
            for subscription in (node.several.many or {}).values():
                plain.setdefault(subscription.queue.client_id, []).append(subscription)
            groups += (node.several.groups or {}).values()
    found: list[Recipient] = []
    for client_id in sorted(plain):
        found += _of_client(registry, publish, plain[client_id])
    for group in groups:
        found += _of_group(registry, publish, group)
    return found


def _in_slots(broker: "BrokerView", registry: Registry, publish: Publish) -> list[Recipient]:
    """The durable sessions in slots of this node that get it, but for those whose clients are connected here."""
    found: list[Recipient] = []
    wanting = wanting_in_slots(broker, publish.mountpoint, publish.topic)
    for client_id, topic_filter, granted, is_online in wanting if publish.qos else ():
        if client_id in registry.subscribers:
            continue
        outcome = "sent" if is_online else "stored"
        reason = "it is connected to another node" if is_online else "until its client is back"
        qos = effective_qos(registry, publish, granted)
        what = Recipient(
            client_id=client_id, filter=topic_filter, qos=qos, outcome=outcome, reason=reason
        )
        if qos:
            found.append(what)
    return found


def effective_qos(registry: Registry, publish: Publish, granted: int) -> int:
    """The QoS at which it goes to who was granted that."""
    if registry.core.options.upgrade_outgoing_qos:
        return granted
    return min(publish.qos, granted)


def _of_client(
    registry: Registry, publish: Publish, subscriptions: list[Subscription]
) -> list[Recipient]:
    """A client gets one copy, by the first of its subscriptions with the highest QoS."""
    best = max(subscriptions, key=lambda each: each.qos)
    length = len(publish.topic.encode()) + publish.size
    found: list[Recipient] = []
    for each in subscriptions:
        qos = effective_qos(registry, publish, each.qos)
        what, reason = outcome(each.queue, qos, _publisher(registry, publish), length)
        if each is not best:
            what = "passed over"
            reason = f"the client gets one copy, by {_filter_of(registry, best)!r}"
        found.append(
            Recipient(
                client_id=each.queue.client_id,
                filter=_filter_of(registry, each),
                qos=qos,
                outcome=what,
                reason=reason,
            )
        )
    return found


def _of_group(registry: Registry, publish: Publish, group: Group) -> list[Recipient]:
    """One member gets it: any that is ready, else any that is connected, else any."""
    states = [send_state(member.queue) for member in group.order]
    best = min(states, default=0)
    rivals = states.count(best)
    length = len(publish.topic.encode()) + publish.size
    found: list[Recipient] = []
    for member, state in zip(group.order, states, strict=True):
        qos = effective_qos(registry, publish, member.qos)
        what, reason = outcome(member.queue, qos, _publisher(registry, publish), length)
        if state != best:
            what, reason = "passed over", f"another member is better placed; here: {reason}"
        elif rivals > 1:
            if what != "dropped":
                what = "candidate"
            reason = f"one of {rivals} is chosen at random; here: {reason}"
        else:
            reason = f"the only member to choose; {reason}"
        found.append(
            Recipient(
                client_id=member.queue.client_id,
                filter=group.name,
                qos=qos,
                outcome=what,
                reason=reason,
            )
        )
    return found


def _publisher(registry: Registry, publish: Publish) -> Output | None:
    subscriber = registry.subscribers.get(publish.client_id)
    return None if subscriber is None else subscriber.output


def _filter_of(registry: Registry, wanted: Subscription) -> str:
    subscriber = registry.subscribers.get(wanted.queue.client_id)
    if subscriber is not None:
        for topic_filter, subscription in subscriber.subscriptions.items():
            if subscription is wanted:
                return topic_filter
    return "?"
