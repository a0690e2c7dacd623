"""Who may open the page: whoever has a link with a token that is good for once, and then for a while the browser.

A token is made over the admin socket, whose owner is the operator, and stands in the fragment of the link, which no
browser sends anywhere and no proxy logs. The page gives it back for a key of its own. That key is signed, not
remembered, so that a page goes on when the broker was started anew; the secret lies in the data directory.
"""

import base64
import binascii
import hashlib
import hmac
import os
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from vmq.admin.errors import RefusedError
from vmq.admin.keys import KeyRow, Scope

#: Seconds that a link is good for, and that a page may go on.
TOKEN_SECONDS: Final = 60
PAGE_SECONDS: Final = 12 * 3600
#: Links at a time; the oldest is good no more when there is one more.
MOST_TOKENS: Final = 64
FILE: Final = "page_secret"
PREFIX: Final = "vmqpage_"
#: What the keys of pages are called in the audit log.
PAGE: Final = "page"
_OF: Final = f"{PAGE} of "
#: Characters of a key of a page, at most.
_LONGEST: Final = 1500
_SECRET_BYTES: Final = 32


class _Claim(Struct, frozen=True, array_like=True):
    """What is signed: which page, what it may do, until when (seconds since 1970), and whose it is; "" = a link's."""

    id: str
    scope: Scope
    until: int
    user: str = ""


class PageKeys:
    """The tokens of one broker, and the keys of the pages that were opened by them.

    Args:
        folder: has the secret.
        clock: seconds since 1970: keys outlive the broker.
        monotonic: seconds for tokens, which do not: no clock that is set makes one good for longer.
    """

    def __init__(
        self,
        folder: Path,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._file = folder / FILE
        self._clock = clock
        self._monotonic = monotonic
        self._tokens: OrderedDict[bytes, tuple[float, Scope]] = OrderedDict()
        self._secret: bytes | None = None

    def token(self, scope: Scope = "read") -> str:
        """A new token, good for once within `TOKEN_SECONDS`."""
        text = secrets.token_urlsafe(24)
        self._tokens[_digest(text)] = (self._monotonic() + TOKEN_SECONDS, scope)
        while len(self._tokens) > MOST_TOKENS:
            self._tokens.popitem(last=False)
        return text

    def redeem(self, token: str) -> tuple[str, Scope] | None:
        """A key for a page, and what it may do; None: the token is none, was used, or is too old.

        Raises:
            RefusedError: the secret cannot be read or written.
        """
        until, scope = self._tokens.pop(_digest(token), (float("-inf"), "read"))
        if self._monotonic() >= until:
            return None
        return self.make(scope), scope

    def make(self, scope: Scope, user: str = "") -> str:
        """A key for a page.

        Raises:
            RefusedError: the secret cannot be read or written.
        """
        until = int(self._clock()) + PAGE_SECONDS
        body = _text(msgspec.json.encode(_Claim(secrets.token_hex(4), scope, until, user)))
        return f"{PREFIX}{body}.{_text(self._sign(body))}"

    def find(
        self, key: str, scope_of: Callable[[str], Scope | None] = lambda _user: None
    ) -> KeyRow | None:
        """What a page may do by its key; None: it is no key of ours, or too old.

        Args:
            key: as the page sent it.
            scope_of: what a user may do now; None: nothing any more.
        """
        if not key.startswith(PREFIX) or len(key) > _LONGEST:
            return None
        body, _, signature = key.removeprefix(PREFIX).partition(".")
        if not hmac.compare_digest(
            _text(self._sign(body)).encode(), signature.encode(errors="replace")
        ):
            return None
        try:
            claim = msgspec.json.decode(base64.urlsafe_b64decode(body + "=="), type=_Claim)
        except (binascii.Error, ValueError):
            return None
        if self._clock() >= claim.until:
            return None
        name, scope = PAGE, claim.scope
        if claim.user:
            now = scope_of(claim.user)
            if now is None:
                return None
            name, scope = _OF + claim.user, now
        return KeyRow(id=claim.id, name=name, created_at="", scope=scope)

    def _sign(self, body: str) -> bytes:
        if self._secret is None:
            self._secret = self._load()
        return hmac.digest(self._secret, body.encode(errors="replace"), "sha256")

    def _load(self) -> bytes:
        """The secret, made when first needed, or when the file has none."""
        try:
            with suppress(FileNotFoundError):
                found = self._file.read_bytes()
                if len(found) == _SECRET_BYTES:
                    return found
            fresh = secrets.token_bytes(_SECRET_BYTES)
            work = self._file.with_suffix(".new")
            work.unlink(missing_ok=True)
            handle = os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as file:
                file.write(fresh)
            work.replace(self._file)
        except OSError as error:
            raise RefusedError(f"the secret of the page cannot be had: {error}") from None
        return fresh


def is_of_page(key: KeyRow | None) -> bool:
    """Whether a request came from a page."""
    return key is not None and (key.name == PAGE or key.name.startswith(_OF))


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode(errors="replace")).digest()


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
