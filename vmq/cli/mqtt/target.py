"""Which broker `vmq pub` and `vmq sub` talk to: from a URL, or from host and port."""

from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import unquote

Scheme = Literal["mqtt", "mqtts", "ws", "wss", "unix"]

DEFAULT_PORTS: Final[dict[Scheme, int]] = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
DEFAULT_WS_PATH: Final = "/mqtt"
# What vmq itself prints for a listener may be pasted back.
_SCHEMES: Final[dict[str, Scheme]] = {
    "mqtt": "mqtt",
    "tcp": "mqtt",
    "mqtts": "mqtts",
    "ssl": "mqtts",
    "tls": "mqtts",
    "ws": "ws",
    "wss": "wss",
    "unix": "unix",
}
_FORMS: Final = (
    "mqtt://HOST[:PORT][/TOPIC], mqtts://HOST[:PORT][/TOPIC], ws://HOST[:PORT][/PATH], "
    "wss://HOST[:PORT][/PATH] or unix:///PATH"
)


@dataclass(frozen=True)
class BrokerTarget:
    """A broker's address and the credentials for it."""

    scheme: Scheme
    host: str
    port: int
    path: str = ""  # of the WebSocket endpoint, or of the Unix socket
    username: str | None = None
    password: str | None = None

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme in ("mqtts", "wss")

    @property
    def is_websocket(self) -> bool:
        """Whether MQTT goes in WebSocket frames."""
        return self.scheme in ("ws", "wss")

    @property
    def url(self) -> str:
        """The address without the credentials: fit for messages, and for opening a WebSocket."""
        if self.scheme == "unix":
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse_url(url: str) -> tuple[BrokerTarget, str]:
    """Take apart `mqtt://[user[:password]@]host[:port][/topic]`, `ws://...host[:port][/path]` or `unix:///path`.

    `mqtts://` (or tls://, ssl://) and `wss://` are the same over TLS.
    Percent-encoding is undone in the credentials only: a topic stands as it is, `#`, `?` and `%` included.

    Returns:
        The target, and the topic ("" if the URL has none; a WebSocket URL never has one).

    Raises:
        ValueError: the text is no such URL; the message says why.
    """
    name, separator, rest = url.partition("://")
    scheme = _SCHEMES.get(name.lower())
    if not separator or scheme is None:
        raise ValueError(f"expected {_FORMS}")
    if scheme == "unix":
        if not rest.startswith("/"):
            raise ValueError("the path of a Unix socket is absolute: unix:///run/vmq.sock")
        return BrokerTarget(scheme, "", 0, rest), ""
    authority, slash, tail = rest.partition("/")
    credentials, at, address = authority.rpartition("@")
    username, colon, password = credentials.partition(":")
    host, port = _address(address)
    target = BrokerTarget(
        scheme,
        host,
        DEFAULT_PORTS[scheme] if port is None else port,
        path=(f"/{tail}" if slash else DEFAULT_WS_PATH) if scheme in ("ws", "wss") else "",
        username=unquote(username) if at else None,
        password=unquote(password) if colon else None,
    )
    return target, tail if scheme in ("mqtt", "mqtts") else ""


def _address(text: str) -> tuple[str, int | None]:
    """Host and port of `host`, `host:port`, `[ipv6]` or `[ipv6]:port`."""
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"not an address: {text!r}")
        colon, digits = rest[:1], rest[1:]
    else:
        host, colon, digits = text.partition(":")
        if ":" in digits:
            raise ValueError(f"an IPv6 address needs brackets: [{text}]")
    if not host:
        raise ValueError("the host is missing")
    if not colon:
        return host, None
    if not (digits.isascii() and digits.isdigit() and 0 < int(digits) < 65536):
        raise ValueError(f"not a port: {digits!r}")
    return host, int(digits)
