"""The operations of the API on streams; see `vmq.http.operations`."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from vmq.admin import (
    streams,
)
from vmq.admin.listing import LARGEST
from vmq.config.streams import StreamOptions
from vmq.http.operation import Context, List, Operation


class OneStream(Struct, forbid_unknown_fields=True):
    """Which stream."""

    name: Annotated[str, Meta(description="As in [streams.NAME]")]


class CreateStream(StreamOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to make."""

    name: Annotated[str, Meta(description="As in [streams.NAME]")]
    replicas: Annotated[
        Annotated[int, Meta(ge=1, le=5)] | None,
        Meta(
            description="Nodes of a cluster that have a copy of each partition; null = 3, or as many as there are"
        ),
    ] = None  # type: ignore[assignment]  # wider than in StreamOptions: null is for what the cluster decides
    acks: Annotated[
        Literal["none", "leader", "quorum", "memory", "os", "fsync"] | None,
        Meta(
            description="Who has a message before it is acknowledged; null = most replicas, or with two the leader"
        ),
    ] = None  # type: ignore[assignment]  # wider than in StreamOptions: null is for what the cluster decides
    retention_bytes: Annotated[
        int,
        Meta(
            ge=0,
            le=LARGEST,
            description="Bytes of the whole stream above which the oldest segments are deleted; 0 = no limit",
        ),
    ] = 0

    def __post_init__(self) -> None:
        """Nothing is read as something else yet: what was not given depends on the cluster."""


class AlterStream(OneStream, kw_only=True, forbid_unknown_fields=True):
    """What of a stream is to be another way."""

    replicas: Annotated[
        Annotated[int, Meta(ge=2, le=5)] | None,
        Meta(description="Nodes that are to have a copy of each partition; null = as many as have"),
    ] = None
    partitions: Annotated[
        Annotated[int, Meta(ge=1, le=1024)] | None,
        Meta(description="How many there are to be, not fewer than now; null = as many"),
    ] = None
    compact: Annotated[
        bool | None,
        Meta(description="Whether of a key only the newest message stays; null = as it is"),
    ] = None
    compact_by: Annotated[
        Literal["topic", "key"] | None, Meta(description="What the key is; null = as it is")
    ] = None
    retention_age: Annotated[
        str | None, Meta(description="How long messages are kept; null = as it is")
    ] = None
    without_quorum: Annotated[
        Literal["wait", "keep"] | None,
        Meta(description="What publishers get while most copies are away; null = as it is"),
    ] = None
    retention_bytes: Annotated[
        Annotated[int, Meta(ge=0, le=LARGEST)] | None,
        Meta(description="Above which the oldest segments are deleted; null = as it is"),
    ] = None


class MovePartition(OneStream, kw_only=True, forbid_unknown_fields=True):
    """Where a partition is to go."""

    partition: Annotated[int, Meta(ge=0, lt=1024)] = 0
    to: Annotated[
        list[str], Meta(min_length=1, max_length=5, description="Nodes; the first one is to lead")
    ]


class TransferPartition(OneStream, kw_only=True, forbid_unknown_fields=True):
    """Who is to lead a partition."""

    partition: Annotated[int, Meta(ge=0, lt=1024)] = 0
    to: Annotated[str, Meta(description="A node that has a replica")]


class RecoverStream(OneStream, kw_only=True, forbid_unknown_fields=True):
    """Which partitions are to go on without the majority of their replicas."""

    partition: Annotated[
        Annotated[int, Meta(ge=0, le=LARGEST)] | None,
        Meta(description="One of them; null = all without a leader"),
    ] = None
    unsafe: Annotated[Literal[True], Meta(description="What only the lost nodes had is given up")]
    force: Annotated[
        bool, Meta(description="Also if most replicas could be reached a moment ago")
    ] = False


class AcceptLoss(OneStream, forbid_unknown_fields=True):
    """What an operator knows may be lost."""

    partition: Annotated[
        Annotated[int, Meta(ge=0, le=LARGEST)] | None,
        Meta(description="Of one partition; null = of all of the stream"),
    ] = None


async def _create_stream(context: Context, wanted: CreateStream) -> streams.StreamRow:
    plain = msgspec.to_builtins(wanted)
    for option in ("replicas", "acks"):
        if plain[option] is None:
            del plain[option]
    return await streams.create_stream(context.broker, plain.pop("name"), plain)


async def _alter_stream(context: Context, wanted: AlterStream) -> streams.StreamRow:
    asked = {**msgspec.to_builtins(wanted)}
    given = {option: value for option, value in asked.items() if value is not None}
    return await streams.alter_stream(context.broker, given.pop("name"), given)


STREAM_OPERATIONS: Final = (
    Operation(
        "list_streams",
        "GET",
        "/streams",
        "List the streams",
        List,
        streams.StreamRow,
        lambda context, wanted: streams.list_streams(context.broker, wanted),
        many=True,
    ),
    Operation(
        "show_stream",
        "GET",
        "/stream",
        "Show one stream with its options and partitions",
        OneStream,
        streams.StreamDetails,
        lambda context, wanted: streams.show_stream(context.broker, wanted.name),
    ),
    Operation(
        "create_stream",
        "POST",
        "/stream",
        "Make a stream, which stays after a restart",
        CreateStream,
        streams.StreamRow,
        _create_stream,
    ),
    Operation(
        "delete_stream",
        "DELETE",
        "/stream",
        "Delete a stream with its messages",
        OneStream,
        streams.StreamRow,
        lambda context, wanted: streams.delete_stream(context.broker, wanted.name),
    ),
    Operation(
        "alter_stream",
        "POST",
        "/stream/alter",
        "Change what a stream keeps, and in how many copies, which it gets in the background",
        AlterStream,
        streams.StreamRow,
        _alter_stream,
    ),
    Operation(
        "move_partition",
        "POST",
        "/stream/move",
        "Have a replicated partition go to other nodes, in the background",
        MovePartition,
        streams.StreamRow,
        lambda context, wanted: streams.move_partition(
            context.broker, wanted.name, wanted.partition, wanted.to
        ),
    ),
    Operation(
        "transfer_partition",
        "POST",
        "/stream/transfer",
        "Have another replica lead a partition",
        TransferPartition,
        streams.StreamRow,
        lambda context, wanted: streams.transfer_partition(
            context.broker, wanted.name, wanted.partition, wanted.to
        ),
    ),
    Operation(
        "recover_stream",
        "POST",
        "/stream/recover",
        "Have partitions whose majority is lost go on with this node's copies alone",
        RecoverStream,
        streams.StreamRow,
        lambda context, wanted: streams.recover_stream(
            context.broker, wanted.name, wanted.partition, force=wanted.force
        ),
    ),
    Operation(
        "accept_loss",
        "POST",
        "/stream/accept-loss",
        "Say that you know which offsets of a stream may be lost, so that /health names them no more",
        AcceptLoss,
        streams.StreamRow,
        lambda context, wanted: streams.accept_loss(context.broker, wanted.name, wanted.partition),
    ),
    Operation(
        "rebalance_stream",
        "POST",
        "/stream/rebalance",
        "Spread the leaders of a replicated stream's partitions evenly",
        OneStream,
        streams.StreamRow,
        lambda context, wanted: streams.rebalance_stream(context.broker, wanted.name),
    ),
    Operation(
        "scrub_stream",
        "POST",
        "/stream/scrub",
        "Have the sealed segments of a stream read again, so that damage is in /health",
        OneStream,
        streams.StreamRow,
        lambda context, wanted: streams.scrub_stream(context.broker, wanted.name),
        local=True,
    ),
)
