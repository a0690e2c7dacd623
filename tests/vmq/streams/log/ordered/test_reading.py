"""Rows that lie beside a segment by topic: readers get what a naive filter finds, in the order of offsets."""

import tempfile
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vmq.streams.support import Row, make, plain, put, row
from vmq.config.columns import read_columns
from vmq.mqtt.topics import matches
from vmq.streams.far import FarCursor, FarLog, locate
from vmq.streams.log.conditions import Condition
from vmq.streams.log.cursor import Cursor, Extent, LogReader
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.ordered import making
from vmq.streams.log.ordered.file import OrderedFile, path_of
from vmq.streams.log.partition import Partition

TOPICS = [f"site-{number % 3}/d{number}/{'temp' if number % 2 else 'hum'}" for number in range(24)]
FILTERS = [
    *("site-1/d1/temp", "site-1/d4/hum", "site-1/+/temp", "site-0/#", "+/+/hum", "+/d7/#"),
    *("#", "nowhere/d1/temp", "site-1/d1/#", "site-2/d2", "zzz/#", "$SYS/#"),
]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several blocks and parts of few rows, so that choosing them pays."""
    monkeypatch.setattr(making, "BLOCK_ROWS", 4)
    monkeypatch.setattr(making, "PART_BYTES", 3000)


def order(partition: Partition) -> list[Path]:
    """Has the rows of all sealed segments lie beside them."""
    paths = []
    for each in partition.sealed:
        paths.append(path_of(each.path, each.size, each.inode))
        making.make(partition.header, each, paths[-1])
    return paths


def fill(folder: Path, *counts: int, seals: bool = True) -> Partition:
    """Segments of so many rows each, the topics in turn."""
    partition = make(folder)
    for count in counts:
        first = partition.end
        put(partition, [row(at, TOPICS[at % len(TOPICS)]) for at in range(first, first + count)])
        if seals:
            partition.roll()
    return partition


def read(reader: LogReader, *arguments: Any, **more: Any) -> list[Row]:
    return [each for chunk in reader.read(*arguments, **more) for each in plain(chunk.rows)]


def spoil(path: Path) -> None:
    """Fills a file with other bytes, where it lies."""
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"\x55" * size)


def wanted(topic_filter: str, count: int, start: int = 0) -> list[Row]:
    """What a naive filter finds."""
    rows = [row(at, TOPICS[at % len(TOPICS)]) for at in range(start, count)]
    return [each for each in rows if matches(topic_filter, each["topic"])]


@pytest.mark.parametrize("topic_filter", [*FILTERS[:3], *FILTERS[5:6], *FILTERS[7:]])
def test_few_topics_are_read_without_the_segments(tmp_path: Path, topic_filter: str) -> None:
    """Which are not even whole any more."""
    with closing(fill(tmp_path, 240, 120)) as partition:
        order(partition)
        for each in partition.sealed:
            spoil(each.path)
        reader = LogReader(partition, None, topic_filter)
        assert read(reader, 0) == wanted(topic_filter, 360)
        with pytest.raises(DamagedError):
            read(LogReader(partition), 0)


def test_many_topics_are_read_from_the_segment(tmp_path: Path) -> None:
    with closing(fill(tmp_path, 240)) as partition:
        (path,) = order(partition)
        spoil(path)
        assert read(LogReader(partition, None, "+/+/hum"), 0) == wanted("+/+/hum", 240)


def test_rows_that_are_wanted_soon_are_read_from_the_segment(tmp_path: Path) -> None:
    """A limit that few offsets reach, or a narrow range, costs less there."""
    with closing(fill(tmp_path, 2400)) as partition:
        order(partition)
        for each in partition.sealed:
            spoil(each.path)
        reader = LogReader(partition, None, "site-1/d1/temp")
        assert len(read(reader, 0, None, 50)) == 50
        for narrow in ((0, None, 1), (5, 30)):
            with pytest.raises(DamagedError):
                read(reader, *narrow)


@pytest.mark.parametrize("hurt", [spoil, Path.unlink, lambda path: path.write_bytes(b"")])
def test_what_is_missing_or_damaged_is_read_from_the_segment(
    tmp_path: Path, hurt: Callable[[Path], None]
) -> None:
    with closing(fill(tmp_path, 240)) as partition:
        (path,) = order(partition)
        hurt(path)
        assert read(LogReader(partition, None, TOPICS[5]), 0) == wanted(TOPICS[5], 240)
        assert not path.exists()


def test_each_flipped_bit_is_noticed(tmp_path: Path) -> None:
    """Wherever it is: the rows are right all the same."""
    with closing(fill(tmp_path, 240)) as partition:
        (path,) = order(partition)
        whole = path.read_bytes()
        found = 0
        for at in range(7, len(whole), 307):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
            assert read(LogReader(partition, None, "+/d7/#"), 0) == wanted("+/d7/#", 240), at
            found += not path.exists()
        assert found > 0  # those in the blocks that are read, the directory and the footer


def test_few_topics_are_not_ordered(tmp_path: Path) -> None:
    """But which ones there are is known: for others the segment is not read."""
    with closing(make(tmp_path)) as partition:
        put(partition, [row(at, f"t/{at % 3}") for at in range(30)])
        partition.roll()
        (path,) = order(partition)
        with OrderedFile(path) as file:
            found = (file.topics.to_pylist(), file.rows, file.blocks)
            assert found == (["t/0", "t/1", "t/2"], 30, [])
        assert len(read(LogReader(partition, None, "t/1"), 0)) == 10
        spoil(partition.sealed[0].path)
        assert read(LogReader(partition, None, "t/9"), 0) == []
        with pytest.raises(DamagedError):
            read(LogReader(partition, None, "t/1"), 0)


@pytest.mark.parametrize(("name", "most"), [("MOST_TOPIC_BYTES", 100), ("MOST_ROWS", 99)])
def test_too_many_topics_or_rows_are_not_ordered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    monkeypatch.setattr(making, name, most)
    with closing(fill(tmp_path, 240)) as partition:
        (path,) = order(partition)
        with OrderedFile(path) as file:
            assert len(file.topics) == 0
        assert read(LogReader(partition, None, TOPICS[1]), 0) == wanted(TOPICS[1], 240)


@pytest.mark.parametrize(
    "where",
    [
        [Condition("topic", "=", TOPICS[4])],
        [Condition("topic", "in", [TOPICS[4], "x"])],
        [Condition("topic", "starts with", "site-1/d4/")],
        [Condition("topic", ">", "site-2/d8"), Condition("offset", "<", 200)],
        [Condition("device", "=", "d4")],
        [Condition("device", "null")],
    ],
)
def test_conditions_on_topics_and_their_levels(tmp_path: Path, where: list[Condition]) -> None:
    with closing(fill(tmp_path, 240)) as partition:
        typed = read_columns({"device": "string level:2"})
        names = ["topic", "offset", "device"]

        def found() -> list[Any]:
            reader = LogReader(partition, names, typed=typed, where=where)
            return [each for chunk in reader.read(0) for each in chunk.rows.to_pylist()]

        before = found()
        order(partition)
        spoil(partition.sealed[0].path)
        assert found() == before


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_readers_get_what_a_naive_filter_finds(data: st.DataObject) -> None:
    """Here and from afar, as rows and packed, in whatever ranges and pieces."""
    topics = st.sampled_from(TOPICS)
    counts = st.lists(st.lists(topics, min_size=1, max_size=150), min_size=1, max_size=4)
    with tempfile.TemporaryDirectory() as name, closing(make(Path(name))) as partition:
        rows: list[Row] = []
        for found in data.draw(counts):
            fresh = [row(len(rows) + at, topic) for at, topic in enumerate(found)]
            put(partition, fresh)
            rows += fresh
            if data.draw(st.booleans()):
                partition.roll()
        if data.draw(st.booleans()):
            order(partition)
        topic_filter = data.draw(st.sampled_from(FILTERS))
        start = data.draw(st.integers(0, len(rows)))
        end = data.draw(st.integers(start, len(rows)))
        limit = data.draw(st.none() | st.integers(0, 40))
        most = data.draw(st.sampled_from([1, 500, 1 << 20]))
        kept = [at for at in range(start, end) if matches(topic_filter, rows[at]["topic"])]
        columns = data.draw(st.sampled_from([None, ["offset"], ["topic", "offset"]]))
        far = FarLog("s", 0, locate(partition, start), lambda at: locate(partition, at))
        logs: list[tuple[Extent, type[Cursor]]] = [(partition, Cursor), (far, FarCursor)]
        for log, cursor in logs:
            reader = LogReader(log, columns, topic_filter, cursor)
            chunks = list(reader.read(start, end, limit, most))
            offsets = [each for chunk in chunks for each in chunk.rows["offset"].to_pylist()]
            assert offsets == kept[:limit]
            whole = limit is None or len(kept) < limit
            assert not whole or chunks[-1].next == end
            assert all(a.next < b.next for a, b in pairwise(chunks))
            if columns is None:
                assert [each for chunk in chunks for each in plain(chunk.rows)] == [
                    rows[at] for at in offsets
                ]
        assert packed(LogReader(partition, ["offset"], topic_filter), start, end) == kept


def packed(reader: LogReader, start: int, end: int) -> list[int]:
    found: list[int] = []
    for chunk in reader.read_packed(start, end):
        with pa.ipc.open_stream(chunk.stream) as stream:
            table = stream.read_all()
        if "offset" in table.schema.names:
            found += table["offset"].to_pylist()
        else:
            found += range(chunk.first, chunk.first + chunk.rows)
    return found
