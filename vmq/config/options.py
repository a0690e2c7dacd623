"""The options of the broker: their names, types, defaults, limits and meanings.

One Struct is one section of the TOML file. The annotation of a field is the single place that says what the option
means (`description`) and accepts (type, bounds, `accepts` where those need words); the checks, the error texts and the
reference file `config/reference.toml` come out of it.

`Config()` alone is the shipped default, for embedding; `vmq.config.load` reads one from its sources, and
`vmq.config.checks` says which values do not go together.
"""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from vmq.config.cluster import ClusterOptions
from vmq.config.jobs import JobOptions, ScheduleOptions
from vmq.config.listeners import Certificate, ListenerOptions
from vmq.config.mappings import MappingOptions
from vmq.config.plugins import PluginOptions
from vmq.config.sources import ConfigError, Problem
from vmq.config.streams import StreamOptions
from vmq.config.values import (
    DURATION_FORMS,
    DURATION_PATTERN,
    PATH_PATTERN,
    Endpoint,
    is_loopback,
    parse_duration,
)

__all__ = [
    "AuthOptions",
    "BrokerOptions",
    "Certificate",
    "ClusterOptions",
    "Config",
    "ConfigError",
    "Endpoint",
    "JobOptions",
    "LimitOptions",
    "ListenerOptions",
    "LogOptions",
    "NetworkOptions",
    "PluginOptions",
    "Problem",
    "QueueOptions",
    "ScheduleOptions",
    "SessionOptions",
    "StoreOptions",
    "StreamOptions",
    "is_loopback",
    "parse_duration",
    "value_of",
]

# The largest packet that MQTT can express: fixed header of 5 bytes and a remaining length of 268,435,455 [MQTT 2.2.3].
LARGEST_PACKET: Final = 268_435_460

# The largest CONNECT: headers and five fields of 65,535 bytes.
LARGEST_CONNECT: Final = 4 + 10 + 5 * 65_537

#: Each worker has a link to each other one: beyond this they would mostly talk to each other.
MOST_WORKERS: Final = 64


# An option so marked may change on a running broker (vmq.config.reload).
_LIVE: Final = {"live": True}


class BrokerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The broker as a whole."""

    data_dir: Annotated[
        str,
        Meta(
            pattern=PATH_PATTERN,
            description="Directory of durable state, made when missing; relative to the working directory.",
            extra={"accepts": "a path"},
        ),
    ] = "data"
    workers: Annotated[
        Literal["auto"] | Annotated[int, Meta(ge=1, le=MOST_WORKERS)],
        Meta(
            description="Processes that `vmq start` runs, which share the listeners and are one broker; auto = one "
            "a processor core. Limits on connections and memory are divided among them, those on clients that "
            "connect too often hold for each. A grpc listener has a port for each, its own and those above it.",
            extra={"accepts": f'"auto", a whole number, 1 to {MOST_WORKERS}'},
        ),
    ] = 1
    stream_scrub_rate: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 40,
            description="Bytes a second at which each process reads the sealed segments of its streams again, once "
            "a day at most, so that damage is in /health before a reader meets it; 0 = not.",
        ),
    ] = 4_194_304


class LogOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Least severe event that is logged.", extra=_LIVE),
    ] = "info"
    format: Annotated[
        Literal["text", "json"],
        Meta(
            description="One line an event: for people, or a JSON object with its fields.",
            extra=_LIVE,
        ),
    ] = "text"
    file: Annotated[
        Annotated[str, Meta(pattern=PATH_PATTERN)] | None,
        Meta(
            description="File to append to, opened anew on SIGUSR1; unset = standard error.",
            extra={"accepts": "a path"},
        ),
    ] = None
    audit_file: Annotated[
        Annotated[str, Meta(pattern=PATH_PATTERN)] | None,
        Meta(
            description="File for the audit log, a JSON object a line: what was changed by whom, and refused logins. "
            "Appended to, mode 0600, opened anew on SIGUSR1; unset = these events are in the log, at every level.",
            extra={"accepts": "a path"},
        ),
    ] = None
    flood_limit: Annotated[
        int,
        Meta(
            ge=0,
            description="Events of one kind written in ten seconds; more are only counted; 0 = no limit.",
            extra=_LIVE,
        ),
    ] = 100


class AuthOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may connect."""

    allow_anonymous: Annotated[
        Literal["loopback"] | bool,
        Meta(
            description="Whether clients without credentials may connect; "
            '"loopback" admits them on loopback listeners only, and only while no plugin authenticates; '
            "true admits everybody, and asks no plugin."
        ),
    ] = "loopback"
    check_retain_source: Annotated[
        bool,
        Meta(
            description="A retained message goes to new subscribers only while the plugins let its publisher publish "
            "it; one that the broker, a bridge or a program published, or a plugin moved to its topic, always does.",
            extra=_LIVE,
        ),
    ] = True
    refusal_code: Annotated[
        Literal[4, 5],
        Meta(
            description="Return code of the CONNACK to a wrong user name or password: 4 (bad user name or password), "
            "or 5 (not authorised) as mosquitto answers.",
            extra=_LIVE,
        ),
    ] = 4


class SessionOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Connections and sessions."""

    mqtt_connect_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds that a new connection has to send CONNECT.",
            extra=_LIVE,
        ),
    ] = 5.0
    login_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="Seconds that a client which has sent CONNECT waits at most for plugins to decide; then it is "
            "told to come again (code 3). Many wait when a whole fleet comes back and each password is hashed.",
            extra=_LIVE,
        ),
    ] = 600.0
    max_client_id_size: Annotated[
        int,
        # Below 23 bytes a server would refuse ids that it must accept [MQTT-3.1.3-5].
        Meta(ge=23, le=65_535, description="Longest accepted client id, in bytes.", extra=_LIVE),
    ] = 100
    max_connect_size: Annotated[
        int,
        Meta(
            ge=256,
            le=LARGEST_CONNECT,
            description="Largest accepted CONNECT, in bytes: client id, will, user name and password. It is what "
            "one who is not yet known may have the broker keep.",
            extra=_LIVE,
        ),
    ] = 16_384
    max_packet_size: Annotated[
        int,
        Meta(
            ge=64,
            le=LARGEST_PACKET,
            description="Largest accepted packet, in bytes; a larger one closes the connection.",
            extra=_LIVE,
        ),
    ] = 16_777_216
    max_control_packet_size: Annotated[
        int,
        Meta(
            ge=64,
            le=LARGEST_PACKET,
            description="Largest accepted packet that is not PUBLISH, in bytes; with SUBSCRIBE and UNSUBSCRIBE, "
            "whose size is that of their topic filters, it counts.",
            extra=_LIVE,
        ),
    ] = 262_144
    persistent_client_expiration: Annotated[
        str,
        Meta(
            pattern=DURATION_PATTERN,
            description="How long a durable session outlives its last connection (1m = 30 days, 1y = 365).",
            extra={"accepts": DURATION_FORMS, **_LIVE},
        ),
    ] = "never"
    upgrade_outgoing_qos: Annotated[
        bool,
        Meta(
            description="Deliver at the QoS of the subscription even if it is above the message's."
        ),
    ] = False
    retry_interval: Annotated[
        float,
        Meta(
            ge=0,
            le=86_400,
            description="Seconds until an unacknowledged packet is sent again while connected; 0 = on reconnect only.",
            extra=_LIVE,
        ),
    ] = 0.0
    shared_subscription_policy: Annotated[
        Literal["prefer_local", "random", "local_only", "prefer_online_before_local"],
        Meta(description="Which member of a shared subscription receives a message.", extra=_LIVE),
    ] = "prefer_local"
    owner: Annotated[
        Literal["user", "client_id"],
        Meta(
            description="Whose a durable session is: the user's who began it, and another user with the same client id "
            "is refused (code 2); or that of whoever may connect with the client id, who gets what it is allowed to "
            "read.",
            extra=_LIVE,
        ),
    ] = "user"
    suppress_lwt_on_session_takeover: Annotated[
        bool,
        Meta(
            description="Do not publish the will of a connection whose client id connects anew.",
            extra=_LIVE,
        ),
    ] = False

    disconnect_on_unauthorized_publish_v3: Annotated[
        bool,
        Meta(
            description="A PUBLISH that a plugin refuses closes the connection of an MQTT 3.1 client too; else it is "
            "acknowledged and dropped.",
            extra=_LIVE,
        ),
    ] = False

    @property
    def persistent_client_expiration_seconds(self) -> int | None:
        """`persistent_client_expiration` in seconds; None = never."""
        return parse_duration(self.persistent_client_expiration)


class QueueOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One subscriber's queue."""

    max_inflight_messages: Annotated[
        int,
        Meta(
            ge=0,
            le=65_535,
            description="QoS 1 and 2 messages, not jobs, that may await a client's acknowledgement; 0 = no limit.",
            extra=_LIVE,
        ),
    ] = 20
    max_inflight_bytes: Annotated[
        int,
        Meta(
            ge=-1,
            description="Bytes of these together, and of replays; one message always goes; -1 = no limit.",
            extra=_LIVE,
        ),
    ] = 1_048_576
    max_bytes: Annotated[
        int,
        Meta(
            ge=-1,
            description="Bytes on disk that the messages for one durable session may have; -1 = no limit.",
            extra=_LIVE,
        ),
    ] = 268_435_456
    max_memory_bytes: Annotated[
        int,
        Meta(
            ge=-1,
            description="Bytes in memory that may wait for one client: all messages for one with clean session, those "
            "at QoS 0 for any other; topics and payloads count; -1 = no limit.",
            extra=_LIVE,
        ),
    ] = 16_777_216
    max_age: Annotated[
        str,
        Meta(
            pattern=DURATION_PATTERN,
            description="How long a message may wait for a client, connected or not; then it is dropped.",
            extra={"accepts": DURATION_FORMS, **_LIVE},
        ),
    ] = "never"
    max_online_messages: Annotated[
        int,
        Meta(
            ge=-1,
            description="Messages queued beyond those for a connected client; -1 = no limit but that in bytes.",
            extra=_LIVE,
        ),
    ] = -1
    max_offline_messages: Annotated[
        int,
        Meta(
            ge=-1,
            description="Messages queued for a durable session offline; -1 = no limit but that in bytes.",
            extra=_LIVE,
        ),
    ] = -1
    queue_type: Annotated[
        Literal["fifo", "lifo"],
        Meta(description="Order of delivery: oldest first, or newest first."),
    ] = "fifo"
    drop: Annotated[
        Literal["newest", "oldest"],
        Meta(
            description="What a full queue drops: the arriving message, or the one waiting longest.",
            extra=_LIVE,
        ),
    ] = "newest"
    overflow: Annotated[
        Literal["drop", "pause_publisher"],
        Meta(
            description="What a full queue of a connected client does: drop by the rule above, or "
            "take the message and stop reading its publisher until there is room (5 s at most).",
            extra=_LIVE,
        ),
    ] = "drop"
    max_msgs_per_drain_step: Annotated[
        int,
        Meta(
            ge=1,
            description="Messages handed over at once when a queue's backlog drains.",
            extra=_LIVE,
        ),
    ] = 100

    @property
    def max_age_seconds(self) -> int | None:
        """`max_age` in seconds; None = never."""
        return parse_duration(self.max_age)


class LimitOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one client may do, and what all together may use. 0 is no limit, unless it says otherwise."""

    max_message_size: Annotated[
        int,
        Meta(
            ge=0,
            description="Largest payload of a PUBLISH, in bytes; a larger one closes the connection. A client with a "
            "larger will is refused.",
            extra=_LIVE,
        ),
    ] = 0
    max_ws_frame_size: Annotated[
        int,
        Meta(
            ge=1024,
            le=LARGEST_PACKET,
            description="Largest WebSocket message, in one frame or several, in bytes; a larger one closes the "
            "connection with status 1009. A packet may be spread over several messages.",
        ),
    ] = 16_842_752
    max_message_rate: Annotated[
        float,
        Meta(
            ge=0,
            description="PUBLISH packets a second of one client; above it the broker reads it no faster.",
            extra=_LIVE,
        ),
    ] = 0.0
    max_byte_rate: Annotated[
        float,
        Meta(
            ge=0,
            description="Bytes a second that one client may send, whatever packets they are of; above it the broker "
            "reads it no faster.",
            extra=_LIVE,
        ),
    ] = 0.0
    max_subscriptions_per_client: Annotated[
        int,
        Meta(
            ge=0,
            description="Subscriptions of one client; a further one is answered with failure (0x80).",
            extra=_LIVE,
        ),
    ] = 100_000
    max_subscription_bytes_per_client: Annotated[
        int,
        Meta(
            ge=0,
            description="Memory of one client's subscriptions, in bytes; one that would exceed it is answered with "
            "failure (0x80).",
            extra=_LIVE,
        ),
    ] = 134_217_728
    topic_max_depth: Annotated[
        int,
        Meta(
            ge=0,
            description="Levels of a topic; PUBLISH to a deeper one closes the connection, a will on one is "
            "refused, a deeper filter is answered with failure (0x80).",
            extra=_LIVE,
        ),
    ] = 128
    topic_max_plus: Annotated[
        int,
        Meta(
            ge=0,
            description="`+` in a topic filter; a filter with more is answered with failure (0x80). 0 is no limit. "
            "Each doubles what the first message on a new topic may be compared with.",
            extra=_LIVE,
        ),
    ] = 0
    max_retained_messages: Annotated[
        int,
        Meta(
            ge=0,
            description="Retained messages; one for a further topic is delivered but not kept.",
            extra=_LIVE,
        ),
    ] = 1_000_000
    max_retained_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Memory of the retained messages of a mountpoint, in bytes: payloads, topics and 200 for each "
            "besides; what would exceed it is delivered but not kept.",
            extra=_LIVE,
        ),
    ] = 1_073_741_824
    max_subscription_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Memory of the subscriptions of a mountpoint, in bytes: topic filters and the nodes of their "
            "tree; one that would exceed it is answered with failure (0x80).",
            extra=_LIVE,
        ),
    ] = 1_073_741_824
    max_job_size: Annotated[
        int,
        Meta(
            ge=1,
            le=LARGEST_PACKET,
            description="Largest body of a job, in bytes; a larger one is refused.",
            extra=_LIVE,
        ),
    ] = 1_048_576
    max_job_memory: Annotated[
        int,
        Meta(
            ge=0,
            description="Memory of jobs, in bytes: some 500 for each besides its body. Above an eighth of it the jobs "
            "of long queues are paged out (some 35 bytes each stay), above three quarters the bodies of further jobs "
            "stay on disk, above 95 % of it jobs are refused (OOM).",
            extra=_LIVE,
        ),
    ] = 1_073_741_824
    max_job_queues: Annotated[
        int,
        Meta(
            ge=1,
            le=1 << 30,
            description="Queues of jobs; a job for a further one is refused (OOM).",
            extra=_LIVE,
        ),
    ] = 1_000_000
    max_job_queues_per_user: Annotated[
        int,
        Meta(
            ge=0,
            le=1 << 30,
            description="Queues of jobs that the clients of one user make, those without a user name as one; a job for "
            "a further one is refused (OOM). 0 = no limit.",
            extra=_LIVE,
        ),
    ] = 500_000
    max_partitions: Annotated[
        int,
        Meta(
            ge=0,
            le=1_000_000,
            description="Partitions of streams that a node has copies of, or owns; a stream, a number of copies or a "
            "move for which nodes have no room is refused.",
        ),
    ] = 10_000
    max_query_memory: Annotated[
        int,
        Meta(
            ge=16_777_216,
            le=1 << 40,
            description="Memory of one SQL query, in bytes, of which two run at a time; one that needs more is ended.",
        ),
    ] = 536_870_912
    max_query_seconds: Annotated[
        float,
        Meta(ge=1, le=86_400, description="Seconds that one SQL query may take."),
    ] = 60.0
    max_memory: Annotated[
        int,
        Meta(
            ge=-1,
            description="Resident memory in bytes, above which new clients are refused and publishers are not read; "
            "0 = four fifths of what the machine has, or the container or systemd unit leaves; -1 = no limit.",
            extra=_LIVE,
        ),
    ] = 0
    stalled_client_timeout: Annotated[
        float,
        Meta(
            ge=0,
            description="Seconds that a client may take nothing of what is sent to it, then its connection is dropped.",
            extra=_LIVE,
        ),
    ] = 300.0
    max_connections_per_ip: Annotated[
        int,
        Meta(
            ge=0,
            description="Connections from one IPv4 address, or one /64 of IPv6, to all MQTT listeners; a further one "
            "is closed. A fleet behind one NAT is one address; a trusted proxy is none, its clients' own addresses "
            "count. Each worker counts its own.",
            extra=_LIVE,
        ),
    ] = 0
    max_login_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Bytes held by clients that wait for plugins to decide about their CONNECT, some 16 KiB for "
            "each; above it the latest of the address that holds most is told to come again (code 3).",
            extra=_LIVE,
        ),
    ] = 536_870_912
    failed_login_delay: Annotated[
        float,
        Meta(
            ge=0,
            le=300,
            description="Seconds at most for which the next password of a user is not looked at after wrong ones from "
            "the same address: half a second after the third, then twice as long for each. 0 = at once.",
            extra=_LIVE,
        ),
    ] = 10.0
    flapping_limit: Annotated[
        int,
        Meta(
            ge=0,
            description="Connects of one user's client id within flapping_window, its password right; a further one is "
            "refused with code 3, and so are those of the next flapping_ban seconds.",
            extra=_LIVE,
        ),
    ] = 0
    flapping_window: Annotated[
        float, Meta(gt=0, description="Seconds; see flapping_limit.", extra=_LIVE)
    ] = 60.0
    flapping_ban: Annotated[
        float, Meta(gt=0, description="Seconds; see flapping_limit.", extra=_LIVE)
    ] = 300.0


class StoreOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The store of durable sessions and retained messages."""

    durability: Annotated[
        Literal["memory", "os", "fsync"],
        Meta(
            description="Acknowledge once data is in memory, with the operating system "
            "(survives a crash of the broker), or on disk (survives power loss)."
        ),
    ] = "os"
    flush_interval: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description='Seconds between writes to the store; used by "memory" only.',
            extra=_LIVE,
        ),
    ] = 1.0
    write_buffer_size: Annotated[
        int,
        Meta(
            ge=65_536,
            le=1 << 30,
            description="Write buffer of the store, in bytes; a 64th of its disk at most.",
        ),
    ] = 16_777_216
    cache_size: Annotated[
        int,
        Meta(ge=65_536, le=1 << 40, description="Read cache of the store, in bytes."),
    ] = 16_777_216
    max_uncommitted_writes: Annotated[
        int,
        Meta(
            ge=1,
            le=1 << 30,
            description="Writes that may wait for a slow disk: one for each record and one more for each "
            "KiB of it. Above it publishers are not read; above twice as many, what would have to be "
            "stored is refused.",
            extra=_LIVE,
        ),
    ] = 100_000
    max_bytes: Annotated[
        int,
        Meta(
            ge=-1,
            description="Bytes on disk that the messages for all durable sessions may have together; one that several "
            "sessions hold counts once. Above nine tenths of it the oldest messages of absent sessions are dropped, "
            "above all of it durable work is refused; 0 = half of what is free and what the store has (under 1 GiB "
            "less, down to a quarter), looked at every minute, -1 = no limit.",
            extra=_LIVE,
        ),
    ] = 0
    min_free_bytes: Annotated[
        int,
        Meta(
            ge=0,
            description="Bytes that are to stay free of the disk of the store, and of those of streams and jobs: "
            "with fewer, durable work is refused, streams take nothing new, and no job is added. "
            "Of a disk with less than ten times as much, a tenth, or 16 MiB if those are more, but a quarter at most.",
            extra=_LIVE,
        ),
    ] = 1_073_741_824


class NetworkOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sockets and the publishing path."""

    write_buffer: Annotated[
        int,
        Meta(
            ge=1024,
            le=1 << 30,
            description="Bytes buffered for one slow connection before its queue takes over.",
            extra=_LIVE,
        ),
    ] = 262_144
    backlog: Annotated[
        int,
        Meta(ge=1, le=65_535, description="Connections that may wait to be accepted."),
    ] = 4096
    max_event_loop_drift: Annotated[
        float,
        Meta(
            ge=0.001,
            le=60,
            description="Seconds that the event loop may be late; above it new connections wait in the "
            "backlog and are accepted in smaller batches (counted as accept_paced). Nobody is refused.",
        ),
    ] = 0.02
    topic_cache: Annotated[
        int,
        Meta(
            ge=1, le=1 << 30, description="Topics whose route is remembered (entries).", extra=_LIVE
        ),
    ] = 65_536


def _default_listeners() -> dict[str, ListenerOptions]:
    return {
        "tcp": ListenerOptions(url="tcp://127.0.0.1:1883"),
        "ws": ListenerOptions(url="ws://127.0.0.1:8083/mqtt"),
        "http": ListenerOptions(url="http://127.0.0.1:8888"),
    }


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every option. Valid as it comes; changed by arguments, by `msgspec.structs.replace`, or by `load`."""

    broker: BrokerOptions = BrokerOptions()
    log: LogOptions = LogOptions()
    auth: AuthOptions = AuthOptions()
    listeners: dict[str, ListenerOptions] = msgspec.field(default_factory=_default_listeners)
    session: SessionOptions = SessionOptions()
    queue: QueueOptions = QueueOptions()
    limits: LimitOptions = LimitOptions()
    store: StoreOptions = StoreOptions()
    network: NetworkOptions = NetworkOptions()
    cluster: ClusterOptions = ClusterOptions()
    jobs: dict[str, JobOptions] = msgspec.field(default_factory=dict)
    schedules: dict[str, ScheduleOptions] = msgspec.field(default_factory=dict)
    mappings: dict[str, MappingOptions] = msgspec.field(default_factory=dict)
    streams: dict[str, StreamOptions] = msgspec.field(default_factory=dict)
    plugins: dict[str, PluginOptions] = msgspec.field(default_factory=dict)

    def anonymous_until_hook(self, listener: str) -> bool:
        """Whether clients without credentials may connect only as long as no plugin knows clients.

        That is so where nobody has said anything but the default, that loopback is open.
        """
        options = self.listeners[listener]
        return options.allow_anonymous is None and self.auth.allow_anonymous == "loopback"

    def anonymous_allowed(self, listener: str) -> bool:
        """Whether clients without credentials may connect at this listener (a key of `listeners`)."""
        options = self.listeners[listener]
        verdict = options.allow_anonymous
        if verdict is None and options.use_identity_as_username:
            verdict = False  # the certificate says who it is
        if verdict is None:
            auth = self.auth.allow_anonymous
            verdict = options.endpoint.is_loopback if auth == "loopback" else auth
        return verdict


def value_of(config: Config, key: str) -> object:
    """The value of an option by its dotted key.

    Raises:
        KeyError: there is no such option.
    """
    found: object = config
    for name in key.split("."):
        if isinstance(found, dict):
            found = found[name]
        elif isinstance(found, Struct) and name in found.__struct_fields__:
            found = getattr(found, name)
        else:
            raise KeyError(key)
    return found
