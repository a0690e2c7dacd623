"""Messages that a program lays down in parts and has published in one step, once.

A batch of a query (Spark's words) arrives in parts, each from a task that may fail and be repeated.
Nothing is published until `commit` names the parts that count. From then on the batch is published
to its end, whatever happens: the decision is on disk before the first message goes out, and the
publisher notes how far it came together with what it publishes. A batch whose number is not above the
query's last one was published before, and is thrown away.

A batch may go with the cursor of a consumer group: what was read, and what came of it. The decision says both, so
that it is one step.

    sinks/QUERY/state.json              the last batch, the one that is being published, or waits for a decision
    sinks/QUERY/BATCH-PART-ATTEMPT.arrow
"""

import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

import pyarrow as pa

from vmq.disk.room import DiskRoom
from vmq.streams.groups.steps import StepNumber
from vmq.streams.log.checkpoint import sync_folder
from vmq.streams.staging.queries import forget_batches, make_room
from vmq.streams.staging.state import (
    STATE,
    BusyError,
    Decided,
    Marks,
    StagedCursor,
    StagedState,
    StagingError,
    load_state,
    read_state,
    write_state,
)

log = logging.getLogger("vmq.streams")

#: What a staged message is made of.
MESSAGE: Final = pa.schema(
    [("topic", pa.string()), ("payload", pa.binary()), ("qos", pa.int32()), ("retain", pa.bool_())]
)

#: Queries are named by Spark (a UUID) or by who writes; the name becomes a folder's.
QUERY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")

#: How the queries of members of consumer groups are called.
MEMBERS: Final = "members."

#: Seconds after which parts that nobody committed are thrown away.
STALE: Final = 86_400.0

#: Bytes that may lie in all parts together.
MOST_BYTES: Final = 4 << 30

#: Seconds between two looks for stale parts.
TIDY_EVERY: Final = 60.0


class StagedPart:
    """One part on its way in. Seen by `commit` only once it is closed."""

    def __init__(self, staging: "Staging", path: Path) -> None:
        self.staging = staging
        self.path = path
        # Two attempts of one number never write into the same file.
        self.work = path.with_suffix(f".{next(staging.numbers)}.tmp")
        self.file = self.work.open("wb")
        self.writer = pa.ipc.new_stream(self.file, MESSAGE)
        self.size = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Adds messages.

        Raises:
            StagingError: there is no room, by the limit or on the disk.
        """
        try:
            self.writer.write_batch(batch)
        except OSError as error:
            raise StagingError(f"cannot stage messages: {error.strerror or error}") from error
        self.count()

    def count(self) -> None:
        """Counts what was written since the last time."""
        size = self.file.tell()
        added, self.size = size - self.size, size
        self.staging.take(added)

    def close(self) -> None:
        """All messages are there: keeps them.

        Raises:
            StagingError: there is no room, by the limit or on the disk, or the batch is already
                being published with a part of this name.
        """
        try:
            self.writer.close()
            self.file.flush()
            self.count()
            os.fsync(self.file.fileno())
            self.file.close()
            self.staging.keep(self)
        except OSError as error:
            raise StagingError(f"cannot stage messages: {error.strerror or error}") from error

    def drop(self) -> None:
        """The part did not come whole."""
        with suppress(OSError):
            self.file.close()
        self.work.unlink(missing_ok=True)
        self.staging.take(-self.size)


class Staging:
    """The parts of all queries. Methods are called from Flight's threads.

    Args:
        folder: where they lie; made when first needed.
        most: bytes of all parts together.
        room: what is to stay free of the disk.
    """

    def __init__(self, folder: Path, most: int = MOST_BYTES, room: DiskRoom | None = None) -> None:
        self.folder = folder
        self.most = most
        self.room = DiskRoom() if room is None else room
        #: Of `size`; and of everything that reads a state and acts on it.
        self.lock = threading.Lock()
        self.deciding = threading.RLock()
        self.numbers = count()
        self.tidied = -TIDY_EVERY
        self.size = sum(path.stat().st_size for path in folder.glob("*/*.arrow"))
        for work in folder.glob("*/*.tmp"):
            work.unlink()

    def take(self, size: int) -> None:
        """Counts bytes that were staged, or are gone.

        Raises:
            StagingError: that is more than there may be, or than the disk has room for.
        """
        with self.lock:
            self.size += size
            if size > 0 and self.size > self.most:
                raise StagingError(
                    f"more than {self.most} bytes are staged and not yet published: commit or discard some"
                )
        if size > 0 and (lack := self.room.lack(self.folder)):
            raise StagingError(f"cannot stage messages: {lack}")

    def part(self, query: str, batch: int, part: int, attempt: int) -> StagedPart:
        """A new part of a batch.

        Raises:
            StagingError: no name for a query, too many queries, or the disk.
        """
        folder = self.folder_of(query)
        try:
            self.drop_stale()
            self.make_folder(folder)
            return StagedPart(self, folder / f"{batch}-{part}-{attempt}.arrow")
        except OSError as error:
            raise StagingError(f"cannot stage messages: {error.strerror or error}") from error

    def make_folder(self, folder: Path) -> None:
        """The folder of a query."""
        if folder.is_dir():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.deciding:
            make_room(self.folder, folder.name, time.time())
            folder.mkdir(exist_ok=True)
            sync_folder(self.folder)

    def keep(self, part: StagedPart) -> None:
        """A part is whole: it may be committed from now on. A repeated one replaces the one before.

        Raises:
            StagingError: it is being published.
            OSError: the disk.
        """
        with self.deciding:
            if part.path.name in load_state(part.path.parent).needed():
                raise StagingError(f"part {part.path.name} is being published already")
            self.remove(part.path)
            part.work.replace(part.path)
            sync_folder(part.path.parent)

    def folder_of(self, query: str) -> Path:
        """Where a query's parts lie.

        Raises:
            StagingError: no name for a query.
        """
        if not QUERY.match(query):
            raise StagingError(
                f"{query!r:.150} is no name for a query; accepted: letters, digits, _ . -, 128 at most"
            )
        return self.folder / query

    def decide(
        self,
        query: str,
        batch: int,
        parts: Sequence[tuple[int, int]],
        marks: Marks | None = None,
        cursor: StagedCursor | None = None,
    ) -> list[Path] | None:
        """Decides that a batch is published, durably; returns its files in order.

        None: it was published before. `marks` says where streams end, before any of it is in them; it
        is kept as long as the decision. `cursor` moves with it.

        Raises:
            StagingError: a part is not there, another batch is being published, or the disk.
        """
        folder = self.folder_of(query)
        with self.deciding:
            try:
                what = Decided(batch, [], marks or {}, cursor)
                return self.decide_alone(folder, query, parts, what)
            except OSError as error:
                raise BusyError(f"cannot note the batch: {error.strerror or error}") from error

    def decide_alone(
        self,
        folder: Path,
        query: str,
        parts: Sequence[tuple[int, int]],
        what: "Decided",
    ) -> list[Path] | None:
        batch = what.batch
        last, decided = read_state(folder)
        if batch <= last:
            self.discard(query, batch)
            return None
        if decided is not None:
            if decided[0] != batch:
                raise BusyError(f"batch {decided[0]} of query {query} is being published")
            return [folder / name for name in decided[1]]
        what.parts = self.names_of(folder, query, batch, parts)
        write_state(folder, StagedState(last, what))
        return [folder / name for name in what.parts]

    def names_of(
        self, folder: Path, query: str, batch: int, parts: Sequence[tuple[int, int]]
    ) -> list[str]:
        names = [f"{batch}-{part}-{attempt}.arrow" for part, attempt in sorted(parts)]
        for name in names:
            if not (folder / name).is_file():
                raise StagingError(f"batch {batch} of query {query}: part {name} is not staged")
        self.make_folder(folder)
        return names

    def asking(
        self,
        query: str,
        batch: int,
        parts: Sequence[tuple[int, int]],
        marks: Marks,
        at: int,
    ) -> Decided:
        """A batch of which somebody else decides whether it is published, and when it was staged.

        Raises:
            StagingError: a part is not there, or a batch is being published.
        """
        folder = self.folder_of(query)
        with self.deciding:
            state = load_state(folder)
            if state.decided is not None or state.asked is not None:
                raise BusyError(f"a batch of query {query} is being published")
            return Decided(batch, self.names_of(folder, query, batch, parts), marks, None, None, at)

    def prepare(self, query: str, asked: Decided) -> None:
        """Keeps the parts of a batch until that is decided (`settle`).

        Raises:
            StagingError: the disk.
        """
        folder = self.folder_of(query)
        with self.deciding:
            try:
                write_state(folder, StagedState(load_state(folder).last, None, asked))
            except OSError as error:
                raise BusyError(f"cannot note the batch: {error.strerror or error}") from error

    def settle(self, query: str, *, is_accepted: bool) -> None:
        """It is decided: what was kept is published, or goes.

        Raises:
            BusyError: the disk.
        """
        folder = self.folder_of(query)
        with self.deciding:
            state = load_state(folder)
            if state.asked is None:
                return
            decided = state.asked if is_accepted else None
            try:
                write_state(folder, StagedState(state.last, decided))
            except OSError as error:
                raise BusyError(f"cannot note the batch: {error.strerror or error}") from error
            if decided is None:
                self.discard(query, state.asked.batch)

    def asked(self) -> Iterator[tuple[str, Decided, bool]]:
        """The queries of which a batch goes with a step, and that batch; whether it is decided that it is published.

        Raises:
            StagingError: a file cannot be used.
        """
        for path in sorted(self.folder.glob(f"{MEMBERS}*/{STATE}")):
            state = load_state(path.parent)
            for each in (state.asked, state.decided):
                if each is not None and each.step is not None:
                    yield path.parent.name, each, each is state.decided

    def needs(self, query: str, store: str, number: StepNumber) -> bool:
        """Whether a step may still be published."""
        state = load_state(self.folder_of(query))
        return any(
            each is not None and each.step is not None and each.step.step.is_named(store, number)
            for each in (state.asked, state.decided)
        )

    def finish(self, query: str, batch: int) -> None:
        """All messages of a batch are published and safe: its number is remembered, its parts go."""
        with self.deciding:
            write_state(self.folder_of(query), StagedState(batch, None))
            self.discard(query, batch)

    def decided(self, query: str) -> int | None:
        """The batch of a query that is being published."""
        _, decided = read_state(self.folder_of(query))
        return None if decided is None else decided[0]

    def marks(self, query: str) -> Marks:
        """Where streams ended when the batch of a query that is being published was decided."""
        decided = load_state(self.folder_of(query)).decided
        return {} if decided is None else decided.marks

    def taken_since(self, query: str) -> int | None:
        """When the batch of a query that is being published was staged, if that was on a disk that is lost."""
        decided = load_state(self.folder_of(query)).decided
        if decided is None or decided.step is None or decided.step.step.takes_over is None:
            return None
        return decided.at

    def cursors(self) -> Iterator[tuple[str, StagedCursor]]:
        """The cursors that go with batches that are being published, and their queries.

        Raises:
            StagingError: a file cannot be used.
        """
        for path in sorted(self.folder.glob(f"{MEMBERS}*/{STATE}")):
            decided = load_state(path.parent).decided
            if decided is not None and decided.cursor is not None:
                yield path.parent.name, decided.cursor

    def settle_cursor(self, query: str) -> None:
        """The cursor that goes with a query's batch has moved."""
        with self.deciding:
            state = load_state(self.folder_of(query))
            if state.decided is not None:
                state.decided.cursor = None
                write_state(self.folder_of(query), state)

    def forget(self, query: str) -> None:
        """A member has ended, and its batches with it, unless one is being published."""
        folder = self.folder_of(query)
        with self.deciding, suppress(StagingError, OSError):
            if folder.is_dir() and not load_state(folder).needed():
                for path in folder.glob("*.arrow"):
                    self.remove(path)
                shutil.rmtree(folder)

    def discard(self, query: str, batch: int) -> None:
        """Throws the parts of a batch away, unless it is decided that they are published."""
        folder = self.folder_of(query)
        with self.deciding:
            if load_state(folder).has(batch):
                return
            for path in folder.glob(f"{batch}-*.arrow"):
                self.remove(path)

    def remove(self, path: Path) -> None:
        try:
            size = path.stat().st_size
            path.unlink()
        except FileNotFoundError:
            return
        self.take(-size)

    def unfinished(self) -> Iterator[tuple[str, int, list[Path]]]:
        """Batches that were decided and not finished: query, number, files."""
        if not self.folder.is_dir():
            return
        for folder in sorted(self.folder.iterdir()):
            try:
                _, decided = read_state(folder)
            except StagingError as error:
                log.error("a query cannot go on: %s", error)
                continue
            if decided is not None:
                yield folder.name, decided[0], [folder / name for name in decided[1]]

    def drop_stale(self) -> None:
        """Throws away what nobody committed for a day; looks now and then."""
        if time.monotonic() < self.tidied + TIDY_EVERY:
            return
        self.tidied = time.monotonic()
        now = time.time()
        for folder in self.folder.glob("*"):
            with self.deciding, suppress(StagingError):
                self.drop_stale_of(folder, now)
        with self.deciding:
            forget_batches(self.folder, now)

    def drop_stale_of(self, folder: Path, now: float) -> None:
        needed = load_state(folder).needed()
        for path in folder.glob("*.arrow"):
            if path.name in needed:
                continue
            if now - path.stat().st_mtime > STALE:
                log.warning("staged messages were never committed: %s", path)
                self.remove(path)


def messages_of(files: Sequence[Path]) -> Iterator[pa.RecordBatch]:
    """The staged messages in the order of their parts.

    Raises:
        StagingError: a file is not what was written.
    """
    for path in files:
        try:
            with path.open("rb") as file:
                yield from pa.ipc.open_stream(file)
        except (OSError, pa.ArrowException) as error:
            raise StagingError(f"{path} cannot be read: {error}") from error
