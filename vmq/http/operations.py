"""The operations of the API, in one table: routes, checks of parameters and the OpenAPI description come out of it."""

from collections.abc import Awaitable
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from vmq.admin import (
    bans,
    cluster,
    keys,
    listeners,
    metrics,
    options,
    plugins,
    queues,
    retained,
    sessions,
    streams,
    why,
    why_receive,
    why_subscribe,
)
from vmq.admin.listing import Listing, Selection
from vmq.admin.payloads import PayloadBytes
from vmq.admin.trees import Mountpoint
from vmq.config.streams import StreamOptions
from vmq.config.text import toml_value
from vmq.http.group_operations import GROUP_OPERATIONS
from vmq.http.job_operations import JOB_OPERATIONS
from vmq.http.operation import Context, List, Operation
from vmq.http.publishing import PUBLISH
from vmq.plugins.shadow import ShadowReport

ClientId = Annotated[str, Meta(min_length=1, description="The client")]
AnyMountpoint = Annotated[
    str | None,
    Meta(description="Of this topic tree only, empty = the default one; none given: of all"),
]
Filter = Annotated[str, Meta(description="A topic filter, as in sensors/#")]


Local = Annotated[
    bool, Meta(description="Only what the asked node has, not what other nodes of its cluster have")
]


class ListSessions(List, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which sessions."""

    mountpoint: AnyMountpoint = None
    local: Local = False


class OneClient(Struct, forbid_unknown_fields=True, kw_only=True):
    """Which session."""

    client_id: ClientId
    mountpoint: Mountpoint = ""


class ShowSession(OneClient, forbid_unknown_fields=True, kw_only=True):
    """Which session to show."""

    local: Local = False


class Disconnect(OneClient, forbid_unknown_fields=True, kw_only=True):
    """Which client to disconnect."""

    cleanup: Annotated[
        bool, Meta(description="End the session, too, with its messages and subscriptions")
    ] = False


class Unsubscribe(OneClient, forbid_unknown_fields=True, kw_only=True):
    """Which subscription to remove."""

    filter: Filter


class Peek(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queue to look into, and how far."""

    client_id: ClientId
    payload_bytes: PayloadBytes = 64
    mountpoint: Mountpoint = ""


class ListRetained(Selection, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which retained messages."""

    filter: Annotated[
        str, Meta(description="Topics that this filter matches; none given: all of them")
    ] = ""
    payload_bytes: PayloadBytes = 64
    mountpoint: AnyMountpoint = None


class OneTopic(Struct, forbid_unknown_fields=True):
    """Which retained message."""

    topic: Annotated[str, Meta(min_length=1)]
    payload_bytes: PayloadBytes = 0
    mountpoint: Mountpoint = ""


class DeleteRetained(Struct, forbid_unknown_fields=True):
    """Which retained messages to delete."""

    filter: Filter
    mountpoint: Mountpoint = ""


class OneBan(Struct, forbid_unknown_fields=True, kw_only=True):
    """Whose ban; one of the three."""

    client_id: str = ""
    user: str = ""
    address: Annotated[
        str, Meta(description="An address or a network, as in 192.0.2.7 or 2001:db8::/64")
    ] = ""


class AddBan(OneBan, forbid_unknown_fields=True, kw_only=True):
    """Whom to ban, and for how long."""

    seconds: (
        Annotated[float, Meta(gt=0, le=3e9, description="How long; null = until it is removed")]
        | None
    ) = None
    reason: Annotated[str, Meta(description="For the log and the list")] = ""


class OneListener(Struct, forbid_unknown_fields=True):
    """Which listener."""

    name: str


class JoinCluster(Struct, forbid_unknown_fields=True):
    """Which cluster to join."""

    address: Annotated[str, Meta(description="Of any of its nodes: tcp://HOST:PORT")]


class LeaveCluster(Struct, forbid_unknown_fields=True):
    """How long to wait."""

    timeout: Annotated[
        float, Meta(ge=1, le=3600, description="Seconds after which the node has left anyway")
    ] = 60.0


class DrainNode(Struct, forbid_unknown_fields=True):
    """Whether clients are to be elsewhere, and how long that may take."""

    undo: Annotated[bool, Meta(description="Let clients in again instead")] = False

    timeout: Annotated[
        float, Meta(ge=1, le=3600, description="Seconds that the sessions may take to move")
    ] = 60.0


class RemoveMember(Struct, forbid_unknown_fields=True):
    """Which node to take out."""

    node: Annotated[str, Meta(description="Its name")]
    force: Annotated[bool, Meta(description="Even if it is alive")] = False


class OnePlugin(Struct, forbid_unknown_fields=True):
    """Which plugin."""

    name: Annotated[str, Meta(description="As in [plugins.NAME]")]


class ReloadPlugin(Struct, forbid_unknown_fields=True):
    """Which plugin, and how."""

    name: Annotated[str, Meta(description="As in [plugins.NAME]")]
    force: Annotated[
        bool,
        Meta(
            description="Also if the new code serves an auth hook no more that the old one serves"
        ),
    ] = False
    commit: Annotated[
        bool, Meta(description="The code that was tried, instead of what the files hold by now")
    ] = False


class ShadowPlugin(Struct, forbid_unknown_fields=True):
    """Which plugin to try with its code as it is now, and for how long."""

    name: Annotated[str, Meta(description="As in [plugins.NAME]")]
    seconds: Annotated[float, Meta(gt=0, le=86_400)] = 60.0


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
    ] = None  # type: ignore[assignment]
    acks: Annotated[
        Literal["none", "leader", "quorum", "memory", "os", "fsync"] | None,
        Meta(
            description="Who has a message before it is acknowledged; null = most replicas, or with two the leader"
        ),
    ] = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Nothing is read as something else yet: what was not given depends on the cluster."""


class AlterStream(OneStream, kw_only=True, forbid_unknown_fields=True):
    """What of a stream is to be another way."""

    replicas: Annotated[
        Annotated[int, Meta(ge=2, le=5)] | None,
        Meta(description="Nodes that are to have a copy of each partition; null = as many as have"),
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
        Annotated[int, Meta(ge=0)] | None,
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
        int | None, Meta(description="One of them; null = all without a leader")
    ] = None
    unsafe: Annotated[Literal[True], Meta(description="What only the lost nodes had is given up")]


async def _create_stream(context: Context, wanted: CreateStream) -> streams.StreamRow:
    plain = msgspec.to_builtins(wanted)
    for option in ("replicas", "acks"):
        if plain[option] is None:
            del plain[option]
    return await streams.create_stream(context.broker, plain.pop("name"), plain)


def _alter_stream(context: Context, wanted: AlterStream) -> streams.StreamRow:
    asked = {**msgspec.to_builtins(wanted)}
    given = {option: value for option, value in asked.items() if value is not None}
    return streams.alter_stream(context.broker, given.pop("name"), given)


class SetOption(Struct, forbid_unknown_fields=True):
    """What to change."""

    option: Annotated[str, Meta(description="As in queue.max_online_messages")]
    value: Annotated[
        str | int | float | bool,
        Meta(
            description="A text is read as the configuration file writes values, or as plain text"
        ),
    ]


def _set_option(context: Context, wanted: SetOption) -> options.OptionChanged:
    value = wanted.value if isinstance(wanted.value, str) else toml_value(wanted.value)
    return options.set_option(context.broker, wanted.option, value)


class OneOption(Struct, forbid_unknown_fields=True):
    """Which option."""

    option: Annotated[str, Meta(description="As in queue.max_online_messages")]


QoS = Annotated[int, Meta(ge=0, le=2)]
Size = Annotated[int, Meta(ge=0, description="Bytes of the payload")]
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


class CreateKey(Struct, forbid_unknown_fields=True):
    """What to call the key."""

    name: Annotated[str, Meta(description="For people: whose it is")] = ""
    scope: Annotated[keys.Scope, Meta(description="read = it may look, and change nothing")] = "all"


class OneKey(Struct, forbid_unknown_fields=True):
    """Which key."""

    id: str


def _listed(row: type[Struct], rows: "list[Any]", wanted: Selection) -> Listing[Any]:
    return Listing(row, rows, wanted)


OPERATIONS: Final = (
    Operation(
        "list_sessions",
        "GET",
        "/sessions",
        "List the sessions of all nodes, connected or not",
        ListSessions,
        sessions.SessionRow,
        lambda context, wanted: sessions.list_sessions(
            context.broker, wanted, wanted.mountpoint, local=wanted.local
        ),
        many=True,
    ),
    Operation(
        "show_session",
        "GET",
        "/session",
        "Show one session with its subscriptions",
        ShowSession,
        sessions.SessionDetails,
        lambda context, wanted: sessions.show_session(
            context.broker, wanted.client_id, wanted.mountpoint, local=wanted.local
        ),
    ),
    Operation(
        "disconnect",
        "DELETE",
        "/session",
        "Close a client's connection; its will is published",
        Disconnect,
        sessions.Disconnected,
        lambda context, wanted: sessions.disconnect(
            context.broker, wanted.client_id, wanted.mountpoint, cleanup=wanted.cleanup
        ),
    ),
    Operation(
        "unsubscribe",
        "DELETE",
        "/session/subscription",
        "Remove a client's subscription",
        Unsubscribe,
        sessions.Unsubscribed,
        lambda context, wanted: sessions.unsubscribe(
            context.broker, wanted.client_id, wanted.filter, wanted.mountpoint
        ),
    ),
    Operation(
        "peek",
        "GET",
        "/queue",
        "Look into a client's queue without consuming it",
        Peek,
        queues.QueuedRow,
        lambda context, wanted: queues.peek(
            context.broker, wanted.client_id, wanted, wanted.payload_bytes, wanted.mountpoint
        ),
        many=True,
    ),
    Operation(
        "purge",
        "DELETE",
        "/queue",
        "Drop what waits in a client's queue; what is in flight stays",
        OneClient,
        queues.Purged,
        lambda context, wanted: queues.purge(context.broker, wanted.client_id, wanted.mountpoint),
    ),
    Operation(
        "list_retained",
        "GET",
        "/retained",
        "List the retained messages",
        ListRetained,
        retained.RetainedRow,
        lambda context, wanted: retained.list_retained(
            context.broker, wanted, wanted.filter, wanted.payload_bytes, wanted.mountpoint
        ),
        many=True,
    ),
    Operation(
        "delete_retained",
        "DELETE",
        "/retained",
        "Delete the retained messages whose topics a filter matches",
        DeleteRetained,
        retained.RetainedDeleted,
        lambda context, wanted: retained.delete_retained(
            context.broker, wanted.filter, wanted.mountpoint
        ),
    ),
    Operation(
        "show_retained",
        "GET",
        "/retained/message",
        "Show the retained message of one topic",
        OneTopic,
        retained.RetainedRow,
        lambda context, wanted: retained.show_retained(
            context.broker, wanted.topic, wanted.payload_bytes, wanted.mountpoint
        ),
    ),
    Operation(
        "list_bans",
        "GET",
        "/bans",
        "List the bans that hold",
        List,
        bans.BanRow,
        lambda context, wanted: _listed(bans.BanRow, bans.list_bans(context.broker), wanted),
        many=True,
    ),
    Operation(
        "add_ban",
        "POST",
        "/ban",
        "Ban a client id, a user or an address, and end its connections",
        AddBan,
        bans.BanAdded,
        lambda context, wanted: bans.add_ban(
            context.broker,
            wanted.client_id,
            wanted.user,
            wanted.address,
            wanted.seconds,
            wanted.reason,
        ),
    ),
    Operation(
        "remove_ban",
        "DELETE",
        "/ban",
        "End a ban",
        OneBan,
        bans.BanRemoved,
        lambda context, wanted: bans.remove_ban(
            context.broker, wanted.client_id, wanted.user, wanted.address
        ),
    ),
    Operation(
        "list_listeners",
        "GET",
        "/listeners",
        "List the listeners of the configuration",
        List,
        listeners.ListenerRow,
        lambda context, wanted: _listed(
            listeners.ListenerRow, listeners.list_listeners(context.broker), wanted
        ),
        many=True,
    ),
    Operation(
        "start_listener",
        "POST",
        "/listener/start",
        "Open a listener that was stopped",
        OneListener,
        listeners.ListenerRow,
        lambda context, wanted: listeners.start_listener(context.broker, wanted.name),
    ),
    Operation(
        "stop_listener",
        "POST",
        "/listener/stop",
        "Close a listener; who is connected stays",
        OneListener,
        listeners.ListenerRow,
        lambda context, wanted: listeners.stop_listener(context.broker, wanted.name),
    ),
    Operation(
        "list_members",
        "GET",
        "/cluster/members",
        "List the nodes of the cluster, as this one sees them",
        List,
        cluster.MemberRow,
        lambda context, wanted: _listed(
            cluster.MemberRow, cluster.list_members(context.broker), wanted
        ),
        many=True,
    ),
    Operation(
        "join_cluster",
        "POST",
        "/cluster/join",
        "Join the cluster of the node at an address",
        JoinCluster,
        cluster.Joined,
        lambda context, wanted: cluster.join(context.broker, wanted.address),
    ),
    Operation(
        "leave_cluster",
        "POST",
        "/cluster/leave",
        "Hand durable sessions over, leave the cluster and stop",
        LeaveCluster,
        cluster.LeftCluster,
        lambda context, wanted: cluster.leave(context.broker, wanted.timeout),
    ),
    Operation(
        "drain_node",
        "POST",
        "/cluster/drain",
        "Turn clients away, hand durable sessions over, and stay a member",
        DrainNode,
        cluster.Drained,
        lambda context, wanted: cluster.drain(context.broker, wanted.timeout, undo=wanted.undo),
    ),
    Operation(
        "remove_member",
        "DELETE",
        "/cluster/member",
        "Take a dead node out of the cluster",
        RemoveMember,
        cluster.Removed,
        lambda context, wanted: cluster.remove(context.broker, wanted.node, force=wanted.force),
    ),
    Operation(
        "list_plugins",
        "GET",
        "/plugins",
        "List the plugins",
        List,
        plugins.PluginRow,
        lambda context, wanted: _listed(
            plugins.PluginRow, plugins.list_plugins(context.broker), wanted
        ),
        many=True,
    ),
    Operation(
        "enable_plugin",
        "POST",
        "/plugin/enable",
        "Load and start a plugin",
        OnePlugin,
        plugins.PluginRow,
        lambda context, wanted: plugins.enable(context.broker, wanted.name),
    ),
    Operation(
        "disable_plugin",
        "POST",
        "/plugin/disable",
        "Take a plugin out of the chains and stop it",
        OnePlugin,
        plugins.PluginRow,
        lambda context, wanted: plugins.disable(context.broker, wanted.name),
    ),
    Operation(
        "reload_plugin",
        "POST",
        "/plugin/reload",
        "Start a plugin's code as it is now, in place of what runs",
        ReloadPlugin,
        plugins.PluginRow,
        lambda context, wanted: plugins.reload(
            context.broker, wanted.name, force=wanted.force, commit=wanted.commit
        ),
    ),
    Operation(
        "shadow_plugin",
        "POST",
        "/plugin/shadow",
        "Have a plugin's code as it is now asked beside what runs, without effect",
        ShadowPlugin,
        ShadowReport,
        lambda context, wanted: plugins.shadow(context.broker, wanted.name, wanted.seconds),
    ),
    Operation(
        "show_shadow",
        "GET",
        "/plugin/shadow",
        "Show where code that was tried answered otherwise",
        OnePlugin,
        ShadowReport,
        lambda context, wanted: plugins.show_shadow(context.broker, wanted.name),
    ),
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
            context.broker, wanted.name, wanted.partition
        ),
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
    Operation(
        "list_metrics",
        "GET",
        "/metrics",
        "List the metrics",
        List,
        metrics.MetricRow,
        lambda context, wanted: metrics.list_metrics(context.broker, wanted),
        many=True,
    ),
    Operation(
        "list_options",
        "GET",
        "/options",
        "List the options and whether each may change live",
        List,
        options.OptionRow,
        lambda context, wanted: _listed(
            options.OptionRow, options.list_options(context.broker), wanted
        ),
        many=True,
    ),
    Operation(
        "set_option",
        "POST",
        "/option",
        "Set an option until its configuration changes, it is reset, or the broker stops",
        SetOption,
        options.OptionChanged,
        _set_option,
    ),
    Operation(
        "reset_option",
        "DELETE",
        "/option",
        "Take back what was set: the option is as configured again",
        OneOption,
        options.OptionChanged,
        lambda context, wanted: options.reset_option(context.broker, wanted.option),
    ),
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
    Operation(
        "list_api_keys",
        "GET",
        "/api-keys",
        "List the API keys",
        List,
        keys.KeyRow,
        lambda context, wanted: _listed(keys.KeyRow, context.api_keys.list_keys(), wanted),
        many=True,
        local=True,
    ),
    Operation(
        "create_api_key",
        "POST",
        "/api-key",
        "Make an API key; it is shown this once",
        CreateKey,
        keys.NewKey,
        lambda context, wanted: context.api_keys.create(keys.check_name(wanted.name), wanted.scope),
        local=True,
    ),
    Operation(
        "delete_api_key",
        "DELETE",
        "/api-key",
        "Delete an API key",
        OneKey,
        keys.KeyDeleted,
        lambda context, wanted: context.api_keys.delete(wanted.id),
        local=True,
    ),
    PUBLISH,
    *JOB_OPERATIONS,
    *GROUP_OPERATIONS,
)
