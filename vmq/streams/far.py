"""Partitions that another process of this machine writes, read from its files.

The process that writes says where to read (`locate`), by the rules that its own readers follow: rows that are
not published are in no answer. Whoever reads opens the file there, and has it open from then on: it may be
merged or deleted under him. What he cannot do is open it in the moment of the answer, so that names the
file itself, by device and inode, and another one in its place makes him ask again.

Where devices send one at a time segments are many and small. Who would open many at once is told of those behind the
first one, too: an answer costs as much time as thousands of rows do.
"""

import os
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import msgspec

from vmq.streams.log.columns import Projection
from vmq.streams.log.cursor import Cursor, Extent, PartitionLog
from vmq.streams.log.errors import DamagedError, PassingError, StreamError
from vmq.streams.log.frame import END
from vmq.streams.log.index import Index
from vmq.streams.log.ordered.file import path_of
from vmq.streams.log.ordered.reading import is_sparse
from vmq.streams.log.segment import Header, OpenSegment

#: Answers that are out of date when they come, one after the other, before it is given up.
TRIES: Final = 10

#: Segments that one answer names at most.
MOST_SPOTS: Final = 16
#: Bytes of them that are enough: whoever has files open keeps them on the disk.
MOST_BYTES: Final = 64 << 20


class Spot(msgspec.Struct, frozen=True, kw_only=True):
    """Where a row lies.

    In the file `path`, which is `inode` of `device`, in the batch that begins at byte `position` with offset
    `first`, or in one behind it. The file may be read up to byte `limit`, which is behind offset `last`.
    """

    path: str
    device: int
    inode: int
    position: int
    first: int
    limit: int
    last: int


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """What there is of a partition, and where to begin; `spot` is None at its end.

    `further`: where to go on behind it, in the order of the segments; perhaps not all. `schema`: the typed columns of
    the stream, for whoever makes them of what lies there. `sparse`: few of its rows are wanted, and a get finds them
    at once.
    """

    start: int
    earliest: int
    end: int
    spot: Spot | None = None
    further: list[Spot] = []
    schema: dict[str, str] = {}
    sparse: bool = False


#: Made once, when nobody else does: two threads at once that have msgspec learn a form crash.
LOCATED_FORM: Final = msgspec.json.Decoder(Located)


def locate(partition: PartitionLog, start: int, until: int | None = None) -> Located:
    """Where an offset of a partition lies.

    Args:
        partition: the partition.
        start: the offset.
        until: up to which offset further segments are wanted, if small ones follow; None = none are.

    Raises:
        OutOfRangeError: the partition has no such offset. Its end is one.
        StreamError: the stream was deleted.
        DamagedError: the segment is not what was written.
    """
    with Cursor(partition, start) as cursor:
        earliest, end = partition.earliest, partition.end
        if start == end:
            return Located(start=start, earliest=earliest, end=end)
        spot = _spot_of(cursor)
        further = [] if until is None else list(_behind(cursor, spot, until))
        last = further[-1].last if further else spot.last
        # Rows may have come since: what was found is the truth.
        return Located(
            start=start, earliest=earliest, end=max(end, last), spot=spot, further=further
        )


def thinned(found: Located, projection: Projection, until: int) -> Located:
    """What was located, for few topics, up to an offset: without segments whose rows a get finds at once."""

    def is_sparse_at(spot: Spot) -> bool:
        path = Path(spot.path)
        beside = path_of(path, spot.limit + len(END), spot.inode)
        offsets = min(until, spot.last) - max(found.start, spot.first)
        return is_sparse(beside, spot.last - int(path.stem), projection, offsets)

    if found.spot is None or not projection.asks_topics:
        return found
    further = list(takewhile(lambda spot: not is_sparse_at(spot), found.further))
    return msgspec.structs.replace(found, further=further, sparse=is_sparse_at(found.spot))


def examine(partition: PartitionLog, offset: int) -> None:
    """Reads the batch that holds an offset, and those before it that come along: several may lie at one place.

    Raises:
        DamagedError: it is not what was written; the partition takes note.
    """
    with Cursor(partition, offset) as cursor:
        while cursor.offset <= offset and cursor.read(None) is not None:
            pass


def _spot_of(cursor: Cursor) -> Spot:
    """Where the offset of a cursor lies."""
    place = cursor.open()
    limit, last = cursor.limits(place)
    file = os.fstat(place.fd)
    return Spot(
        path=str(place.path.absolute()),
        device=file.st_dev,
        inode=file.st_ino,
        position=cursor.position,
        first=cursor.first,
        limit=limit,
        last=last,
    )


def _behind(cursor: Cursor, spot: Spot, until: int) -> Iterator[Spot]:
    """The segments behind one. What is wrong with them concerns who comes there, and asks again."""
    size = spot.limit
    until = min(until, cursor.partition.end)
    for _ in range(1, MOST_SPOTS):
        if spot.last >= until or size >= MOST_BYTES:
            return
        if spot.last < cursor.partition.kept:
            return  # each of them is to be fetched, when its time has come
        cursor.close()
        cursor.offset = spot.last
        try:
            spot = _spot_of(cursor)
        except (StreamError, OSError):
            return
        size += spot.limit
        yield spot


class FarLog:
    """What readers need to know of a partition that is far, for one read; `Extent`.

    Args:
        stream: its stream.
        number: its number in the stream.
        begin: what the process that writes it has answered.
        ask: asks it where an offset lies.
        tell: tells it of damage that is met.
    """

    def __init__(
        self,
        stream: str,
        number: int,
        begin: Located,
        ask: Callable[[int], Located],
        tell: Callable[[DamagedError], None] = lambda _damage: None,
    ) -> None:
        self.stream = stream
        self.number = number
        self.header = Header(stream, number)
        self.damage: DamagedError | None = None
        self.earliest = begin.earliest
        self.end = begin.end
        self.begin: Located | None = begin
        self.ask = ask
        self.tell = tell

    def note(self, damage: DamagedError) -> None:
        """Damage was met: whoever writes the partition is to know."""
        self.tell(damage)

    def locate(self, offset: int) -> Spot:
        """Where an offset below the end lies."""
        found, self.begin = self.begin, None
        if found is None or found.start != offset:
            found = self.ask(offset)
            self.end = max(self.end, found.end)  # rows came since: readers may see them
        assert found.spot is not None
        return found.spot


class FarCursor(Cursor):
    """A cursor in a partition that is far."""

    def __init__(self, partition: Extent, offset: int) -> None:
        assert isinstance(partition, FarLog)
        self.log = partition
        known: Any = partition  # all that is not asked for in `open`
        super().__init__(known, offset)

    def open(self) -> OpenSegment:
        """Opens the segment that holds the offset, at the batch that the answer names."""
        for _ in range(TRIES):
            spot = self.log.locate(self.offset)
            fd = opened(spot)
            if fd is not None:
                break
        else:
            raise PassingError(
                f"stream {self.log.stream!r}, partition {self.log.number}: its segments change too "
                "fast to be opened; try again"
            )
        index = Index(spot.first, spot.limit)
        index.end = spot.last
        self.place = OpenSegment(fd, Path(spot.path), index, self.log.header, growing=False)
        self.position, self.first = spot.position, spot.first
        return self.place


def opened(spot: Spot) -> int | None:
    """The file of a spot, open; None if it is not there any more, or another one."""
    try:
        fd = os.open(spot.path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    file = os.fstat(fd)
    if (file.st_dev, file.st_ino) == (spot.device, spot.inode):
        return fd
    os.close(fd)
    return None
