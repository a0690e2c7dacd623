"""What retention takes from a partition, kept in an object store or a folder: Parquet files that any tool reads.

    URL/stream=NAME/date=2030-01-31/partition=0/BASE-END-TIME.parquet

BASE is the offset of the first row, END the one behind the last, TIME the newest timestamp in microseconds, and the
date that of TIME (UTC). Names say all that has to be known; the same rows twice are the same file. A file beside the
segments notes what is there, so that a start asks nobody. Readers get a file back as a segment, once they come to it.
"""

import logging
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from vmq.config.columns import TypedColumn
from vmq.config.values import ArchiveUrl
from vmq.disk.room import DiskRoom
from vmq.streams.log.columns import Projection
from vmq.streams.log.copying import SegmentCopy
from vmq.streams.log.errors import PassingError
from vmq.streams.log.frame import write_options
from vmq.streams.log.segment import BatchSpan, Header, Sealed, file_name, index_path

log = logging.getLogger("vmq.streams")

#: Beside the segments: what is in the archive, and segments that were fetched from there.
NOTE: Final = "archived.json"
RECALLED: Final = "recalled"
#: Segments of a partition that stay when they were fetched.
KEPT: Final = 4
#: Seconds that a reader waits for a segment before it is told to try again, ordinarily and in a hurry; and until one is
#: asked for anew that could not be had.
PATIENCE: Final = 20.0
HURRY: Final = 1.0
_AGAIN: Final = 0.25
#: Seconds that the store has to be reached, and for an answer.
_CONNECT: Final = 3.0
_ANSWER: Final = 20.0
#: Rows of a row group, and of a batch of a segment.
_GROUP: Final = 65_536
_ROWS: Final = 16_384
_NAME: Final = re.compile(r"(\d{20})-(\d{20})-(\d{16,20})\.parquet\Z")


_patience: ContextVar[float] = ContextVar("patience", default=PATIENCE)


@contextmanager
def in_a_hurry() -> Iterator[None]:
    """Whoever reads here holds up others: it waits for the archive for a moment only."""
    token = _patience.set(HURRY)
    try:
        yield
    finally:
        _patience.reset(token)


class RecallingError(PassingError):
    """A segment is being fetched from the archive, or cannot be fetched now."""


class ArchivedSegment(NamedTuple):
    """A file of the archive: its offsets, its newest timestamp."""

    base: int
    end: int
    time: int

    def place(self, partition: int) -> str:
        """Where it lies below the folder of its stream."""
        date = datetime.fromtimestamp(self.time / 1e6, UTC).date()
        name = f"{self.base:020}-{self.end:020}-{self.time:016}.parquet"
        return f"date={date}/partition={partition}/{name}"


class ArchiveNote(msgspec.Struct):
    """What is in which archive."""

    url: str
    segments: list[ArchivedSegment]


#: Made once, when nobody else does: two threads at once that have msgspec learn a form crash.
_NOTE: Final = msgspec.json.Decoder(ArchiveNote)


class RecalledSegment(NamedTuple):
    """A segment that was fetched."""

    path: Path
    base: int
    size: int


class PartitionArchive:
    """The archive of one partition. Calls block but for `segments` and `is_known`.

    Args:
        url: of the whole archive.
        folder: that of the partition.
        header: the partition's.
        number: the partition's.
        room: what is to stay free of disks, at present.
    """

    def __init__(
        self,
        url: ArchiveUrl,
        folder: Path,
        header: Header,
        number: int,
        room: Callable[[], DiskRoom] = DiskRoom,
    ) -> None:
        self.url = url
        self.folder = folder
        self.header = header
        self.number = number
        self.room = room
        self.root = f"{url.path}/stream={header.stream}"
        self.lock = threading.Lock()
        #: Without gaps, oldest first.
        self.segments: tuple[ArchivedSegment, ...] = ()
        #: Whether it is known what there is, and where the partition's own segments began when the store was asked.
        self.is_known = False
        self._asked = 0
        #: A file that is known of was not there: somebody has deleted it.
        self.is_outdated = False
        #: Why the store cannot be written or read; empty: it can.
        self.failure = ""
        #: The last segment that was wanted could not be fetched: the log has said so, and readers ask again and again.
        self._is_away = False
        self._filesystem: Any = None
        self._fetching: dict[int, Future[RecalledSegment]] = {}
        shutil.rmtree(folder / RECALLED, ignore_errors=True)
        self._read_note()

    # What there is

    def _read_note(self) -> None:
        try:
            found = _NOTE.decode((self.folder / NOTE).read_bytes())
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            log.warning("%s cannot be used, the archive is asked: %s", self.folder / NOTE, error)
            return
        if found.url == self.url.shown:
            self.segments, self.is_known = tuple(found.segments), True

    def forget(self) -> None:
        """The partition is another node's."""
        (self.folder / NOTE).unlink(missing_ok=True)
        self.segments, self.is_known = (), False

    def _note(self, segments: Sequence[ArchivedSegment]) -> None:
        work = self.folder / (NOTE + ".tmp")
        with work.open("wb") as file:
            file.write(msgspec.json.encode(ArchiveNote(self.url.shown, list(segments))))
            file.flush()
            os.fsync(file.fileno())
        work.replace(self.folder / NOTE)
        self.segments, self.is_known = tuple(segments), True

    def look(self, kept: int, sealed: Sequence[Sealed]) -> None:
        """Asks the store what is there, unless that is known: another node may have archived what is gone here.

        It is asked again when a file that it had is not there any more; what lies before that is out of range then.

        Args:
            kept: where the partition's own segments begin.
            sealed: those of them that are complete.

        Raises:
            OSError: it does not answer, or has files of another stream.
        """
        reaches = kept <= self._asked or (self.segments and kept <= self.segments[-1].end)
        if self.is_known and reaches and not self.is_outdated:
            return
        if self.is_outdated and self.url.is_local and not Path(self.root).is_dir():
            raise OSError(f"{self.root} is not there")  # it is not mounted, perhaps
        found = list(self._listed())
        own = {each[1:3] for each in sealed}
        if not kept and any(each[:2] not in own for each in found):
            raise OSError(
                f"{self.root} has files of an earlier stream of this name; accepted: a folder without them"
            )
        before = self.first(kept)
        self._note(joined(found, kept))
        self._asked = kept
        if self.is_outdated and self.first(kept) > before:
            text = "stream=%s partition=%d: files of %s are gone: it begins at offset=%d, not at %d any more"
            names = self.header.stream, self.number, self.url.shown
            log.warning(text, *names, self.first(kept), before)
        self.is_outdated = False

    def _listed(self) -> Iterator[ArchivedSegment]:
        from pyarrow import fs  # loaded by who has an archive, as what follows

        selector = fs.FileSelector(self.root, allow_not_found=True, recursive=True)
        for each in self._store().get_file_info(selector):
            found = _NAME.match(each.base_name)
            if found is not None and f"/partition={self.number}/" in each.path:
                yield ArchivedSegment(*map(int, found.groups()))

    def first(self, kept: int) -> int:
        """The first offset from which all lies here or there up to `kept`; 0 while nobody knows what lies there."""
        segments = self.segments
        if not self.is_known:
            return 0
        return min(kept, segments[0].base) if segments and segments[-1].end >= kept else kept

    def has(self, base: int, end: int) -> bool:
        """Whether it has all rows of a segment."""
        return any(each.base <= base and end <= each.end for each in self.segments)

    def find(self, offset: int) -> ArchivedSegment | None:
        """The file that has an offset."""
        return next((each for each in self.segments if each.base <= offset < each.end), None)

    # Writing: one thread

    def put(self, sealed: Sealed, spans: Iterable[BatchSpan], typed: Sequence[TypedColumn]) -> None:
        """Keeps the rows of a sealed segment, typed columns beside them.

        Raises:
            OSError: the store, or the disk.
        """
        import pyarrow.parquet as pq

        work = self.folder / (sealed.path.name + ".parquet.tmp")
        projection = Projection(None, None, typed)
        base, newest = sealed.base, 0
        try:
            with pq.ParquetWriter(work, projection.schema, compression="zstd") as writer:
                for span in spans:
                    newest = max(newest, _newest(span.rows))
                    names = self.header.stream, self.number
                    found, _ = projection.apply(span.rows, *names, span.offset)
                    writer.write_batch(found, row_group_size=_GROUP)
            new = ArchivedSegment(base, sealed.end, newest)
            self._send(work, new)
        finally:
            work.unlink(missing_ok=True)
        others = [each for each in self.segments if each.end <= base]
        self._note(joined([*others, new], new.end))

    def _send(self, work: Path, new: ArchivedSegment) -> None:
        store, place = self._store(), f"{self.root}/{new.place(self.number)}"
        if self.url.is_local:
            target = Path(place)
            target.parent.mkdir(parents=True, exist_ok=True)
            beside = target.with_name(f".{target.name}.tmp")
            shutil.copyfile(work, beside)
            with beside.open("rb") as file:
                os.fsync(file.fileno())
            beside.replace(target)
            return
        with work.open("rb") as file, store.open_output_stream(place) as out:
            while piece := file.read(1 << 20):
                out.write(piece)

    # Reading: any thread

    def recall(self, offset: int) -> RecalledSegment:
        """The segment of an archived offset, fetched if need be.

        Raises:
            RecallingError: it is not here in time, or cannot be had now.
        """
        until = time.monotonic() + _patience.get()
        while True:
            try:
                return self._recall(offset, until - time.monotonic())
            except RecallingError:
                is_gone = self.is_known and self.find(offset) is None
                if is_gone or time.monotonic() + _AGAIN > until:
                    raise
                time.sleep(_AGAIN)

    def _recall(self, offset: int, patience: float) -> RecalledSegment:
        each = self.find(offset)
        if each is None:
            what = "is not there any more" if self.is_known else "is not known yet"
            raise RecallingError(f"what {self.url.shown} had at offset {offset} {what}: try again")
        path = self.folder / RECALLED / file_name(each.base)
        try:
            found = RecalledSegment(path, each.base, path.stat().st_size)
        except FileNotFoundError:
            pass
        else:
            os.utime(path)
            return found
        with self.lock:
            fetching = self._fetching.get(each.base)
            if fetching is None:
                fetching = self._fetching[each.base] = Future()
                threading.Thread(
                    target=self._fetch, args=(each, path, fetching), name="vmq-recall", daemon=True
                ).start()
        try:
            return fetching.result(max(0.0, patience))
        except FutureTimeoutError:
            text = f"offset {offset} is being fetched from {self.url.shown}: try again"
            raise RecallingError(text) from None
        except (OSError, pa.ArrowException, ValueError) as error:
            raise RecallingError(f"{self.url.shown} cannot be read: {error}: try again") from None

    def _fetch(self, each: ArchivedSegment, path: Path, done: "Future[RecalledSegment]") -> None:
        try:
            found = self._rebuild(each, path)
        except Exception as error:  # noqa: BLE001 - whoever waits is told
            if not self._is_away:
                text = "%s cannot be fetched from %s: %s; it is tried again for who reads it"
                log.error(text, path.name, self.url.shown, error)
            self._is_away = True
            self.is_outdated = self.is_outdated or isinstance(error, FileNotFoundError)
            self._end_fetch(each)
            done.set_exception(error)
        else:
            self._is_away = False
            self._end_fetch(each)
            done.set_result(found)

    def _end_fetch(self, each: ArchivedSegment) -> None:
        """Before anybody is told: who asks then is to have what is there by then."""
        with self.lock:
            del self._fetching[each.base]

    def _rebuild(self, each: ArchivedSegment, path: Path) -> RecalledSegment:
        """A file of the archive as a segment, with the same rows at the same offsets."""
        import pyarrow.parquet as pq

        path.parent.mkdir(exist_ok=True)
        self._make_room(path.parent)
        work = path.with_name(path.name + ".tmp")
        place = f"{self.root}/{each.place(self.number)}"
        with self._store().open_input_file(place) as source, work.open("wb") as file:
            # It is compressed worse here, and goes again soon.
            self.room().check(self.folder, 2 * source.size(), 2)
            found = pq.ParquetFile(source)
            is_whole = found.metadata.num_rows == each.end - each.base  # else it was compacted
            header = self.header if is_whole else self.header.compacted
            copy = SegmentCopy(file, header, each.base, write_options("lz4"))
            at = each.base
            for batch in found.iter_batches(_ROWS):
                offsets = batch.column("offset").to_pylist()
                if offsets[0] != at if is_whole else offsets[0] < at:
                    raise ValueError(f"{place} is not what was written: offset {at} is missing")
                at = offsets[-1] + 1
                columns = [
                    batch.column(name).cast(header.schema.field(name).type)
                    for name in header.schema.names
                ]
                copy.add(pa.RecordBatch.from_arrays(columns, schema=header.schema), offsets[0], at)
                copy.flush()
            if at != each.end if is_whole else at > each.end:
                raise ValueError(f"{place} is not what was written: it ends with offset {at}")
            copy.reach(each.end)
            index = copy.finish()
        index.save(index_path(path))
        work.replace(path)
        return RecalledSegment(path, each.base, path.stat().st_size)

    def _make_room(self, folder: Path) -> None:
        """Whoever has an old one open reads it to its end."""
        found = sorted(folder.glob("*.arrows"), key=lambda each: each.stat().st_mtime)
        for old in found[: max(0, len(found) - KEPT + 1)]:
            old.unlink(missing_ok=True)
            index_path(old).unlink(missing_ok=True)

    def _store(self) -> Any:
        if self._filesystem is None:
            self._filesystem = filesystem_of(self.url)
        return self._filesystem


def joined(segments: Iterable[ArchivedSegment], kept: int) -> list[ArchivedSegment]:
    """Those that lead up to an offset without a gap, each row once; of the same rows the longest file."""
    found: list[ArchivedSegment] = []
    reached = kept
    for each in sorted(segments, key=lambda each: (-each.end, each.base)):
        if each.end == reached and each.base < reached:
            found.append(each)
            reached = each.base
        elif each.end > reached > each.base:
            # What is still here as well: the file has more than is needed of it.
            found.append(each)
            reached = each.base
    return found[::-1]


def filesystem_of(url: ArchiveUrl) -> Any:
    """How it is reached. Credentials come from the environment, as AWS has it."""
    from pyarrow import fs

    if url.is_local:
        return fs.LocalFileSystem()
    options: dict[str, Any] = {"connect_timeout": _CONNECT, "request_timeout": _ANSWER}
    options |= dict(url.options)
    return fs.S3FileSystem(**options)


def _newest(rows: pa.RecordBatch) -> int:
    newest: int = pc.max(rows.column("timestamp").cast(pa.int64())).as_py() or 0
    return newest
