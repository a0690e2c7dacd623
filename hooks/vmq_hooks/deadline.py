"""The deadline of an async verdict, which stands still while a plugin only waits for its turn.

The broker bounds such a wait by itself: in bytes, and by its option `session.login_timeout`.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Final

#: The deadline of the verdict that the present task works on; set by the broker.
LIMIT: Final[ContextVar[asyncio.Timeout | None]] = ContextVar("deadline", default=None)


@contextmanager
def off_the_clock() -> Iterator[None]:
    """Within the block the deadline of the present verdict stands still. Without a verdict it does nothing."""
    limit = LIMIT.get()
    ends = None if limit is None else limit.when()
    if limit is None or ends is None:
        yield
        return
    clock = asyncio.get_running_loop().time
    left = ends - clock()
    _reschedule(limit, None)
    try:
        yield
    finally:
        _reschedule(limit, clock() + left)


def _reschedule(limit: asyncio.Timeout, when: float | None) -> None:
    with suppress(RuntimeError):  # nobody waits for the verdict any more
        limit.reschedule(when)
