"""Values that the configuration writes as text: listener addresses, time spans, archives.

Nothing here knows the options; `vmq.config.options` says which option holds which kind of value.
"""

import ipaddress
import re
from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import msgspec

ListenerScheme = Literal[
    "tcp", "tls", "ws", "wss", "unix", "http", "grpc", "grpc+tls", "resp", "resp+tls"
]

URL_FORMS: Final = (
    "tcp://HOST:PORT, tls://HOST:PORT, ws://HOST:PORT/PATH, wss://HOST:PORT/PATH, unix:///PATH, http://HOST:PORT, "
    "grpc://HOST:PORT, grpc+tls://HOST:PORT, resp://HOST:PORT or resp+tls://HOST:PORT "
    "(HOST a name, an IPv4 address or an [IPv6] address; PORT 0 to 65535, 0 = any free port)"
)
DURATION_FORMS: Final = (
    '"never", or a number and a unit: min, h, d, w, m (months) or y, as in "12h"'
)
# \Z, not $: the latter would let a trailing line feed through.
#: No system has longer names (255 bytes) or paths (4,095), or NUL in them.
PATH_PATTERN: Final = r"^(?=[^\x00]{1,4000}\Z)(?!(?s:.*)[^/]{256})"
DURATION_PATTERN: Final = r"^(never|[1-9][0-9]{0,5}(min|[hdwmy]))\Z"

# A month is 30 days and a year 365: an expiry needs a length, not a calendar.
_UNIT_SECONDS: Final = {
    "min": 60,
    "h": 3_600,
    "d": 86_400,
    "w": 604_800,
    "m": 30 * 86_400,
    "y": 365 * 86_400,
}
_HOST_NAME: Final = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?\Z")
_DEFAULT_WS_PATH: Final = "/mqtt"
_SCHEMES: Final[dict[str, ListenerScheme]] = {
    "tcp": "tcp",
    "mqtt": "tcp",
    "tls": "tls",
    "mqtts": "tls",
    "ssl": "tls",
    "ws": "ws",
    "wss": "wss",
    "unix": "unix",
    "http": "http",
    "grpc": "grpc",
    "grpc+tls": "grpc+tls",
    "resp": "resp",
    "resp+tls": "resp+tls",
    "redis": "resp",
    "rediss": "resp+tls",
}
# The longest path that every system takes as the address of a Unix socket.
_LONGEST_UNIX_PATH: Final = 100


class Endpoint(msgspec.Struct, frozen=True):
    """One address that a listener binds.

    `host` is without brackets. `path` is that of a WebSocket or of the file of a Unix socket (which has no
    host and port); else it is empty. The textual form is `url`.
    """

    scheme: ListenerScheme
    host: str
    port: int
    path: str = ""

    @classmethod
    def parse(cls, url: str) -> "Endpoint":
        """Read a listener URL; a WebSocket URL without a path gets `/mqtt`.

        Raises:
            ValueError: the text is no such URL; the message says what is wrong with it.
        """
        if not url.isascii() or any(char.isspace() or not char.isprintable() for char in url):
            raise ValueError("blanks, control and non-ASCII characters are not allowed")
        parts = urlsplit(url)
        scheme = _scheme(parts.scheme)
        if "@" in parts.netloc:
            raise ValueError("a listener URL holds no user name")
        if parts.query or parts.fragment or url.endswith(("?", "#")):
            raise ValueError("a listener URL holds no query and no fragment")
        if scheme == "unix":
            return cls(scheme, "", 0, _unix_path(parts.netloc, parts.path))
        host, port = _host_and_port(parts.netloc)
        if scheme in ("ws", "wss"):
            return cls(scheme, host, port, parts.path or _DEFAULT_WS_PATH)
        if parts.path.strip("/" if scheme == "http" else ""):
            raise ValueError(f"a {scheme} listener has no path, but {parts.path!r} is given")
        return cls(scheme, host, port)

    @property
    def url(self) -> str:
        """The canonical text: what the readiness line prints."""
        if self.scheme == "unix":
            return f"unix://{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"

    @property
    def is_loopback(self) -> bool:
        """Whether only programs on this machine can reach the listener."""
        return self.scheme == "unix" or is_loopback(self.host)

    @property
    def is_tls(self) -> bool:
        """Whether the listener speaks TLS."""
        return self.scheme in ("tls", "wss", "grpc+tls", "resp+tls")

    @property
    def is_flight(self) -> bool:
        """Whether it serves streams by Arrow Flight."""
        return self.scheme in ("grpc", "grpc+tls")

    @property
    def is_mqtt(self) -> bool:
        """Whether MQTT clients connect to it."""
        return self.scheme != "http" and not self.is_flight and not self.is_resp

    @property
    def is_resp(self) -> bool:
        """Whether it serves jobs to Redis clients."""
        return self.scheme in ("resp", "resp+tls")

    @property
    def is_websocket(self) -> bool:
        """Whether MQTT comes in WebSocket frames."""
        return self.scheme in ("ws", "wss")

    def with_address(self, host: str, port: int) -> "Endpoint":
        """The endpoint as it is bound: at the address of its name, on its real port."""
        return msgspec.structs.replace(self, host=host, port=port)


def _scheme(text: str) -> ListenerScheme:
    if not text:
        raise ValueError("the scheme is missing")
    scheme = _SCHEMES.get(text)
    if scheme is None:
        raise ValueError(f"unknown scheme {text!r}")
    return scheme


def _unix_path(netloc: str, path: str) -> str:
    if netloc:
        raise ValueError("a unix listener has an absolute path and no host: unix:///run/vmq.sock")
    if path.endswith("/") or not path.startswith("/"):
        raise ValueError("the path of the socket is missing: unix:///run/vmq.sock")
    # A second leading slash would be read as a host again.
    if path.startswith("//"):
        raise ValueError("the path of the socket begins with one slash: unix:///run/vmq.sock")
    if len(path) > _LONGEST_UNIX_PATH:
        raise ValueError(f"the path of a unix socket has at most {_LONGEST_UNIX_PATH} bytes")
    return path


def _host_and_port(netloc: str) -> tuple[str, int]:
    """Split `HOST:PORT` or `[IPV6]:PORT`; both parts are required.

    A missing host is refused rather than read as "every address": opening a broker to the network is written out.
    """
    bracketed = re.fullmatch(r"\[([^\[\]]*)\](?::(.*))?", netloc)
    if bracketed:
        host, port_text = bracketed[1], bracketed[2] or ""
        try:
            host = str(ipaddress.IPv6Address(host))
        except ValueError:
            raise ValueError(f"{host!r} is no IPv6 address") from None
    else:
        host, _, port_text = netloc.partition(":")
        if ":" in port_text:
            raise ValueError("an IPv6 address needs brackets: [::1]:1883")
        _check_host(host)
    if not (port_text.isdigit() and len(port_text) <= 5 and int(port_text) <= 65_535):
        what = f"{port_text!r} is no port" if port_text else "the port is missing"
        raise ValueError(what)
    return host, int(port_text)


def _check_host(host: str) -> None:
    if not host:
        raise ValueError("the host is missing (0.0.0.0 and [::] stand for every address)")
    if re.fullmatch(r"[0-9.]+", host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise ValueError(f"{host!r} is no IPv4 address") from None
    elif not _HOST_NAME.match(host):
        raise ValueError(f"{host!r} is no host name")


#: What browsers send as Origin for pages that have no place on a web server.
NO_PLACE: Final = ("null", "file://")
_ORIGIN: Final = re.compile(
    r"(?P<scheme>[a-z][a-z0-9+.-]*)://(?P<host>[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::(?P<port>[0-9]{1,5}))?\Z"
)
_PORTS: Final = {"http": "80", "https": "443"}


def parse_origin(text: str) -> str:
    """A page's origin as browsers mean it (RFC 6454): in lower case, and with its port where it has one.

    Raises:
        ValueError: the text is none.
    """
    text = text.lower()
    if text in NO_PLACE:
        return text
    found = _ORIGIN.match(text)
    if found is None:
        raise ValueError(f"{text!r:.200} is no origin")
    port = found["port"] or _PORTS.get(found["scheme"], "")
    return f"{found['scheme']}://{found['host']}" + (f":{int(port)}" if port else "")


def is_loopback(host: str) -> bool:
    """Whether a listener on `host` is reachable from this machine only.

    Of names only `localhost` counts: what any other name resolves to is not known before binding, and may change.
    """
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def parse_duration(text: str) -> int | None:
    """Seconds of a time span such as `12h`; None for `never`.

    Raises:
        ValueError: the text has another form.
    """
    if not re.match(DURATION_PATTERN, text):
        raise ValueError(f"{text!r} is no time span; accepted: {DURATION_FORMS}")
    if text == "never":
        return None
    unit = text.lstrip("0123456789")
    return int(text.removesuffix(unit)) * _UNIT_SECONDS[unit]


def months(text: str) -> str:
    """What a span in months is taken for; "" of any other: VerneMQ's `m` is no minute, as it is elsewhere."""
    if not re.match(r"[1-9][0-9]{0,5}m\Z", text):
        return ""
    count = int(text[:-1])
    return f"{text} is {30 * count}d, not {count}min: m is a month"


ARCHIVE_FORMS: Final = (
    '"file:///FOLDER" or "s3://BUCKET/FOLDER", with ?region= and ?endpoint= if need be'
)
#: What may follow a bucket, and what Arrow calls it.
_OF_BUCKET: Final = {"region": "region", "endpoint": "endpoint_override"}


class ArchiveUrl(NamedTuple):
    """A folder of a file system. `shown`: as people may see it."""

    is_local: bool
    path: str
    options: tuple[tuple[str, str], ...]
    shown: str


def read_archive(text: str) -> ArchiveUrl | None:
    """What an option says; None: there is none.

    Raises:
        ValueError: it is none; the text says what is accepted.
    """
    if not text:
        return None
    url = urlsplit(text)
    accepted = f"accepted: {ARCHIVE_FORMS}"
    if url.username is not None or url.password is not None or "@" in url.netloc:
        raise ValueError(
            "credentials stand in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), not here; "
            + accepted
        )
    path = url.path.rstrip("/")
    if url.scheme == "file" and not url.netloc and path and not url.query:
        return ArchiveUrl(True, path, (), f"file://{path}")
    options = dict(parse_qsl(url.query, keep_blank_values=True))
    if url.scheme != "s3" or not url.netloc or options.keys() - _OF_BUCKET.keys():
        raise ValueError(f"{text.partition('?')[0][:200]!r} names no archive; {accepted}")
    named = {_OF_BUCKET[name]: value for name, value in options.items()}
    endpoint = named.get("endpoint_override", "")
    scheme, mark, host = endpoint.partition("://")
    if mark:
        if scheme not in ("http", "https") or not host:
            raise ValueError(f"endpoint is an address, as in http://127.0.0.1:9000; {accepted}")
        named |= {"endpoint_override": host, "scheme": scheme}
    return ArchiveUrl(False, url.netloc + path, tuple(named.items()), f"s3://{url.netloc}{path}")
