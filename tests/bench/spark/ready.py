"""A source that has its batches in memory: what Spark asks for rows from Python, whatever they come from."""

import os
from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType
from pyspark_vmq.schema import DDL, Columns, projection
from pyspark_vmq.unpacking import arrow_schema

#: Rows of a batch; about those of a read of vmq.
ROWS = 8192
PAYLOAD = 100
TASKS = 2


def batch_of(schema: pa.Schema) -> pa.RecordBatch:
    """Rows as the bench publishes them."""
    values = {
        "topic": "bulk/1",
        "payload": b"",
        "qos": 1,
        "retain": False,
        "timestamp": 1_700_000_000_000_000,
        "client_id": "device-1",
        "key": b"device-1",
        "headers": [],
        "stream": "bulk",
        "partition": 1,
        "offset": 7,
    }
    columns = [
        pa.array([os.urandom(PAYLOAD) for _ in range(ROWS)], field.type)
        if field.name == "payload"
        else pa.repeat(pa.scalar(values[field.name], field.type), ROWS)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


class Reader(DataSourceReader):
    """So many rows, by as many tasks as there are cores."""

    def __init__(self, rows: int, columns: Columns) -> None:
        self.rows = rows
        self.columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(number) for number in range(TASKS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        batch = _batches.get(tuple(self.columns))
        if batch is None:
            batch = _batches[tuple(self.columns)] = batch_of(arrow_schema(self.columns))
        left = self.rows // TASKS
        while left > 0:
            yield batch.slice(0, left)
            left -= ROWS


_batches: dict[tuple[str, ...], pa.RecordBatch] = {}


class Ready(DataSource):
    """`format("ready")`, option `rows`."""

    @classmethod
    def name(cls) -> str:
        return "ready"

    def schema(self) -> str:
        return DDL

    def reader(self, schema: StructType) -> Reader:
        return Reader(int(self.options["rows"]), projection(schema))
