"""What may be configured: endpoints by name, each with its hooks."""

import re
from typing import Annotated, Final, Literal, get_args
from urllib.parse import urlsplit

import msgspec
from msgspec import Meta

#: Those of VerneMQ's webhooks but on_deliver, which stands on the way to the socket, and cannot wait for a server.
Hook = Literal[
    "auth_on_register",
    "auth_on_publish",
    "auth_on_subscribe",
    "on_register",
    "on_publish",
    "on_subscribe",
    "on_unsubscribe",
    "on_topic_unsubscribed",
    "on_offline_message",
    "on_message_drop",
    "on_client_wakeup",
    "on_client_offline",
    "on_client_gone",
    "on_session_expired",
    "on_config_change",
]

#: A token (RFC 9110, sections 5.1 and 5.6.2).
_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
#: The name is a label of metrics, and stands in the log.
_NAME: Final = re.compile(r"[A-Za-z0-9_]{1,32}\Z")


class EndpointConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One endpoint."""

    url: Annotated[
        str,
        Meta(
            description="Where the hooks are posted to.",
            extra={"accepts": "http://HOST/PATH, https://HOST/PATH"},
        ),
    ]
    hooks: Annotated[
        tuple[Hook, ...],
        Meta(
            min_length=1,
            description="The hooks that it gets.",
            extra={"accepts": f"a list of names, one at least, of {', '.join(get_args(Hook))}"},
        ),
    ]
    no_payload: Annotated[
        bool,
        Meta(description="Leave payloads out. Only then are verdicts on publishes kept."),
    ] = False
    headers: Annotated[
        dict[str, str],
        Meta(
            description="Sent with each request, authorization for instance.",
            extra={"accepts": "a table of texts"},
        ),
    ] = {}
    breaker_failures: Annotated[
        int,
        Meta(
            ge=0,
            description="Requests in a row without a proper answer, after which it is not asked for a while: "
            "auth hooks refuse at once, others leave it out; 0 = never.",
        ),
    ] = 5
    breaker_seconds: Annotated[
        float,
        Meta(gt=0, le=86_400, description="How long that is; then one request is tried."),
    ] = 30.0
    cafile: Annotated[
        str | None,
        Meta(
            description="Who signed the server's certificate; unset = whom the system trusts.",
            extra={"accepts": "a path"},
        ),
    ] = None
    certfile: Annotated[
        str | None, Meta(description="Our own certificate.", extra={"accepts": "a path"})
    ] = None
    keyfile: Annotated[
        str | None,
        Meta(description="Its key; unset = in the same file.", extra={"accepts": "a path"}),
    ] = None

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in {"http", "https"} and parts.hostname and parts.port != 0
        except ValueError:
            good = False
        if not good:
            raise ValueError("url: accepted: http://HOST/PATH or https://HOST/PATH")
        if len(set(self.hooks)) < len(self.hooks):
            raise ValueError("hooks: accepted: each of them once")
        if self.keyfile is not None and self.certfile is None:
            raise ValueError("keyfile: a keyfile without a certfile")
        for name in ("cafile", "certfile"):
            if getattr(self, name) and not self.secure:
                raise ValueError(
                    f"{name}: it would have no effect; accepted: with a url of https://"
                )
        for name, text in self.headers.items():
            if not _HEADER_NAME.fullmatch(name):
                raise ValueError(f"headers: {name!r} is no name of a header")
            if any(ord(character) < 32 or ord(character) == 127 for character in text):
                raise ValueError(f"headers: the value of {name!r} contains control characters")

    @property
    def secure(self) -> bool:
        return urlsplit(self.url).scheme == "https"


class WebhooksConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The plugin's section of the configuration."""

    timeout: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            description="Seconds for a verdict, all endpoints together; keep it below the deadline.",
        ),
    ] = 4.0
    pool_max_connections: Annotated[
        int, Meta(ge=1, le=10_000, description="Connections to all endpoints together.")
    ] = 100
    pool_timeout: Annotated[
        float,
        Meta(gt=0, le=86_400, description="Seconds for which an idle connection is kept."),
    ] = 60.0
    endpoints: Annotated[
        dict[str, EndpointConfig],
        Meta(
            description="One table an endpoint.",
            extra={"accepts": "tables"},
        ),
    ] = {}

    def __post_init__(self) -> None:
        for name in self.endpoints:
            if not _NAME.match(name):
                raise ValueError(
                    f"endpoints: {name!r} is no usable name; accepted: up to 32 letters, digits and underscores"
                )
