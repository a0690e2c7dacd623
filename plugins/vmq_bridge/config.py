"""What may be configured: bridges by name, each with its topics."""

import re
from typing import Annotated, Final, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta
from vmq_hooks.answers import AnswerError, check_filter

_SCHEMES: Final = {"mqtt": 1883, "tcp": 1883, "mqtts": 8883, "tls": 8883}
#: The name is part of client ids and of files' names.
_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,32}\Z")


class TopicConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which topics go which way. The pattern with the prefix of each side is that side's filter."""

    pattern: str
    direction: Literal["out", "in", "both"] = "out"
    qos: Literal[0, 1, 2] = 0
    local_prefix: str = ""
    remote_prefix: str = ""

    @property
    def local_filter(self) -> str:
        return self.local_prefix + self.pattern

    @property
    def remote_filter(self) -> str:
        return self.remote_prefix + self.pattern

    def __post_init__(self) -> None:
        for side in (self.local_filter, self.remote_filter):
            try:
                check_filter(side)
            except AnswerError as error:
                raise ValueError(f"pattern: with its prefix, {error}") from None
            if side.startswith("$share/"):
                raise ValueError(
                    f"pattern: {side!r} is a shared subscription; accepted: plain ones"
                )
        for name in ("local_prefix", "remote_prefix"):
            prefix = getattr(self, name)
            if "+" in prefix or "#" in prefix:
                raise ValueError(f"{name}: accepted: text without wildcards")


class BridgeConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bridge."""

    url: Annotated[
        str,
        Meta(
            description="The far broker; tcp and tls mean the same.",
            extra={"accepts": "mqtt://HOST:PORT, mqtts://HOST:PORT"},
        ),
    ]
    topics: Annotated[
        tuple[TopicConfig, ...],
        Meta(
            min_length=1,
            max_length=1000,
            description="What goes which way: pattern, direction (out, in, both), qos, local_prefix, remote_prefix.",
            extra={"accepts": "a list of tables, one at least"},
        ),
    ]
    client_id: Annotated[
        Annotated[str, Meta(min_length=1, max_length=1000)] | None,
        Meta(
            description="Our client id there, the same on all nodes that have the bridge; unset = the node's name and "
            "the bridge's.",
            extra={"accepts": "a text"},
        ),
    ] = None
    clean_session: Annotated[
        bool,
        Meta(description="The far broker shall forget what it has for us when we are away."),
    ] = False
    username: Annotated[str | None, Meta(description="Our user name there.")] = None
    password: Annotated[str | None, Meta(description="Its password.")] = None
    cafile: Annotated[
        str | None,
        Meta(
            description="Who signed the far broker's certificate; unset = whom the system trusts.",
            extra={"accepts": "a path"},
        ),
    ] = None
    certfile: Annotated[
        str | None,
        Meta(description="Our own certificate.", extra={"accepts": "a path"}),
    ] = None
    keyfile: Annotated[
        str | None,
        Meta(
            description="Its key; unset = in the same file.",
            extra={"accepts": "a path"},
        ),
    ] = None
    insecure: Annotated[
        bool, Meta(description="Take a certificate that was issued for another host name.")
    ] = False
    protocol_version: Annotated[
        Literal[3, 4], Meta(description="MQTT 3.1 is 3, MQTT 3.1.1 is 4.")
    ] = 4
    try_private: Annotated[
        bool,
        Meta(
            description="Tell the far broker that we are a bridge: it keeps RETAIN, and sends us nothing of our own. "
            "One that refuses the protocol version is asked again without."
        ),
    ] = True
    keepalive: Annotated[
        int,
        Meta(ge=1, le=65535, description="Seconds of silence after which the connection is lost."),
    ] = 60
    connect_timeout: Annotated[
        float, Meta(gt=0, le=3600, description="Seconds for a connection, CONNACK included.")
    ] = 30.0
    reconnect_delay: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="Seconds to the next attempt; twice as long after each, and never quite the same.",
        ),
    ] = 1.0
    max_reconnect_delay: Annotated[
        float, Meta(gt=0, le=86400, description="The longest time between two attempts.")
    ] = 60.0
    max_inflight_messages: Annotated[
        int,
        Meta(
            ge=1,
            le=10000,
            description="Messages on their way, unacknowledged, in each direction; no more than the far broker takes: "
            "mosquitto answers what is of QoS 2 and beyond its own max_inflight_messages (20) as if it had it, and "
            "drops it.",
        ),
    ] = 20
    max_offline_messages: Annotated[
        Annotated[int, Meta(ge=-1)] | None,
        Meta(
            description="Messages kept on disk while the far broker is away; -1 = no limit, "
            "unset = queue.max_offline_messages.",
            extra={"accepts": "a whole number, at least -1"},
        ),
    ] = None
    max_packet_size: Annotated[
        int,
        Meta(
            ge=1024,
            le=268_435_455,
            description="Bytes; larger ones do not go out, and end the connection when they come in.",
        ),
    ] = 16_777_216
    mountpoint: Annotated[
        str, Meta(description="The mountpoint here whose topics are bridged.")
    ] = ""

    @property
    def secure(self) -> bool:
        return urlsplit(self.url).scheme in {"mqtts", "tls"}

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or _SCHEMES[parts.scheme]

    @property
    def is_anyones(self) -> bool:
        """Whether the far broker takes any of our nodes for this bridge, or has nothing that is one's alone."""
        return self.client_id is not None or self.clean_session

    @property
    def assumes_session(self) -> bool:
        """Whether the far broker is taken to have our session: CONNACK of MQTT 3.1 has no flag that says so."""
        return self.protocol_version == 3 and not self.clean_session

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in _SCHEMES and parts.hostname and parts.port != 0
            good = good and not (parts.path.strip("/") or parts.query or parts.username)
        except ValueError:
            good = False
        if not good:
            raise ValueError("url: accepted: mqtt://HOST:PORT or mqtts://HOST:PORT")
        if self.password is not None and self.username is None:
            raise ValueError("password: a password without a username [MQTT-3.1.2-22]")
        for name in ("username", "password"):
            if len((getattr(self, name) or "").encode()) > 65_535:
                raise ValueError(f"{name}: accepted: up to 65,535 bytes [MQTT-1.5.3]")
        if self.keyfile is not None and self.certfile is None:
            raise ValueError("keyfile: a keyfile without a certfile")
        for name in ("cafile", "certfile", "insecure"):
            if getattr(self, name) and not self.secure:
                raise ValueError(
                    f"{name}: it would have no effect; accepted: with a url of mqtts://"
                )


class BridgesConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plugin's section of the configuration."""

    bridges: Annotated[
        dict[str, BridgeConfig],
        Meta(
            description="One table a bridge.",
            extra={"accepts": "tables"},
        ),
    ] = {}

    def __post_init__(self) -> None:
        for name in self.bridges:
            if not _NAME.match(name):
                raise ValueError(
                    f"bridges: {name!r} is no usable name; accepted: up to 32 letters, digits and underscores"
                )
