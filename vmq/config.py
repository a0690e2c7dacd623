"""The options of the broker: their names, types, defaults, limits and meanings.

One Struct is one section of the TOML file. The annotation of a field is the single place that says what the option
means (`description`) and accepts (type, bounds, `accepts` where those need words); the checks, the error texts and the
reference file `config/vmq.toml` come out of it.

`load` reads a configuration from its sources; `Config()` alone is the shipped default, for embedding.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from vmq import config_streams
from vmq.config_listeners import Certificate, ListenerOptions, problems_of
from vmq.config_sources import ConfigError, Problem, Sources, type_problems
from vmq.config_streams import StreamOptions
from vmq.config_values import (
    DURATION_FORMS,
    DURATION_PATTERN,
    URL_FORMS,
    Endpoint,
    is_loopback,
    parse_duration,
)

__all__ = [
    "AuthOptions",
    "BrokerOptions",
    "Certificate",
    "Config",
    "ConfigError",
    "Endpoint",
    "LimitOptions",
    "ListenerOptions",
    "Loaded",
    "LogOptions",
    "NetworkOptions",
    "Problem",
    "QueueOptions",
    "SessionOptions",
    "StoreOptions",
    "StreamOptions",
    "changed",
    "check",
    "is_loopback",
    "load",
    "parse_duration",
]

# The largest packet that MQTT can express: fixed header of 5 bytes and a remaining length of 268,435,455 [MQTT 2.2.3].
LARGEST_PACKET: Final = 268_435_460


# An option so marked may change on a running broker (vmq.reload).
_LIVE: Final = {"live": True}


class BrokerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The broker as a whole."""

    data_dir: Annotated[
        str,
        Meta(
            pattern=r"^[^\x00]+\Z",
            description="Directory of durable state, made when missing; relative to the working directory.",
            extra={"accepts": "a path"},
        ),
    ] = "data"


class LogOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The log."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"],
        Meta(description="Least severe event that is logged.", extra=_LIVE),
    ] = "info"
    format: Annotated[
        Literal["text", "json"],
        Meta(description="One line an event: for people, or a JSON object with its fields."),
    ] = "text"
    file: Annotated[
        Annotated[str, Meta(pattern=r"^[^\x00]+\Z")] | None,
        Meta(
            description="File to append to, opened anew on SIGUSR1; unset = standard error.",
            extra={"accepts": "a path"},
        ),
    ] = None
    flood_limit: Annotated[
        int,
        Meta(
            ge=0,
            description="Events of one kind written in ten seconds; more are only counted; 0 = no limit.",
        ),
    ] = 100


class AuthOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who may connect."""

    allow_anonymous: Annotated[
        Literal["loopback"] | bool,
        Meta(
            description="Whether clients without credentials may connect; "
            '"loopback" admits them on loopback listeners only.'
        ),
    ] = "loopback"


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
    max_client_id_size: Annotated[
        int,
        # Below 23 bytes a server would refuse ids that it must accept [MQTT-3.1.3-5].
        Meta(ge=23, le=65_535, description="Longest accepted client id, in bytes.", extra=_LIVE),
    ] = 100
    max_packet_size: Annotated[
        int,
        Meta(ge=64, le=LARGEST_PACKET, description="Largest accepted packet, in bytes."),
    ] = 16_777_216
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
    suppress_lwt_on_session_takeover: Annotated[
        bool,
        Meta(
            description="Do not publish the will of a connection whose client id connects anew.",
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
            description="QoS 1 and 2 messages that may await a client's acknowledgement; 0 = no limit.",
            extra=_LIVE,
        ),
    ] = 20
    max_online_messages: Annotated[
        int,
        Meta(
            ge=-1,
            description="Messages queued beyond those for a connected client; -1 = no limit.",
            extra=_LIVE,
        ),
    ] = 1000
    max_offline_messages: Annotated[
        int,
        Meta(
            ge=-1,
            description="Messages queued for a durable session offline; -1 = no limit.",
            extra=_LIVE,
        ),
    ] = 1000
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
            "take the message and stop reading its publisher until there is room (5 s at most)."
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


class LimitOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one client may do, and what all together may use. 0 is no limit, unless it says otherwise."""

    max_message_size: Annotated[
        int,
        Meta(
            ge=0,
            description="Largest payload of a PUBLISH, in bytes; a larger one closes the connection.",
            extra=_LIVE,
        ),
    ] = 0
    max_message_rate: Annotated[
        float,
        Meta(
            ge=0,
            description="PUBLISH packets a second of one client; above it the broker reads it no faster.",
        ),
    ] = 0.0
    max_byte_rate: Annotated[
        float,
        Meta(
            ge=0,
            description="Bytes a second that one publishing client may send; above it the broker reads it no faster.",
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
    topic_max_depth: Annotated[
        int,
        Meta(
            ge=0,
            description="Levels of a topic; PUBLISH to a deeper one closes the connection, "
            "a deeper filter is answered with failure (0x80).",
        ),
    ] = 128
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
            description="Topics and payloads of all retained messages, in bytes; "
            "what would exceed it is delivered but not kept.",
            extra=_LIVE,
        ),
    ] = 1_073_741_824
    max_memory: Annotated[
        int,
        Meta(
            ge=-1,
            description="Resident memory in bytes, above which new clients are refused and publishers are "
            "not read; 0 = four fifths of the machine's, -1 = no limit.",
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
    flapping_limit: Annotated[
        int,
        Meta(
            ge=0,
            description="Connects of one client id within flapping_window; a further one is refused with "
            "code 3 and the id banned for flapping_ban.",
        ),
    ] = 0
    flapping_window: Annotated[float, Meta(gt=0, description="Seconds; see flapping_limit.")] = 60.0
    flapping_ban: Annotated[float, Meta(gt=0, description="Seconds; see flapping_limit.")] = 300.0


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
            gt=0, le=3600, description='Seconds between writes to the store; used by "memory" only.'
        ),
    ] = 1.0
    write_buffer_size: Annotated[
        int,
        Meta(ge=65_536, le=1 << 30, description="Write buffer of the store, in bytes."),
    ] = 16_777_216
    cache_size: Annotated[
        int,
        Meta(ge=65_536, le=1 << 40, description="Read cache of the store, in bytes."),
    ] = 16_777_216


class NetworkOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Sockets and the publishing path."""

    write_buffer: Annotated[
        int,
        Meta(
            ge=1024,
            le=1 << 30,
            description="Bytes buffered for one slow connection before its queue takes over.",
        ),
    ] = 262_144
    backlog: Annotated[
        int,
        Meta(ge=1, le=65_535, description="Connections that may wait to be accepted."),
    ] = 4096
    topic_cache: Annotated[
        int,
        Meta(ge=1, le=1 << 30, description="Topics whose route is remembered (entries)."),
    ] = 65_536


def _default_listeners() -> dict[str, ListenerOptions]:
    return {
        "tcp": ListenerOptions(url="tcp://127.0.0.1:1883"),
        "ws": ListenerOptions(url="ws://127.0.0.1:8083/mqtt"),
        "http": ListenerOptions(url="http://127.0.0.1:8888"),
    }


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Every option. Valid as it comes; changed by `load`, by arguments or by `msgspec.structs.replace`."""

    broker: BrokerOptions = BrokerOptions()
    log: LogOptions = LogOptions()
    auth: AuthOptions = AuthOptions()
    listeners: dict[str, ListenerOptions] = msgspec.field(default_factory=_default_listeners)
    session: SessionOptions = SessionOptions()
    queue: QueueOptions = QueueOptions()
    limits: LimitOptions = LimitOptions()
    store: StoreOptions = StoreOptions()
    network: NetworkOptions = NetworkOptions()
    streams: dict[str, StreamOptions] = msgspec.field(default_factory=dict)

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


class Loaded(Struct, frozen=True):
    """A checked configuration and where each of its values comes from."""

    config: Config
    origins: Mapping[str, str]

    def origin(self, key: str) -> str:
        """Where the value of an option such as `queue.drop` or `listeners.tcp.url` comes from.

        The answer reads `default`, the path of a file, `environment VMQ_...` or `command line`.

        Raises:
            KeyError: there is no such option.
        """
        return self.origins[key]

    def items(self) -> list[tuple[str, object, str]]:
        """Key, value and origin of every option, in the order of the reference file."""
        values = msgspec.to_builtins(self.config)
        return [(key, _value(values, key), origin) for key, origin in self.origins.items()]


def _value(tree: object, key: str) -> object:
    """What stands at a dotted key of nested tables."""
    for name in key.split("."):
        assert isinstance(tree, dict)
        tree = tree[name]
    return tree


def load(
    path: Path | None = None,
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Loaded:
    """Read the configuration: defaults, then a TOML file, the environment, the command line; later wins.

    Args:
        path: the TOML file; None = there is none. A file that names listeners replaces the shipped ones.
        environ: the environment, of which `VMQ_SECTION__OPTION` and `VMQ_LISTENERS__NAME__OPTION` are read. Values are
            TOML, or plain text where that is not TOML of the right type.
        overrides: what the command line says, by dotted key (`{"broker.data_dir": "x"}`). `listeners` takes a list of
            URLs, or a mapping of names to tables, and replaces every listener.

    Raises:
        ConfigError: with every problem found, each with its source, key, value and what is accepted.
    """
    sources = Sources(Config)
    if path is not None:
        sources.add_file(path)
    sources.add_environment(environ or {})
    sources.add_overrides(overrides or {})
    config, origins = sources.resolve()
    check(config, lambda key: origins.get(key) or sources.source_of(key))
    return Loaded(config, origins)


def changed(config: Config, key: str, text: str) -> Config:
    """The configuration with one option changed, for a broker that runs.

    Args:
        config: the configuration as it is.
        key: the option, such as `queue.drop`.
        text: its value, as TOML or plain text.

    Raises:
        ConfigError: there is no such option, or it does not accept the value.
    """
    sources = Sources(Config)
    sources.add_tree(msgspec.to_builtins(config), lambda _key: None)
    sources.add_text(key, text)
    found, _ = sources.resolve()
    check(found)
    return found


def check(config: Config, origin: Callable[[str], str | None] = lambda _key: None) -> None:
    """Refuse a configuration that cannot work or is not safe; `load` has called this already.

    A broker made by `Broker(Config(...))` has no other check of types and bounds: constructing a Struct makes none.

    Args:
        config: what to check.
        origin: says where the value of a key comes from, for the messages.

    Raises:
        ConfigError: with every problem found.
    """
    problems = type_problems(config, origin)
    if not problems:
        problems = _listener_problems(config, origin) + _stream_problems(config, origin)
    if problems:
        raise ConfigError(problems)


def _listener_problems(config: Config, origin: Callable[[str], str | None]) -> list[Problem]:
    problems: list[Problem] = []
    taken: dict[tuple[str, int | str], str] = {}
    schemes: set[str] = set()
    for name, options in config.listeners.items():
        key = f"listeners.{name}.url"
        try:
            endpoint = options.endpoint
        except ValueError as error:
            schemes.add("")
            problems.append(
                Problem(key, f"{error}; accepted: {URL_FORMS}", origin(key), options.url)
            )
            continue
        schemes.add(endpoint.scheme)
        unix = endpoint.scheme == "unix"
        address = (endpoint.host.lower(), endpoint.path if unix else endpoint.port)
        # Port 0 is a fresh port each time it is bound.
        if address[1] and address in taken:
            what = f"listeners.{taken[address]} has this address already; each needs its own"
            problems.append(Problem(key, what, origin(key), options.url))
        taken.setdefault(address, name)
        for option, what in problems_of(options, endpoint):
            key_of = f"listeners.{name}.{option}"
            value = getattr(options, option)
            shown = msgspec.UNSET if value is None or option == "keypasswd" else value
            # What is missing has no place of its own: it is missing where the listener is.
            source = origin(key if value is None else key_of)
            problems.append(Problem(key_of, what, source, shown))
        if endpoint.scheme == "http":
            problems.extend(_http_problems(name, options, endpoint, origin))
            continue
        if options.allow_remote:
            what = "only a listener of http has this option; allow_anonymous is that of the others"
            key = f"listeners.{name}.allow_remote"
            problems.append(Problem(key, what, origin(key), True))
        identified = options.use_identity_as_username
        if not (endpoint.is_loopback or identified or _anonymous_said(config, options)):
            problems.append(Problem(key, _UNSAFE.format(name=name), origin(key), options.url))
    if schemes <= {"http"}:
        which = " for MQTT" if schemes else ""
        what = f"there is no listener{which}, so no client could connect; add one, as in [listeners.tcp]"
        problems.append(Problem("listeners", what, origin("listeners")))
    return problems


def _stream_problems(config: Config, origin: Callable[[str], str | None]) -> list[Problem]:
    problems: list[Problem] = []
    for name, options in config.streams.items():
        for option, what in config_streams.problems_of(options):
            key = f"streams.{name}.{option}"
            problems.append(Problem(key, what, origin(key), getattr(options, option)))
    return problems


def _http_problems(
    name: str, options: ListenerOptions, endpoint: Endpoint, origin: Callable[[str], str | None]
) -> list[Problem]:
    """What is wrong with a listener of http: it shows figures to whoever asks."""
    problems: list[Problem] = []
    if options.allow_anonymous is not None:
        key = f"listeners.{name}.allow_anonymous"
        what = "a listener of http has no MQTT clients; its option is allow_remote"
        problems.append(Problem(key, what, origin(key), options.allow_anonymous))
    if not endpoint.is_loopback and not options.allow_remote:
        key = f"listeners.{name}.url"
        problems.append(Problem(key, _REMOTE.format(name=name), origin(key), options.url))
    return problems


_REMOTE: Final = (
    "refused: other machines could read the broker's figures, without a password; accepted: an address on loopback "
    "(127.0.0.1, [::1], localhost), or an explicit allow_remote = true (listeners.{name}.allow_remote)"
)

_UNSAFE: Final = (
    "refused: reachable from other machines while no authentication exists, so nobody or everybody could connect; "
    "accepted: an address on loopback (127.0.0.1, [::1], localhost), or an explicit allow_anonymous = true "
    "(listeners.{name}.allow_anonymous, auth.allow_anonymous, or --allow-anonymous)"
)


def _anonymous_said(config: Config, options: ListenerOptions) -> bool:
    """Whether somebody wrote down that anonymous clients are wanted here: `true`, not the loopback rule."""
    if options.allow_anonymous is not None:
        return options.allow_anonymous
    return config.auth.allow_anonymous is True
