"""The thread that has the columns of large sealed segments lie beside them (`vmq.streams.log.column_file`)."""

import logging
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final
from weakref import WeakKeyDictionary

import msgspec

from vmq.streams.column_process import MADE, ColumnOrder
from vmq.streams.helper import HelperProcess
from vmq.streams.log.column_file import ColumnCounts, counts_of, leftovers, path_of
from vmq.streams.log.partition import Partition
from vmq.streams.log.segment import Sealed
from vmq.streams.log.typed import Unfit

log = logging.getLogger("vmq.streams")

COMMAND: Final = (sys.executable, "-P", "-m", "vmq.streams.column_process")
#: Seconds between two rounds, and for one segment.
EVERY: Final = 30.0
LONGEST: Final = 300.0
#: Bytes of a segment that is worth it: smaller ones are soon joined, and quickly read.
LEAST: Final = 1 << 20


class ColumnWriter:
    """Keeps the column files of the partitions that there are, round after round.

    Args:
        partitions: those that there are.
        least: bytes of a segment that is worth it.
        command: the process that makes them.
    """

    def __init__(
        self,
        partitions: Callable[[], Iterable[Partition]],
        least: int = LEAST,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self.partitions = partitions
        self.least = least
        self.command = command
        self.wanted = threading.Event()
        self.stopping = False
        self.thread = threading.Thread(target=self.run, name="vmq-streams-columns", daemon=True)
        self._process: HelperProcess | None = None
        #: What each partition had when it was looked at last, and what its files say.
        self._seen: WeakKeyDictionary[Partition, tuple[object, object]] = WeakKeyDictionary()
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
                sealed, schema = partition.sealed, partition.options.schema
                seen = self._seen.get(partition)
                if seen is not None and seen[0] is sealed and seen[1] == schema:
                    continue
                try:
                    self._see_to(partition, sealed, schema)
                except (OSError, EOFError, TimeoutError) as error:
                    log.error("%s: columns cannot be kept: %s", partition.folder, error)
                    self._end()
                self._seen[partition] = (sealed, schema)
        finally:
            self._end()

    def _end(self) -> None:
        """Ends the process, if there is one."""
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _see_to(
        self, partition: Partition, sealed: Sequence[Sealed], schema: Mapping[str, str]
    ) -> None:
        """Has a partition have the files that it should have, and no others."""
        files = {
            path_of(each.path, each.size, each.inode, schema): each
            for each in (sealed if schema else ())
            if each.size >= self.least and (each.merged or partition.is_replica)
        }
        for path in leftovers(partition.folder, set(files)):
            path.unlink(missing_ok=True)
        known = self._counts.get(partition, {})
        counts = self._counts[partition] = {}
        for path, each in files.items():
            if self.stopping or partition.gone:
                return
            if not path.exists() and not self._have_made(partition, each, schema, path):
                continue
            found = known.get(path) or counts_of(path)
            if found is None:
                path.unlink(missing_ok=True)  # the segment is read instead
            else:
                counts[path] = found

    def _have_made(
        self, partition: Partition, sealed: Sealed, schema: Mapping[str, str], path: Path
    ) -> bool:
        if self._process is None:
            self._process = HelperProcess(self.command)
        order = ColumnOrder(
            partition.stream,
            partition.number,
            str(sealed.path),
            sealed.base,
            sealed.end,
            sealed.size,
            dict(schema),
            str(path),
        )
        until = time.monotonic() + LONGEST
        self._process.write(msgspec.json.encode(order) + b"\n", until)
        return self._process.read(1, until) == MADE

    def counts(self, partitions: Iterable[Partition]) -> ColumnCounts:
        """What the payloads of some partitions did not give, as far as their files say."""
        rows = invalid = 0
        columns: dict[str, Unfit] = {}
        for partition in partitions:
            for each in list(self._counts.get(partition, {}).values()):
                rows += each.rows
                invalid += each.invalid
                for name, unfit in each.columns.items():
                    sum_of = columns.setdefault(name, Unfit())
                    sum_of.missing += unfit.missing
                    sum_of.unfit += unfit.unfit
        return ColumnCounts(rows, invalid, columns)
