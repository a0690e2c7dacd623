"""What a broker and the process of a query say to each other, by its pipes: a kind, a length, and so many bytes."""

import struct
from typing import Final

import msgspec

HEAD: Final = struct.Struct(">cI")
#: From the process: it can take its orders; where do rows lie; a part of the result, an Arrow IPC stream; it is whole;
#: there is none.
READY: Final = b"Y"
ASK: Final = b"A"
DATA: Final = b"D"
END: Final = b"E"
FAIL: Final = b"F"
#: From the broker: where they lie; rows, an Arrow IPC stream; they cannot be had.
LOCATED: Final = b"L"
ROWS: Final = b"R"
#: A frame of the process is not longer.
LONGEST: Final = 64 << 20


class SqlPartition(msgspec.Struct, frozen=True):
    """A partition, as far as a query sees it: offsets from `earliest` up to `end`. `is_far`: another node has it."""

    number: int
    earliest: int
    end: int
    is_far: bool = False


class SqlStream(msgspec.Struct, frozen=True):
    """A stream that a query may read."""

    name: str
    schema: dict[str, str]
    partitions: list[SqlPartition]


class SqlOrders(msgspec.Struct, frozen=True, kw_only=True):
    """What the process is to do; its first line.

    `memory`: bytes of DuckDB. `rows` and `size`: of the result, at most. `describe`: only its columns are wanted.
    """

    query: str
    streams: list[SqlStream]
    memory: int
    threads: int
    rows: int
    size: int
    describe: bool = False


class SqlAsk(msgspec.Struct, frozen=True):
    """Where rows of a partition lie from an offset on; of one that another node has, the rows themselves."""

    stream: int
    partition: int
    offset: int


class SqlRows(msgspec.Struct, frozen=True):
    """Rows of a partition of another node: an Arrow IPC stream of the stored columns, and where to go on."""

    next: int
    rows: bytes


def too_much_memory(memory: int) -> str:
    """Why a query was ended that needs more than it may have, and what can be done."""
    return (
        f"the query takes more than {memory >> 20} MiB of memory: ask for fewer columns, rows or groups, "
        "or give queries more by limits.max_query_memory"
    )


#: Made once, when nobody else does: two threads at once that have msgspec learn a form crash.
ASK_FORM: Final = msgspec.json.Decoder(SqlAsk)
ROWS_FORM: Final = msgspec.msgpack.Decoder(SqlRows)
