"""The options that `vmq pub` and `vmq sub` share: letters and meanings are those of the mosquitto clients."""

import os
import secrets
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, Final, ParamSpec

import typer

from vmq.cli.mqtt.target import DEFAULT_PORTS, BrokerTarget, Scheme, parse_url
from vmq.cli.mqtt.tls import TlsFiles
from vmq.cli.terminal.console import UsageError
from vmq.cli.terminal.signature import Command, Options, with_options

P = ParamSpec("P")

_CONNECTION: Final = "Connection"
_TLS: Final = "TLS (mqtts:// or wss://; with -h, any of these means TLS)"
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
        show_default="1883, with TLS 8883",
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
        "instead of the single options; mqtts:// and wss:// with TLS; or unix:///PATH.",
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
CafileOption = Annotated[
    Path | None,
    typer.Option(
        "--cafile",
        metavar="FILE",
        help="Certificates of the authorities to trust (PEM).",
        show_default="those of the system",
        rich_help_panel=_TLS,
    ),
]
CertOption = Annotated[
    Path | None,
    typer.Option(
        "--cert",
        metavar="FILE",
        help="Our certificate, for a broker that wants one (PEM).",
        rich_help_panel=_TLS,
    ),
]
KeyOption = Annotated[
    Path | None,
    typer.Option(
        "--key",
        metavar="FILE",
        help="The key of --cert (PEM), if it is not in the same file.",
        rich_help_panel=_TLS,
    ),
]
InsecureOption = Annotated[
    bool,
    typer.Option(
        "--insecure",
        help="Do not check who the server is: anybody in between may read and change everything.",
        rich_help_panel=_TLS,
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
class ConnectionOptions:
    """All that it takes to connect to a broker."""

    target: BrokerTarget
    client_id: str
    keepalive: int = 60  # seconds, 0 = no keep-alive
    clean: bool = True
    will: Will | None = None
    debug: bool = False
    context: ssl.SSLContext | None = None
    #: The topic in the URL, "" if there is none.
    topic: str = ""
    #: Nobody named the client: its id is a random one, or empty.
    is_anonymous: bool = False


_SHARED: Final[Options] = {
    "host": (HostOption, None),
    "port": (PortOption, None),
    "url": (UrlOption, None),
    "id": (IdOption, None),
    "username": (UsernameOption, None),
    "pw": (PasswordOption, None),
    "keepalive": (KeepaliveOption, 60),
    "debug": (DebugOption, False),
    "cafile": (CafileOption, None),
    "cert": (CertOption, None),
    "key": (KeyOption, None),
    "insecure": (InsecureOption, False),
    "will_topic": (WillTopicOption, None),
    "will_payload": (WillPayloadOption, None),
    "will_qos": (WillQosOption, 0),
    "will_retain": (WillRetainOption, False),
}


def connecting(role: str) -> Callable[[Callable[Concatenate[ConnectionOptions, P], int]], Command]:
    """A command that gets a Connection, made of options that this adds to its own.

    Args:
        role: becomes part of the client id, unless one is given.
    """

    def decorate(command: Callable[Concatenate[ConnectionOptions, P], int]) -> Command:
        work: Callable[..., int] = command  # its options come by name

        def run(**given: Any) -> int:
            shared = {name: given.pop(name) for name in _SHARED}
            return work(_connection(role, shared), **given)

        return with_options(run, command, _SHARED)

    return decorate


def _connection(role: str, given: dict[str, Any]) -> ConnectionOptions:
    """What the shared options say. Raises UsageError where they are at odds."""
    files = TlsFiles(given["cafile"], given["cert"], given["key"], given["insecure"])
    target, topic = target_of(
        given["url"], given["host"], given["port"], given["username"], given["pw"], files
    )
    return ConnectionOptions(
        target,
        client_id_of(given["id"], role),
        given["keepalive"],
        will=will_of(
            given["will_topic"], given["will_payload"], given["will_qos"], given["will_retain"]
        ),
        debug=given["debug"],
        context=files.context() if target.is_tls else None,
        topic=topic,
        is_anonymous=not given["id"],
    )


def target_of(
    url: str | None,
    host: str | None,
    port: int | None,
    username: str | None,
    password: str | None,
    files: TlsFiles,
) -> tuple[BrokerTarget, str]:
    """The broker that the options name, and the topic of the URL ("" if there is none)."""
    if url is None:
        scheme: Scheme = "mqtts" if files.is_given else "mqtt"
        target, topic = BrokerTarget(scheme, host or "localhost", port or DEFAULT_PORTS[scheme]), ""
    elif host is not None or port is not None:
        raise UsageError("-L/--url cannot be combined with --host and --port")
    else:
        try:
            target, topic = parse_url(url)
        except ValueError as problem:
            raise UsageError(f"-L/--url: {problem}") from None
    if files.is_given and not target.is_tls:
        raise UsageError(
            "--cafile, --cert, --key and --insecure go with mqtts:// or wss://, "
            f"but the URL says {target.scheme}://"
        )
    name = target.username if username is None else username
    secret = target.password if password is None else password
    if secret is not None and not name:
        raise UsageError("-P/--pw needs -u/--username [MQTT-3.1.2-22]")
    return BrokerTarget(target.scheme, target.host, target.port, target.path, name, secret), topic


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
