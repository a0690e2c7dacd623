"""Runs queries, each in a process of its own, and tells it where rows lie. Calls block: not for the event loop."""

import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa
from pyarrow import ipc

from vmq.streams.catalog import Catalog, Stream
from vmq.streams.far import locate
from vmq.streams.helper import HelperProcess, SpareProcess
from vmq.streams.log.columns import as_stream
from vmq.streams.log.cursor import PartitionLog
from vmq.streams.log.errors import OutOfRangeError, PassingError, StreamError
from vmq.streams.log.schema import STORED
from vmq.streams.logs import LogsAnywhere, RowLogs
from vmq.streams.places import PageQuery
from vmq.streams.sql.talk import (
    ASK,
    ASK_FORM,
    DATA,
    END,
    FAIL,
    HEAD,
    LOCATED,
    LONGEST,
    READY,
    ROWS,
    SqlAsk,
    SqlOrders,
    SqlPartition,
    SqlRows,
    SqlStream,
    too_much_memory,
)

COMMAND: Final = (sys.executable, "-P", "-m", "vmq.streams.sql.process")
#: Queries at a time, and seconds that one waits for its turn.
MOST: Final = 2
TURN: Final = 5.0
#: Bytes of a query; of what DuckDB may have; rows and bytes of a result; seconds.
LONGEST_QUERY: Final = 65_536
MEMORY: Final = 512 << 20
_RESULT_ROWS: Final = 1_000_000
_RESULT_BYTES: Final = 64 << 20
SECONDS: Final = 60.0
#: Seconds after the last query in which a process is there for the next one.
IDLE: Final = 900.0
_PATIENCE: Final = 3.0
_PAGE_ROWS: Final = 16_384
_PAGE_BYTES: Final = 1 << 20


class SqlError(StreamError):
    """A query cannot be answered; the text says why."""


class SqlSource(NamedTuple):
    """A stream that a query may read: its partitions wherever they are, and those of this process."""

    name: str
    schema: Mapping[str, str]
    logs: RowLogs
    partitions: Sequence[PartitionLog]


class SqlRunner:
    """Runs queries. `close` it.

    Args:
        seconds: that a query may take.
        command: what is run for each.
        memory: bytes of what DuckDB may have.
    """

    def __init__(
        self, seconds: float = SECONDS, command: Sequence[str] = COMMAND, memory: int = MEMORY
    ) -> None:
        self.seconds = seconds
        self.memory = memory
        self.spare = SpareProcess(command, IDLE)
        #: Processes end, and others start, while whoever asked has the answer already.
        self.changes = ThreadPoolExecutor(1, "vmq-sql-spare")
        self.turns = threading.Semaphore(MOST)
        self.is_over = False
        self.queries = 0
        self.refused = 0

    def run(self, query: str, sources: Sequence[SqlSource], *, describe: bool = False) -> pa.Table:
        """The result of a query on those streams. `describe`: its columns, without a row.

        Raises:
            SqlError: it is no query, or one that takes too much; or rows cannot be read.
            PassingError: others are at it.
        """
        if len(query.encode()) > LONGEST_QUERY:
            raise SqlError(f"a query has at most {LONGEST_QUERY} bytes")
        if not self.turns.acquire(timeout=TURN):
            raise PassingError(f"{MOST} queries run already; try again")
        try:
            self.queries += 1
            return self._run(query, sources, describe)
        except SqlError:
            self.refused += 1
            raise
        finally:
            self.turns.release()

    def _run(self, query: str, sources: Sequence[SqlSource], describe: bool) -> pa.Table:
        until = time.monotonic() + self.seconds
        process = None
        try:
            process = self.spare.take()  # which loads its libraries while this looks what there is
            orders = SqlOrders(
                query=query,
                streams=[seen(each) for each in sources],
                memory=self.memory,
                threads=1,
                rows=_RESULT_ROWS,
                size=_RESULT_BYTES,
                describe=describe,
            )
            process.write(msgspec.json.encode(orders) + b"\n", until)
            return self._talk(process, until, sources)
        except TimeoutError:
            raise SqlError(
                f"the query took more than {self.seconds:g} s, which limits.max_query_seconds allows"
            ) from None
        except (OSError, EOFError) as error:
            raise SqlError(
                f"{too_much_memory(self.memory)}; or its process was ended: {error}"
            ) from None
        finally:
            self._change(process)

    def _change(self, process: HelperProcess | None) -> None:
        """Has a process end, and another one wait for the next query."""
        if process is not None:
            process.kill()
        try:
            self.changes.submit(self._changed, process)
        except RuntimeError:  # it is closed
            self._changed(process)

    def _changed(self, process: HelperProcess | None) -> None:
        if process is not None:
            process.end()
        if not self.is_over:
            self.spare.refill()

    def close(self) -> None:
        """Answers nothing more."""
        self.is_over = True
        self.changes.shutdown()
        self.spare.close()

    def _talk(self, process: HelperProcess, until: float, sources: Sequence[SqlSource]) -> pa.Table:
        """Answers the process until it has the result."""
        found: pa.Table | None = None
        while not self.is_over:
            kind, length = HEAD.unpack(process.read(HEAD.size, until))
            if length > 2 * LONGEST:
                break
            data = process.read(length, until)
            if kind == READY:
                continue
            if kind == ASK:
                asked = ASK_FORM.decode(data)
                answer = answer_to(asked, sources[asked.stream])
                process.write(HEAD.pack(answer[0], len(answer[1])) + answer[1], until)
            elif kind == DATA:
                with ipc.open_stream(data) as reader:
                    found = reader.read_all()
            elif kind == END and found is not None:
                return found
            elif kind == FAIL:
                raise SqlError(data.decode(errors="replace"))
            else:
                break
        raise SqlError("the broker ends" if self.is_over else "the query's process is confused")


def sources_of(catalog: Catalog, may_read: Callable[[Stream], bool]) -> list[SqlSource]:
    """The streams of a broker that may be read."""
    return [
        SqlSource(name, each.options.schema, LogsAnywhere(each, catalog.places), each.partitions)
        for name, each in sorted(catalog.streams.items())
        if may_read(each)
    ]


def answer_to(asked: SqlAsk, source: SqlSource) -> tuple[bytes, bytes]:
    """Where rows lie, or the rows."""
    logs, number = source.logs, asked.partition
    try:
        if logs.owner(number):
            wanted = PageQuery(asked.offset, 1 << 62, _PAGE_ROWS, _PAGE_BYTES)
            page = logs.rows(number, wanted, (*STORED.names, "offset"))
            found = SqlRows(page.next, as_stream(page.rows).to_pybytes())
            return ROWS, msgspec.msgpack.encode(found)
        partition = source.partitions[number]
        return LOCATED, msgspec.json.encode(locate(partition, asked.offset, partition.end))
    except OutOfRangeError as error:
        return FAIL, f"{error}: retention was faster than the query; try again".encode()
    except StreamError as error:
        return FAIL, str(error).encode()[:4096]


def seen(source: SqlSource) -> SqlStream:
    """A stream as a query sees it: what is committed now."""
    logs = source.logs
    numbers = range(logs.count())
    spans = logs.spans(numbers, _PATIENCE)
    missing = [str(number) for number in numbers if number not in spans]
    if missing:
        raise PassingError(
            f"partition {', '.join(missing)} of stream {source.name!r} does not answer: try again"
        )
    partitions = [
        SqlPartition(number, span.earliest, span.end, bool(logs.owner(number)))
        for number, span in sorted(spans.items())
    ]
    return SqlStream(source.name, dict(source.schema), partitions)
