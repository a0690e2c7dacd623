"""Partitions of a stream that is made, or grows, while the broker runs.

A thread opens them: each takes the disk a moment.
"""

import asyncio
from collections.abc import Callable, Sized
from contextlib import ExitStack
from functools import partial
from typing import Protocol, TypeVar

from vmq.streams.leaving import LeavingStreams

T = TypeVar("T")


class Grows(Protocol):
    """A stream of a catalog, as far as it grows."""

    name: str

    @property
    def partitions(self) -> Sized: ...

    def open_more(self, count: int) -> None: ...


def open_beside(
    leaving: LeavingStreams, name: str, work: Callable[[], T], opened: Callable[[T], None]
) -> "asyncio.Future[T]":
    """Has a thread open partitions of a stream; whatever else is to become of one of this name waits for that.

    Args:
        leaving: knows whether one is being made, grows or is being deleted already.
        name: the stream's.
        work: done in the thread; it may raise `StreamError` and `OSError`.
        opened: called in the event loop with what `work` returned, before those who wait go on.

    Raises:
        StreamError: one is.
    """
    leaving.check(name)
    held = ExitStack()
    held.enter_context(leaving.hold(name))

    def end(opening: "asyncio.Future[T]") -> None:
        with held:
            if not opening.cancelled() and opening.exception() is None:
                opened(opening.result())

    opening = asyncio.get_running_loop().run_in_executor(None, work)
    opening.add_done_callback(end)
    return opening


def open_more(leaving: LeavingStreams, stream: Grows, count: int) -> "asyncio.Future[None]":
    """Has a stream have so many partitions, for options that are to say so (`Catalog.adopt`): see `open_beside`."""
    return open_beside(leaving, stream.name, partial(stream.open_more, count), lambda _: None)


async def grow(leaving: LeavingStreams, stream: Grows, count: int) -> None:
    """Has a stream have so many partitions where it has fewer, and returns when it has them.

    Raises:
        StreamError: it is being made, grows or is being deleted.
        OSError: the disk.
    """
    if len(stream.partitions) < count:
        await asyncio.shield(open_more(leaving, stream, count))  # who asks may give up
