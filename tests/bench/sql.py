"""`vmq sql` beside DuckDB on Parquet, on the same rows: python -m tests.bench.sql [--rows 10000000] [--rounds 5]

The rows are JSON of about a hundred bytes, of a hundred devices that take turns; `temp` and `device` are typed columns.
The query is an aggregate by device. It is asked in turn of the sealed segments, as `vmq sql` does with the columns that
lie beside them, and of one Parquet file with the same columns, by DuckDB with one thread, each in a process of its own
from its start to its end; the ratio is that of the medians. After a query a broker has a process that waits for the
next one: `first` is a query that found none. `CPU` is what these processes computed, from their starts to their ends:
on a machine that has other things to do it says more than the clock, the more so as queries stand back. `tail` is the
same for rows of a segment that still grows, which are read out of their payloads.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from tests.bench.putting import put
from tests.support.until import reach
from tests.vmq.streams.flight_support import Running
from vmq.config.streams import StreamOptions
from vmq.streams.flight.service import StreamServer
from vmq.streams.log.partition import Partition
from vmq.streams.sql.running import SqlRunner, sources_of

DEVICES: Final = 100
#: Seconds that columns beside segments may take.
SECONDS: Final = 600.0
#: Rows of one put.
PUT: Final = 100_000
QUERY: Final = (
    "select device, avg(temp) as mean, count(*) as n from {} group by device order by device"
)
PARQUET: Final = """
import duckdb, sys
duckdb.connect(config={"threads": 1}).execute(sys.argv[1]).fetchall()
"""


def readings(rows: int, random: Random) -> pa.Table:
    """What devices send, in turn."""
    numbers = range(rows)
    return pa.table(
        {
            "topic": [f"sensors/d{number % DEVICES}/reading" for number in numbers],
            "payload": pa.array(
                [
                    f'{{"seq": {number}, "ts": {1_700_000_000_000 + number}, "hum": 40.5, "unit": "C",'
                    f' "temp": {random.uniform(10, 30):.2f}, "ok": true}}'.encode()
                    for number in numbers
                ],
                pa.binary(),
            ),
        }
    )


def fill(running: Running, stream: str, rows: int) -> None:
    """Puts rows into a stream."""
    table = readings(PUT, Random(1))
    server = StreamServer(running.catalog)
    try:
        batch = table.combine_chunks().to_batches()[0]
        put(f"grpc://127.0.0.1:{server.port}", stream, batch, rows)
    finally:
        server.close()


class Cost(NamedTuple):
    """Seconds by the clock, and of the CPU of a process that has ended."""

    took: float
    cpu: float


def of_children() -> float:
    """Seconds of the CPU of all that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(running: Running, runner: SqlRunner, stream: str) -> Cost:
    """What `vmq sql` costs, while nothing else goes on."""
    began, before = perf_counter(), of_children()
    sources = sources_of(running.catalog, lambda _stream: True)
    found = runner.run(QUERY.format(f"vmq.{stream}"), sources)
    took = perf_counter() - began
    assert found.num_rows == DEVICES
    reach(lambda: runner.spare.waiting is not None and runner.spare.waiting.has_said(), "no spare")
    return Cost(took, of_children() - before)  # its process has ended before there is another


def parquet_seconds(path: Path) -> Cost:
    """What a process with DuckDB costs."""
    began, before = perf_counter(), of_children()
    query = QUERY.format(f"read_parquet('{path}')")
    subprocess.run([sys.executable, "-c", PARQUET, query], check=True)
    return Cost(perf_counter() - began, of_children() - before)


def compare(running: Running, stream: str, path: Path, rounds: int) -> str:
    """Both in turn."""
    ours, theirs, first = [], [], []
    runner = SqlRunner(seconds=600)
    for _ in range(rounds):
        runner.spare.close()
        first.append(seconds(running, runner, stream))
        ours.append(seconds(running, runner, stream))
        theirs.append(parquet_seconds(path))
    runner.close()
    mine, cold, other = (median(each.took for each in found) for found in (ours, first, theirs))
    cpu, others = (median(each.cpu for each in found) for found in (ours + first, theirs))
    return (
        f"{mine:6.2f} s, first {cold:.2f} s   DuckDB on Parquet {other:6.2f} s   "
        f"ratio {mine / other:5.2f}, first {cold / other:.2f}   "
        f"CPU {cpu:.2f} s to {others:.2f} s: {cpu / others:.2f}"
    )


def has_columns(running: Running, partition: Partition) -> bool:
    """Whether all sealed segments have their columns beside them; they are made by the catalog's own thread."""
    running.catalog.columns.wanted.set()
    count = sum(each.size >= running.catalog.columns.least for each in partition.sealed)
    return len(list(partition.folder.glob("*.columns.parquet"))) >= count


def copied(running: Running, stream: str, path: Path) -> Path:
    """The typed columns of a stream as one Parquet file, in the order of the log."""
    import pyarrow.parquet as pq

    partition = running.catalog.streams[stream].partitions[0]
    from vmq.streams.log.cursor import LogReader

    typed = running.catalog.streams[stream].options.typed
    reader = LogReader(partition, ["device", "temp"], typed=typed)
    with pq.ParquetWriter(path, reader.projection.schema) as writer:
        for chunk in reader.read(partition.earliest, partition.end):
            writer.write_batch(chunk.rows)
    return path


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--tail-rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    plain = {
        "filters": ["sensors/#"],
        "schema": {"temp": "double", "device": "string level:2"},
        "segment_age": "1d",
    }
    made = msgspec.convert(plain, StreamOptions)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        running = Running(folder / "streams", sealed=made, tail=made)
        try:
            fill(running, "sealed", options.rows)
            (partition,) = running.catalog.streams["sealed"].partitions
            running.catalog.commits.writer.call(partition.roll).result(60)
            running.catalog.janitor.tidy()
            reach(lambda: has_columns(running, partition), "no columns came", SECONDS)
            fill(running, "tail", options.tail_rows)
            for stream, rows in (("sealed", options.rows), ("tail", options.tail_rows)):
                path = copied(running, stream, folder / f"{stream}.parquet")
                print(
                    f"{stream:8}{rows:>12,} rows  {compare(running, stream, path, options.rounds)}"
                )
        finally:
            running.close()


if __name__ == "__main__":
    main()
