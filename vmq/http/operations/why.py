"""The operations of the API that explain what became of a message, and why; see `vmq.http.operations`."""

from collections.abc import Awaitable
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from vmq.admin import (
    why,
    why_receive,
    why_subscribe,
)
from vmq.admin.listing import LARGEST
from vmq.admin.trees import Mountpoint
from vmq.http.operation import Context, Operation
from vmq.http.operations.common import ClientId, Filter

QoS = Annotated[int, Meta(ge=0, le=2)]


Size = Annotated[int, Meta(ge=0, le=LARGEST, description="Bytes of the payload")]


AsUser = Annotated[
    str | None,
    Meta(description="Ask the plugins as this user; none given: as the client is connected"),
]


class Why(Struct, forbid_unknown_fields=True):
    """A publish to explain."""

    client_id: ClientId
    topic: str
    qos: QoS = 0
    retain: bool = False
    size: Size = 1
    user: AsUser = None
    mountpoint: Mountpoint = ""


def _why(context: Context, wanted: Why) -> Awaitable[why.Explanation]:
    return why.explain(context.broker, why.Publish(**msgspec.structs.asdict(wanted)))


class WhySubscribe(Struct, forbid_unknown_fields=True):
    """A subscription to explain."""

    client_id: ClientId
    filter: Filter
    qos: QoS = 0
    user: AsUser = None
    mountpoint: Mountpoint = ""


def _why_subscribe(context: Context, wanted: WhySubscribe) -> Awaitable[why_subscribe.Granting]:
    subscribe = why_subscribe.Subscribe(**msgspec.structs.asdict(wanted))
    return why_subscribe.explain(context.broker, subscribe)


class WhyReceive(Struct, forbid_unknown_fields=True):
    """A message to one client, to explain."""

    client_id: Annotated[str, Meta(min_length=1, description="Who is to receive it")]
    topic: str
    qos: QoS = 0
    size: Size = 1
    publisher: Annotated[str, Meta(description="Who publishes it; empty: anybody who may")] = ""
    mountpoint: Mountpoint = ""


def _why_receive(context: Context, wanted: WhyReceive) -> Awaitable[why_receive.Receiving]:
    receive = why_receive.Receive(**msgspec.structs.asdict(wanted))
    return why_receive.explain(context.broker, receive)


WHY_OPERATIONS: Final = (
    Operation(
        "why",
        "GET",
        "/why",
        "Explain what would happen to a publish; nothing is published",
        Why,
        why.Explanation,
        _why,
    ),
    Operation(
        "why_subscribe",
        "GET",
        "/why/subscribe",
        "Explain what would happen to a subscription; none is made",
        WhySubscribe,
        why_subscribe.Granting,
        _why_subscribe,
    ),
    Operation(
        "why_receive",
        "GET",
        "/why/receive",
        "Explain whether a client would receive a message; nothing is published",
        WhyReceive,
        why_receive.Receiving,
        _why_receive,
    ),
)
