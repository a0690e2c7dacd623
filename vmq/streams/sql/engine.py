"""What the process of one query does (`vmq.streams.sql.process`).

DuckDB sees the streams that its orders name, and nothing else: no file, variable, network or other extension. What
lies in segments is read here, by the answers of the broker, which says where; nothing that is not committed is in them.
"""

import os
import re
import resource
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

import duckdb
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyarrow import fs, ipc

from vmq.config.columns import read_columns
from vmq.streams.far import LOCATED_FORM, FarCursor, FarLog, Located
from vmq.streams.helper import until_nobody_asks
from vmq.streams.log.column_file import PLAIN, ColumnFile, path_of
from vmq.streams.log.columns import Projection, as_ipc
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.errors import StreamError
from vmq.streams.log.frame import END as END_MARK
from vmq.streams.log.schema import projected
from vmq.streams.log.typed import typed_schema
from vmq.streams.sql.talk import (
    ASK,
    DATA,
    END,
    FAIL,
    HEAD,
    READY,
    ROWS_FORM,
    SqlAsk,
    SqlOrders,
    SqlPartition,
    SqlStream,
    too_much_memory,
)

#: Address space beside what DuckDB may have.
_MEMORY: Final = 3 << 30
#: Topics that a scan looks at one by one.
_MOST_TOPICS: Final = 8192
#: Rows of one frame of the result.
_ROWS: Final = 16_384
#: A name that is none of a stream, with another one that DuckDB proposes.
_NO_TABLE: Final = re.compile(
    r"\ACatalog Error: Table with name (.+) does not exist!(\nDid you mean [^\n]*)?"
)
#: Advice to change a setting.
_SET: Final = re.compile(r' Use "SET [a-z_]+[^\n]*')
#: DuckDB speaks of bytes, or shows them in its own spelling.
_OF_BYTES: Final = re.compile(r"\bBLOB\b|\\x[0-9A-F]{2}")
#: The column of that name where a value is expected.
_OFFSET: Final = re.compile(r"(\b(select|by|where|and|or)|[,(=<>])\s*offset\b", re.IGNORECASE)
_LOCKED: Final = (
    "set enable_external_access = false",
    "set python_enable_replacements = false",
    "set autoinstall_known_extensions = false",
    "set autoload_known_extensions = false",
    "set allow_community_extensions = false",
    "set TimeZone = 'UTC'",
    "set lock_configuration = true",
)


class AskingBroker:
    """The other end of the pipes. Scans of one query ask side by side, each in a thread of Arrow's."""

    def __init__(self, source: BinaryIO, sink: BinaryIO) -> None:
        self.source = source
        self.sink = sink
        #: Held from a question to its answer: answers come in the order of the questions, and say not whose they are.
        self._turn = threading.Lock()

    def say(self, kind: bytes, data: bytes) -> None:
        """Sends one frame; a scan that nobody wants any more may have a question under way."""
        with self._turn:
            self._send(kind, data)

    def _send(self, kind: bytes, data: bytes) -> None:
        self.sink.write(HEAD.pack(kind, len(data)) + data)
        self.sink.flush()

    def ask(self, asked: SqlAsk) -> tuple[bytes, bytes]:
        """Asks, and waits for the answer.

        Raises:
            StreamError: there is none.
        """
        with self._turn:
            self._send(ASK, msgspec.json.encode(asked))
            kind, length = HEAD.unpack(self.source.read(HEAD.size))
            data = self.source.read(length)
        if kind == FAIL:
            raise StreamError(data.decode())
        return kind, data


class TopicVerdicts:
    """Whether rows of a topic may meet a condition that DuckDB pushes down, in whatever columns.

    Arrow finds that out as it does for files of a partitioned table, of which each has one topic. It takes some
    20 microseconds a topic, so it is asked once, and not of more than `_MOST_TOPICS`.
    """

    def __init__(self, condition: Any, schema: pa.Schema) -> None:
        self._condition = condition
        self._schema = schema
        self._known: dict[str, bool] = {}

    def __call__(self, topics: pa.StringArray) -> pa.BooleanArray:
        names = topics.to_pylist()
        fresh = [each for each in names if each not in self._known]
        if len(fresh) + len(self._known) > _MOST_TOPICS:
            return pa.repeat(pa.scalar(value=True), len(names))
        form, files = ds.ParquetFileFormat(), fs.LocalFileSystem()
        fragments = [  # which nobody opens
            form.make_fragment(str(number), files, pc.field("topic") == each)
            for number, each in enumerate(fresh)
        ]
        table = ds.FileSystemDataset(fragments, self._schema, form, files)
        kept = {int(each.path) for each in table.get_fragments(filter=self._condition)}
        self._known.update((each, number in kept) for number, each in enumerate(fresh))
        return pa.array([self._known[each] for each in names], pa.bool_())


class StreamTable(ds.Dataset):  # type: ignore[misc]
    """A stream as DuckDB scans it: the columns that a query needs, as often as it needs them.

    Args:
        number: of the stream in the orders.
        stream: the stream.
        broker: says where its rows lie.
    """

    def __init__(self, number: int, stream: SqlStream, broker: AskingBroker) -> None:
        self._number = number
        self._stream = stream
        self._broker = broker
        self._typed = read_columns(stream.schema)
        self._schema = as_dictionaries(projected(None, typed_schema(self._typed)))

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return self._schema

    def scanner(
        self,
        columns: Sequence[str] | None = None,
        filter: Any = None,  # noqa: A002 - so it is called
        **_: Any,
    ) -> ds.Scanner:
        """A scan; what is filtered by is read, too."""
        wanted = list(self._schema.names) if columns is None else list(columns)
        needed = list(wanted)
        if filter is not None:
            text = str(filter)
            needed += [name for name in self._schema.names if name not in wanted and name in text]
        needed = needed or ["retain"]
        schema = pa.schema([self._schema.field(name) for name in needed])
        return ds.Scanner.from_batches(
            self._batches(needed, filter), schema=schema, columns=wanted, filter=filter
        )

    def _batches(self, columns: Sequence[str], condition: Any) -> Iterator[pa.RecordBatch]:
        for partition in self._stream.partitions:
            if partition.is_far:
                yield from self._far(partition, columns)
            elif partition.end > partition.earliest:
                yield from self._near(partition, columns, condition)

    def _near(
        self, partition: SqlPartition, columns: Sequence[str], condition: Any
    ) -> Iterator[pa.RecordBatch]:
        """By the columns beside a segment, where they are and suffice; what is left by the segments themselves."""

        def ask(offset: int) -> Located:
            _, data = self._broker.ask(SqlAsk(self._number, partition.number, offset))
            return LOCATED_FORM.decode(data)

        suffices = set(columns) <= {
            *PLAIN,
            "stream",
            "partition",
            *(each.name for each in self._typed),
        }
        verdicts = TopicVerdicts(condition, projected(None, typed_schema(self._typed)))
        at = partition.earliest
        while at < partition.end:
            found = ask(at)
            end = partition.end
            spot = found.spot
            if suffices and spot is not None:
                end = min(end, spot.last)
                size, schema = spot.limit + len(END_MARK), self._stream.schema
                path = path_of(Path(spot.path), size, spot.inode, schema)
                with suppress(FileNotFoundError):
                    is_whole = (at, end) == (int(Path(spot.path).stem), spot.last)
                    span = None if is_whole else (at, end)
                    yield from self._beside(path, partition.number, columns, condition, span)
                    at = end
                    continue
            log = FarLog(self._stream.name, partition.number, found, ask)
            log.end = max(log.end, end)
            reader = LogReader(log, columns, None, FarCursor, self._typed)
            if "topic" in str(condition):
                reader.projection.spare(verdicts)
            for chunk in reader.read(at, end):
                yield self._told(chunk.rows)
            at = end

    def _told(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Rows as DuckDB is told that they are."""
        fields = [self._schema.field(name) for name in rows.schema.names]
        arrays = [
            column.dictionary_encode()
            if pa.types.is_dictionary(field.type) and not pa.types.is_dictionary(column.type)
            else column
            for column, field in zip(rows.columns, fields, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))

    def _beside(
        self,
        path: Path,
        number: int,
        columns: Sequence[str],
        condition: Any,
        span: tuple[int, int] | None,
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a segment by the columns beside it, or those from one offset up to another.

        Raises:
            FileNotFoundError: there are none.
            StreamError: they are damaged.
        """
        given = {"stream": pa.scalar(self._stream.name), "partition": pa.scalar(number, pa.int32())}
        kept = [each for each in columns if each not in given]
        pushed = None if any(name in str(condition) for name in given) else condition
        try:
            with closing(ColumnFile(path)) as file:
                for rows in file.batches(kept, pushed, span):
                    arrays = [
                        pa.repeat(given[name], rows.num_rows)
                        if name in given
                        else rows.column(name)
                        for name in columns
                    ]
                    yield self._told(pa.RecordBatch.from_arrays(arrays, names=list(columns)))
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            path.unlink(missing_ok=True)
            raise StreamError(
                f"{path} is damaged ({error}): it was deleted, the segment has it all; try again"
            ) from None

    def _far(self, partition: SqlPartition, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        projection = Projection(columns, None, self._typed)
        at = partition.earliest
        while at < partition.end:
            _, data = self._broker.ask(SqlAsk(self._number, partition.number, at))
            found = ROWS_FORM.decode(data)
            with ipc.open_stream(found.rows) as stream:
                rows = stream.read_all().combine_chunks().to_batches()
            for each in rows:
                if not each.num_rows:
                    continue
                names = self._stream.name, partition.number
                found_rows, _ = projection.apply(each, *names, 0)  # they bring their offsets
                yield self._told(found_rows)
            if found.next <= at:
                break
            at = found.next


def as_dictionaries(schema: pa.Schema) -> pa.Schema:
    """A schema whose texts are dictionaries: they repeat, and DuckDB groups by the numbers of what is in them."""
    return pa.schema(
        [
            each.with_type(pa.dictionary(pa.int32(), pa.string()))
            if each.type == pa.string()
            else each
            for each in schema
        ]
    )


def connect(orders: SqlOrders, broker: AskingBroker) -> "duckdb.DuckDBPyConnection":
    """DuckDB with the streams, and locked."""
    connection = duckdb.connect(
        ":memory:",
        config={
            "memory_limit": f"{orders.memory}B",
            "threads": orders.threads,
            "temp_directory": "",
            "max_temp_directory_size": "0B",
        },
    )
    # So that a stream has the names that it has in Spark, and that tools put together: vmq.NAME, vmq.main.NAME.
    connection.execute("attach ':memory:' as vmq")
    connection.execute("use vmq")
    for number, stream in enumerate(orders.streams):
        # Not by `register`, which makes a view of the catalog temp: tools would find each stream twice.
        connection.from_arrow(StreamTable(number, stream, broker)).create_view(stream.name)
    for each in _LOCKED:
        connection.execute(each)
    return connection


def run(orders: SqlOrders, broker: AskingBroker) -> None:
    """Answers the query.

    Raises:
        ValueError: it is not one query that reads, or its result is too large.
        duckdb.Error: DuckDB refuses.
        StreamError: rows cannot be read.
    """
    connection = connect(orders, broker)
    statements = connection.extract_statements(orders.query)
    if len(statements) != 1 or statements[0].type not in {
        duckdb.StatementType.SELECT,
        duckdb.StatementType.EXPLAIN,
    }:
        raise ValueError(
            "accepted: one statement that reads, as select, from, with, describe, show or explain"
        )
    if orders.describe:
        described = columns_of(connection.sql(orders.query))
        broker.say(DATA, as_ipc(described.empty_table()))
        return
    result: Any = connection.execute(statements[0])
    reader = result.to_arrow_reader(_ROWS)
    sink = pa.BufferOutputStream()
    rows = size = 0
    with ipc.new_stream(sink, reader.schema) as writer:
        for batch in reader:
            rows += batch.num_rows
            size += batch.nbytes
            if rows > orders.rows or size > orders.size:
                raise ValueError(
                    f"the result has more than {orders.rows} rows or {orders.size >> 20} MiB; "
                    "add a limit, or an aggregate"
                )
            writer.write_batch(batch)
    broker.say(DATA, sink.getvalue().to_pybytes())


def columns_of(relation: Any) -> pa.Schema:
    """The columns of a query, as its result has them: those of a part of it have other names where two are alike."""
    schema = relation.limit(0).to_arrow_reader(1).schema
    fields = zip(schema, relation.columns, strict=True)
    return pa.schema([field.with_name(name) for field, name in fields])


def reason_of(error: Exception, orders: SqlOrders) -> str:
    """What goes wrong, without what DuckDB advises: its settings are locked, its own tables are of no interest."""
    text = str(error)
    if "Out of Memory Error" in text or isinstance(error, duckdb.OutOfMemoryException):
        return too_much_memory(orders.memory)
    there = ", ".join([each.name for each in orders.streams][:20]) or "none"
    text = _NO_TABLE.sub(lambda found: f"there is no stream {found[1]!r}; there are: {there}", text)
    # DuckDB hands on the traceback of what reads for it: whoever asks has its reason.
    text = text.partition(". Detail: Python exception:")[0]
    lines = (line for line in _SET.sub("", text).splitlines() if line.strip())
    return "\n".join([*lines, *_hints(text, orders.query)])


def _hints(text: str, query: str) -> Iterator[str]:
    """What DuckDB's words do not tell of two of our columns."""
    if _OF_BYTES.search(text) and "payload" in query:
        yield "payload is bytes: decode(payload) is its text, decode(payload)::json->>'NAME' a member of it"
    if "Parser Error" in text and _OFFSET.search(query):
        yield 'OFFSET is a word of SQL: the column is "offset", in quotes'


def main() -> None:
    """Serves one query, in its process."""
    os.nice(10)
    warnings.simplefilter("ignore")  # a copy more of a result that has limits
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    broker = AskingBroker(sys.stdin.buffer, sys.stdout.buffer)
    with until_nobody_asks():
        broker.say(READY, b"")
        line = broker.source.readline()
        if line:
            _serve(msgspec.json.decode(line, type=SqlOrders), broker)


def _serve(orders: SqlOrders, broker: AskingBroker) -> None:
    limit = orders.memory + _MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        run(orders, broker)
    except MemoryError:
        broker.say(FAIL, too_much_memory(orders.memory).encode())
    except (ValueError, StreamError, duckdb.Error, pa.ArrowException) as error:
        broker.say(FAIL, reason_of(error, orders).encode()[:4096])
    else:
        broker.say(END, b"")
