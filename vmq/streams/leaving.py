"""Streams that were deleted and whose folders may be there still: until the writer is done with them."""

import asyncio
import shutil
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import Final

from vmq.streams.log.errors import StreamError

#: Seconds that a stream of the same name waits for the end of the one before.
_PATIENCE: Final = 2.0


class LeavingStreams:
    """Those of a catalog, by name: a new one of the name would have the folder, and so the id, and lose it."""

    def __init__(self) -> None:
        self._leaving: dict[str, Future[None]] = {}

    def add(self, name: str, done: "Future[None]") -> "Future[None]":
        """One was deleted; `done`, which it returns: its folder is gone."""
        self._leaving = {each: end for each, end in self._leaving.items() if not end.done()}
        self._leaving[name] = done
        return done

    def check(self, name: str) -> None:
        """Looks whether that of this name is gone.

        Raises:
            StreamError: it is not yet.
            OSError: the folder cannot be taken away.
        """
        done = self._leaving.get(name)
        if done is None:
            return
        if not done.done():
            raise StreamError(f"the stream {name!r} of before is still being deleted: try again")
        done.result()

    async def see_off(self, name: str) -> None:
        """Returns when that of this name is gone, or cannot be taken away, or the writer is busy for long."""
        if (done := self._leaving.get(name)) is not None:
            await asyncio.wait([asyncio.wrap_future(done)], timeout=_PATIENCE)

    def then(self, name: str, call: Callable[[], None]) -> bool:
        """Whether one of this name is leaving still; `call` is called in the event loop once that is over."""
        done, loop = self._leaving.get(name), asyncio.get_running_loop()
        if done is None or done.done():
            return False

        def over(_done: "Future[None]") -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(call)

        done.add_done_callback(over)
        return True


def remove(folder: Path, close: Callable[[], None]) -> None:
    """Closes a stream and deletes its folder: first out of sight, so that no half of it is ever found."""
    aside = folder.with_name(f".deleted-{folder.name}")
    close()
    folder.rename(aside)
    shutil.rmtree(aside)
