"""A stream that is used gets more partitions: a thread opens them, for each takes the disk a moment."""

import asyncio
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vmq.streams.catalog import Catalog


async def grow(catalog: "Catalog", name: str, count: int) -> None:
    """Has a stream have so many partitions at least, for options that are to say so (`Catalog.adopt`).

    Raises:
        StreamError: there is no such stream, or it is growing or being deleted already.
        OSError: the disk.
    """
    stream = catalog.get(name)
    if len(stream.partitions) >= count:
        return
    catalog.leaving.check(name)

    held = ExitStack()
    held.enter_context(catalog.leaving.hold(name))
    opening = asyncio.get_running_loop().run_in_executor(None, stream.open_more, count)
    opening.add_done_callback(lambda _: held.close())
    await asyncio.shield(opening)  # who asks may give up
