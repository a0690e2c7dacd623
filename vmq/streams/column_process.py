"""The process that makes the column files of segments: `python -m vmq.streams.column_process`.

Reading values out of payloads takes the interpreter for a microsecond or two a row, which is the event loop's in a
broker. It hears lines of JSON (`ColumnOrder`) and answers each with one byte.
"""

import logging
import os
import sys
from pathlib import Path
from typing import Final

import msgspec

from vmq.streams.log.column_file import make
from vmq.streams.log.errors import StreamError
from vmq.streams.log.segment import Header, Sealed

#: The file is there; there is none, since the segment is not there any more, or not what was written.
MADE: Final = b"+"
NOT_MADE: Final = b"-"
NICENESS: Final = 10

log = logging.getLogger("vmq.streams")


class ColumnOrder(msgspec.Struct, frozen=True):
    """The segment that is wanted, and where its columns are to lie."""

    stream: str
    partition: int
    path: str
    base: int
    end: int
    size: int
    schema: dict[str, str]
    target: str


def carry_out(order: ColumnOrder) -> bytes:
    """Makes one file."""
    path = Path(order.path)
    sealed = Sealed(path, order.base, order.end, order.size, 0, 0, True)
    try:
        if path.stat().st_size != order.size:
            return NOT_MADE
        make(Header(order.stream, order.partition), sealed, order.schema, Path(order.target))
    except FileNotFoundError:
        return NOT_MADE  # the retention was faster
    except (StreamError, OSError) as error:
        log.warning("%s has no columns beside it: %s", path, error)
        return NOT_MADE
    return MADE


def main() -> None:
    """The process."""
    os.nice(NICENESS)
    for line in sys.stdin.buffer:
        answer = carry_out(msgspec.json.decode(line, type=ColumnOrder))
        os.write(sys.stdout.fileno(), answer)


if __name__ == "__main__":
    main()
