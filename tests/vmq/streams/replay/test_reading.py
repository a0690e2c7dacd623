"""Rows of several partitions: order, completeness, what is left out and when; against a list."""

import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vmq.streams.support import OPENED, make, options, put, row
from vmq.mqtt.topics import matches
from vmq.streams.log.errors import AwayError
from vmq.streams.log.partition import Partition
from vmq.streams.logs import LogsHere, OffsetSpan, RowPage
from vmq.streams.places import PageQuery
from vmq.streams.replay import reading
from vmq.streams.replay.reading import SLACK, ReplayReader

BASE = 1_700_000_000_000_000
Found = list[tuple[int, int, int, bytes]]


class Logs(LogsHere):
    """Partitions of which some do not answer."""

    def __init__(self, partitions: Sequence[Partition]) -> None:
        super().__init__(partitions)
        self.partitions = partitions
        self.silent: set[int] = set()

    def spans(self, numbers: Collection[int], patience: float) -> dict[int, OffsetSpan]:
        return super().spans(set(numbers) - self.silent, patience)

    def at_time(self, numbers: Collection[int], time: int, patience: float) -> dict[int, int]:
        return super().at_time(set(numbers) - self.silent, time, patience)

    def rows(self, number: int, wanted: PageQuery, columns: Sequence[str]) -> RowPage:
        if number in self.silent:
            raise AwayError("s", number, "n2")
        return super().rows(number, wanted, columns)


def reader_of(partitions: Sequence[Partition], topics: str = "#", **fields: Any) -> ReplayReader:
    return ReplayReader(Logs(partitions), "s", topics, **fields)


def read_all(reader: ReplayReader) -> Found:
    """Everything, with its time, partition and offset."""
    found: Found = []
    more = True
    while more:
        slabs, more = reader.read()
        for slab in slabs:
            assert isinstance(slab.rows, pa.RecordBatch)
            columns = (
                slab.rows.column("timestamp").cast(pa.int64()).to_pylist(),
                slab.rows.column("offset").to_pylist(),
                slab.rows.column("payload").to_pylist(),
            )
            for when, offset, payload in zip(*columns, strict=True):
                assert offset < slab.next
                found.append((when, slab.partition, offset, payload))
    return found


def partitions_of(folder: Path, times: Sequence[Sequence[int]]) -> list[Partition]:
    """A partition for each list of times, in batches of three rows."""
    made = []
    for number, each in enumerate(times):
        partition = Partition(folder / str(number), "s", number, options(), time.time)
        OPENED.append(partition)
        made.append(partition)
        rows = [row(at, f"t/{number}/{at % 3}", time=BASE + when) for at, when in enumerate(each)]
        for first in range(0, len(rows), 3):
            put(partition, rows[first : first + 3])
    return made


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 30_000_000), max_size=25), min_size=1, max_size=4),
    st.sampled_from(["#", "t/0/#", "t/+/1", "x"]),
    st.sampled_from([1, 200, 1 << 20]),
)
def test_every_row_once_in_order(
    tmp_path_factory: pytest.TempPathFactory, times: list[list[int]], topics: str, size: int
) -> None:
    for of in times:
        of.sort()
    made = partitions_of(tmp_path_factory.mktemp("s"), times)
    reader = reader_of(made, topics)
    before = reading.AHEAD, reading._LEAST_AHEAD
    reading.AHEAD, reading._LEAST_AHEAD = size, size  # type: ignore[misc]
    try:
        assert reader.begin("earliest") == dict.fromkeys(range(len(times)), 0)
        found = read_all(reader)
    finally:
        reading.AHEAD, reading._LEAST_AHEAD = before  # type: ignore[misc]
        for each in made:
            each.close()
    wanted = [
        (BASE + when, number, at)
        for number, of in enumerate(times)
        for at, when in enumerate(of)
        if matches(topics, f"t/{number}/{at % 3}")
    ]
    assert sorted(each[:3] for each in found) == sorted(wanted)
    for number in range(len(times)):
        offsets = [each[2] for each in found if each[1] == number]
        assert offsets == sorted(offsets)
    newest = 0
    for when, *_ in found:
        assert when >= newest - SLACK
        newest = max(newest, when)
    assert reader.ends() == {number: len(of) for number, of in enumerate(times)}


def test_from_a_time_the_end_and_known_places(tmp_path: Path) -> None:
    made = partitions_of(tmp_path, [[0, 10, 20, 30], [5, 15, 25]])
    reader = reader_of(made)
    assert reader.begin(BASE + 15) == {0: 2, 1: 1}
    assert [each[:3] for each in read_all(reader)] == [
        (BASE + 15, 1, 1), (BASE + 25, 1, 2), (BASE + 20, 0, 2), (BASE + 30, 0, 3)
    ]  # fmt: skip
    assert reader.begin("latest") == {0: 4, 1: 3}
    assert read_all(reader) == []
    assert reader.begin("latest", {0: 3}) == {0: 3, 1: 0}
    assert [each[2] for each in read_all(reader) if each[1] == 0] == [3]
    put(made[0], [row(9, time=BASE + 99)])
    assert [each[:3] for each in read_all(reader)] == [(BASE + 99, 0, 4)]


def test_what_retention_has_deleted_is_counted_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition = make(tmp_path / "0")
    put(partition, [row(number) for number in range(5)])
    partition.roll()
    put(partition, [row(5)])
    reader = reader_of([partition])
    reader.begin("earliest", {0: 2})
    with partition.changed:
        gone, partition.sealed = partition.sealed, ()
    partition._unlink(gone)
    assert [each[2] for each in read_all(reader)] == [5]
    assert reader.lost == 3
    assert "goes on at offset=5 instead of 2: retention has deleted" in caplog.text


def test_a_stream_that_was_made_anew_is_read_from_its_beginning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition = make(tmp_path / "0")
    put(partition, [row(0)])
    reader = reader_of([partition])
    reader.begin("latest", {0: 70})
    assert [each[2] for each in read_all(reader)] == [0]
    assert "the stream is another than it was" in caplog.text


def test_one_that_does_not_answer_holds_the_others_back_for_a_while(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = partitions_of(tmp_path, [[0, 10], [5, 15]])
    now = [100.0]
    reader = reader_of(made, clock=lambda: now[0])
    logs = reader.logs
    assert isinstance(logs, Logs)
    reader.begin("earliest")
    logs.silent = {1}
    assert reader.read() == ([], True)
    assert reader.away() == {1}
    now[0] += SLACK / 1_000_000 - 0.1
    assert reader.read() == ([], True)
    now[0] += 0.2
    assert [each[1] for each in read_all(reader)] == [0, 0]
    assert "goes on without partition=1" in caplog.text
    assert read_all(reader) == []
    assert caplog.text.count("goes on without") == 1
    logs.silent = set()
    assert [each[1:3] for each in read_all(reader)] == [(1, 0), (1, 1)]
    assert reader.away() == set()


def test_one_that_did_not_answer_when_it_began_begins_at_that_time(tmp_path: Path) -> None:
    made = partitions_of(tmp_path, [[0], [5, 15]])
    now = [100.0]
    reader = reader_of(made, clock=lambda: now[0])
    logs = reader.logs
    assert isinstance(logs, Logs)
    logs.silent = {1}
    assert reader.begin(BASE + 10) == {0: 1}
    reader.read()
    logs.silent = set()
    assert [each[1:3] for each in read_all(reader)] == [(1, 1)]


def test_a_stream_that_grows(tmp_path: Path) -> None:
    made = partitions_of(tmp_path, [[0], [5]])
    grown: list[Partition] = made[:1]
    reader = reader_of(grown)
    reader.begin("latest")
    assert read_all(reader) == []
    grown.append(made[1])
    assert [each[1:3] for each in read_all(reader)] == [(1, 0)]


def test_what_is_wanted_of_them(tmp_path: Path) -> None:
    made = partitions_of(tmp_path, [list(range(10))])

    def where(number: int, rows: pa.RecordBatch) -> pa.BooleanArray:
        assert number == 0
        return pc.equal(pc.bit_wise_and(rows.column("offset"), 1), 1)

    reader = reader_of(made, where=where)
    reader.begin("earliest")
    assert [each[2] for each in read_all(reader)] == [1, 3, 5, 7, 9]
    assert reader.ends() == {0: 10}


def test_rows_behind_the_last_one_that_is_wanted_count_as_read(tmp_path: Path) -> None:
    made = partitions_of(tmp_path, [list(range(10))])
    reader = reader_of(made, "x/#")
    reader.begin("earliest")
    slabs, _ = reader.read()
    assert [(each.rows.num_rows, each.next) for each in slabs] == [(0, 10)]


def test_pages_are_copies_that_are_not_too_large(tmp_path: Path) -> None:
    partition = make(tmp_path / "0")
    for first, count in ((0, 20), (20, 68), (88, 100), (188, 12), (200, 100)):
        put(
            partition,
            [row(number, payload=bytes(40_000)) for number in range(first, first + count)],
        )
    reader = reader_of([partition])
    reader.begin("earliest")
    slabs, more = reader.read(1)
    assert more
    held = [each.rows for each in slabs if isinstance(each.rows, pa.RecordBatch)]
    assert len(held) == len(slabs)
    assert sum(each.get_total_buffer_size() for each in held) < 2 * reading.AHEAD
    rest = read_all(reader)
    assert [each[2] for each in rest] == list(range(slabs[-1].next, 300))


@pytest.mark.parametrize(
    ("topics", "widths"),
    [("#", [8] * 12 + [4]), ("x", [8, 16, 32, 32, 12]), ("t/0/1", [8] * 12 + [4])],
)
def test_where_few_are_wanted_it_looks_through_more_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topics: str, widths: list[int]
) -> None:
    monkeypatch.setattr(reading, "_LOOK", 8)
    monkeypatch.setattr(reading, "_WIDEST_LOOK", 32)
    made = partitions_of(tmp_path, [range(100)])
    asked: list[int] = []
    logs = Logs(made)
    rows = logs.rows

    def counted(number: int, wanted: PageQuery, columns: Sequence[str]) -> RowPage:
        asked.append(wanted.end - wanted.start)
        return rows(number, wanted, columns)

    monkeypatch.setattr(logs, "rows", counted)
    reader = ReplayReader(logs, "s", topics)
    reader.begin("earliest")
    assert len(read_all(reader)) == sum(matches(topics, f"t/0/{at % 3}") for at in range(100))
    assert asked == widths
    for each in made:
        each.close()
