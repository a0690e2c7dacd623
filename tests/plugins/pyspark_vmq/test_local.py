"""Messages from files are those that come by Flight, and where files cannot be had they come by Flight."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, cast
from unittest.mock import patch

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark_vmq import local
from pyspark_vmq.client import Client
from pyspark_vmq.errors import DataLossError, ServerError
from pyspark_vmq.options import SourceOptions, source_options
from pyspark_vmq.planning import Range
from pyspark_vmq.reading import read_range
from pyspark_vmq.schema import COLUMNS

from tests.support.present import present
from tests.vmq.streams.support import make, put, row
from vmq.streams import far
from vmq.streams.far import FarCursor, FarLog, locate
from vmq.streams.flight.get import batches_of
from vmq.streams.flight.tickets import Ticket, decode
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.errors import OutOfRangeError, StreamError
from vmq.streams.log.merging import merge
from vmq.streams.log.partition import Partition
from vmq.streams.tidying.compaction import compact

ALL = dict.fromkeys(COLUMNS, False) | {"headers": True}
LOCAL = source_options({"server": "grpc://x:1", "stream": "s"}, "batch")


class Near:
    """What a broker answers, without one; counts the gets, and may alter where rows are said to lie."""

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.has_files = True
        self.gets = 0
        self.asked: list[int] = []
        self.alter: Callable[[dict[str, Any]], None] = lambda _spot: None
        self.alter_further: Callable[[dict[str, Any]], None] = lambda _spot: None

    def file(self, ticket: Mapping[str, Any]) -> Iterator[tuple[Near, dict[str, Any]]]:
        if self.has_files:
            self.asked.append(ticket["start"])
            with translated():
                found = locate(self.partition, ticket["start"], ticket["end"])
            told = json.loads(msgspec.json.encode(found))
            if told["spot"] is not None:
                self.alter(told["spot"])
            for spot in told["further"]:
                self.alter_further(spot)
            yield self, told

    def read(self, ticket: Mapping[str, Any]) -> Iterator[tuple[pa.RecordBatch, dict[str, int]]]:
        self.gets += 1
        wanted = decode(json.dumps(ticket).encode(), Ticket, "ticket")
        start = ticket["start"]
        with translated():
            begin = locate(self.partition, start)
            log = FarLog("s", 0, begin, lambda offset: locate(self.partition, offset))
            reader = LogReader(log, wanted.columns, wanted.filter, FarCursor)
            for batch, told in batches_of(reader, wanted, start)[1]:
                yield batch, json.loads(told.to_pybytes())

    def earliest(self, _stream: str) -> dict[int, int]:
        return {0: self.partition.earliest}

    def wait(self, _stream: str, _known: Mapping[int, int], _seconds: float) -> dict[int, int]:
        return {0: self.partition.end}


@contextmanager
def translated() -> Iterator[None]:
    """Errors as the client has them."""
    try:
        yield
    except OutOfRangeError as error:
        raise DataLossError(str(error)) from None
    except StreamError as error:
        raise ServerError(str(error)) from None


def reading(
    near: Near, start: int, end: int, given: SourceOptions = LOCAL, *columns: str
) -> Iterator[pa.RecordBatch]:
    wanted = {name: ALL[name] for name in columns} if columns else ALL
    yield from read_range(cast(Client, near), Range("s", 0, start, end), given, wanted)


def rows(found: Sequence[pa.RecordBatch]) -> list[Any]:
    """Rows and the schema, which is the same in all batches."""
    assert len({each.schema for each in found}) <= 1
    for each in found:
        each.validate(full=True)
    return [each for batch in found for each in batch.to_pylist()]


def by_flight(given: SourceOptions = LOCAL) -> SourceOptions:
    return replace(given, local_reads=False)


def grown(folder: Path, compression: str, steps: Sequence[tuple[int, str]]) -> Partition:
    """A partition of some batches; behind each nothing, or the segment ends; then it is merged or all are compacted."""
    partition = make(folder, compression=compression, compact=True)
    number = 0
    for count, then in steps:
        # A topic of its own now and then: a batch of which all rows match, one of which none does.
        topics = ("a/x", "b/x", "a", "$a/x") if count % 3 else ("a/x",)
        numbers = range(number, number + count)
        put(partition, [row(each, topics[each % len(topics)]) for each in numbers])
        number += count
        if then:
            partition.roll()
        if then == "merge":
            while partition.unmerged:
                merge(partition, partition.unmerged.pop())
        if then == "compact":
            compact(partition)
    return partition


STEPS = st.lists(
    st.tuples(st.integers(1, 9), st.sampled_from(["", "", "roll", "merge", "compact"])),
    min_size=1,
    max_size=8,
)


class Query(NamedTuple):
    """A read: where it begins and ends, in parts of the partition, and what of it is wanted."""

    ends: list[float]
    topic: str
    columns: list[str]
    rows_a_batch: int


QUERIES = st.lists(
    st.builds(
        Query,
        ends=st.tuples(st.floats(0, 1), st.floats(0, 1)).map(sorted),
        topic=st.sampled_from(["", "", "#", "a/+", "a/x", "a/#", "+/x", "nothing"]),
        columns=st.lists(st.sampled_from(list(COLUMNS)), min_size=1, unique=True),
        rows_a_batch=st.sampled_from([1, 7, 8192]),
    ),
    min_size=1,
    max_size=5,
)


@settings(max_examples=40)
@given(steps=STEPS, compression=st.sampled_from(["none", "lz4", "zstd"]), queries=QUERIES)
def test_rows_from_files_are_those_that_come_by_flight(
    steps: list[tuple[int, str]], compression: str, queries: list[Query]
) -> None:
    with TemporaryDirectory() as name, pytest.MonkeyPatch.context() as patch:
        partition = grown(Path(name), compression, steps)
        for query in queries:
            patch.setattr(local, "BATCH_ROWS", query.rows_a_batch)
            start, end = (int(each * partition.end) for each in query.ends)
            given = replace(LOCAL, topic=query.topic)
            here, there = Near(partition), Near(partition)
            found = list(reading(here, start, end, given, *query.columns))
            sent = list(reading(there, start, end, by_flight(given), *query.columns))
            assert rows(found) == rows(sent)
            assert here.gets == 0
            assert {tuple(each.schema.names) for each in found} <= {tuple(query.columns)}
        partition.close()


@pytest.fixture
def partition(tmp_path: Path) -> Iterator[Partition]:
    """Offsets 0 to 9, 10 to 19 and 20 to 29 in sealed segments of two batches each, 30 to 34 in the active one."""
    partition = grown(tmp_path, "lz4", [(5, ""), (5, "roll")] * 3 + [(5, "")])
    yield partition
    partition.close()


def test_batches_for_spark_have_some_rows_and_few_bytes_in_memory() -> None:
    """However well their bytes compress in the file."""

    def sizes(*found: tuple[int, int]) -> list[int]:
        end = 0
        made = []
        for number, (count, nbytes) in enumerate(found):
            made.append(local.Frame(number, number + 1, end, count, nbytes, count))
            end = made[-1].end
        return [len(each) for each in local.groups(iter(made))]

    many, much = local.BATCH_ROWS, local.BATCH_BYTES
    assert sizes((1, 1), (1, 1), (many, 1), (many, 1), (1, 1)) == [3, 1, 1]
    assert sizes((1, much - 1), (1, 1), (1, much - 1), (1, 1), (1, 0)) == [2, 2, 1]
    assert sizes() == []


def test_a_batch_without_rows_ends_a_batch_for_spark() -> None:
    made = [
        local.Frame(0, 1, 0, 5, 1, 5),
        local.Frame(2, 3, 6, 2, 1, 2),
        local.Frame(3, 4, 8, 1, 1, 1),
    ]
    assert [len(each) for each in local.groups(iter(made))] == [1, 2]


def offsets(found: Sequence[pa.RecordBatch]) -> list[int]:
    return [each["offset"] for each in rows(found)]


@pytest.mark.parametrize(
    ("named", "enough", "asked"),
    [
        (16, 1 << 20, [3]),
        (3, 1 << 20, [3, 30]),
        (1, 1 << 20, [3, 10, 20, 30]),
        (16, 0, [3, 10, 20, 30]),
    ],
)
def test_some_segments_are_asked_for_at_once_and_only_what_is_published_is_read(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, named: int, enough: int, asked: list[int]
) -> None:
    monkeypatch.setattr(far, "MOST_SPOTS", named)
    monkeypatch.setattr(far, "MOST_BYTES", enough)
    put(partition, [row(35)], publish=False)
    near = Near(partition)
    assert offsets(list(reading(near, 3, 35))) == list(range(3, 35))
    assert near.asked == asked
    assert near.gets == 0
    with pytest.raises(DataLossError, match=r"offset 36 .* accepted: 3 to 35"):
        list(reading(near, 3, 36))


@pytest.mark.parametrize("way", [LOCAL, by_flight()])
@patch.object(local, "BATCH_ROWS", 1)
@patch.object(far, "MOST_SPOTS", 1)
def test_what_the_retention_takes_under_a_reader_is_read_to_its_end(
    partition: Partition, way: SourceOptions
) -> None:
    for loses in (True, False):
        found = reading(Near(partition), 0, 35, replace(way, fail_on_data_loss=loses))
        first = next(found)
        with partition.changed:
            kept = partition.sealed
            gone, partition.sealed = kept[:2], kept[2:]
        if loses:
            with pytest.raises(DataLossError, match=r"offset 10 .* accepted: 20 to 35"):
                list(found)
        else:
            assert offsets([first, *found]) == [*range(10), *range(20, 35)]
        partition.sealed = gone + kept[2:]


@patch.object(local, "BATCH_ROWS", 1)
def test_what_was_named_is_read_whatever_happens_to_it_meanwhile(partition: Partition) -> None:
    """Merged, deleted, written to: all its files are open before the first row comes."""
    near = Near(partition)
    found = reading(near, 0, 35)
    first = next(found)
    put(partition, [row(35)])
    while partition.unmerged:
        assert merge(partition, partition.unmerged.pop())
    partition.gone = True
    assert [each.base for each in partition.retain()] == [0, 10, 20]
    assert offsets([first, *found]) == list(range(35))
    assert (near.asked, near.gets) == ([0], 0)


def test_nothing_is_said_of_segments_behind_the_end_that_is_wanted(partition: Partition) -> None:
    def named(start: int, until: int | None) -> list[int]:
        return [each.first for each in locate(partition, start, until).further]

    assert named(3, 35) == [10, 20, 30]
    assert named(3, 21) == [10, 20]
    assert named(3, 20) == [10]
    assert named(3, 10) == named(3, None) == named(33, 35) == named(35, 35) == []


@pytest.mark.parametrize("partly", [False, True])
def test_further_segments_that_cannot_be_had_are_asked_for_where_they_come(
    partition: Partition, monkeypatch: pytest.MonkeyPatch, partly: bool
) -> None:
    """By the broker, which cannot open one, or by the reader, who finds another file."""
    near = Near(partition)
    if partly:
        near.alter_further = lambda spot: spot.update(inode=spot["inode"] + (spot["first"] > 10))
    else:
        path = partition.sealed[2].path
        there = os.open

        def refusing(name: Any, *given: Any) -> int:
            if name == path and len(near.asked) == 1:
                raise OSError(24, "Too many open files")
            return there(name, *given)

        monkeypatch.setattr(os, "open", refusing)
    assert offsets(list(reading(near, 0, 35))) == list(range(35))
    assert (near.asked, near.gets, near.has_files) == ([0, 20, 30] if partly else [0, 20], 0, True)


@patch.object(far, "MOST_SPOTS", 1)
def test_a_segment_that_is_merged_after_the_answer_is_asked_for_again(partition: Partition) -> None:
    near = Near(partition)

    def merged(spot: dict[str, Any]) -> None:
        if partition.unmerged and spot["path"] == str(partition.unmerged[0].path):
            assert merge(partition, partition.unmerged.pop(0))

    near.alter = merged
    assert offsets(list(reading(near, 0, 35))) == list(range(35))
    assert near.asked == [0, 0, 10, 10, 20, 20, 30]
    assert near.gets == 0


def another(spot: dict[str, Any]) -> None:
    spot["inode"] += 1


def elsewhere(spot: dict[str, Any]) -> None:
    spot["device"] += 1


def gone(spot: dict[str, Any]) -> None:
    spot["path"] += ".gone"


def shorter(spot: dict[str, Any]) -> None:
    spot["limit"] += 1 << 20


def folder(spot: dict[str, Any]) -> None:
    """Something that can be opened and not mapped."""
    spot["path"] = str(Path(spot["path"]).parent)
    file = Path(spot["path"]).stat()
    spot["device"], spot["inode"], spot["limit"] = file.st_dev, file.st_ino, file.st_size


def pipe(spot: dict[str, Any]) -> None:
    spot["path"] += ".pipe"
    if not Path(spot["path"]).exists():
        os.mkfifo(spot["path"])


@pytest.mark.parametrize(
    ("alter", "times"),
    [(another, 3), (elsewhere, 3), (gone, 3), (shorter, 3), (folder, 1), (pipe, 3)],
)
def test_a_file_that_is_not_the_one_meant_is_left_to_flight_and_not_asked_for_again(
    partition: Partition,
    alter: Callable[[dict[str, Any]], None],
    times: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    near = Near(partition)
    near.alter = alter
    with caplog.at_level(logging.DEBUG, "pyspark_vmq"):
        assert offsets(list(reading(near, 3, 35))) == list(range(3, 35))
    (line,) = caplog.messages
    assert line.startswith("stream 's', partition 0: from offset 3 on by Flight, not from files: ")
    assert (near.asked, near.gets) == ([3] * times, 1)
    assert offsets(list(reading(near, 3, 35))) == list(range(3, 35))
    assert (near.asked, near.gets) == ([3] * times, 2)


def test_a_file_that_may_not_be_opened_is_left_to_flight(
    partition: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_spot: local.Spot) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(local, "mapped", refuse)
    near = Near(partition)
    assert offsets(list(reading(near, 3, 35))) == list(range(3, 35))
    assert (near.asked, near.gets, near.has_files) == ([3], 1, False)


def test_a_batch_of_another_offset_than_was_said_is_left_to_flight(partition: Partition) -> None:
    def other(spot: dict[str, Any]) -> None:
        spot["first"] -= 1

    near = Near(partition)
    near.alter = other
    assert offsets(list(reading(near, 13, 35))) == list(range(13, 35))
    assert near.gets == 1


@patch.object(local, "machine", lambda: "")
def test_without_a_boot_id_or_checksums_nobody_is_asked(partition: Partition) -> None:
    near = Near(partition)
    assert offsets(list(reading(near, 3, 35))) == list(range(3, 35))
    assert (near.asked, near.gets) == ([], 1)


def test_a_flipped_bit_is_found_wherever_it_is_and_named_by_the_broker(
    partition: Partition,
) -> None:
    """In the second batch of the second segment: the rows before it come."""
    path = partition.sealed[1].path
    raw = path.read_bytes()
    spot = present(locate(partition, 10).spot)
    whole = memoryview(raw)
    first = present(local.frame_at(whole, spot.position, 10, 0))
    second = present(local.frame_at(whole, first.limit, 15, 0))
    for position in range(second.position, second.limit, 37):
        raw_now = bytearray(raw)
        raw_now[position] ^= 4
        path.write_bytes(raw_now)
        found = reading(Near(partition), 0, 35)
        assert offsets([next(found), next(found)]) == list(range(15))
        with pytest.raises(ServerError, match=r"damaged at byte \d+ \(offset 15\)"):
            next(found)
    path.write_bytes(raw)
    assert offsets(list(reading(Near(partition), 0, 35))) == list(range(35))
