"""The tables of a LevelDB database, read block by block: which blocks are not what was written, and blanking them.

A compaction that meets such a block ends every write to the database (LevelDB remembers the error until it is opened
anew). A block that is blanked holds no record and is sound: nothing fails because of it, and all that is lost is
what could not be read. Which keys that were the index of the table says.

The forms are those of LevelDB 1.22: doc/table_format.md, table/format.cc, table/block_builder.cc.
"""

import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from vmq.store.files import KEY_TAIL, Fields, LiveTable, masked_crc

#: Behind a key of an index that no record has: the highest sequence number, which no write gets.
SHORTENED: Final = b"\x01" + b"\xff" * 7
#: More bytes of this value than any key of the store has in a row: what they end sorts behind all that begin like it.
HIGHEST: Final = b"\xff" * 32

FOOTER: Final = 48
MAGIC: Final = (0xDB4775248B80FB57).to_bytes(8, "little")
#: Behind a block: how it is compressed (1), and its checksum (4).
TRAILER: Final = 5
PLAIN, SNAPPY = 0, 1
#: A block without restart points, which holds nothing.
EMPTY: Final = bytes(4)


class Block(NamedTuple):
    """Where a block lies, and the first and last key that it may have."""

    offset: int
    size: int
    first: bytes
    last: bytes


class TableError(Exception):
    """Footer or index of a table are not what was written."""


def bad_blocks(path: Path, table: LiveTable) -> list[Block]:
    """The blocks of a table that are not what was written; all of it as one if that cannot be told.

    Raises:
        OSError: it cannot be read.
    """
    raw = path.read_bytes()
    try:
        return [each for each in blocks_of(raw, table) if not is_sound(raw, each.offset, each.size)]
    except TableError:
        return [Block(0, len(raw), table.first, table.last)]


def blocks_of(raw: bytes, table: LiveTable) -> Iterator[Block]:
    """The data blocks of a table, by its index.

    Raises:
        TableError: the index cannot be read.
    """
    if len(raw) < FOOTER or raw[-8:] != MAGIC:
        raise TableError
    try:
        footer = Fields(raw[-FOOTER:])
        footer.number(), footer.number()  # of the index of filters
        start, size = footer.number(), footer.number()
        if not is_sound(raw, start, size):
            raise TableError
        first = table.first
        for key, value in entries(contents(raw, start, size)):
            handle = Fields(value)
            last, behind = around(key)
            yield Block(handle.number(), handle.number(), first, min(last, table.last))
            first = behind
    except (IndexError, ValueError, struct.error):
        raise TableError from None


def around(key: bytes) -> tuple[bytes, bytes]:
    """The last key that the block in front of a key of the index may have, and the first that the one behind it may.

    Such a key is the last of the block in front, or a shorter one between the two: as far as both are the same, and one
    byte, which is above that of the block in front by one and below that of the block behind
    (util/comparator.cc, FindShortestSeparator). So neither block has a key that begins like it.
    """
    found = key[:-KEY_TAIL]
    if key[-KEY_TAIL:] != SHORTENED:
        return found, found + b"\0"  # the next that sorts behind it
    same, byte = found[:-1], found[-1]
    return same + bytes((byte - 1,)) + HIGHEST, same + bytes((min(byte + 1, 255),))


def is_sound(raw: bytes, offset: int, size: int) -> bool:
    """Whether a block has the checksum that it was written with."""
    end = offset + size + 1
    return masked_crc(raw[offset:end]) == int.from_bytes(raw[end : end + 4], "little")


def contents(raw: bytes, offset: int, size: int) -> bytes:
    """What a sound block holds."""
    body = raw[offset : offset + size]
    return unsnappy(body) if raw[offset + size] == SNAPPY else body


def entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a block."""
    restarts = int.from_bytes(block[-4:], "little")
    fields = Fields(block[: len(block) - 4 - 4 * restarts])
    key = b""
    while fields.at < len(fields.raw):
        shared, own, length = fields.number(), fields.number(), fields.number()
        start = fields.at
        key = key[:shared] + fields.raw[start : start + own]
        fields.at = start + own + length
        yield key, fields.raw[start + own : fields.at]


def unsnappy(raw: bytes) -> bytes:
    """Decompresses a block (google/snappy, format_description.txt).

    Raises:
        IndexError, ValueError: it is none.
    """
    fields = Fields(raw)
    size = fields.number()
    out = bytearray()
    while fields.at < len(raw):
        tag = raw[fields.at]
        fields.at += 1
        kind = tag & 3
        if kind == 0:
            length = (tag >> 2) + 1
            if length > 60:
                extra = length - 60
                length = int.from_bytes(raw[fields.at : fields.at + extra], "little") + 1
                fields.at += extra
            out += raw[fields.at : fields.at + length]
            fields.at += length
            continue
        if kind == 1:
            length, extra = (tag >> 2 & 7) + 4, 1
            back = tag >> 5 << 8 | raw[fields.at]
        else:
            length, extra = (tag >> 2) + 1, 2 if kind == 2 else 4
            back = int.from_bytes(raw[fields.at : fields.at + extra], "little")
        fields.at += extra
        start = len(out) - back
        if not 0 <= start < len(out):
            raise ValueError(back)
        for place in range(start, start + length):  # what is copied may overlap with itself
            out.append(out[place])
    if len(out) != size:
        raise ValueError(size)
    return bytes(out)


def blank(path: Path, block: Block) -> None:
    """Makes a block one that holds nothing, where it lies; the whole table, if that is what cannot be read.

    LevelDB may have the database open: it reads what is there when it gets there.
    """
    size = path.stat().st_size
    if block.offset == 0 and block.size == size:
        # The index of filters and the index, both empty, and the footer that leads there.
        at = size - FOOTER - 2 * (len(EMPTY) + TRAILER)
        handles = (
            varint(at) + varint(len(EMPTY)) + varint(at + len(EMPTY) + TRAILER) + varint(len(EMPTY))
        )
        footer = handles.ljust(FOOTER - len(MAGIC), b"\0") + MAGIC
        write_at(path, at, sealed(EMPTY) + sealed(EMPTY) + footer)
    else:
        write_at(path, block.offset, sealed(bytes(block.size)))


def sealed(body: bytes) -> bytes:
    """An uncompressed block with what stands behind it."""
    body += bytes((PLAIN,))
    return body + masked_crc(body).to_bytes(4, "little")


def varint(value: int) -> bytes:
    """A number as LevelDB writes it."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes((*out, value))


def write_at(path: Path, position: int, data: bytes) -> None:
    """Writes into a file, and waits until that is on disk."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(fd, data, position)
        os.fsync(fd)
    finally:
        os.close(fd)
