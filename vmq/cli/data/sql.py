"""`vmq sql`: a query on streams, of a running broker or of a data folder."""

import csv
import json
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from vmq.cli.admin.client import AdminClient
from vmq.cli.data.stored_streams import configured, stored_streams
from vmq.cli.terminal.console import CliError, UsageError, is_terminal, nobody_reads, table
from vmq.cli.terminal.rows import clean, json_text
from vmq.cli.terminal.settings import ConfigOption, DataDirOption

if TYPE_CHECKING:
    import pyarrow as pa


def sql(
    query: Annotated[
        str, typer.Argument(metavar="QUERY", help="A select; streams are its tables.")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="A JSON object a row.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV with a header.")] = False,
    parquet: Annotated[
        Path | None, typer.Option("--parquet", metavar="FILE", help="Write a Parquet file.")
    ] = None,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> int:
    """Ask streams in SQL, as DuckDB has it.

    A stream is a table of its name, with the columns topic, payload, qos, retain,
    timestamp, client_id, key, headers, stream, partition, "offset" (in quotes:
    it is a word of SQL) and its typed ones. payload is bytes, decode(payload) its
    text. In JSON a number that is NaN or infinite is null, and an interval a text
    of ISO 8601 (P1DT7200S). Works on a running broker, and on the data folder of
    one that is stopped. It reads only; a query has a minute, half a GiB of memory
    (or what limits.max_query_seconds and max_query_memory say), and a million
    rows to answer.

    \b
    Examples:
      vmq sql "select topic, count(*) from sensors group by topic"
      vmq sql "select device, avg(temp) from sensors
               where timestamp > now() - interval 1 hour group by device"
      vmq sql "select topic, decode(payload)::json->>'temp' from sensors"
      vmq sql "from sensors limit 10" --json
      vmq sql "select * from sensors" --parquet sensors.parquet
    """
    if sum((as_json, as_csv, parquet is not None)) > 1:
        raise UsageError("--json, --csv and --parquet: one of them")
    broker = AdminClient(config, data_dir)
    broker.timeout = configured(config, data_dir).limits.max_query_seconds + 30.0
    if broker.finds_broker():
        found = opened(broker.fetch("/sql", query.encode()))
    else:
        with of_folder(config, data_dir) as run:
            found = run(query)
    try:
        if parquet is not None:
            write_parquet(found, parquet)
        elif as_json:
            write_json(found)
        elif as_csv:
            write_csv(found)
        else:
            show(found)
        sys.stdout.flush()
    except BrokenPipeError:
        return nobody_reads()
    return 0


def opened(stream: bytes) -> "pa.Table":
    """The table that a broker answers with."""
    try:
        from pyarrow import ipc
    except ImportError as error:
        raise CliError(f"this needs more libraries ({error}): pip install 'vmq[streams]'") from None
    with ipc.open_stream(stream) as reader:
        return reader.read_all()


@contextmanager
def of_folder(config: Path | None, data_dir: str | None) -> Iterator[Any]:
    """What runs queries on the data folder of a broker that does not run."""
    with stored_streams(config, data_dir) as folder:
        from vmq.streams.logs import LogsHere
        from vmq.streams.resting import RestingLog
        from vmq.streams.sql.running import SqlRunner, SqlSource
        from vmq.streams.stored import StoredStream, names

        sources = []
        for name in names(folder):
            stored = StoredStream(folder, name)
            logs = [RestingLog(each) for each in stored.partitions]
            sources.append(SqlSource(name, stored.options.schema, LogsHere(logs), logs))
        limits = configured(config, data_dir).limits
        runner = SqlRunner(limits.max_query_seconds, memory=limits.max_query_memory)
        with closing(runner):
            yield lambda query: runner.run(query, sources)


def plain(value: Any) -> Any:
    """A value as JSON and CSV have it: bytes as text where they are one, else in hexadecimal behind 0x."""
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return "0x" + value.hex()
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if hasattr(value, "nanoseconds") and hasattr(value, "months"):
        return interval(value.months, value.days, value.nanoseconds)
    if isinstance(value, list | tuple):  # an entry of a map is a tuple
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def interval(months: int, days: int, nanoseconds: int) -> str:
    """An interval as ISO 8601 has it; its parts do not add up, as days and months differ in length."""
    whole, rest = divmod(abs(nanoseconds), 1_000_000_000)
    sign = "-" if nanoseconds < 0 else ""
    seconds = f"{sign}{whole}.{rest:09}".rstrip("0").rstrip(".")
    parts = [f"{months}M" if months else "", f"{days}D" if days else ""]
    if nanoseconds or not any(parts):
        parts.append(f"T{seconds}S")
    return "P" + "".join(parts)


def finite(value: Any) -> Any:
    """A plain value as JSON can have it, which knows neither NaN nor infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, list):
        return [finite(each) for each in value]
    if isinstance(value, dict):
        return {name: finite(each) for name, each in value.items()}
    return value


def rows_of(found: "pa.Table") -> Iterator[list[Any]]:
    """The rows, a part of them at a time."""
    for batch in found.to_batches(max_chunksize=4096):
        columns = [values_of(column) for column in batch.columns]
        for values in zip(*columns, strict=True):
            yield [plain(value) for value in values]


def values_of(column: "pa.Array") -> list[Any]:
    """The values of a column; times that Python has no room for as Arrow writes them."""
    import pyarrow as pa

    try:
        found: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        found = column.cast(pa.string()).to_pylist()
    return found


def write_json(found: "pa.Table") -> None:
    """A JSON object a row."""
    names = found.schema.names
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(
            f"two columns are called {twice[0]!r}, and an object has one: name one with AS"
        )
    for row in rows_of(found):
        print(json_text(dict(zip(names, finite(row), strict=True))))


def write_csv(found: "pa.Table") -> None:
    """CSV with a header; exact, but for a terminal, which what strangers wrote must not steer."""
    shown: Callable[[str], str] = clean if is_terminal(sys.stdout) else str
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(map(shown, found.schema.names))
    for row in rows_of(found):
        writer.writerow([shown(text_of(value)) for value in row])


def write_parquet(found: "pa.Table", path: Path) -> None:
    """A Parquet file, which is there when it is complete."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    work = path.with_name(path.name + ".tmp")
    try:
        pq.write_table(found, work, compression="zstd")
        work.replace(path)
    except OSError as error:
        raise CliError(f"cannot write {path}: {error.strerror or error}") from None
    except pa.ArrowNotImplementedError as error:  # Arrow's word for a type that Parquet has not
        raise CliError(f"Parquet cannot have this; cast it: {error}") from None
    finally:
        work.unlink(missing_ok=True)
    print(f"{found.num_rows} rows in {path}")


def show(found: "pa.Table") -> None:
    """A table for people."""
    shown = [[clean(text_of(value)) for value in row] for row in rows_of(found)]
    table([clean(name) for name in found.schema.names], shown)


def text_of(value: Any) -> str:
    """A value as text."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(
        finite(value) if isinstance(value, list | dict) else value, ensure_ascii=False
    )
