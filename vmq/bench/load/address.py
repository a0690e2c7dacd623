"""Where the broker is: `mqtt://`, `mqtts://`, `ws://` and `wss://` URLs."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

DEFAULT_PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
_ALIASES: Final = {"tcp": "mqtt", "ssl": "mqtts", "tls": "mqtts"}


@dataclass(frozen=True)
class Address:
    """A broker's address, and who to be there."""

    scheme: str
    host: str
    port: int
    path: str = ""  # of the WebSocket endpoint
    username: str | None = None
    password: str | None = None

    @property
    def is_tls(self) -> bool:
        """Whether the connection is encrypted."""
        return self.scheme in {"mqtts", "wss"}

    @property
    def is_websocket(self) -> bool:
        """Whether MQTT travels in WebSocket frames."""
        return self.scheme in {"ws", "wss"}

    @property
    def url(self) -> str:
        """The address without the credentials."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def parse_address(url: str) -> Address:
    """Takes apart `SCHEME://[USER[:PASSWORD]@]HOST[:PORT][/PATH]`.

    Raises:
        ValueError: the text is no such URL; the message says why.
    """
    parts = urlsplit(url)
    scheme = _ALIASES.get(parts.scheme, parts.scheme)
    if scheme not in DEFAULT_PORTS:
        raise ValueError(f"expected mqtt://, mqtts://, ws:// or wss://, not {url!r}")
    if not parts.hostname:
        raise ValueError(f"the host is missing in {url!r}")
    is_websocket = scheme.startswith("ws")
    if parts.path not in {"", "/"} and not is_websocket:
        raise ValueError(f"a path means nothing to {scheme}://")
    return Address(
        scheme,
        parts.hostname,
        parts.port or DEFAULT_PORTS[scheme],
        (parts.path or "/mqtt") if is_websocket else "",
        None if parts.username is None else unquote(parts.username),
        None if parts.password is None else unquote(parts.password),
    )
