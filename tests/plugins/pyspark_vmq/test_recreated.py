"""A stream that was deleted and made anew is another one to a query, however far it has grown. Without a JVM."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, StructType
from pyspark_vmq import positions
from pyspark_vmq.client import Client
from pyspark_vmq.errors import DataLossError, RecreatedError
from pyspark_vmq.offsets import Offsets, from_checkpoint, ids_of
from pyspark_vmq.options import SourceOptions, source_options
from pyspark_vmq.schema import projection
from pyspark_vmq.source import Reader, StreamReader

from tests.support.present import present
from tests.vmq.streams.flight_support import FACES, Running, serving
from tests.vmq.streams.support import options
from vmq.streams.definition import DEFINITION

COLUMNS = projection(StructType().add("payload", BinaryType(), nullable=False))
SAID = r"'s' was deleted and made anew.*set option 'failOnDataLoss' to false"


class Query:
    """A query of a stream, which goes on at its checkpoint: each run is one of a driver of its own."""

    def __init__(self, url: str, **given: str) -> None:
        self.given = {"server": url, "stream": "s", "startingOffsets": "earliest", **given}
        self.checkpoint: dict[str, Any] | None = None
        self.seen: list[bytes] = []

    def options(self, **changes: str) -> SourceOptions:
        return source_options({**self.given, **changes}, "stream")

    def reader(self, **changes: str) -> StreamReader:
        return StreamReader(self.options(**changes), COLUMNS)

    def run(self, *, limit: int = 0, available_now: bool = False, **changes: str) -> list[bytes]:
        """One batch: what it brings."""
        reader = self.reader(**changes)
        if available_now:
            reader.prepareForTriggerAvailableNow()
        start = self.checkpoint or kept(reader.initialOffset())
        most = ReadMaxRows(limit) if limit else ReadAllAvailable()
        end = kept(reader.latestOffset(start, most))
        found = taken(reader, start, end)
        self.checkpoint = end
        self.seen += found
        return found


def kept(offset: dict[str, Any]) -> dict[str, Any]:
    """As Spark keeps it."""
    found: dict[str, Any] = json.loads(json.dumps(offset))
    return found


def taken(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[bytes]:
    """What a planned batch brings."""
    plan = reader.partitions(start, end)
    if reader.carried is not None:
        batches = list(reader.getCache(start, end))
    else:
        batches = [rows for task in plan for rows in reader.read(task)]
    return sorted(value for rows in batches for value in rows.column(0).to_pylist())


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(tmp_path / "streams")
    make(running)
    yield running
    running.close()


def make(running: Running) -> None:
    wanted = options(filters=["s/#"], partitions=2, key="topic")
    running.run(running.catalog.create("s", wanted))


def make_anew(running: Running) -> None:
    running.call(lambda: running.catalog.delete("s")).result(30)
    make(running)


def fill(running: Running, first: int, count: int) -> list[bytes]:
    """Messages in both partitions."""
    numbers = range(first, first + count)
    for number in numbers:
        running.append(f"s/{number % 7}", b"%05d" % number)
    assert all(each.end for each in running.catalog.streams["s"].partitions)
    return [b"%05d" % number for number in numbers]


@pytest.fixture(params=FACES)
def url(request: pytest.FixtureRequest, running: Running) -> Iterator[str]:
    with serving(request.param, running) as server:
        yield f"grpc://127.0.0.1:{server.port}"


@pytest.mark.parametrize(("local", "tasks"), [("true", "1"), ("false", "3")])
def test_it_is_an_error_as_long_as_nobody_says_otherwise(
    running: Running, url: str, local: str, tasks: str
) -> None:
    """Also once it has grown past the checkpoint; then what is there is read, from its beginning, each row once."""
    query = Query(url, localReads=local, minPartitions=tasks)
    first = fill(running, 0, 50)
    assert query.run() == first
    make_anew(running)
    for grown in (0, 20, 80):
        fill(running, 100 + len(query.seen), grown) if grown else None
        for available_now in (False, True):
            with pytest.raises(RecreatedError, match=SAID):
                query.run(available_now=available_now)
    assert query.seen == first
    brought = query.run(failOnDataLoss="false")
    assert len(brought) == 100
    assert query.run(failOnDataLoss="false") == []
    last = fill(running, 900, 10)
    assert query.run() == last


@pytest.mark.parametrize("count", [20, 80])
def test_batches_that_are_limited_read_all_of_it_once(
    running: Running, url: str, count: int
) -> None:
    query = Query(url, failOnDataLoss="false", maxOffsetsPerTrigger="15")
    first = fill(running, 0, 50)
    while len(query.seen) < 50:
        query.run(limit=15)
    make_anew(running)
    anew = fill(running, 100, count)
    while brought := query.run(limit=15):
        assert len(brought) <= 15
    assert query.seen[:50] != query.seen[50:]
    assert sorted(query.seen) == first + anew


def test_an_empty_one_is_one_too(running: Running, url: str) -> None:
    query = Query(url, failOnDataLoss="false")
    fill(running, 0, 50)
    query.run()
    make_anew(running)
    assert query.run() == []
    anew = fill(running, 0, 50)
    assert query.run() == anew


def test_a_batch_that_was_planned_is_the_same_whenever_it_is_read(
    running: Running, url: str
) -> None:
    """Across the stream's end and beginning; one of a stream that is no more fails, or has no rows."""
    query = Query(url, failOnDataLoss="false")
    fill(running, 0, 30)
    query.run()
    begun = present(query.checkpoint)
    make_anew(running)
    anew = fill(running, 100, 60)
    query.run()
    ended = present(query.checkpoint)
    for _ in range(2):
        assert taken(query.reader(), begun, ended) == anew
        with pytest.raises(RecreatedError, match=SAID):
            taken(query.reader(failOnDataLoss="true"), begun, ended)
    plan = query.reader().partitions(begun, ended)
    make_anew(running)
    fill(running, 500, 90)
    assert [rows for task in plan for rows in query.reader().read(task)] == []
    strict = query.reader(failOnDataLoss="true", minPartitions="2")
    with pytest.raises(RecreatedError, match=SAID):
        [rows for task in plan for rows in strict.read(task)]
    with pytest.raises(RecreatedError, match=SAID):
        taken(strict, ended, ended | {"s": {"s": {"0": 90, "1": 90}}})


def test_one_that_is_made_anew_while_a_query_looks_is_noticed_by_the_next_look(
    running: Running, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the question for the ids and that for the offsets."""
    query = Query(url)
    first = fill(running, 0, 30)
    query.run()
    reader, start = query.reader(), query.checkpoint
    latest = StreamReader.latest
    assert start is not None

    def late(self: StreamReader) -> Offsets:
        monkeypatch.undo()
        make_anew(running)
        fill(running, 100, 90)
        return latest(self)

    monkeypatch.setattr(StreamReader, "latest", late)
    end = kept(reader.latestOffset(start, ReadAllAvailable()))
    with pytest.raises(RecreatedError, match=SAID):
        taken(reader, start, end)
    with pytest.raises(RecreatedError, match=SAID):
        query.run()
    assert query.seen == first


def test_a_checkpoint_without_ids_goes_on_and_gets_them(running: Running, url: str) -> None:
    query = Query(url)
    fill(running, 0, 30)
    query.run()
    assert query.checkpoint is not None
    ids = query.checkpoint.pop("ids")
    assert list(ids) == ["s"]
    more = fill(running, 30, 10)
    assert query.run() == more
    assert query.checkpoint["ids"] == ids
    assert query.run() == []


@patch.object(positions, "CATCH_UP", 0.01)
@patch.object(Client, "ids", lambda _: {})
def test_without_ids_an_end_before_the_checkpoint_tells_it(running: Running, url: str) -> None:
    """Of a broker that gives none: the error stays, and all of the new one is read where the options say so."""
    query = Query(url)
    fill(running, 0, 50)
    query.run()
    make_anew(running)
    anew = fill(running, 100, 20)
    for _ in range(2):
        with pytest.raises(DataLossError, match=r"is not there; it ends at .*'failOnDataLoss'"):
            query.run()
    assert query.run(failOnDataLoss="false") == anew
    assert query.run() == []


def test_a_plan_of_an_earlier_version_that_ends_before_it_starts(
    running: Running, url: str
) -> None:
    """Whatever the stream has grown to since."""
    fill(running, 0, 80)
    query = Query(url)
    start: dict[str, Any] = {"v": 1, "s": {"s": {"0": 5, "1": 30}}}
    end: dict[str, Any] = {"v": 1, "s": {"s": {"0": 9, "1": 3}}}
    for _ in range(2):
        with pytest.raises(DataLossError, match="offset 30 is not there; it ended at 3 since"):
            query.reader().partitions(start, end)
    assert len(taken(query.reader(failOnDataLoss="false"), start, end)) == 12


def test_one_of_before_there_were_ids_has_none_and_the_next_one_has(tmp_path: Path) -> None:
    running = Running(tmp_path / "streams")
    make(running)
    running.close()
    path = tmp_path / "streams" / "s" / DEFINITION
    plain = json.loads(path.read_text())
    assert plain.pop("id")
    path.write_text(json.dumps(plain))
    running = Running(tmp_path / "streams")
    with serving("server", running) as server:
        query = Query(f"grpc://127.0.0.1:{server.port}")
        fill(running, 0, 10)
        query.run()
        assert query.checkpoint is not None
        assert ids_of(query.checkpoint) == {"s": ""}
        assert len(fill(running, 10, 5)) == len(query.run())
        make_anew(running)
        fill(running, 0, 90)
        with pytest.raises(RecreatedError, match=SAID):
            query.run()
    running.close()


class LateCopy:
    """A broker whose copy of a partition is behind for some looks."""

    def __init__(self, *ends: int) -> None:
        self.ends = list(ends)

    def wait(self, _stream: str, known: Mapping[int, int], _seconds: float) -> dict[int, int]:
        assert known == {0: 9}
        return {0: self.ends.pop(0)}

    def earliest(self, _stream: str) -> dict[int, int]:
        return {0: 2}


def test_a_copy_that_is_a_moment_behind_is_waited_for(url: str) -> None:
    """One that stays behind has lost what was read, which `failOnDataLoss` is about."""
    strict, lenient = Query(url).options(), Query(url).options(failOnDataLoss="false")
    start, end = {"s": {0: 10}}, {"s": {0: 7}}

    def reached(last: int, wanted: SourceOptions, same: set[str]) -> Offsets:
        client: Any = LateCopy(last)
        return positions.in_reach(client, wanted, start, end, same)

    assert reached(10, strict, {"s"}) == start
    with pytest.raises(DataLossError, match="offset 10 is not there; it ends at 8"):
        reached(8, strict, {"s"})
    assert reached(8, lenient, {"s"}) == {"s": {0: 8}}
    assert reached(8, lenient, set()) == {"s": {0: 2}}


def test_a_batch_query_reads_the_stream_that_it_was_planned_for(running: Running, url: str) -> None:
    fill(running, 0, 30)
    given = {"server": url, "stream": "s"}
    strict = Reader(source_options(given, "batch"), COLUMNS)
    plan = strict.partitions()
    make_anew(running)
    fill(running, 100, 40)
    with pytest.raises(RecreatedError, match=SAID):
        [rows for task in plan for rows in strict.read(task)]
    assert from_checkpoint(kept(Query(url).reader().initialOffset())) == {"s": {0: 0, 1: 0}}
