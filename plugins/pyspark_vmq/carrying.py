"""Small batches that the driver reads itself and hands over with their plan, so that no task asks a Python worker.

A worker and its answer take as long as thousands of messages do. For its simple readers
(`SimpleDataSourceStreamReader`) Spark takes rows from the driver's Python along with the partitions: it lays them
into its block manager, and the task of the batch finds them there. If it does not, it reads the partition.

Spark asks nobody for rows but its own wrapper of simple readers, which may neither limit a batch nor tell its lag.
So a reader here passes for that wrapper for as long as it has rows to hand over, from the plan until Spark takes
them. A Spark without the wrapper gets plans alone.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource_internal

from pyspark_vmq.errors import DataLossError
from pyspark_vmq.options import SourceOptions
from pyspark_vmq.reading import Task, read_task

if TYPE_CHECKING:
    import pyarrow as pa

#: Messages that are carried at most: with more of them two workers are as fast as the driver.
MOST_MESSAGES: Final = 1000
#: Bytes that are carried at most; they pass through the driver's memory.
MOST_BYTES: Final = 1 << 20

_WRAPPER: Final[Any] = getattr(datasource_internal, "_SimpleStreamReaderWrapper", None)

#: Whether this Spark takes rows from the driver.
CAN_CARRY: Final = hasattr(_WRAPPER, "getCache")


class Carrying:
    """A streaming reader that may have rows for Spark: set `carried` in `partitions`, which then returns one."""

    carried: "list[pa.RecordBatch] | None" = None

    @property  # type: ignore[misc]  # object's can also be set, which nobody does here
    def __class__(self) -> type:
        return type(self) if self.carried is None else _WRAPPER

    def getCache(self, _start: dict[str, Any], _end: dict[str, Any]) -> "Iterator[pa.RecordBatch]":
        """Hands the rows of the plan before over, once; Spark keeps them for whoever plans the batch again."""
        rows, self.carried = self.carried or [], None
        return iter(rows)


def may_carry(task: Task, options: SourceOptions) -> bool:
    """Whether a batch is small enough for the driver to read, and nobody wants several tasks."""
    messages = sum(each.size for each in task.ranges)
    return CAN_CARRY and 0 < messages <= MOST_MESSAGES and (options.min_partitions or 1) == 1


def rows_of(
    task: Task, options: SourceOptions, columns: Mapping[str, bool | str]
) -> "list[pa.RecordBatch] | None":
    """All rows of a task, if they are few bytes and all there."""
    rows: list[pa.RecordBatch] = []
    room = MOST_BYTES
    try:
        for batch in read_task(task, options, columns):
            room -= batch.nbytes
            if room < 0:
                return None
            rows.append(batch)
    except DataLossError:
        return None
    return rows
