"""The rows by topic beside sealed segments: they come and go with these, and readers get the same rows."""

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import flight

from tests.vmq.streams.flight_support import Running, serving, ticket
from tests.vmq.streams.log.ordered.test_reading import TOPICS, order, spoil
from tests.vmq.streams.replica.support import Leader, partition_in
from tests.vmq.streams.sql.queries import query_all
from tests.vmq.streams.support import options
from vmq.streams.column_writer import ColumnWriter
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.errors import StreamError
from vmq.streams.log.ordered import making
from vmq.streams.log.ordered.file import SUFFIX, OrderedFile, path_of
from vmq.streams.log.partition import Partition
from vmq.streams.log.segment import Sealed


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    with closing(Running(tmp_path / "s", sensors=options())) as found:
        yield found


def fill(running: Running, count: int = 240) -> Partition:
    """A sealed segment of many topics in turn, and a row behind it."""
    (partition,) = running.catalog.streams["sensors"].partitions

    def append() -> None:
        for number in range(count):
            (appender,) = running.catalog.appenders(TOPICS[0])
            topic, when = TOPICS[number % len(TOPICS)].encode(), time.time_ns() // 1000
            appender.append(topic, b"p-%d" % number, 1, False, "c", when)

    running.call(append)
    running.run(running.catalog.commits.wait())
    running.catalog.commits.writer.call(partition.roll).result(30)
    running.catalog.janitor.tidy()
    return partition


def writer_of(*partitions: Partition) -> ColumnWriter:
    return ColumnWriter(lambda: partitions, least_ordered=0)


def files(partition: Partition) -> list[Path]:
    return sorted(partition.folder.glob("*" + SUFFIX + "*"))


def has_rows(sealed: Sealed) -> bool:
    """Whether compaction has left some in a segment."""
    with OrderedFile(path_of(sealed.path, sealed.size, sealed.inode)) as file:
        return file.rows > 0


def found(partition: Partition, topic_filter: str, start: int = -1) -> list[dict[str, Any]]:
    reader = LogReader(partition, None, topic_filter)
    chunks = reader.read(partition.earliest if start < 0 else start)
    return [each for chunk in chunks for each in chunk.rows.to_pylist()]


def test_they_are_those_of_the_segments(running: Running) -> None:
    """What retention, or another segment in its place, leaves behind goes; so it does if they are wanted no more."""
    partition = fill(running)
    writer = writer_of(partition)
    writer.tidy()
    before = files(partition)
    assert len(before) == 1
    fill(running)
    writer.tidy()
    assert len(files(partition)) == 2
    with partition.changed:
        gone, partition.sealed = partition.sealed[0], partition.sealed[1:]
    partition._unlink([gone])
    writer.tidy()
    assert len(files(partition)) == 1
    assert files(partition) != before
    stream = running.catalog.streams["sensors"]
    running.call(lambda: stream.set_options(options(topic_order=False)))
    writer.tidy()
    assert files(partition) == []


def test_one_that_is_damaged_is_made_anew(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = fill(running)
    writer = writer_of(partition)
    writer.tidy()
    (path,) = files(partition)
    whole = path.read_bytes()
    before = found(partition, TOPICS[3])
    spoil(path)
    assert list(LogReader(partition).read(partition.earliest))
    assert files(partition) == [path], "who wants all topics does not look there"
    assert found(partition, TOPICS[3]) == before
    assert files(partition) == []
    writer.tidy()
    assert path.read_bytes() == whole


def test_small_segments_have_none(running: Running) -> None:
    partition = fill(running)
    running.catalog.columns.tidy()
    assert files(partition) == []


@pytest.mark.parametrize("command", [["/bin/false"], ["/nowhere/at/all"]])
def test_a_process_that_fails_leaves_the_segments_as_they_are(
    running: Running, command: list[str]
) -> None:
    partition = fill(running)
    ColumnWriter(lambda: [partition], command=command, least_ordered=0).tidy()
    assert files(partition) == []
    assert len(found(partition, TOPICS[3])) == 10


def test_compacted_segments_give_what_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each topic the newest row, whose offset it brings."""
    monkeypatch.setattr(making, "BLOCK_ROWS", 2)
    with closing(Running(tmp_path / "s", sensors=options(compact=True))) as running:
        for _ in range(3):
            partition = fill(running)
        running.catalog.janitor.tidy()
        before = {topic: found(partition, topic) for topic in TOPICS}
        assert [len(each) for each in before.values()] == [1] * len(TOPICS)
        order(partition)
        left = [each for each in partition.sealed if has_rows(each)]
        assert left[0].base > partition.earliest, "of a segment before them no row is left"
        for each in left:
            spoil(each.path)
        assert {topic: found(partition, topic) for topic in TOPICS} == before
        for topic in TOPICS:
            packed = LogReader(partition, ["payload"], topic).read_packed(partition.earliest)
            assert [each.rows for each in packed] == [1]


def test_a_replica_has_them_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches without rows, of a leader, take offsets all the same."""
    monkeypatch.setattr(making, "LEAST_TOPICS", 1)
    with closing(partition_in(tmp_path)) as partition:
        leader = Leader(partition.open())
        leader.begin()
        for _ in range(3):
            leader.rows(20)
            leader.control()
            leader.rows(1)
            leader.segment()
        leader.rows(2)
        leader.log.commit(leader.log.end)
        before = found(partition, "a/b")
        writer_of(partition).tidy()
        paths = files(partition)
        assert len(paths) == len(partition.sealed) > 1
        counts = []
        for path in paths:
            with OrderedFile(path) as file:
                counts.append(file.rows)
        assert counts == [21] * len(paths)
        assert found(partition, "a/b") == before
        order(partition)
        assert found(partition, "a/b") == before
        for each in partition.sealed:
            spoil(each.path)
        assert found(partition, "x") == []
        partition.erase()
        assert files(partition) == []


@pytest.mark.parametrize("face", ["server", "front"])
@pytest.mark.parametrize("packed", [False, True])
def test_tickets_with_a_filter_use_them(
    running: Running, monkeypatch: pytest.MonkeyPatch, face: str, packed: bool
) -> None:
    monkeypatch.setattr(making, "BLOCK_ROWS", 4)
    partition = fill(running)
    order(partition)
    spoil(partition.sealed[0].path)
    with (
        serving(face, running) as server,
        flight.connect(f"grpc://127.0.0.1:{server.port}") as client,
    ):
        asked = ticket("sensors", filter=TOPICS[3], packed=packed, columns=["offset"])
        rows = client.do_get(asked).read_all()
        if packed:
            streams = [pa.ipc.open_stream(each) for each in rows["packed"].to_pylist()]
            rows = pa.concat_tables([each.read_all() for each in streams])
        assert rows["offset"].to_pylist() == list(range(3, 240, 24))
        with pytest.raises(flight.FlightError):
            client.do_get(ticket("sensors")).read_all()


@pytest.mark.parametrize(
    "where",
    [
        "topic = 'site-0/d3/temp'",
        "topic in ('site-0/d3/temp', 'x') and qos = 1",
        "topic between 'site-0/d3' and 'site-0/d4' and \"offset\" >= 0",
    ],
)
def test_queries_of_few_topics_use_them(
    running: Running, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(making, "BLOCK_ROWS", 4)
    partition = fill(running)
    order(partition)
    spoil(partition.sealed[0].path)
    query = f'select payload from sensors where {where} order by "offset"'
    answer = query_all(running, query)
    assert answer["payload"].to_pylist() == [b"p-%d" % each for each in range(3, 240, 24)]
    with pytest.raises(StreamError):
        query_all(running, "select max(payload) from sensors where qos = 1")
