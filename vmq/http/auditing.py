"""Who asks for an operation of the API, for the audit log."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from aiohttp import web

from vmq.admin.errors import AdminError
from vmq.admin.keys import KeyRow
from vmq.runtime.audit import tell_of_operation, user_of

#: The API key that the request at work brought; None = it came over the admin socket.
key_at_work: ContextVar[KeyRow | None] = ContextVar("key_at_work", default=None)

SOCKET: Final = "socket"


@contextmanager
def audited(request: web.Request, name: str, parameters: Mapping[str, object]) -> Iterator[None]:
    """Tells of an operation once it is over, however it ended."""
    result = "interrupted"
    try:
        yield
        result = "ok"
    except AdminError as error:
        result = f"refused: {error}"
        raise
    except Exception as error:
        result = f"failed: {type(error).__name__}"
        raise
    finally:
        key = key_at_work.get()
        by = user_behind(request) if key is None else name_of(key)
        tell_of_operation(name, parameters, by, request.remote or SOCKET, result)


def name_of(key: KeyRow) -> str:
    """A key as people know it, and as the list of keys does."""
    return f"api key {key.name!r} ({key.id})" if key.name else f"api key {key.id}"


def user_behind(request: web.Request) -> str:
    """Whose program called over the admin socket."""
    sock = None if request.transport is None else request.transport.get_extra_info("socket")
    # What was asked for is done, and whoever asked may be gone.
    try:
        return "unknown" if sock is None else user_of(sock.fileno())
    except OSError:
        return "unknown"
