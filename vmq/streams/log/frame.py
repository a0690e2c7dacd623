"""One record batch as it lies in a segment: an Arrow IPC message with a checksum of its own.

A segment must stay a plain Arrow IPC stream, so whatever vmq needs beside the rows rides in the
custom metadata of each message, as one text of fixed width:

    vmq: offset=... rows=... bytes=... time=... body=... crc32c=...

`offset` is that of the first row, `bytes` the size of the rows in memory, `time` the highest
timestamp among them, `body` the length of the message's second part. Their width is fixed because
two of them are known only when the message is made: they are written into it afterwards. The
CRC-32C covers the whole message, its length prefix and flatbuffer included, with zeros in the place of
the checksum itself. So a flipped bit is found wherever it is, and no flatbuffer has to be trusted
or even parsed to find out.

A batch with messages of QoS 2 that are to be known again after a crash names the last of them, under a key of its own
(`vmq.streams.serving.receipts`):

    receipt: receipt=...

A batch of a replicated partition has a third key, `raft`, with what its group needs (`vmq.streams.replica`):

    raft: raft=KIND:BASE64

A batch without rows, which only replicas write, takes one offset all the same.

A batch of a compacted segment says how many offsets it takes, for of its rows some are gone
(`vmq.streams.tidying.compaction`):

    span: span=...
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

import crc32c
import pyarrow as pa
from pyarrow import ipc

#: What every message begins with: Arrow's continuation marker, then the length of its flatbuffer.
CONTINUATION: Final = b"\xff\xff\xff\xff"
#: The end of an Arrow IPC stream: a message of length 0.
END: Final = CONTINUATION + b"\0\0\0\0"

#: A batch in a segment has at most this many rows, and about this many bytes in memory.
BATCH_ROWS: Final = 16_384
BATCH_BYTES: Final = 4 << 20

#: The flatbuffer of our schema takes less than 1 KiB, and what a group says of itself half a MiB at most; a larger
#: length is damage, not data.
LONGEST_HEAD: Final = 1 << 19
#: A single message of MQTT has 256 MiB at most.
LONGEST_BODY: Final = 1 << 30

_FORM: Final = "offset={:020} rows={:010} bytes={:012} time={:020} body={:012} crc32c={:08x}"
_MARK: Final = re.compile(
    rb"offset=(\d{20}) rows=(\d{10}) bytes=(\d{12}) time=(\d{20}) body=(\d{12}) crc32c=([0-9a-f]{8})"
)
_CRC_LENGTH: Final = 8
_RECEIPT: Final = re.compile(rb"receipt=([0-9a-f]{16}[0-9]{20})")
_RAFT: Final = re.compile(rb"raft=([0-9A-Za-z+/:=]+)")
_SPAN: Final = re.compile(rb"span=(\d{20})")


class BadFrameError(Exception):
    """The bytes are not a message that was written here."""


class ShortFrameError(BadFrameError):
    """The bytes end before the message does."""


class Frame(NamedTuple):
    """What the head of a message says. `head` and `body` are lengths in bytes."""

    offset: int
    rows: int
    nbytes: int
    time: int
    head: int
    body: int
    crc: int
    crc_at: int
    receipt: str
    #: What its group says of it; empty where there is none.
    raft: bytes = b""
    #: Offsets that it takes; one at least.
    span: int = 1
    #: Some of its rows are gone, so each of the others brings its offset.
    compacted: bool = False

    @property
    def size(self) -> int:
        """Bytes of the whole message."""
        return self.head + self.body

    @property
    def end(self) -> int:
        """The offset behind its last one."""
        return self.offset + self.span


def write_options(compression: str) -> ipc.IpcWriteOptions:
    """How messages are written; the event loop's other core is not ours, so no threads."""
    kind = None if compression == "none" else compression
    return ipc.IpcWriteOptions(compression=kind, use_threads=False)


def encode(
    batch: pa.RecordBatch,
    offset: int,
    time: int,
    schema_size: int,
    options: ipc.IpcWriteOptions,
    receipt: str = "",
    raft: str = "",
    span: int = 0,
) -> tuple[bytes, memoryview]:
    """A batch as the two parts of its message, head and body.

    Args:
        batch: the rows.
        offset: of the first row.
        time: the highest timestamp of the rows, in microseconds.
        schema_size: bytes of the serialized schema, which Arrow writes in front and is cut off here.
        options: of `write_options`.
        receipt: of the last message among them, or before them, that has one; "" if none has.
        raft: what its group says of it; "" if there is none.
        span: offsets that it takes, if its rows have a column of theirs; else 0.
    """
    sink = pa.BufferOutputStream()
    with ipc.RecordBatchStreamWriter(sink, batch.schema, options=options) as writer:
        mark = _FORM.format(offset, batch.num_rows, batch.nbytes, time, 0, 0)
        custom = {"vmq": mark}
        if receipt:
            custom["receipt"] = "receipt=" + receipt
        if raft:
            custom["raft"] = "raft=" + raft
        if span:
            custom["span"] = f"span={span:020}"
        writer.write_batch(batch, custom_metadata=custom)
    view = memoryview(sink.getvalue()).cast("B")[schema_size : -len(END)]
    length = 8 + int.from_bytes(view[4:8], "little")
    head, body = bytearray(view[:length]), view[length:]
    at = head.rindex(mark.encode())
    head[at : at + len(mark)] = mark_of(
        offset, batch.num_rows, batch.nbytes, time, len(body)
    ).encode()
    return checked(head, body), body


def mark_of(offset: int, rows: int, nbytes: int, time: int, body: int) -> str:
    """What a message says of itself, with zeros in the place of the checksum."""
    return _FORM.format(offset, rows, nbytes, time, body, 0)


def checked(head: bytearray, body: bytes | memoryview) -> bytes:
    """The head of a message that has its mark, with the checksum in it."""
    match = _MARK.search(head)
    assert match is not None
    at = match.start(6)
    crc = crc32c.crc32c(body, crc32c.crc32c(bytes(head)))
    head[at : at + _CRC_LENGTH] = b"%08x" % crc
    return bytes(head)


def checksum(head: bytes, body: memoryview, crc_at: int) -> int:
    """The CRC-32C of a message, with zeros where it stands."""
    blank = head[:crc_at] + b"0" * _CRC_LENGTH + head[crc_at + _CRC_LENGTH :]
    found: int = crc32c.crc32c(body, crc32c.crc32c(blank))
    return found


def parse(view: memoryview, position: int) -> Frame | None:
    """The frame that begins at a position of some bytes; None where the stream's end is marked.

    Only its head has to be there.

    Raises:
        ShortFrameError: the bytes end within the head.
        BadFrameError: no message of ours begins there.
    """
    prefix = bytes(view[position : position + 8])
    if len(prefix) < 8:
        raise ShortFrameError("the file ends within a message's length")
    if prefix == END:
        return None
    if prefix[:4] != CONTINUATION:
        raise BadFrameError("no Arrow message begins here")
    length = int.from_bytes(prefix[4:], "little")
    if length > LONGEST_HEAD:
        raise BadFrameError(f"a message's head cannot have {length} bytes")
    head = bytes(view[position : position + 8 + length])
    if len(head) < 8 + length:
        raise ShortFrameError("the file ends within a message's head")
    mark = _MARK.search(head)
    if mark is None:
        raise BadFrameError("the message lacks vmq's offset and checksum")
    offset, rows, nbytes, time, body = (int(part) for part in mark.groups()[:5])
    if body > LONGEST_BODY:
        raise BadFrameError(f"a message's body cannot have {body} bytes")
    # Most heads lack most of these, and to look for a word is quicker than for a pattern.
    receipt = _RECEIPT.search(head) if b"receipt=" in head else None
    named = "" if receipt is None else receipt[1].decode()
    crc, crc_at = int(mark[6], 16), mark.start(6)
    raft = _RAFT.search(head) if b"raft=" in head else None
    told = b"" if raft is None else raft[1]
    found = _SPAN.search(head) if b"span=" in head else None
    span = (rows if found is None else int(found[1])) or 1
    sizes = len(head), body, crc, crc_at
    return Frame(offset, rows, nbytes, time, *sizes, named, told, span, found is not None)


def check(view: memoryview, position: int, frame: Frame) -> None:
    """Compares a message with its checksum.

    Raises:
        ShortFrameError: the bytes end within the body.
        BadFrameError: it is not what was written.
    """
    if len(view) < position + frame.size:
        raise ShortFrameError("the file ends within a message's body")
    head = bytes(view[position : position + frame.head])
    body = view[position + frame.head : position + frame.size]
    if checksum(head, body, frame.crc_at) != frame.crc:
        raise BadFrameError("the checksum (CRC-32C) differs from what was written")


def pieces(batch: pa.RecordBatch) -> Iterable[pa.RecordBatch]:
    """A batch in parts that are not too large to be read at once."""
    rows = BATCH_ROWS
    if batch.nbytes > BATCH_BYTES:
        rows = max(1, min(rows, batch.num_rows * BATCH_BYTES // batch.nbytes))
    for start in range(0, batch.num_rows, rows):
        yield batch.slice(start, rows)
