"""A stream that is used gets more partitions: a thread opens them, for each takes the disk a moment."""

import asyncio
from collections.abc import Sized
from contextlib import ExitStack
from typing import Protocol

from vmq.streams.leaving import LeavingStreams


class Grows(Protocol):
    """A stream of a catalog, as far as it grows."""

    name: str

    @property
    def partitions(self) -> Sized: ...

    def open_more(self, count: int) -> None: ...


async def grow(leaving: LeavingStreams, stream: Grows, count: int) -> None:
    """Has a stream have so many partitions at least, for options that are to say so (`Catalog.adopt`).

    Args:
        leaving: knows whether it is growing or being deleted already.
        stream: one that is there.
        count: how many it is to have.

    Raises:
        StreamError: it is.
        OSError: the disk.
    """
    if len(stream.partitions) >= count:
        return
    leaving.check(stream.name)

    held = ExitStack()
    held.enter_context(leaving.hold(stream.name))
    opening = asyncio.get_running_loop().run_in_executor(None, stream.open_more, count)
    opening.add_done_callback(lambda _: held.close())
    await asyncio.shield(opening)  # who asks may give up
