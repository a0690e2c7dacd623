"""The last hour of the broker's figures, a row a second, in a fixed amount of memory."""

import sys
from array import array
from collections.abc import Sequence
from typing import Final

import msgspec

#: Rows that are kept: an hour of seconds.
ROWS: Final = 3600


class History:
    """A ring of rows; each is a time and a value a name.

    Values are kept as 32-bit floats: seven digits, which a chart does not exhaust. With 24 names that is 360 KB.
    """

    def __init__(self, names: Sequence[str], rows: int = ROWS) -> None:
        self.names = tuple(names)
        self.rows = rows
        self._times = array("I")
        self._columns = [array("f") for _ in self.names]
        #: Where the next row goes once the ring is full.
        self._next = 0

    def __len__(self) -> int:
        return len(self._times)

    @property
    def nbytes(self) -> int:
        """Bytes that the rows take."""
        values = sum(each.itemsize * len(each) for each in self._columns)
        return self._times.itemsize * len(self._times) + values

    def add(self, when: int, values: Sequence[float]) -> None:
        """Takes a row, in place of the oldest if there is no more room.

        Args:
            when: seconds since 1970.
            values: one a name.
        """
        if len(self._times) < self.rows:
            self._times.append(when)
            for column, value in zip(self._columns, values, strict=True):
                column.append(value)
            return
        place = self._next
        self._times[place] = when
        for column, value in zip(self._columns, values, strict=True):
            column[place] = value
        self._next = (place + 1) % self.rows

    def encoded(self) -> bytes:
        """All rows, the oldest first.

        Little-endian: the length of a JSON text and that text (`names`, `rows`), padded to a multiple of four; the
        times as 32-bit integers; then each column as 32-bit floats.
        """
        head = msgspec.json.encode({"names": self.names, "rows": len(self)})
        head += b" " * (-len(head) % 4)
        parts = [len(head).to_bytes(4, "little"), head]
        parts.append(self._in_order(self._times))
        parts += [self._in_order(each) for each in self._columns]
        return b"".join(parts)

    def _in_order(self, column: "array[int] | array[float]") -> bytes:
        turned = column[self._next :] + column[: self._next]  # type: ignore[operator]  # the same kind
        if sys.byteorder == "big":
            turned.byteswap()
        return bytes(turned.tobytes())
