"""Streams that were deleted and whose folders may be there still: until the writer is done with them."""

import shutil
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Final

from vmq.streams.log.errors import StreamError

#: Seconds that a stream of the same name waits for the end of the one before.
_PATIENCE: Final = 2.0


class LeavingStreams:
    """Those of a catalog, by name."""

    def __init__(self) -> None:
        self._leaving: dict[str, Future[None]] = {}

    def add(self, name: str, done: "Future[None]") -> None:
        """One was deleted; `done`: its folder is gone."""
        self._leaving = {each: end for each, end in self._leaving.items() if not end.done()}
        self._leaving[name] = done

    def see_off(self, name: str) -> None:
        """Returns when that of this name is gone: a new one would have its folder, and so its id, and lose it.

        Raises:
            StreamError: the writer is busy with something else for long.
            OSError: the folder cannot be taken away.
        """
        done = self._leaving.get(name)
        if done is not None:
            try:
                done.result(_PATIENCE)
            except TimeoutError:
                raise StreamError(
                    f"the stream {name!r} of before is still being deleted: try again"
                ) from None


def remove(folder: Path, close: Callable[[], None]) -> None:
    """Closes a stream and deletes its folder: first out of sight, so that no half of it is ever found."""
    aside = folder.with_name(f".deleted-{folder.name}")
    close()
    folder.rename(aside)
    shutil.rmtree(aside)
