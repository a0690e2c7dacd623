"""Rows that a damaged partition has to take all the same: other nodes have acknowledged them, and forget them then.

They lie in a log of their own beside its segments, in a folder of the same form, and go into the partition when it is
whole again, behind what it ends with. Nobody reads them before. Clients and programs are refused meanwhile, so these
rows are no more than what was on its way when the others heard of the damage.
"""

import logging
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from vmq_hooks.replacing import replace_file

from vmq.config.streams import StreamOptions
from vmq.streams.log.checkpoint import sync_folder
from vmq.streams.log.cursor import Cursor
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.partition import Partition

log = logging.getLogger("vmq.streams")

#: Their folders, the oldest first. There is a second one only if the first is damaged, too.
FOLDER: Final = "parked-{}"
#: In it, the offset of the partition at which its rows begin; written before the first of them is there.
BEGIN: Final = "begin"
#: What a folder is called when all of it is in the partition.
TAKEN: Final = ".taken"


def folders(partition: Path) -> list[Path]:
    """The folders of parked rows of a partition, the oldest first."""
    found = (each for each in partition.glob(FOLDER.format("*")) if each.suffix != TAKEN)
    return sorted(found, key=lambda each: int(each.name.rpartition("-")[2]))


class Parking:
    """Takes the rows of one damaged partition; used by the writer's thread."""

    def __init__(
        self,
        folder: Path,
        stream: str,
        number: int,
        options: StreamOptions,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = folder
        self._made = stream, number, here(options), clock
        self._log: Partition | None = None

    def log(self) -> Partition:
        """Where rows go.

        Raises:
            OSError: the disk.
        """
        if self._log is None:
            self._log = self._open()
        return self._log

    def _open(self) -> Partition:
        last = 0
        if found := folders(self.folder):
            try:
                return Partition(found[-1], *self._made)
            except DamagedError as damage:
                log.error("rows that wait for a damaged partition are damaged: %s", damage)
                last = int(found[-1].name.rpartition("-")[2])
        made = Partition(self.folder / FOLDER.format(last + 1), *self._made)
        sync_folder(self.folder)
        return made

    @property
    def is_used(self) -> bool:
        """Whether rows came since the start."""
        return self._log is not None

    def close(self) -> None:
        """Closes its files."""
        if self._log is not None:
            self._log.close()
            self._log = None


def take_in(partition: Partition) -> int:
    """Has a partition that is whole again take the rows that were parked, each once; returns how many.

    Nothing else may be written to it meanwhile. Who is interrupted goes on where he was.

    Raises:
        DamagedError: the parked rows are damaged.
        OSError: the disk.
    """
    for leftover in partition.folder.glob("*" + TAKEN):
        shutil.rmtree(leftover)
    count = 0
    for folder in folders(partition.folder):
        made = partition.stream, partition.number, here(partition.options), partition.clock
        parked = Partition(folder, *made)
        try:
            count += _copy(parked, partition)
        finally:
            parked.close()
        folder.rename(folder.with_suffix(TAKEN))
        sync_folder(partition.folder)
        shutil.rmtree(folder.with_suffix(TAKEN))
    return count


def here(options: StreamOptions) -> StreamOptions:
    """The options of rows that wait: the partition's archive has nothing of them."""
    return msgspec.structs.replace(options, archive="")


def _copy(parked: Partition, partition: Partition) -> int:
    """Appends those parked rows that are not in the partition yet."""
    begin = _begin(parked.folder, partition.end)
    start = min(parked.earliest + max(0, partition.end - begin), parked.end)
    with Cursor(parked, start) as cursor:
        while (at := cursor.offset) < parked.end:
            span = cursor.read(None)
            assert span is not None
            rows = span.rows.slice(at - span.offset)
            newest = pc.max(rows.column("timestamp").cast(pa.int64())).as_py()
            partition.append(rows, newest)
            partition.publish()
    partition.sync()
    return parked.end - start


def _begin(folder: Path, end: int) -> int:
    """The offset at which the rows of a folder begin in their partition: `end`, unless one was noted before."""
    path = folder / BEGIN
    try:
        return int(path.read_text(encoding="ascii"))
    except (FileNotFoundError, ValueError):
        pass
    replace_file(path, str(end).encode())
    return end
