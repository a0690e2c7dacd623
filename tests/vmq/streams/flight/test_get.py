"""Packed gets give the same rows as plain ones, as Arrow streams that need no more than pyarrow."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from tests.vmq.streams.support import make, put, row
from vmq.streams.flight.get import PACKED, batches_of
from vmq.streams.flight.tickets import BadTicketError, Ticket
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.partition import Partition
from vmq.streams.log.schema import READ

ROWS = 40


@pytest.fixture(scope="module")
def partition(tmp_path_factory: pytest.TempPathFactory) -> Partition:
    """Batches of five, in compressed segments of ten, with their topics mixed in the first half only."""
    partition = make(tmp_path_factory.mktemp("p"), compression="lz4")
    for start in range(0, ROWS, 5):
        numbers = range(start, start + 5)
        mixed = "ab" if start < ROWS / 2 else "aa"
        put(partition, [row(number, mixed[number % 2] + "/x") for number in numbers])
        if start % 10 == 5:
            partition.roll()
    return partition


def got(
    partition: Partition, start: int, **fields: Any
) -> tuple[list[tuple[int, str, bytes]], int]:
    """Offset, topic and payload of what a packed get gives, and where it says to read on."""
    wanted = Ticket(stream="s", packed=True, **fields)
    reader = LogReader(partition, wanted.columns, wanted.filter)
    schema, batches = batches_of(reader, wanted, start)
    found: list[tuple[int, str, bytes]] = []
    following = start
    for batch, metadata in batches:
        assert schema == batch.schema == PACKED
        told = json.loads(metadata.to_pybytes())
        with ipc.open_stream(batch.column(0)[0].as_buffer()) as stream:
            rows = stream.read_all().slice(told["skip"], told["rows"])
        assert rows.num_rows == told["rows"] > 0
        count = range(told["first"], told["first"] + told["rows"])
        offsets = rows["offset"].to_pylist() if "offset" in rows.column_names else count
        topics, payloads = rows["topic"].to_pylist(), rows["payload"].to_pylist()
        found += zip(offsets, topics, payloads, strict=True)
        following = told["next"]
    return found, following


def plain(partition: Partition, start: int, **fields: Any) -> list[tuple[int, str, bytes]]:
    reader = LogReader(partition, ["offset", "topic", "payload"], fields.get("filter"))
    table = pa.Table.from_batches(
        [chunk.rows for chunk in reader.read(start, fields.get("end"))], reader.projection.schema
    )
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


@given(
    ends=st.tuples(st.integers(0, ROWS), st.integers(0, ROWS)).map(sorted),
    topic=st.sampled_from([None, "#", "a/+", "a/x", "b/x", "+/y"]),
)
def test_packed_and_plain_gets_give_the_same_rows(
    partition: Partition, ends: list[int], topic: str | None
) -> None:
    start, end = ends
    found, following = got(partition, start, end=end, filter=topic)
    assert found == plain(partition, start, end=end, filter=topic)
    assert following <= end
    if topic in {None, "#"}:
        assert following == end


def test_rows_go_out_as_they_lie_where_all_match_and_else_with_the_columns_that_are_wanted(
    partition: Partition,
) -> None:
    wanted = Ticket(stream="s", packed=True, columns=["payload", "offset"], filter="a/x")
    _, batches = batches_of(LogReader(partition, wanted.columns, wanted.filter), wanted, 0)
    names = []
    for batch, _metadata in batches:
        with ipc.open_stream(batch.column(0)[0].as_buffer()) as stream:
            names.append(stream.schema.names)
    assert names == [["payload", "offset"]] * 2 + [READ.names[:8]] * 2


def test_a_limit_is_refused(partition: Partition) -> None:
    wanted = Ticket(stream="s", packed=True, limit=3)
    with pytest.raises(BadTicketError, match="limit"):
        batches_of(LogReader(partition), wanted, 0)


def test_a_large_message_comes_packed_as_well(tmp_path: Path) -> None:
    partition = make(tmp_path)
    put(partition, [row(0), row(1, payload=b"x" * (3 << 20)), row(2)])
    found, _ = got(partition, 0)
    assert [len(payload) for _, _, payload in found] == [9, 3 << 20, 9]
