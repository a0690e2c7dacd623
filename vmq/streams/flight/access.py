"""Who calls the Flight server, and what that user may do: the broker answers, by a small protocol.

A client shows user and password once (Flight's handshake, `authenticate_basic_token`) and gets a token
for its further calls, so that a slow password hash is paid once; or it sends them with each call. A token ends before
its hour when its user may not connect any more: the broker is asked anew every few seconds, and plugins remember a
password that was right.
"""

import base64
import binascii
import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from pyarrow import flight

log = logging.getLogger("vmq.streams")

#: Seconds that a token is good for.
TOKEN_LIFE: Final = 3600.0
#: Seconds until it is asked again whether a token's user may still connect.
JUDGED_FOR: Final = 10.0
#: Tokens at a time; the oldest goes first.
MOST_TOKENS: Final = 10_000

_LONGEST_CREDENTIALS: Final = 4096
MIDDLEWARE: Final = "vmq-user"


class Access(Protocol):
    """What the Flight server asks of the broker, in threads of its own; an answer may take its time.

    `user` is None for a caller without credentials.
    """

    def authenticate(self, user: str | None, password: bytes) -> bool:
        """Whether this is the user, and may connect at all."""

    def may_read(self, user: str | None, filters: Sequence[str], group: str = "") -> bool:
        """Whether the user may subscribe to all these topic filters; as a member of a group, if it is named."""

    def sees(self, user: str | None, filters: Sequence[str]) -> bool:
        """Whether `may_read` would grant it: what a list leaves out is refused to nobody."""

    def may_write(self, user: str | None, topic: str) -> bool:
        """Whether the user may publish to a topic."""

    def longest_payload(self) -> int:
        """Bytes of the largest payload that may be published; 0 is no limit."""


class Anybody:
    """Every caller may do everything: for a server on loopback, as `allow_anonymous = "loopback"` has it."""

    def authenticate(self, _user: str | None, _password: bytes) -> bool:
        return True

    def may_read(self, _user: str | None, _filters: Sequence[str], _group: str = "") -> bool:
        return True

    def sees(self, user: str | None, filters: Sequence[str]) -> bool:
        return self.may_read(user, filters)

    def may_write(self, _user: str | None, _topic: str) -> bool:
        return True

    def longest_payload(self) -> int:
        return 0


class OwnAccess(Anybody):
    """What is part of the broker may do everything: the operator wrote what it does."""


class Issued:
    """What a token stands for."""

    def __init__(self, user: str, password: bytes, now: float) -> None:
        self.user = user
        self.password = password
        self.until = now + TOKEN_LIFE
        #: When it was last found that the user may connect.
        self.judged_at = now


class Tokens:
    """The tokens that were given out: random, in memory, for an hour."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.lock = threading.Lock()
        self.issued: dict[str, Issued] = {}

    def issue(self, user: str, password: bytes) -> str:
        """A new token of a user who has just shown this password."""
        token = secrets.token_urlsafe(32)
        with self.lock:
            while len(self.issued) >= MOST_TOKENS:
                del self.issued[next(iter(self.issued))]
            self.issued[token] = Issued(user, password, self.clock())
        return token

    def find(self, token: str) -> Issued | None:
        """What it stands for; None if it is none, or none any more."""
        with self.lock:
            found = self.issued.get(token)
            if found is not None and self.clock() >= found.until:
                del self.issued[token]
                return None
            return found

    def user_of(self, token: str, may_connect: Callable[[str, bytes], bool]) -> str | None:
        """Whose token it is; None if it is none, or none any more. It ends with its user's right to connect."""
        found = self.find(token)
        if found is None:
            return None
        if self.clock() >= found.judged_at + JUDGED_FOR:
            if not may_connect(found.user, found.password):
                with self.lock:
                    self.issued.pop(token, None)
                return None
            found.judged_at = self.clock()
        return found.user


class Caller(flight.ServerMiddleware):  # type: ignore[misc]
    """The user of one call; a handshake's answer carries the token."""

    def __init__(self, user: str | None, token: str | None) -> None:
        self.user = user
        self.token = token

    def sending_headers(self) -> dict[str, str]:
        return {} if self.token is None else {"authorization": f"Bearer {self.token}"}


class Authentication(flight.ServerMiddlewareFactory):  # type: ignore[misc]
    """Finds out who calls; whoever cannot say is refused before anything else happens."""

    def __init__(self, access: Access, tokens: Tokens) -> None:
        self.access = access
        self.tokens = tokens

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> Caller:
        """Called for every call."""
        try:
            return self.caller(info, headers)
        except flight.FlightError:
            raise
        except Exception:
            log.exception("a caller of Flight cannot be authenticated")
            raise flight.FlightUnavailableError("authentication fails: try again") from None

    def caller(self, info: Any, headers: dict[str, list[str]]) -> Caller:
        """Who calls.

        Raises:
            FlightUnauthenticatedError: nobody who may.
        """
        given = next(
            (value for key, value in headers.items() if key.lower() == "authorization"), []
        )
        if not given:
            if not self.access.authenticate(None, b""):
                raise flight.FlightUnauthenticatedError(
                    "credentials are missing; accepted: authorization: Basic or Bearer"
                )
            return Caller(None, None)
        scheme, _, value = str(given[0]).partition(" ")
        if scheme.lower() == "bearer":
            user = self.tokens.user_of(value, self.access.authenticate)
            if user is None:
                raise flight.FlightUnauthenticatedError(
                    "the token is unknown or has ended: authenticate again"
                )
            return Caller(user, None)
        if scheme.lower() != "basic":
            raise flight.FlightUnauthenticatedError(
                "unknown kind of credentials; accepted: authorization: Basic or Bearer"
            )
        user, password = basic_credentials(value)
        if not self.access.authenticate(user, password):
            raise flight.FlightUnauthenticatedError("wrong user name or password")
        is_handshake = info.method == flight.FlightMethod.HANDSHAKE
        return Caller(user, self.tokens.issue(user, password) if is_handshake else None)


class Handshake(flight.ServerAuthHandler):  # type: ignore[misc]
    """Lets the handshake through: the middleware has judged its headers already."""

    def authenticate(self, outgoing: Any, incoming: Any) -> None:
        """Nothing more to say."""

    def is_valid(self, _token: bytes) -> str:
        return ""


def basic_credentials(value: str) -> tuple[str, bytes]:
    """User and password of a Basic header.

    Raises:
        FlightUnauthenticatedError: they cannot be read.
    """
    if len(value) > _LONGEST_CREDENTIALS:
        value = ""
    try:
        # Arrow's client in Go leaves the padding out.
        padded = value + "=" * (-len(value) % 4)
        user, colon, password = base64.b64decode(padded, validate=True).partition(b":")
        name = user.decode()
    except (binascii.Error, ValueError):
        colon, name, password = b"", "", b""
    if not colon:
        raise flight.FlightUnauthenticatedError(
            "the credentials cannot be read; accepted: Basic and base64 of user:password"
        )
    return name, password
