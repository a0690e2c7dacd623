"""A batch of few rows as it lies in a segment, written without Arrow's own writer.

Devices that each send seldom make batches of a row or a few, and of such a one Arrow's arrays, writer and flatbuffer
cost far more than the rows. What Arrow writes is the same form each time: the flatbuffer of a `RecordBatch` of our
columns, with other numbers in it. So it is laid out once, here, and each batch fills in the numbers. Bodies are not
compressed, and buffers begin at multiples of 8 (Arrow asks for that, and prefers 64).

Whatever is not common goes the long way: headers, many rows, text that is none.
"""

import struct
from array import array
from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import Final

import pyarrow as pa

from vmq.streams.log.frame import checked, mark_of, pieces
from vmq.streams.log.gathering import Gathering
from vmq.streams.log.keys import Keys

#: Rows below which a batch is made here.
FEW: Final = 64

#: Fields of the stored columns, those within headers included, and their buffers.
_NODES: Final = 11
_BUFFERS: Final = 27
_FIELDS: Final = struct.Struct(f"<{2 * _NODES}q")
_PLACES: Final = struct.Struct(f"<{2 * _BUFFERS}q")
_LENGTH: Final = struct.Struct("<q")
_WORD: Final = struct.Struct("<I")
#: Bytes in front of a message: the continuation marker and the length.
_BEFORE: Final = 8
#: The version of the format (5), and what kind of header a record batch is.
_VERSION: Final = 4
_RECORD_BATCH: Final = 3


class FewRows:
    """The rows of a batch, which knows its place in the log when that is written."""

    def __init__(self, rows: Gathering, body: bytes, places: list[int]) -> None:
        self.num_rows = len(rows.topics)
        self.newest = max(0, *rows.times)
        self._body = body
        self._places = places

    @property
    def nbytes(self) -> int:
        """Their size in memory."""
        return len(self._body)

    @classmethod
    def of(cls, rows: Gathering, keys: Keys) -> "FewRows | None":
        """These rows; None if they have to go the long way."""
        count = len(rows.topics)
        if rows.headers or not 0 < count < FEW:
            return None
        try:
            clients = [each.encode() for each in rows.clients]
            for topic in rows.topics:
                topic.decode()
            found = keys.of_few(rows.topics, clients)
            body = _Buffers()
            body.add_texts(rows.topics)
            body.add_texts(rows.payloads)
        except (UnicodeError, AttributeError, TypeError):
            return None
        body.add_column(array("i", [each & 3 for each in list(rows.flags)]).tobytes())
        body.add_column(_bits(rows.flags))
        body.add_column(rows.times.tobytes())
        body.add_texts(clients)
        body.add_texts(found)
        body.add_column(bytes(4 * count + 4))
        for _ in range(7):
            body.add(b"")  # there is no header
        return cls(rows, b"".join(body.parts), body.places)

    def message(self, offset: int, receipt: str = "", raft: str = "") -> tuple[bytes, bytes]:
        """Head and body of their message, at a place in the log."""
        data = self._body
        values = {"vmq": mark_of(offset, self.num_rows, len(data), self.newest, len(data))}
        if receipt:
            values["receipt"] = "receipt=" + receipt
        if raft:
            values["raft"] = "raft=" + raft
        form = _FORMS.get(names := tuple(values))
        if form is None:
            form = _FORMS[names] = _Form(values)
        return checked(form.fill(self.num_rows, self._places, len(data), values), data), data


def few_or_pieces(
    batch: pa.RecordBatch | FewRows, metadata: Mapping[bytes, bytes]
) -> Iterable[pa.RecordBatch | FewRows]:
    """A batch in parts that are not too large to be read at once; `metadata`: whose rows they are."""
    if isinstance(batch, FewRows):
        return (batch,)
    return pieces(batch.replace_schema_metadata(metadata))


class _Buffers:
    """Buffers, one after the other."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.places: list[int] = []
        self._end = 0

    def add(self, data: bytes) -> None:
        size = len(data)
        self.places += (self._end, size)
        if size:
            rest = -size % 8
            self.parts.append(data + bytes(rest) if rest else data)
            self._end += size + rest

    def add_column(self, data: bytes) -> None:
        """A column of a fixed width: no nulls, and the values."""
        self.add(b"")
        self.add(data)

    def add_texts(self, texts: list[bytes]) -> None:
        """A column of texts: no nulls, where each begins, and the texts."""
        self.add(b"")
        self.add(array("i", accumulate(map(len, texts), initial=0)).tobytes())
        self.add(b"".join(texts))


def _bits(flags: bytearray) -> bytes:
    """Whether each is to be retained, a bit each."""
    found = 0
    for number, each in enumerate(list(flags)):
        if each & 4:
            found |= 1 << number
    return found.to_bytes((len(flags) + 7) // 8, "little")


class _Flatbuffer:
    """Bytes in which each offset points forward, behind what goes before the message: a marker and the length."""

    def __init__(self) -> None:
        self.out = bytearray(_BEFORE)

    def at(self) -> int:
        return len(self.out) - _BEFORE

    def align(self, size: int, behind: int = 0) -> None:
        """What comes so many bytes behind begins at a multiple of a size."""
        self.out.extend(bytes(-(self.at() + behind) % size))

    def point(self, where: int) -> None:
        """The offset that stands there leads here."""
        _WORD.pack_into(self.out, _BEFORE + where, self.at() - where)

    def text(self, value: str) -> int:
        """Puts a text; returns where its bytes are."""
        self.out += _WORD.pack(len(value))
        where = len(self.out)
        self.out += value.encode() + b"\0"
        return where


class _Form:
    """The flatbuffer of a `Message` with a `RecordBatch`, for metadata of these keys; the last value has any length.

    It has tables first, then vectors, then texts.
    """

    def __init__(self, values: dict[str, str]) -> None:
        self._names = list(values)
        made = _Flatbuffer()
        out = made.out
        out += _WORD.pack(0)
        made.align(2)
        message_vtable = made.at()
        # version, header_type, header, bodyLength, custom_metadata
        out += struct.pack("<7H", 14, 32, 4, 6, 8, 16, 24)
        made.align(8)
        made.point(0)
        message = made.at()
        numbers = (message - message_vtable, _VERSION, _RECORD_BATCH, 0, 0, 0)
        out += struct.pack("<iHBxI4xqI4x", *numbers)
        self.body_length = _BEFORE + message + 16
        batch_vtable = made.at()
        # length, nodes, buffers
        out += struct.pack("<5H", 10, 24, 8, 4, 16)
        made.align(8)
        made.point(message + 8)
        batch = made.at()
        out += struct.pack("<iIqI4x", batch - batch_vtable, 0, 0, 0)
        self.length = _BEFORE + batch + 8
        made.align(8, 4)
        made.point(batch + 4)
        out += _WORD.pack(_NODES)
        self.nodes = len(out)
        out += bytes(_FIELDS.size)
        made.align(8, 4)
        made.point(batch + 16)
        out += _WORD.pack(_BUFFERS)
        self.buffers = len(out)
        out += bytes(_PLACES.size)
        made.point(message + 24)
        #: Where each value but the last stands.
        self.values = self._put_metadata(made, values)
        self._fixed = bytes(out)

    def _put_metadata(self, made: _Flatbuffer, values: dict[str, str]) -> list[int]:
        out = made.out
        out += _WORD.pack(len(values))
        slots = made.at()
        out += bytes(4 * len(values))
        vtable = made.at()
        out += struct.pack("<4H", 8, 12, 4, 8)
        pairs = []
        for number in range(len(values)):
            made.point(slots + 4 * number)
            pairs.append(made.at())
            out += struct.pack("<iII", made.at() - vtable, 0, 0)
        places = []
        for pair, (name, value) in zip(pairs, values.items(), strict=True):
            made.align(4)
            made.point(pair + 4)
            made.text(name)
            made.align(4)
            made.point(pair + 8)
            if name != self._names[-1]:
                places.append(made.text(value))
        return places

    def fill(self, count: int, places: list[int], size: int, values: dict[str, str]) -> bytearray:
        """The head of a message, with these numbers and values in it."""
        head = bytearray(self._fixed)
        _LENGTH.pack_into(head, self.body_length, size)
        _LENGTH.pack_into(head, self.length, count)
        # Eight columns of so many rows without nulls; the fields within headers have none.
        _FIELDS.pack_into(head, self.nodes, *((count, 0) * 8), 0, 0, 0, 0, 0, 0)
        _PLACES.pack_into(head, self.buffers, *places)
        for where, name in zip(self.values, self._names, strict=False):
            value = values[name].encode()
            head[where : where + len(value)] = value
        last = values[self._names[-1]].encode()
        head += _WORD.pack(len(last)) + last + b"\0"
        head += bytes(-len(head) % 8)
        head[:8] = b"\xff\xff\xff\xff" + _WORD.pack(len(head) - 8)
        return head


#: By the keys of the metadata.
_FORMS: Final[dict[tuple[str, ...], _Form]] = {}
