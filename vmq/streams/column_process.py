"""The process that makes what lies beside segments: `python -m vmq.streams.column_process`.

Reading values out of payloads takes the interpreter for a microsecond or two a row, which is the event loop's in a
broker. It hears lines of JSON (`ColumnOrder`) and answers each with one byte.
"""

import logging
import os
import sys
from pathlib import Path
from typing import Final

import msgspec

from vmq.streams.helper import until_nobody_asks
from vmq.streams.log.column_file import make
from vmq.streams.log.errors import StreamError
from vmq.streams.log.ordered import making
from vmq.streams.log.segment import Header, Sealed

#: The file is there; there is none, since the segment is not there any more, or not what was written.
MADE: Final = b"+"
NOT_MADE: Final = b"-"
#: There is none, for a reason that nobody expected.
FAILED: Final = b"!"
NICENESS: Final = 10

log = logging.getLogger("vmq.streams")


class ColumnOrder(msgspec.Struct, frozen=True):
    """The segment that is wanted, and where its columns are to lie, or its rows by topic, if there is no schema."""

    stream: str
    partition: int
    path: str
    base: int
    end: int
    size: int
    target: str
    schema: dict[str, str] | None


def carry_out(order: ColumnOrder) -> bytes:
    """Makes one file."""
    path = Path(order.path)
    sealed = Sealed(path, order.base, order.end, order.size, 0, 0, True)
    try:
        if path.stat().st_size != order.size:
            return NOT_MADE
        header, target = Header(order.stream, order.partition), Path(order.target)
        if order.schema is None:
            making.make(header, sealed, target)
        else:
            make(header, sealed, order.schema, target)
    except FileNotFoundError:
        return NOT_MADE  # the retention was faster
    except (StreamError, OSError) as error:
        log.warning("nothing lies beside %s: %s", path, error)
        return NOT_MADE
    except Exception:
        log.exception("nothing lies beside %s", path)
        return FAILED
    return MADE


def main() -> None:
    """The process."""
    os.nice(NICENESS)
    with until_nobody_asks():
        for line in sys.stdin.buffer:
            answer = carry_out(msgspec.json.decode(line, type=ColumnOrder))
            os.write(sys.stdout.fileno(), answer)


if __name__ == "__main__":
    main()
