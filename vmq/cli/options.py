"""The options that `vmq pub` and `vmq sub` share: letters and meanings are those of the mosquitto clients."""

import os
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final

import typer

from vmq.cli.console import UsageError
from vmq.cli.target import DEFAULT_PORTS, Target, parse_url

if TYPE_CHECKING:
    from collections.abc import Callable

_CONNECTION: Final = "Connection"
_WILL: Final = "Will"

HostOption = Annotated[
    str | None,
    typer.Option(
        "-h",
        "--host",
        metavar="HOST",
        help="Host of the broker.",
        show_default="localhost",
        rich_help_panel=_CONNECTION,
    ),
]
PortOption = Annotated[
    int | None,
    typer.Option(
        "-p",
        "--port",
        metavar="PORT",
        min=1,
        max=65535,
        help="Port of the broker.",
        show_default="1883",
        rich_help_panel=_CONNECTION,
    ),
]
UrlOption = Annotated[
    str | None,
    typer.Option(
        "-L",
        "--url",
        metavar="URL",
        help="mqtt://USER:PW@HOST:PORT/TOPIC or ws://HOST:PORT/PATH, all but the host as needed, "
        "instead of the single options.",
        rich_help_panel=_CONNECTION,
    ),
]
IdOption = Annotated[
    str | None,
    typer.Option(
        "-i",
        "--id",
        metavar="ID",
        help="Client id.",
        show_default="a random one",
        rich_help_panel=_CONNECTION,
    ),
]
UsernameOption = Annotated[
    str | None,
    typer.Option(
        "-u", "--username", metavar="NAME", help="User name.", rich_help_panel=_CONNECTION
    ),
]
PasswordOption = Annotated[
    str | None,
    typer.Option("-P", "--pw", metavar="PASSWORD", help="Password.", rich_help_panel=_CONNECTION),
]
KeepaliveOption = Annotated[
    int,
    typer.Option(
        "-k",
        "--keepalive",
        metavar="SECONDS",
        min=0,
        max=65535,
        help="Ping the broker this often, 0 for never.",
        rich_help_panel=_CONNECTION,
    ),
]
DebugOption = Annotated[
    bool,
    typer.Option(
        "-d",
        "--debug",
        help="Show every MQTT packet on stderr.",
        rich_help_panel=_CONNECTION,
    ),
]
WillTopicOption = Annotated[
    str | None,
    typer.Option(
        "--will-topic",
        metavar="TOPIC",
        help="Have the broker publish a will here if this client vanishes.",
        rich_help_panel=_WILL,
    ),
]
WillPayloadOption = Annotated[
    str | None,
    typer.Option(
        "--will-payload", metavar="TEXT", help="Payload of the will.", rich_help_panel=_WILL
    ),
]
WillQosOption = Annotated[
    int,
    typer.Option(
        "--will-qos", metavar="QOS", min=0, max=2, help="QoS of the will.", rich_help_panel=_WILL
    ),
]
WillRetainOption = Annotated[
    bool, typer.Option("--will-retain", help="Retain the will.", rich_help_panel=_WILL)
]


@dataclass(frozen=True)
class Will:
    """The message that the broker publishes when the client vanishes."""

    topic: str
    payload: bytes
    qos: int
    retain: bool


@dataclass(frozen=True)
class Connection:
    """All that it takes to connect to a broker."""

    target: Target
    client_id: str
    keepalive: int = 60  # seconds, 0 = no keep-alive
    clean: bool = True
    will: Will | None = None
    debug: bool = False


def target_of(
    url: str | None, host: str | None, port: int | None, username: str | None, password: str | None
) -> tuple[Target, str]:
    """The broker that the options name, and the topic of the URL ("" if there is none)."""
    if url is None:
        target, topic = Target("mqtt", host or "localhost", port or DEFAULT_PORTS["mqtt"]), ""
    elif host is not None or port is not None:
        raise UsageError("-L/--url cannot be combined with --host and --port")
    else:
        try:
            target, topic = parse_url(url)
        except ValueError as problem:
            raise UsageError(f"-L/--url: {problem}") from None
    name = target.username if username is None else username
    secret = target.password if password is None else password
    if secret is not None and not name:
        raise UsageError("-P/--pw needs -u/--username [MQTT-3.1.2-22]")
    return Target(target.scheme, target.host, target.port, target.path, name, secret), topic


def will_of(topic: str | None, payload: str | None, qos: int, retain: bool) -> Will | None:
    """The will that the options name, if they do."""
    if topic is None:
        if payload is not None or qos or retain:
            raise UsageError("a will needs --will-topic")
        return None
    return Will(topic_name(topic, "--will-topic"), os.fsencode(payload or ""), qos, retain)


def client_id_of(given: str | None, role: str) -> str:
    """The client id: the given one, else one that nobody else has."""
    return f"vmq-{role}-{secrets.token_hex(5)}" if given is None else given


def topic_name(text: str, option: str) -> str:
    """The text, if it is a topic name that one can publish to."""
    from vmq.mqtt.topics import decode_topic_name

    return _checked(text, option, decode_topic_name)


def topic_filter(text: str, option: str) -> str:
    """The text, if it is a topic filter that one can subscribe to."""
    from vmq.mqtt.topics import decode_filter

    return _checked(text, option, decode_filter)


def _checked(text: str, option: str, decode: "Callable[[bytes], str]") -> str:
    from vmq.mqtt.packets import ProtocolError

    # The very bytes of the command line: what is no UTF-8 must be refused, not mended.
    raw = os.fsencode(text)
    try:
        if len(raw) > 65535:
            raise UsageError(f"{option}: longer than 65535 bytes")
        return decode(raw)
    except ProtocolError as problem:
        raise UsageError(f"{option} {text!r}: {problem}") from None
