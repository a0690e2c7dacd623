"""Keeps how far replays are that have a cursor: every 200 ms, or 1,000 rows, and when they end.

In a cluster the other nodes are told, too (`SharedCursors`): a client goes on wherever it comes next.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from typing import Final, Protocol

from vmq.core.queue import Queue
from vmq.streams.catalog import Catalog, Stream
from vmq.streams.definition import StreamRef
from vmq.streams.reader_places import (
    NOWHERE,
    CursorError,
    CursorKey,
    FoundCursor,
    Kept,
    Place,
    SharedCursors,
)
from vmq.streams.replay import cursors as limits
from vmq.streams.replay.cursors import Cursors
from vmq.streams.replay.group_request import OWNER
from vmq.streams.replay.request import ReplayRequest

log = logging.getLogger("vmq.streams")

#: Seconds, and rows of one replay, after which cursors are kept again.
EVERY: Final = 0.2
ROWS: Final = 1000
#: Seconds between two looks for cursors that nobody uses.
_SWEEP: Final = 3600.0

#: Seconds within which it is found out where a reader begins.
_LOOKS: Final = 60.0

FILE: Final = "cursors.sqlite"


class HasPlace(Protocol):
    """Somebody whose place is kept: a replay, or a group."""

    #: What it reads, and what was kept last.
    stream: Stream
    kept: Place

    @property
    def key(self) -> CursorKey | None: ...

    def place(self) -> Place:
        """Where it is."""

    def moved(self) -> int:
        """Rows since `settle`."""

    def settle(self) -> None:
        """Its place is being kept."""


def is_of_replay(key: CursorKey) -> bool:
    """Whether it is no group's."""
    return not key.owner.startswith(OWNER)


class Keeping:
    """The cursors of a broker's readers.

    Args:
        folder: where their file is.
        running: those under way.
        catalog: knows the cluster, if there is one.
    """

    def __init__(
        self, folder: Path, running: Callable[[], Iterator[HasPlace]], catalog: Catalog
    ) -> None:
        self.folder = folder
        self.running = running
        self.catalog = catalog
        self.loop = asyncio.get_running_loop()
        self.writer = ThreadPoolExecutor(1, thread_name_prefix="vmq-cursors")
        self.cursors: Cursors | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.sweeper: asyncio.TimerHandle | None = None
        self.is_writing = False
        #: What is on its way to disk, or waits for that. What takes its place, or is forgotten, is not tried again.
        self.unwritten: dict[CursorKey, Kept] = {}
        #: Where readers were that ended lately, and when, in monotonic seconds.
        self.left: dict[CursorKey, tuple[float, Kept]] = {}
        #: The disk fails; said once.
        self.is_failing = False

    def key_of(
        self, queue: Queue, topic_filter: str, request: ReplayRequest, stream: str
    ) -> CursorKey | None:
        """Under what the place of a replay is kept: by the client's name for it, or with its durable session.

        On one cursor a reader of `a/#` would skip the rows of `b/#` for ever: what is read is part of it.
        """
        if request.name:
            user = queue.username
            owner = f"client {queue.client_id}" if user is None else f"user {user}"
            return CursorKey(owner, f"{request.name}\0{stream}\0{request.filter}\0{request.where}")
        name = queue.session_name()
        return CursorKey("session " + name, topic_filter) if name else None

    def find(self, key: CursorKey, stream: StreamRef) -> Place | None:
        """Where a cursor is, in a thread.

        Raises:
            CursorError: it cannot be had.
        """
        return self.writer.submit(self._find, key, stream).result()

    def _find(self, key: CursorKey, stream: StreamRef) -> Place | None:
        return self._open().find(key, stream)

    def _open(self) -> Cursors:
        if self.cursors is None:
            try:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            except OSError as error:
                raise CursorError(f"{self.folder} cannot be used: {error.strerror}") from error
            self.cursors = Cursors(self.folder / FILE)
            self.cursors.expire()
        return self.cursors

    @property
    def shared(self) -> SharedCursors | None:
        """The cursors of the cluster."""
        return self.catalog.cursors

    def found_in_cluster(self, key: CursorKey, stream: StreamRef) -> FoundCursor | None:
        """Where a cursor is as the cluster has it; in the event loop."""
        return None if self.shared is None else self.shared.find(key, stream)

    def may_have(self, key: CursorKey) -> bool:
        """Whether the cluster has room for a cursor; in the event loop."""
        shared = self.shared
        return shared is None or shared.knows(key) or shared.count(key.owner) < limits.MOST

    async def share(self) -> None:
        """Tells the cluster, of which this node is a part now, of cursors that it has from before."""
        try:
            found = await self.listed("")
        except (CursorError, RuntimeError) as error:
            log.error("the other nodes do not learn of cursors: %s", error)
            return
        shared = self.shared
        if shared is not None:
            mine = [each for each in found if is_of_replay(each[0])]
            shared.keep(each for each in mine if not shared.knows(each[0]))

    # What moves

    def begin(self) -> None:
        """There is a replay."""
        if self.timer is None:
            self.timer = self.loop.call_later(EVERY, self.look)
        if self.sweeper is None:
            self.sweeper = self.loop.call_later(_SWEEP, self.sweep)

    def look(self) -> None:
        """It is time."""
        self.timer = None
        self.keep()
        if next(self.running(), None) is not None or self.unwritten:
            self.begin()

    def on_moved(self, reader: HasPlace) -> None:
        """A reader has sent something, or something was acknowledged."""
        if reader.moved() >= ROWS and not self.is_writing:
            self.keep()

    def leave(self, reader: HasPlace) -> None:
        """A reader ends; its place is kept at once."""
        if reader.key is not None:
            kept = reader.key, reader.stream.ref.text, reader.place()
            self.unwritten[reader.key] = kept
            self._note_left(kept)
            if self.shared is not None and is_of_replay(reader.key):
                self.shared.leave(kept)
            self.keep()

    def _note_left(self, kept: Kept) -> None:
        now = time.monotonic()
        for key in [*takewhile(lambda key: self.left[key][0] < now - _LOOKS, self.left)]:
            del self.left[key]
        self.left.pop(kept[0], None)
        self.left[kept[0]] = now, kept

    def unwritten_of(self, key: CursorKey, stream: StreamRef, since: float) -> Place | None:
        """Where a cursor is, if it is further than what `find` found, perhaps, that was asked at a time."""
        found = self.unwritten.get(key)
        if found is None and key in self.left and self.left[key][0] >= since:
            found = self.left[key][1]  # it is written, and was not when `find` looked
        return None if found is None or found[1] != stream.text else found[2]

    async def listed(self, owners: str) -> list[Kept]:
        """The cursors of owners whose names begin so, as they are on disk or on their way there.

        Raises:
            CursorError: they cannot be read.
        """
        found = await self.loop.run_in_executor(self.writer, lambda: self._open().all_of(owners))
        fresh = {key: each for key, each in self.unwritten.items() if key.owner.startswith(owners)}
        return [each for each in found if each[0] not in fresh] + list(fresh.values())

    async def put(self, key: CursorKey, stream: StreamRef, place: Place) -> None:
        """Has a cursor that nobody reads by be elsewhere.

        Raises:
            CursorError: the disk.
        """
        self._drop(key)
        kept = [(key, stream.text, place)]
        await self.loop.run_in_executor(self.writer, lambda: self._open().keep(kept))

    async def write(self, reader: HasPlace, *, is_synced: bool = False) -> None:
        """Has written where a reader is now; `is_synced`: on the disk, not only with the system.

        Raises:
            CursorError: the disk; it is tried again with all others.
        """
        key = reader.key
        assert key is not None
        kept = key, reader.stream.ref.text, reader.place()
        self.unwritten[key] = kept
        await self.loop.run_in_executor(
            self.writer, lambda: self._open().keep([kept], is_synced=is_synced)
        )
        if self.unwritten.get(key) is kept:
            del self.unwritten[key]

    async def forget(self, key: CursorKey) -> None:
        """A cursor is needed no more."""
        self._drop(key)
        await self.loop.run_in_executor(self.writer, lambda: self._open().forget(key))

    def forget_session(self, queue: Queue, topic_filter: str) -> None:
        """A durable session does not read this any more."""
        name = queue.session_name()
        if name:
            key = CursorKey("session " + name, topic_filter)
            if self.shared is not None:
                self.shared.forget(key)
            self.forget_here(key)

    def forget_here(self, key: CursorKey) -> None:
        """A cursor is needed no more at this node."""
        self._drop(key)
        self._submit(lambda: self._open().forget(key))

    def _drop(self, key: CursorKey) -> None:
        self.unwritten.pop(key, None)
        self.left.pop(key, None)

    def forget_stream(self, stream: StreamRef) -> None:
        """A stream was deleted, and nobody reads it any more."""
        self.unwritten = {
            key: each for key, each in self.unwritten.items() if each[1] != stream.text
        }
        self._submit(lambda: self._open().forget_stream(stream))

    def keep(self) -> None:
        """Has written what has moved, unless that is under way."""
        if self.is_writing:
            return
        moved = self.take()
        if moved:
            if self.shared is not None:
                self.shared.keep(each for each in moved if is_of_replay(each[0]))
            self.is_writing = True
            done = self._submit(lambda: self._open().keep(moved))
            if done is not None:
                done.add_done_callback(lambda done: self._in_loop(done, moved))

    def take(self) -> list[Kept]:
        """What has moved since it was kept last."""
        for reader in self.running():
            if reader.key is None:
                continue
            place = reader.place()
            reader.settle()
            if place != reader.kept:
                reader.kept = place
                self.unwritten[reader.key] = reader.key, reader.stream.ref.text, place
        return list(self.unwritten.values())

    def _submit(self, call: Callable[[], None]) -> "Future[None] | None":
        try:
            return self.writer.submit(call)
        except RuntimeError:
            return None  # the broker stops

    def _in_loop(self, done: "Future[None]", moved: list[Kept]) -> None:
        try:
            self.loop.call_soon_threadsafe(self.on_kept, done, moved)
        except RuntimeError:
            pass  # the loop has ended

    def on_kept(self, done: "Future[None]", moved: list[Kept]) -> None:
        """It is written, or could not be: then it is tried again."""
        self.is_writing = False
        error = None if done.cancelled() else done.exception()
        if error is None:
            self.is_failing = False
            for each in moved:
                if self.unwritten.get(each[0]) is each:
                    del self.unwritten[each[0]]
            return
        if not self.is_failing:
            self.is_failing = True
            log.error("the places of readers cannot be kept: %s; it is tried again", error)

    def sweep(self) -> None:
        """Cursors that nobody uses go; those in use are used."""
        self.sweeper = None
        for reader in self.running():
            reader.kept = NOWHERE
        self.keep()
        if self.shared is not None:
            self.shared.sweep()
        self._submit(self._expire)
        self.begin()

    def _expire(self) -> None:
        self._open().expire()

    async def stop(self) -> None:
        """Writes what has moved, and closes the file."""
        for timer in (self.timer, self.sweeper):
            if timer is not None:
                timer.cancel()
        moved = self.take()
        await self.loop.run_in_executor(self.writer, self._end, moved)
        self.writer.shutdown(wait=False)

    def _end(self, moved: list[Kept]) -> None:
        if not moved and self.cursors is None:
            return
        try:
            cursors = self._open()
            if moved:
                cursors.keep(moved)
            cursors.close()
        except CursorError as error:
            log.error("the places of readers cannot be kept: %s", error)
