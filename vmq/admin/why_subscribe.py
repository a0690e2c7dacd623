"""What would happen to a subscription, and why: `vmq why --subscribe`.

It mirrors `Session.on_subscribe`, and changes nothing.
"""

from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace
from vmq_hooks import Subscription

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
from vmq.admin.why import client_step
from vmq.core.registry import Registry
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.topics import SHARE_PREFIX, decode_filter
from vmq.protocol.connection import Connection
from vmq.protocol.subscribe import limit_on

if TYPE_CHECKING:
    from vmq.ports import BrokerView

_FAILURE = "it is answered with failure (0x80)"


class Granting(Struct, frozen=True, kw_only=True):
    """What would happen to a subscription."""

    client_id: str
    mountpoint: Mountpoint
    filter: str
    qos: int
    granted: Annotated[bool, Meta(description="Whether the client would have it")]
    verdict: str
    remedy: Annotated[str, Meta(description="What would change it, if that is known")]
    steps: list[Step]


class Subscribe(Struct, frozen=True, kw_only=True):
    """A subscription that nobody makes."""

    client_id: str
    filter: str
    mountpoint: str = ""
    qos: int = 0
    #: As whom the plugins are asked; None: as the client is connected, or was.
    user: str | None = None


async def explain(broker: "BrokerView", subscribe: Subscribe) -> Granting:
    """What would happen if this client subscribed to this now.

    Raises:
        AdminError: the QoS is impossible.
    """
    if subscribe.qos not in (0, 1, 2):
        raise AdminError(f"qos: {subscribe.qos}; accepted: 0, 1, 2")
    registry = registry_of(broker, subscribe.mountpoint)
    client, user = await client_step(broker, registry, subscribe.mountpoint, subscribe.client_id)
    if subscribe.user is None:
        subscribe = replace(subscribe, user=user)
    steps = [client, *_filter(subscribe)]
    if not any(each.step == "filter" for each in stops(steps)):
        wanted = Subscription(subscribe.filter, subscribe.qos)
        question = question_of(registry, subscribe.client_id, subscribe.user, wanted)
        steps += await rights(broker, registry, question, _FAILURE)
        steps += _state(registry, subscribe)
    stopped = stops(steps)
    verdict = f"It is granted at QoS {subscribe.qos}"
    return Granting(
        client_id=subscribe.client_id,
        mountpoint=subscribe.mountpoint,
        filter=subscribe.filter,
        qos=subscribe.qos,
        granted=not stopped,
        verdict=f"It is not granted: {reasons(stopped)}" if stopped else verdict,
        remedy=remedy_of(stopped),
        steps=steps,
    )


def _filter(subscribe: Subscribe) -> list[Step]:
    raw = subscribe.filter.encode(errors="surrogateescape")
    try:
        if len(raw) > 65_535:
            return [Step("filter", STOP, "longer than the 65,535 bytes that a packet can express")]
        decode_filter(raw)
    except ProtocolError as error:
        return [Step("filter", STOP, f"{error}: the connection is closed")]
    steps = [Step("filter", OK, "a good topic filter")]
    if subscribe.filter.startswith(SHARE_PREFIX):
        steps.append(Step("share", NOTE, "a shared subscription: each message goes to one member"))
    return steps


def _state(registry: Registry, subscribe: Subscribe) -> list[Step]:
    """What of the client's state and the cluster's stands in the way, and what comes with the subscription."""
    core = registry.core
    steps: list[Step] = []
    subscriber = registry.subscribers.get(subscribe.client_id)
    output = None if subscriber is None else subscriber.output
    options = output.session.options if isinstance(output, Connection) else core.options
    if core.cluster_is_split:
        reason = "a member of the cluster cannot be reached"
        if options.allow_subscribe_during_netsplit:
            steps.append(Step("cluster", NOTE, reason))
        else:
            reason += f", and allow_subscribe_during_netsplit is off: {_FAILURE}"
            steps.append(Step("cluster", STOP, reason))
    present = {} if subscriber is None else subscriber.subscriptions
    if subscribe.filter in present:
        qos = present[subscribe.filter].qos
        steps.append(Step("present", NOTE, f"the client has it already, at QoS {qos}"))
    limit = limit_on(core.options, registry.trie, subscriber, subscribe.filter)
    if limit:
        reason = f"limits.{limit} is {getattr(core.options, limit)}, and would be exceeded"
        steps.append(Step("limit", STOP, f"{reason}: {_FAILURE}"))
    return steps
