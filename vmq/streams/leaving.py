"""Streams that were deleted and whose folders may be there still: until the writer is done with them."""

import asyncio
import logging
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from vmq.streams.log.checkpoint import sync_folder
from vmq.streams.log.errors import StreamError
from vmq.streams.log.partition import Partition
from vmq.streams.log.writer import promised

log = logging.getLogger("vmq.streams")

_THREAD: Final = "vmq-streams-delete"
#: Seconds that a stream of the same name waits for the end of the one before.
_PATIENCE: Final = 2.0
#: Seconds that the writer has for what it does before it lets go of a folder.
_SOON: Final = 0.5


class LeavingStreams:
    """Those of a catalog, by name: a new one of the name would have the folder, and so the id, and lose it."""

    def __init__(self) -> None:
        self._leaving: dict[str, Future[Path]] = {}
        #: Those of them that are being made, or grow.
        self._held: set[Future[Path]] = set()

    def add(
        self, name: str, moved: "Future[Path]", partitions: Sequence[Partition]
    ) -> "Future[None]":
        """One was deleted; what is returned is done when its files are gone, which may take long, by a thread.

        Args:
            name: its name.
            moved: its folder is another one, which is to go.
            partitions: their sealed segments go before, if the writer does not come to that: its disk may be full.
        """

        def wait() -> Path:
            try:
                return moved.result(_SOON)
            except TimeoutError:
                for partition in partitions:
                    partition.retain()
                return moved.result()

        aside, see = promised(wait)
        done, delete = promised(lambda: shutil.rmtree(aside.result()))
        self._leaving = {each: end for each, end in self._leaving.items() if not end.done()}
        self._leaving[name] = aside

        def work() -> None:
            see()
            delete()
            if (error := done.exception()) is not None:  # who has it deleted need not wait for that
                log.error("stream=%s: its files cannot be deleted: %s", name, error)

        threading.Thread(target=work, name=_THREAD, daemon=True).start()
        return done

    def finish(self, aside: Path) -> None:
        """Takes away what an earlier life of the broker had put out of sight; nobody waits for it."""

        def work() -> None:
            try:
                shutil.rmtree(aside)
            except OSError as error:
                text = "cannot delete %s: %s; it is tried again at the next start"
                log.error(text, aside, error.strerror or error)

        threading.Thread(target=work, name=_THREAD, daemon=True).start()

    @contextmanager
    def hold(self, name: str) -> Iterator[None]:
        """One of this name is being made, or grows: whatever else is to become of it waits for that."""
        made: Future[Path] = Future()
        self._leaving[name] = made
        self._held.add(made)
        try:
            yield
        finally:
            self._held.discard(made)
            made.set_result(Path())

    async def opened(self) -> None:
        """Returns when none is being made, and none grows."""
        while self._held:
            await asyncio.wait([asyncio.wrap_future(each) for each in self._held])

    def check(self, name: str) -> None:
        """Looks whether that of this name is gone.

        Raises:
            StreamError: it is not yet.
            OSError: the folder cannot be taken away.
        """
        if self.is_busy(name):
            raise StreamError(
                f"one is being made, or grows, or the stream {name!r} of before is still being deleted: try again"
            )
        if (done := self._leaving.get(name)) is not None:
            done.result()

    def is_busy(self, name: str) -> bool:
        """Whether one of this name is being made, grows, or is not gone yet."""
        done = self._leaving.get(name)
        return done is not None and not done.done()

    async def see_off(self, name: str) -> None:
        """Returns when that of this name is gone, or cannot be taken away, or the writer is busy for long."""
        if (done := self._leaving.get(name)) is not None:
            await asyncio.wait([asyncio.wrap_future(done)], timeout=_PATIENCE)

    def then(self, name: str, call: Callable[[], None]) -> bool:
        """Whether one of this name is leaving still; `call` is called in the event loop once that is over."""
        done, loop = self._leaving.get(name), asyncio.get_running_loop()
        if done is None or done.done():
            return False

        def over(_done: "Future[Path]") -> None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(call)

        done.add_done_callback(over)
        return True


def set_aside(folder: Path, close: Callable[[], None]) -> Path:
    """Closes a stream and puts its folder out of sight, so that no half of it is ever found; returns where it is."""
    aside = folder.with_name(f".deleted-{folder.name}-{time.time_ns()}")
    close()
    folder.rename(aside)
    sync_folder(folder.parent)  # else a power failure may bring it back
    return aside
