"""Looking at streams in a data folder without being their broker: nothing is changed, not even a torn tail.

A broker may run meanwhile. What it has noted as written is read, what it deletes is missed.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from vmq.config.streams import StreamOptions
from vmq.streams.definition import DEFINITION, read_definition
from vmq.streams.log import checkpoint
from vmq.streams.log.columns import Projection, within
from vmq.streams.log.errors import DamagedError, MissingError, StreamError, UnknownStreamError
from vmq.streams.log.frame import END
from vmq.streams.log.index import load
from vmq.streams.log.partition import CHECKPOINT
from vmq.streams.log.recovery import examine, is_torn
from vmq.streams.log.segment import (
    SUFFIX,
    BatchSpan,
    Header,
    SegmentFlawError,
    file_name,
    giver_of,
    index_path,
    read_span,
    walk,
)
from vmq.streams.parking import folders


@dataclass
class PartitionReport:
    """What is in one partition."""

    stream: str
    partition: int
    earliest: int = 0
    end: int = 0
    messages: int = 0
    segments: int = 0
    bytes: int = 0
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


class StoredStream:
    """One stream of a folder.

    Raises:
        UnknownStreamError: there is none of this name.
        StreamError: its definition cannot be used.
    """

    def __init__(self, folder: Path, name: str) -> None:
        path = folder / name
        if not (path / DEFINITION).is_file():
            raise UnknownStreamError(name, names(folder))
        self.name = name
        self.options: StreamOptions
        self.options, self.origin = read_definition(path)
        self.partitions = [
            StoredPartition(path / str(number), name, number)
            for number in range(self.options.partitions)
        ]

    def verify(self) -> list[PartitionReport]:
        """Reads everything and reports what is there and what is wrong with it."""
        return [partition.verify() for partition in self.partitions]

    def rows(
        self, columns: Sequence[str] | None = None, topic_filter: str | None = None
    ) -> Iterator[pa.RecordBatch]:
        """All rows, partition by partition.

        Raises:
            StreamError: there is no such column, or the filter is none.
            DamagedError: a segment is not what was written.
        """
        projection = Projection(columns, topic_filter, self.options.typed)
        for partition in self.partitions:
            if partition.is_copy:
                continue  # another node's, on its way here or away
            for span in partition.spans(projection.fields):
                batch, _ = projection.apply(span.rows, self.name, partition.number, span.offset)
                yield batch


def export_parquet(
    streams: Sequence[StoredStream],
    path: Path,
    columns: Sequence[str] | None = None,
    topic_filter: str | None = None,
) -> int:
    """Writes all rows of a stream to a Parquet file, which is there when it is complete; returns their number.

    Args:
        streams: the stream, as each process of a data folder has it.
        path: the file.
        columns: those that are wanted; None = all.
        topic_filter: a filter of topics; None = all.

    Raises:
        StreamError: as `StoredStream.rows`.
        OSError: the file cannot be written.
    """
    schema = Projection(columns, topic_filter, streams[0].options.typed).schema
    work = path.with_name(path.name + ".tmp")
    count = 0
    try:
        with pq.ParquetWriter(work, schema, compression="zstd") as writer:
            for stream in streams:
                for batch in stream.rows(columns, topic_filter):
                    if batch.num_rows:
                        writer.write_batch(batch)
                        count += batch.num_rows
        work.replace(path)
    finally:
        work.unlink(missing_ok=True)
    return count


class StoredPartition:
    """The files of one partition."""

    def __init__(self, folder: Path, stream: str, number: int) -> None:
        self.folder = folder
        self.number = number
        self.stream = stream
        self.header = Header(stream, number)

    @property
    def is_copy(self) -> bool:
        """Whether what is here counts for nothing: another node owns the partition."""
        return giver_of(self.folder) is not None

    def segments(self) -> list[Path]:
        """The files, oldest first; those before the last are sealed.

        Without those whose rows are in one before them as well: a join was interrupted, or goes on just now.
        """
        paths = sorted(self.folder.glob("*" + SUFFIX))
        found = []
        reached = 0
        for path, after in zip_longest(paths, paths[1:]):
            if int(path.stem) < reached:
                continue
            found.append(path)
            if after is not None:
                reached = self._end_of(path, int(after.stem))
        return found

    def _end_of(self, path: Path, expected: int) -> int:
        """The offset behind a sealed segment; the expected one if it cannot be told."""
        try:
            index = load(index_path(path), int(path.stem), path.stat().st_size - len(END))
            if index is None:
                with path.open("rb") as file:
                    index = examine(file.fileno(), path, int(path.stem), self.header)
        except (OSError, DamagedError):
            return expected
        return index.end

    def spans(self, fields: list[int] | None = None) -> Iterator[BatchSpan]:
        """All rows, some MiB at a time, to the end of what was noted as written.

        Raises:
            DamagedError: a segment is not what was written.
        """
        reached = 0
        while True:
            try:
                for span in self._spans_from(reached, fields):
                    yield span
                    reached = span.end
            except FileNotFoundError:
                continue  # the broker joined it with its neighbours, or deleted it: what there is now?
            return

    def _spans_from(self, start: int, fields: list[int] | None) -> Iterator[BatchSpan]:
        """The rows from an offset on."""
        noted = checkpoint.read(self.folder / CHECKPOINT)
        paths = self.segments()
        for path, after in zip_longest(paths, paths[1:]):
            if after is not None and int(after.stem) <= start:
                continue
            limit = None
            end = int(path.stem)
            if after is None and noted is not None and noted.base == int(path.stem):
                limit = noted.position
            with path.open("rb") as file:
                try:
                    for span in self._spans(file.fileno(), path, limit, fields):
                        end = span.end
                        rest, first = within(span.rows, span.offset, start, end)
                        if rest.num_rows:
                            yield BatchSpan(rest, first, span.next, span.end)
                            start = span.end
                except SegmentFlawError as flaw:
                    raise flaw.damage(path) from None
            if after is not None and end < int(after.stem):
                raise MissingError(after, end)

    def _spans(
        self, fd: int, path: Path, limit: int | None, fields: list[int] | None
    ) -> Iterator[BatchSpan]:
        """The rows of one segment; also those before a flaw, which is raised then."""
        base = offset = int(path.stem)
        position = self.header.size_in(fd)
        if position is None:
            raise DamagedError(path, 0, base, "it does not begin with this stream's schema")
        header = self.header.of(fd)
        size = os.fstat(fd).st_size
        limit = size if limit is None else limit
        while position < limit and os.pread(fd, len(END), position) != END:
            span = read_span(fd, header, position, limit, offset, fields)
            yield span
            position, offset = span.next, span.end

    def summary(self) -> PartitionReport:
        """What there is by the names and sizes of files and the note of what was written: a quick look."""
        report = PartitionReport(self.stream, self.number)
        paths = self.segments()
        noted = checkpoint.read(self.folder / CHECKPOINT)
        report.segments = len(paths)
        report.bytes = sum(path.stat().st_size for path in paths)
        report.earliest = int(paths[0].stem) if paths else 0
        report.end = report.earliest if noted is None else noted.next_offset
        report.messages = sum(map(self._rows, paths))
        return report

    def _rows(self, path: Path) -> int:
        """How many rows a segment has, as far as it is good: by its index, or by the heads of its batches."""
        base = int(path.stem)
        with path.open("rb") as file:
            fd = file.fileno()
            size = os.fstat(fd).st_size
            saved = load(index_path(path), base, size - len(END))
            if saved is not None:
                return saved.rows
            rows = 0
            with suppress(SegmentFlawError):
                for _, frame in walk(fd, self.header.size_in(fd) or 0, size, base):
                    rows += frame.rows
            return rows

    def verify(self) -> PartitionReport:
        """Reads every byte; problems are what opening or reading the partition would refuse."""
        report = PartitionReport(self.stream, self.number)
        for folder in folders(self.folder):
            waiting = StoredPartition(folder, self.stream, self.number).verify()
            count = waiting.end - waiting.earliest
            report.notes.append(f"{folder}: {count} messages wait until the partition is mended")
            report.problems += waiting.problems
        noted = checkpoint.read(self.folder / CHECKPOINT)
        if noted is None:
            report.notes.append(f"{self.folder / CHECKPOINT}: missing or not readable")
        paths = self.segments()
        if not paths:
            report.problems.append(f"{self.folder}: there is no segment")
            return report
        report.earliest = report.end = int(paths[0].stem)
        known = 0
        for number, path in enumerate(paths, 1):
            base = int(path.stem)
            if base != report.end and known == len(report.problems):
                report.problems.append(str(MissingError(path, report.end)))
            report.end = base
            known = len(report.problems)  # behind a damaged segment nobody knows what is missing
            is_last = number == len(paths)
            trusted = noted.trusted(base) if noted is not None else None
            self._verify_segment(path, report, trusted, is_last=is_last)
        if (
            noted is not None
            and noted.base > int(paths[-1].stem)
            and noted.next_offset > noted.base
        ):
            report.problems.append(f"{self.folder / file_name(noted.base)}: the file is missing")
        return report

    def _verify_segment(
        self, path: Path, report: PartitionReport, trusted: int | None, *, is_last: bool
    ) -> None:
        with path.open("rb") as file:
            fd = file.fileno()
            size = os.fstat(fd).st_size
            at = self.header.size_in(fd) or 0
            try:
                for span in self._spans(fd, path, size, None):
                    report.end = span.end
                    report.messages += span.rows.num_rows
                    at = span.next
            except DamagedError as error:
                report.problems.append(str(error))
            except SegmentFlawError as flaw:
                if is_last and is_torn(fd, flaw, size, trusted):
                    note = f"a torn tail of {size - flaw.position} bytes, cut at the next start"
                    report.notes.append(f"{path}: {note}")
                else:
                    report.problems.append(str(flaw.damage(path)))
            else:
                self._verify_end(fd, path, report, at, trusted, is_last=is_last)
        report.segments += 1
        report.bytes += size
        if not is_last and load(index_path(path), int(path.stem), size - len(END)) is None:
            report.notes.append(
                f"{index_path(path)}: missing or not readable; made anew when needed"
            )

    def _verify_end(
        self,
        fd: int,
        path: Path,
        report: PartitionReport,
        at: int,
        trusted: int | None,
        *,
        is_last: bool,
    ) -> None:
        """What is behind the last batch of a segment that has no flaw up to there."""
        if not is_last and os.pread(fd, len(END) + 1, at) != END:
            reason = "the mark of the stream's end is missing"
            report.problems.append(str(DamagedError(path, at, report.end, reason)))
        if is_last and trusted is not None and at < trusted:
            reason = f"the file ends where {trusted - at} bytes were written"
            report.problems.append(str(DamagedError(path, at, report.end, reason)))


def names(folder: Path) -> list[str]:
    """The streams of a folder; one that is being made or deleted, in a folder with a dot, is none."""
    return sorted(path.parent.name for path in folder.glob(f"[!.]*/{DEFINITION}"))


def find_folder(data_dir: Path) -> Path:
    """The folder of streams, given the broker's data folder.

    Raises:
        StreamError: there is none.
    """
    folder = data_dir / "streams"
    if not folder.is_dir():
        raise StreamError(f"there are no streams in {data_dir}")
    return folder
