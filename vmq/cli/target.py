"""Which broker `vmq pub` and `vmq sub` talk to: from a URL, or from host and port."""

from dataclasses import dataclass
from typing import Final, Literal
from urllib.parse import unquote

DEFAULT_PORTS: Final = {"mqtt": 1883, "ws": 80}
DEFAULT_WS_PATH: Final = "/mqtt"
# What vmq itself prints for a listener may be pasted back.
_SCHEMES: Final[dict[str, Literal["mqtt", "ws"]]] = {"mqtt": "mqtt", "tcp": "mqtt", "ws": "ws"}
_TLS_SCHEMES: Final = frozenset({"mqtts", "ssl", "tls", "wss"})


@dataclass(frozen=True)
class Target:
    """A broker's address and the credentials for it."""

    scheme: Literal["mqtt", "ws"]
    host: str
    port: int
    path: str = ""  # of the WebSocket endpoint
    username: str | None = None
    password: str | None = None

    @property
    def url(self) -> str:
        """The address without the credentials: fit for messages, and for opening a WebSocket."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse_url(url: str) -> tuple[Target, str]:
    """Take apart `mqtt://[user[:password]@]host[:port][/topic]` or `ws://...host[:port][/path]`.

    Percent-encoding is undone in the credentials only: a topic stands as it is, `#`, `?` and `%` included.

    Returns:
        The target, and the topic ("" if the URL has none; a WebSocket URL never has one).

    Raises:
        ValueError: the text is no such URL; the message says why.
    """
    name, separator, rest = url.partition("://")
    scheme = _SCHEMES.get(name.lower())
    if name.lower() in _TLS_SCHEMES:
        raise ValueError(f"TLS ({name}://) is not supported; use mqtt:// or ws://")
    if not separator or scheme is None:
        raise ValueError("expected mqtt://HOST[:PORT][/TOPIC] or ws://HOST[:PORT][/PATH]")
    authority, slash, tail = rest.partition("/")
    credentials, at, address = authority.rpartition("@")
    username, colon, password = credentials.partition(":")
    host, port = _address(address)
    target = Target(
        scheme,
        host,
        DEFAULT_PORTS[scheme] if port is None else port,
        path=(f"/{tail}" if slash else DEFAULT_WS_PATH) if scheme == "ws" else "",
        username=unquote(username) if at else None,
        password=unquote(password) if colon else None,
    )
    return target, tail if scheme == "mqtt" else ""


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
