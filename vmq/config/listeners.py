"""The options of one listener, and which of them go together."""

import ipaddress
from collections.abc import Iterator
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta, Struct

from vmq.config.values import PATH_PATTERN, URL_FORMS, Endpoint, parse_origin

#: PROXY headers and X-Forwarded-For are believed from this machine, unless the operator says more.
LOOPBACK_NETWORKS: Final = ("127.0.0.0/8", "::1/128")

#: In allowed_origins: every page.
ANY_ORIGIN: Final = "*"

_File = Annotated[str, Meta(pattern=PATH_PATTERN)]
_Owner = Annotated[str, Meta(pattern=r"^[^\x00:]+(:[^\x00:]+)?\Z")]
_ORIGINS: Final = (
    'a list, as in ["https://app.example.org"]; "*" is every page, "null" one without a place'
)
_NETWORKS: Final = 'a list of addresses and networks, as in ["10.0.0.0/8", "::1"]'
_TLS_OPTIONS: Final = (
    "certfile",
    "keyfile",
    "keypasswd",
    "cafile",
    "crlfile",
    "require_certificate",
    "use_identity_as_username",
    "ciphers",
    "sni",
)
#: What every listener with TLS has.
_PAIR: Final = ("certfile", "keyfile")


class Certificate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One certificate of a listener that has several."""

    certfile: _File
    keyfile: _File


class ListenerOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One listener."""

    url: Annotated[
        str,
        Meta(description="Address to listen on.", extra={"accepts": URL_FORMS}),
    ]
    allow_anonymous: Annotated[
        bool | None,
        Meta(description="Overrides auth.allow_anonymous for this listener; unset = it applies."),
    ] = None
    allow_remote: Annotated[
        bool,
        Meta(
            description="For http only: other machines may reach it, and see the broker's figures without a password."
        ),
    ] = False
    serve: Annotated[
        _File | None,
        Meta(
            description="For http only: serve the files of this folder (but those that begin with a dot), with MQTT at "
            "/mqtt, instead of the live page, the API and the figures; unset = those.",
            extra={"accepts": "a folder"},
        ),
    ] = None
    page_users: Annotated[
        dict[str, Literal["read", "all"]],
        Meta(
            description="For http only: users who may open the live page with the password that the plugins know them "
            "by: to look, or to do all that an API key may.",
            extra={"accepts": "a table: { USER = 'read', OTHER = 'all' }", "live": True},
        ),
    ] = msgspec.field(default_factory=dict)
    max_connections: Annotated[
        int,
        Meta(
            ge=0,
            description="Connections at a time; a further one is closed at once, unanswered (http: with 503), and "
            "logged; 0 = no limit, but of http, where a quarter of the files that may be open is one.",
            extra={"live": True},
        ),
    ] = 0
    http_request_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="HTTP: seconds that a new connection has to send the head of a request, and that a body may "
            "take; after that it is closed (counted as http_timeouts, and logged).",
        ),
    ] = 10.0
    allowed_protocol_versions: Annotated[
        list[Literal[3, 4]],
        Meta(
            min_length=1,
            description="MQTT versions served (3 = 3.1, 4 = 3.1.1); others are refused with CONNACK code 1.",
            extra={"accepts": "a list of 3 and 4", "live": True},
        ),
    ] = msgspec.field(default_factory=lambda: [3, 4])
    max_connection_lifetime: Annotated[
        float,
        Meta(
            ge=0,
            le=31_536_000,
            description="Seconds after which a connection is closed, whatever it does; 0 = never.",
            extra={"live": True},
        ),
    ] = 0.0
    advertise: Annotated[
        str,
        Meta(
            max_length=1000,
            description="For grpc and grpc+tls in a cluster: the URL under which readers find this node's partitions; "
            "empty = the listener's own, with the machine's name for 0.0.0.0 and [::].",
            extra={"accepts": "empty, grpc://HOST:PORT or grpc+tls://HOST:PORT"},
        ),
    ] = ""
    admin: Annotated[
        bool,
        Meta(
            description="For resp and resp+tls: clients may do what an operator does (DEBUG FLUSHALL)."
        ),
    ] = False
    local_reads: Annotated[
        bool,
        Meta(
            description="For grpc and grpc+tls: programs on this machine that may read a stream are told its files, "
            "and read those that their user may open; false = everything is sent.",
        ),
    ] = True
    auth_plugins: Annotated[
        list[str] | None,
        Meta(
            description="The plugins that decide who may connect here, in this order; unset = all, by priority.",
            extra={"accepts": 'a list of names, as in ["passwd"]'},
        ),
    ] = None
    authz_plugins: Annotated[
        list[str] | None,
        Meta(
            description="The plugins that decide who may publish and subscribe here, in this order; unset = all.",
            extra={"accepts": 'a list of names, as in ["acl"]'},
        ),
    ] = None
    mountpoint: Annotated[
        str,
        Meta(
            pattern=r"^[^\x00-\x1f\x7f+#]{0,255}\Z",
            description="Clients of listeners with different mountpoints share no topics, sessions or client ids.",
            extra={"accepts": "a text without +, # and control characters"},
        ),
    ] = ""
    proxy_protocol: Annotated[
        bool,
        Meta(
            description="Demand a PROXY protocol header (v1 or v2) on each connection; "
            "its address is the client's from then on."
        ),
    ] = False
    proxy_protocol_trusted: Annotated[
        list[str],
        Meta(
            description="Who may send PROXY headers; other peers of such a listener are closed at once.",
            extra={"accepts": _NETWORKS},
        ),
    ] = msgspec.field(default_factory=lambda: list(LOOPBACK_NETWORKS))
    xff_enabled: Annotated[
        bool,
        Meta(
            description="WebSocket: the client's address is the last in X-Forwarded-For that is no trusted proxy's."
        ),
    ] = False
    xff_trusted_intermediate: Annotated[
        list[str],
        Meta(
            description="The proxies whose X-Forwarded-For counts; it is ignored from other peers.",
            extra={"accepts": _NETWORKS},
        ),
    ] = msgspec.field(default_factory=lambda: list(LOOPBACK_NETWORKS))
    allowed_origins: Annotated[
        list[Annotated[str, Meta(max_length=1000)]],
        Meta(
            max_length=1000,
            description="WebSocket: the web pages (their Origin: scheme, host and port) whose scripts may connect. "
            "Empty = others are refused (HTTP 403) where a browser would get in without a password being typed: "
            "anonymous clients, use_identity_as_username, CONNECT without user name and password. Not empty = others "
            "are refused always. Programs that send no Origin are let in, and on loopback pages of loopback.",
            extra={"accepts": _ORIGINS, "live": True},
        ),
    ] = msgspec.field(default_factory=list)
    unix_mode: Annotated[
        str,
        Meta(
            pattern=r"^0?[0-7]{3}\Z",
            description="Unix socket: its permissions; whoever may write to it may connect.",
            extra={"accepts": 'octal digits, as in "660"'},
        ),
    ] = "600"
    unix_owner: Annotated[
        _Owner | None,
        Meta(
            description="Unix socket: its owner and group; unset = those of the broker.",
            extra={"accepts": "USER or USER:GROUP, by name or number"},
        ),
    ] = None
    certfile: Annotated[
        _File | None,
        Meta(
            description="TLS: the server's certificate and its chain (PEM). New files are taken up while running, by "
            "grpc+tls when the listener is opened anew.",
            extra={"accepts": "a path"},
        ),
    ] = None
    keyfile: Annotated[
        _File | None,
        Meta(
            description="TLS: the private key of certfile (PEM).",
            extra={"accepts": "a path"},
        ),
    ] = None
    keypasswd: Annotated[
        str | None, Meta(description="TLS: the password of the keyfile, if it is encrypted.")
    ] = None
    sni: Annotated[
        dict[str, Certificate],
        Meta(
            description="TLS: further certificates by the host name that a client asks for "
            '("*.example.org" covers one level); keypasswd serves for their keys too.',
            extra={"accepts": "a table: { 'HOST' = { certfile = PATH, keyfile = PATH }, ... }"},
        ),
    ] = msgspec.field(default_factory=dict)
    cafile: Annotated[
        _File | None,
        Meta(
            description="TLS: the authorities whose client certificates are good (PEM).",
            extra={"accepts": "a path"},
        ),
    ] = None
    crlfile: Annotated[
        _File | None,
        Meta(
            description="TLS: revocation lists (PEM), one for each authority that signs client certificates.",
            extra={"accepts": "a path"},
        ),
    ] = None
    require_certificate: Annotated[
        bool, Meta(description="TLS: refuse clients without a certificate that cafile covers.")
    ] = False
    use_identity_as_username: Annotated[
        bool,
        Meta(
            description="TLS: the common name of the client's certificate is its user name, and authenticates it: "
            "allow_anonymous is not needed; an auth plugin is still asked."
        ),
    ] = False
    tls_version: Annotated[
        Literal["1.2", "1.3"], Meta(description="TLS: the oldest version served.")
    ] = "1.2"
    ciphers: Annotated[
        str | None,
        Meta(
            description="TLS 1.2: its cipher suites, in OpenSSL's form; unset = OpenSSL's default. "
            "Those of 1.3 are fixed."
        ),
    ] = None
    tls_handshake_timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=3600,
            description="TLS: seconds that a new connection has for the handshake; "
            "session.mqtt_connect_timeout begins after it.",
            extra={"live": True},
        ),
    ] = 5.0

    @property
    def endpoint(self) -> Endpoint:
        """The parts of `url`.

        Raises:
            ValueError: `url` is no listener URL; cannot happen once `check` has passed.
        """
        return Endpoint.parse(self.url)


def problems_of(options: ListenerOptions, endpoint: Endpoint) -> Iterator[tuple[str, str]]:
    """What does not go together in a listener's options: (option, what is wrong with it)."""
    if endpoint.is_tls:
        yield from _tls_problems(options, endpoint)
    else:
        for name in _TLS_OPTIONS:
            if getattr(options, name):
                yield (
                    name,
                    f"a {endpoint.scheme} listener has no TLS; accepted: with tls://, wss://, grpc+tls:// or resp+tls://",
                )
    if options.proxy_protocol and (endpoint.scheme == "http" or endpoint.is_flight):
        what = "a listener of HTTP or Flight knows no PROXY header; accepted: with the others"
        yield "proxy_protocol", what
    if options.xff_enabled and not endpoint.is_websocket:
        yield "xff_enabled", "X-Forwarded-For is WebSocket's; accepted: with ws:// or wss://"
    if options.admin and not endpoint.is_resp:
        yield "admin", "accepted: with resp:// or resp+tls://"
    yield from _origin_problems(options, endpoint)
    if options.advertise:
        yield from _advertise_problems(options, endpoint)
    if options.serve is not None and endpoint.scheme != "http":
        yield "serve", "files are served over HTTP; accepted: with http://"
    if options.page_users and (endpoint.scheme != "http" or options.serve is not None):
        yield "page_users", "accepted: with http://, where the live page is"
    if options.unix_owner is not None and endpoint.scheme != "unix":
        yield "unix_owner", "accepted: with unix://"
    for name in ("proxy_protocol_trusted", "xff_trusted_intermediate"):
        for text in getattr(options, name):
            try:
                ipaddress.ip_network(text)
            except ValueError as error:
                yield name, f"{error}; accepted: {_NETWORKS}"


def _origin_problems(options: ListenerOptions, endpoint: Endpoint) -> Iterator[tuple[str, str]]:
    if options.allowed_origins and not (endpoint.is_websocket or endpoint.scheme == "http"):
        what = "web pages come by WebSocket; accepted: with ws://, wss:// or http://"
        yield "allowed_origins", what
    for text in options.allowed_origins:
        if text != ANY_ORIGIN:
            try:
                parse_origin(text)
            except ValueError as error:
                yield "allowed_origins", f"{error}; accepted: {_ORIGINS}"


def _advertise_problems(options: ListenerOptions, endpoint: Endpoint) -> Iterator[tuple[str, str]]:
    accepted = f"accepted: empty, or {endpoint.scheme}://HOST:PORT"
    if not endpoint.is_flight:
        yield "advertise", "this is for grpc:// and grpc+tls://; accepted: empty"
        return
    try:
        told = Endpoint.parse(options.advertise)
    except ValueError as error:
        yield "advertise", f"{error}; {accepted}"
    else:
        if told.scheme != endpoint.scheme or not told.port:
            yield "advertise", f"{options.advertise} is none of this listener's; {accepted}"


def _tls_problems(options: ListenerOptions, endpoint: Endpoint) -> Iterator[tuple[str, str]]:
    for name in _PAIR:
        if getattr(options, name) is None:
            yield name, "missing: TLS needs certfile and keyfile; accepted: a path"
    if endpoint.is_flight:
        for name in _TLS_OPTIONS:
            if getattr(options, name) and name not in _PAIR:
                what = "it would have no effect: a grpc+tls listener has a certificate, and asks clients for none"
                yield name, f"{what}; accepted: certfile and keyfile, unencrypted"
        return
    if options.require_certificate and options.cafile is None:
        yield "cafile", "missing: require_certificate needs it; accepted: a path"
    # What would look like protection and be none is refused, not ignored.
    for name in ("cafile", "use_identity_as_username"):
        if getattr(options, name) and not options.require_certificate:
            yield name, "has no effect without require_certificate = true; accepted: both"
    if options.crlfile is not None and options.cafile is None:
        yield "crlfile", "has no effect without cafile; accepted: both"
