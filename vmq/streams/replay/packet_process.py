"""The process that reads history for clients of MQTT: `python -m vmq.streams.replay.packet_process FD`.

Rows of a partition become packets here, beside the broker: reading and decoding takes the interpreter, which is the
event loop's there. It hears orders by its input; what it makes lies in a slot of the memory FD that the broker names,
and a line on its output says what that is. What it cannot do it leaves to who asked. It ends with its input.
"""

import mmap
import os
import struct
import sys
from collections.abc import Iterator
from typing import BinaryIO, Final, NamedTuple

import msgspec
import pyarrow as pa

from vmq.streams.far import FarCursor, FarLog, Located, Spot, opened
from vmq.streams.helper import until_nobody_asks
from vmq.streams.log.cursor import Chunk, LogReader
from vmq.streams.log.errors import PassingError, StreamError
from vmq.streams.places import PageQuery
from vmq.streams.replay.frames import frames_of

NICENESS: Final = 10
#: Bytes of a slot: twice what a page has at most, but for single messages that are large; and how many there are.
SLOT: Final = 4 << 20
SLOTS: Final = 32
#: Bytes of rows that are kept for the next pages.
_MOST_KEPT: Final = 64 << 20

LENGTH: Final = struct.Struct(">I")
#: What it says: a kind, how many packets, where the next ones begin, and the bytes of the packets.
ANSWER: Final = struct.Struct(">cIqQ")
#: It can be asked; packets; it has none: who asks is to read by himself; and so it is with the next ones, perhaps.
READY: Final = b"Y"
PACKETS: Final = b"P"
NONE: Final = b"N"
LARGE: Final = b"L"

COLUMNS: Final = ("topic", "payload", "retain", "timestamp", "offset")


class PacketOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Which rows of a partition are wanted, where they lie, and how and where they go; `first` is 0 at QoS 0."""

    stream: str
    partition: int
    wanted: PageQuery
    found: Located
    slot: int
    prefix: bytes
    as_published: bool
    first: int = 0
    least: int = 1


class KeptRows(NamedTuple):
    """Rows that were unpacked and are not wanted yet; what follows them begins at offset `next`. Their file is open."""

    rows: pa.RecordBatch
    next: int
    fd: int


class PacketMaker:
    """Makes packets.

    Args:
        memory: where they are put.
    """

    def __init__(self, memory: mmap.mmap | memoryview) -> None:
        self.memory = memoryview(memory)
        #: By stream, partition, filter, and the offset with which they begin. A batch is larger than a page, often.
        self.kept: dict[tuple[str, int, str | None, int], KeptRows] = {}

    def carry_out(self, order: PacketOrder) -> bytes:
        """Puts packets into a slot; what is to be said."""
        rows, following = self.read(order)
        if not rows.num_rows:
            return ANSWER.pack(PACKETS, 0, following, 0)
        frames = frames_of(rows, order.prefix, order.as_published, order.first, order.least)
        if frames is None:
            return ANSWER.pack(LARGE, 0, 0, 0)
        size = frames.ends[frames.count]
        at = order.slot * SLOT
        end = at + SLOT
        for part in (frames.offsets, times_in(rows), frames.ends, frames.ids, frames.data[:size]):
            if at + part.nbytes > end:
                return ANSWER.pack(LARGE, 0, 0, 0)
            self.memory[at : at + part.nbytes] = part.cast("B")
            at += part.nbytes
        return ANSWER.pack(PACKETS, frames.count, following, size)

    def read(self, order: PacketOrder) -> tuple[pa.RecordBatch, int]:
        """The rows, as far as it is known where they lie; and where the next ones begin."""
        wanted = order.wanted
        found: list[pa.RecordBatch] = []
        count = size = 0
        following = wanted.start
        for chunk in self.chunks(order):
            rows, following = chunk
            if not rows.num_rows:
                continue
            room = wanted.size - size
            if rows.num_rows > 1 and rows.nbytes > 2 * room:
                most = max(1, rows.num_rows * room // rows.nbytes)
                found.append(rows.slice(0, most))
                left = Chunk(rows.slice(most), following)
                following = found[-1].column("offset")[-1].as_py() + 1
                self.keep(order, following, left)
                break
            found.append(rows)
            count += rows.num_rows
            size += rows.nbytes
            # What is read together with more is copied once more.
            if count >= wanted.rows or size >= wanted.size // 2:
                break
        return pa.concat_batches(found) if len(found) > 1 else found[
            0
        ] if found else rows, following

    def chunks(self, order: PacketOrder) -> Iterator[Chunk]:
        """Rows from where they are wanted on: those that were kept, then what is read."""
        found, wanted = order.found, order.wanted
        start = wanted.start
        kept = self.take(order)
        if kept is not None:
            yield kept
            start = kept.next
        assert found.spot is not None
        end = min(wanted.end, (found.further or [found.spot])[-1].last)
        if start >= end:
            return

        def ask(offset: int) -> Located:
            spot = spot_at(order, offset)
            if spot is None or offset == found.start:
                raise PassingError("the segment is not there any more")
            return Located(start=offset, earliest=found.earliest, end=found.end, spot=spot)

        log = FarLog(order.stream, order.partition, found, ask)
        reader = LogReader(log, COLUMNS, wanted.filter, FarCursor)
        yield from reader.read(start, end, most=wanted.size)

    def keep(self, order: PacketOrder, offset: int, left: Chunk) -> None:
        """Keeps rows that were unpacked for the next page, whose first offset that is."""
        spot = spot_at(order, offset)
        fd = None if spot is None else opened(spot)
        if fd is None:
            return
        self.drop(key_of(order, offset))
        self.kept[key_of(order, offset)] = KeptRows(*left, fd)
        while len(self.kept) > 1 and self.size() > _MOST_KEPT:
            self.drop(next(iter(self.kept)))

    def take(self, order: PacketOrder) -> Chunk | None:
        """Rows that were kept, if their file is where it was: so it is the same, since it is open here."""
        kept = self.kept.pop(key_of(order, order.wanted.start), None)
        if kept is None:
            return None
        file, spot = os.fstat(kept.fd), order.found.spot
        os.close(kept.fd)
        if spot is None or (file.st_dev, file.st_ino) != (spot.device, spot.inode):
            return None
        return Chunk(kept.rows, kept.next)

    def drop(self, key: tuple[str, int, str | None, int]) -> None:
        kept = self.kept.pop(key, None)
        if kept is not None:
            os.close(kept.fd)

    def size(self) -> int:
        """Bytes of what is kept."""
        return sum(int(each.rows.get_total_buffer_size()) for each in self.kept.values())


def key_of(order: PacketOrder, offset: int) -> tuple[str, int, str | None, int]:
    """By what rows are found that were kept: those that begin with an offset."""
    return order.stream, order.partition, order.wanted.filter, offset


def spot_at(order: PacketOrder, offset: int) -> Spot | None:
    """Where an offset lies, as far as that is known."""
    found = order.found
    spots = [*found.further] if found.spot is None else [found.spot, *found.further]
    return next((each for each in spots if each.first <= offset < each.last), None)


def times_in(rows: pa.RecordBatch) -> memoryview:
    """When rows were taken, in microseconds."""
    times = rows.column("timestamp").cast(pa.int64())
    at = 8 * times.offset
    return memoryview(times.buffers()[1]).cast("B")[at : at + 8 * len(times)]


def serve(source: BinaryIO, sink: BinaryIO, maker: PacketMaker) -> None:
    """Carries out orders until the input ends. A defect ends the process, which the broker tells, and does without."""
    decoder = msgspec.msgpack.Decoder(PacketOrder)
    sink.write(ANSWER.pack(READY, 0, 0, 0))
    sink.flush()
    while len(head := source.read(LENGTH.size)) == LENGTH.size:
        order = decoder.decode(source.read(LENGTH.unpack(head)[0]))
        try:
            answer = maker.carry_out(order)
        except (StreamError, OSError):  # whoever reads by himself meets it, and tells
            answer = ANSWER.pack(NONE, 0, 0, 0)
        sink.write(answer)
        sink.flush()


def main() -> None:
    """Serves the standard input."""
    os.nice(NICENESS)
    memory = mmap.mmap(int(sys.argv[1]), SLOT * SLOTS)
    with until_nobody_asks():
        serve(sys.stdin.buffer, sys.stdout.buffer, PacketMaker(memory))


if __name__ == "__main__":
    main()
