from pathlib import Path

import pyarrow as pa
import pytest

from tests.vmq.streams.support import make, put, read_all, row, rows_from
from vmq.streams.log.cursor import Cursor, LogReader
from vmq.streams.log.errors import StreamError
from vmq.streams.log.partition import Partition
from vmq.streams.log.schema import READ


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    """Offsets 0 to 9 sealed, 10 to 14 in the active segment; even ones of topic a/x, odd ones of b/x."""
    partition = make(tmp_path)
    rows = [row(number, "ab"[number % 2] + "/x") for number in range(15)]
    put(partition, rows[:7])
    put(partition, rows[7:10])
    partition.roll()
    put(partition, rows[10:])
    return partition


def offsets(partition: Partition, *args: int | None, topic: str | None = None) -> list[int]:
    reader = LogReader(partition, ["offset"], topic)
    return [
        number
        for chunk in reader.read(*args)  # type: ignore[arg-type]
        for number in chunk.rows.column("offset").to_pylist()
    ]


def test_every_column_has_the_type_that_spark_accepts(partition: Partition) -> None:
    chunk = next(LogReader(partition).read(12))
    assert chunk.rows.schema.equals(READ)
    assert chunk.rows.schema.field("timestamp").type == pa.timestamp("us", tz="UTC")
    (first, *_) = chunk.rows.to_pylist()
    assert (first["stream"], first["partition"], first["offset"]) == ("s", 0, 12)
    assert first["headers"] == [{"key": "n", "value": "12"}]


@pytest.mark.parametrize(
    "columns",
    [["payload"], ["offset", "topic"], ["partition"], ["stream", "offset"], ["headers", "qos"]],
)
@pytest.mark.parametrize("topic", [None, "a/#"])
def test_only_the_columns_that_are_wanted_come_in_their_order(
    partition: Partition, columns: list[str], topic: str | None
) -> None:
    chunks = list(LogReader(partition, columns, topic).read(0))
    assert all(chunk.rows.schema.names == columns for chunk in chunks)
    assert sum(chunk.rows.num_rows for chunk in chunks) == (15 if topic is None else 8)


def test_a_read_of_nothing_still_has_its_schema(partition: Partition) -> None:
    for arguments in ((15, None, None), (3, 3, None), (3, None, 0)):
        (chunk,) = LogReader(partition, ["qos"]).read(*arguments)
        assert chunk.rows.num_rows == 0
        assert chunk.rows.schema.names == ["qos"]
        assert chunk.next == arguments[0]


def test_a_wrong_column_or_filter_is_refused(partition: Partition) -> None:
    with pytest.raises(StreamError, match="there is no column 'temp'; accepted: topic, payload"):
        LogReader(partition, ["temp"])
    with pytest.raises(StreamError, match="no column is wanted; accepted: topic"):
        LogReader(partition, [])
    with pytest.raises(StreamError, match="named twice"):
        LogReader(partition, ["qos", "qos"])
    with pytest.raises(StreamError, match="not a topic filter"):
        LogReader(partition, None, "a/#/b")


def test_a_cursor_does_not_see_what_is_not_published(partition: Partition) -> None:
    with Cursor(partition, 12) as cursor:
        put(partition, rows_from(15, 2), publish=False)
        span = cursor.read(None)
        assert span is not None
        assert (span.offset + span.rows.num_rows, cursor.offset) == (15, 15)
        assert cursor.read(None) is None
        partition.publish()
        assert cursor.read(None) is not None
        assert cursor.offset == 17


def test_a_large_message_is_read_whole(tmp_path: Path) -> None:
    partition = make(tmp_path)
    rows = [row(0), row(1, payload=bytes(5 << 20)), row(2)]
    for each in rows:
        put(partition, [each])
    assert read_all(partition) == rows
    assert offsets(partition, 0) == [0, 1, 2]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_read_begins_within_a_large_batch_behind_small_ones(
    tmp_path: Path, is_sealed: bool
) -> None:
    """They share an entry of the index, and the large one is more than what is read at a time."""
    partition = make(tmp_path, compression="none")
    put(partition, [row(0)])
    put(partition, [row(number, payload=bytes(60_000)) for number in range(1, 21)])
    put(partition, [row(21)])
    if is_sealed:
        partition.roll()
    for start in range(22):
        assert offsets(partition, start) == list(range(start, 22))
        packed = list(LogReader(partition, ["offset"]).read_packed(start))
        assert [each.first for each in packed][:1] == [start]
        assert sum(each.rows for each in packed) == 22 - start
