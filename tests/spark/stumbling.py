"""vmq's sink with tasks that fail once each, after they have laid down all their rows.

Executors import this module, so it imports no test.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import WriterCommitMessage
from pyspark_vmq import DefaultSource
from pyspark_vmq.writing import BatchWriter, StreamWriter

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


def stumble(marks: str) -> None:
    """Fails the first time that a part is written."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    mark = Path(marks) / str(context.partitionId())
    if not mark.exists():
        mark.touch()
        raise RuntimeError("this task stumbles")


class StumblingBatchWriter(BatchWriter):
    marks: str

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        staged = super().write(iterator)
        stumble(self.marks)
        return staged


class StumblingStreamWriter(StreamWriter):
    marks: str

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        staged = super().write(iterator)
        stumble(self.marks)
        return staged


class StumblingSource(DefaultSource):
    """`format("stumbling")`; option `marks` names the folder that remembers who has failed."""

    @classmethod
    def name(cls) -> str:
        return "stumbling"

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        marks = self.options.pop("marks")
        writer = super().writer(schema, overwrite)
        writer.__class__ = StumblingBatchWriter
        writer.marks = marks  # type: ignore[attr-defined]  # of its new class
        return writer

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802 - Spark's name
        marks = self.options.pop("marks")
        writer = super().streamWriter(schema, overwrite)
        writer.__class__ = StumblingStreamWriter
        writer.marks = marks  # type: ignore[attr-defined]  # of its new class
        return writer
