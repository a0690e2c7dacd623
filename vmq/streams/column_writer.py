"""The thread that has the columns of large sealed segments lie beside them, and their rows by topic.

See `vmq.streams.log.column_file` and `vmq.streams.log.ordered.file`.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple
from weakref import WeakKeyDictionary

import msgspec

from vmq.streams.column_process import FAILED, MADE, ColumnOrder
from vmq.streams.helper import HelperProcess
from vmq.streams.log import column_file
from vmq.streams.log.column_file import ColumnCounts, counts_of
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.errors import PartitionFailures, StreamError
from vmq.streams.log.ordered import file as ordered_file
from vmq.streams.log.partition import Partition
from vmq.streams.log.segment import Sealed
from vmq.streams.log.typed import Unfit

log = logging.getLogger("vmq.streams")

COMMAND: Final = (sys.executable, "-P", "-m", "vmq.streams.column_process")
#: Seconds between two rounds, and for one segment.
EVERY: Final = 30.0
LONGEST: Final = 300.0
#: Bytes of a segment that is worth it: smaller ones are soon joined, and quickly read. Ordering the rows costs more.
LEAST: Final = 1 << 20
LEAST_ORDERED: Final = 8 << 20
#: Rows of a stream that are looked at for who asks, of those that no file has counted.
NEWEST: Final = 10_000
_SUFFIXES: Final = tuple(
    each + work for each in (column_file.SUFFIX, ordered_file.SUFFIX) for work in ("", ".tmp")
)


class _Wanted(NamedTuple):
    """A file beside a segment: the columns of a schema, or the rows by topic."""

    sealed: Sealed
    schema: Mapping[str, str] | None


class ColumnWriter:
    """Keeps the column files of the partitions that there are, round after round.

    Args:
        partitions: those that there are.
        least: bytes of a segment whose columns are worth it.
        least_ordered: likewise, whose rows are; a quarter of a full segment is in any case.
        command: the process that makes them.
    """

    def __init__(
        self,
        partitions: Callable[[], Iterable[Partition]],
        least: int = LEAST,
        command: Sequence[str] = COMMAND,
        least_ordered: int = LEAST_ORDERED,
    ) -> None:
        self.partitions = partitions
        self.least = least
        self.least_ordered = least_ordered
        self.command = command
        self.failures = PartitionFailures("cannot have columns and rows by topic beside segments")
        self.wanted = threading.Event()
        self.stopping = False
        self.thread = threading.Thread(target=self.run, name="vmq-streams-columns", daemon=True)
        self._process: HelperProcess | None = None
        #: A file that could not be made in this look at a partition, for no reason that was expected; "": none.
        self._unmade = ""
        #: One is not made yet: the disk is short of room.
        self._waits = False
        #: What each partition had when it was looked at last, and what its files say.
        self._seen: WeakKeyDictionary[Partition, tuple[object, object]] = WeakKeyDictionary()
        #: The files that were there then.
        self._there: WeakKeyDictionary[Partition, list[Path]] = WeakKeyDictionary()
        self._counts: WeakKeyDictionary[Partition, dict[Path, ColumnCounts]] = WeakKeyDictionary()

    def start(self) -> None:
        """Starts the thread."""
        self.thread.start()

    def stop(self) -> None:
        """Ends the thread after the segment that it is at."""
        self.stopping = True
        self.wanted.set()
        if self.thread.ident is not None:
            self.thread.join()

    def run(self) -> None:
        """The thread."""
        while not self.stopping:
            self.wanted.wait(EVERY)
            self.wanted.clear()
            self.tidy()

    def tidy(self) -> None:
        """One round."""
        try:
            for partition in list(self.partitions()):
                if self.stopping:
                    return
                sealed, options = partition.sealed, partition.options
                seen = self._seen.get(partition)
                self._waits = False
                is_same = seen is not None and seen[0] is sealed and seen[1] is options
                # One that was damaged is deleted by who reads it.
                if is_same and all(map(os.path.exists, self._there.get(partition, ()))):
                    continue
                with self.failures.watch(partition):
                    try:
                        self._see_to(partition, sealed)
                    except BaseException:
                        self._end()
                        raise
                if not self._waits:
                    self._seen[partition] = (sealed, options)
        finally:
            self._end()

    def _end(self) -> None:
        """Ends the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _see_to(self, partition: Partition, sealed: Sequence[Sealed]) -> None:
        """Has a partition have the files that it should have, and no others."""
        files = self._files(partition, sealed)
        for path in leftovers(partition.folder, files.keys()):
            path.unlink(missing_ok=True)
        known = self._counts.get(partition, {})
        counts = self._counts[partition] = {}
        there = self._there[partition] = []
        self._unmade = ""
        for path, each in files.items():
            if self.stopping or partition.gone:
                return
            if not path.exists() and not self._have_made(partition, each, path):
                continue
            if each.schema is not None:
                found = known.get(path) or counts_of(path)
                if found is None:
                    path.unlink(missing_ok=True)  # the segment is read instead
                    continue
                counts[path] = found
            there.append(path)
        if self._unmade:
            raise StreamError(f"{self._unmade} cannot be made; standard error says why")

    def _files(self, partition: Partition, sealed: Sequence[Sealed]) -> dict[Path, _Wanted]:
        """What should lie beside some segments."""
        options = partition.options
        least_ordered = min(self.least_ordered, options.segment_bytes // 4)
        files: dict[Path, _Wanted] = {}
        for each in sealed:
            if not (each.merged or partition.is_replica):
                continue
            file = each.path, each.size, each.inode
            if options.schema and each.size >= self.least:
                files[column_file.path_of(*file, options.schema)] = _Wanted(each, options.schema)
            if options.topic_order and each.size >= least_ordered:
                files[ordered_file.path_of(*file)] = _Wanted(each, None)
        return files

    def _have_made(self, partition: Partition, wanted: _Wanted, path: Path) -> bool:
        sealed = wanted.sealed
        if partition.room.lack(partition.folder, sealed.size):
            self._waits = True
            return False
        if self._process is None:
            self._process = HelperProcess(self.command)
        order = ColumnOrder(
            partition.stream,
            partition.number,
            str(sealed.path),
            sealed.base,
            sealed.end,
            sealed.size,
            str(path),
            None if wanted.schema is None else dict(wanted.schema),
        )
        until = time.monotonic() + LONGEST
        self._process.write(msgspec.json.encode(order) + b"\n", until)
        answer = self._process.read(1, until)
        if answer == FAILED:
            self._unmade = path.name
        return answer == MADE

    def counts(self, partitions: Iterable[Partition]) -> ColumnCounts:
        """What the payloads of some partitions did not give, as far as their files say."""
        return sum_of(
            each
            for partition in partitions
            for each in list(self._counts.get(partition, {}).values())
        )

    def counts_with_newest(self, partitions: Sequence[Partition]) -> ColumnCounts:
        """The `counts` with those of the newest rows behind the files, looked at now: not in the event loop."""
        most = max(1, NEWEST // max(1, len(partitions)))
        newest = [newest_counts(each, self._counted(each), most) for each in partitions]
        return sum_of([self.counts(partitions), *newest])

    def _counted(self, partition: Partition) -> int:
        """The offset behind the last segment whose file has counted its rows."""
        counted = {path.name.partition(".")[0] for path in list(self._counts.get(partition, {}))}
        ends = [each.end for each in partition.sealed if each.path.stem in counted]
        return max(ends, default=0)


def newest_counts(partition: Partition, start: int, most: int) -> ColumnCounts:
    """What the payloads of the last rows did not give, of those from an offset on."""
    typed = partition.options.typed
    reader = LogReader(partition, [each.name for each in typed], typed=typed)
    end, rows = partition.end, 0
    start = max(start, partition.earliest, end - most)
    try:
        rows = sum(chunk.rows.num_rows for chunk in reader.read(start, end)) if start < end else 0
    except StreamError as error:  # the retention was faster, or it is damaged, which others tell
        log.debug("%s: its newest rows are not counted: %s", partition.folder, error)
    found = reader.projection.typed
    return ColumnCounts() if found is None else ColumnCounts(rows, found.invalid, found.counts)


def sum_of(counts: Iterable[ColumnCounts]) -> ColumnCounts:
    """All of them together."""
    rows = invalid = 0
    columns: dict[str, Unfit] = {}
    for each in counts:
        rows += each.rows
        invalid += each.invalid
        for name, unfit in each.columns.items():
            found = columns.setdefault(name, Unfit())
            found.missing += unfit.missing
            found.unfit += unfit.unfit
    return ColumnCounts(rows, invalid, columns)


def leftovers(folder: Path, wanted: Collection[Path]) -> Iterator[Path]:
    """The files of a folder that lie beside no segment any more."""
    with os.scandir(folder) as entries:
        for each in entries:
            path = Path(each.path)
            if each.name.endswith(_SUFFIXES) and path not in wanted:
                yield path
