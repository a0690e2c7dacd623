"""The columns beside sealed segments: they say what the segments say, and are not missed where they are not."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.vmq.streams.flight_support import Running
from tests.vmq.streams.sql.queries import query_all
from tests.vmq.streams.support import ShortRoom, options
from vmq.streams import column_process, column_writer
from vmq.streams.column_writer import ColumnWriter
from vmq.streams.log.column_file import SUFFIX, ColumnCounts
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.errors import StreamError
from vmq.streams.log.frame import END
from vmq.streams.log.index import load
from vmq.streams.log.partition import Partition
from vmq.streams.log.segment import index_path
from vmq.streams.log.typed import Unfit

SCHEMA = {"temp": "double", "device": "string level:2"}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    found = Running(tmp_path / "s", sensors=options(filters=["sensors/#"], schema=SCHEMA))
    with closing(found):
        yield found


def fill(running: Running, *payloads: bytes, seals: bool = True) -> Partition:
    """Rows in a segment of their own, which is sealed and merged."""
    (partition,) = running.catalog.streams["sensors"].partitions
    for number, payload in enumerate(payloads):
        running.append(f"sensors/d{number % 3}", payload, client_id=f"c{number}")
    if seals:
        running.catalog.commits.writer.call(partition.roll).result(30)
        running.catalog.janitor.tidy()
    return partition


def readings(count: int) -> list[bytes]:
    return [b'{"temp": %d}' % number for number in range(count)]


def writer_of(running: Running) -> ColumnWriter:
    return ColumnWriter(running.catalog.all_partitions, least=0)


def tidied(running: Running) -> ColumnWriter:
    writer = writer_of(running)
    writer.tidy()
    return writer


def files(partition: Partition) -> list[str]:
    return sorted(each.name for each in partition.folder.glob("*" + SUFFIX))


def ask(running: Running, query: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = query_all(running, query).to_pylist()
    return found


QUERIES = [
    'select * exclude (payload, headers) from sensors order by "offset"',
    "select device, count(*) as n, avg(temp) as mean from sensors group by all order by all",
    "select topic, \"offset\" from sensors where topic = 'sensors/d1' and temp > 3 order by all",
    "select \"offset\" from sensors where stream = 'sensors' and partition = 0 order by all",
    "select payload from sensors where device = 'd2' order by all",
    "select count(*) as n from sensors",
    "select topic, client_id from sensors where topic in ('sensors/d1', 'sensors/d2', 'x') order by all",
    "select \"offset\" from sensors where device is null or device > 'd1' order by all",
    "select topic from sensors where topic like 'sensors/d%' and device <> 'd0' order by all",
    "select a.topic, count(*) as n from sensors a join sensors b using (device) group by all order by all",
    "select count(*) as n from sensors where topic between 'sensors/d1' and 'sensors/d2' or qos = 0",
]


def test_queries_say_the_same_with_them_and_without(running: Running) -> None:
    fill(running, *readings(10))
    fill(running, b"broken", b'{"temp": "warm"}', b"{}")
    partition = fill(running, *readings(5), seals=False)
    before = [ask(running, query) for query in QUERIES]
    writer_of(running).tidy()
    assert len(files(partition)) == 2
    for query, found in zip(QUERIES, before, strict=True):
        assert ask(running, query) == found, query


def test_compacted_segments_give_what_is_left(tmp_path: Path) -> None:
    """Of each topic the newest row, with the columns beside them and without."""
    declared = options(filters=["sensors/#"], schema=SCHEMA, compact=True)
    with closing(Running(tmp_path / "s", sensors=declared)) as running:
        writer = writer_of(running)
        for several in ([*readings(10)], [b"broken", b'{"temp": "warm"}'], [*readings(40)]):
            partition = fill(running, *several)
            writer.tidy()  # of what is rewritten by the next round
        fill(running, *readings(2), seals=False)
        rows = LogReader(partition, ["offset", "topic"]).read(0)
        left = [row for chunk in rows for row in chunk.rows.to_pylist()]
        assert [each["offset"] for each in left] == [*range(49, 54)]
        beside = [ask(running, query) for query in QUERIES[:3]]
        assert files(partition)
        assert [(each["offset"], each["topic"]) for each in beside[0]] == [
            (each["offset"], each["topic"]) for each in left
        ]
        for name in files(partition):
            (partition.folder / name).unlink()
        assert [ask(running, query) for query in QUERIES[:3]] == beside


def test_a_file_of_the_same_size_in_a_segment_s_place_has_columns_of_its_own(
    running: Running,
) -> None:
    """As compaction may leave one: what lies beside the old one says nothing of it."""
    partition = fill(running, *readings(4))
    writer = tidied(running)
    before = files(partition)
    [sealed] = partition.sealed
    other = Running(running.catalog.folder.parent / "other", sensors=options(filters=["sensors/#"]))
    with closing(other):
        [copy] = fill(other, *(b'{"temp": %d}' % number for number in range(9, 5, -1))).sealed
        assert copy.size == sealed.size
        index = load(index_path(sealed.path), sealed.base, sealed.size - len(END))
        assert index is not None
        work = sealed.path.with_name("work.tmp")
        work.write_bytes(copy.path.read_bytes())
        partition.replace([sealed], work, index)
    query = "select temp from sensors order by temp"
    wanted = [{"temp": float(each)} for each in range(6, 10)]
    assert ask(running, query) == wanted
    writer.tidy()
    assert not set(files(partition)) & set(before)
    assert ask(running, query) == wanted


def test_what_is_looked_at_is_counted(running: Running) -> None:
    partition = fill(running, *readings(3), b"broken", b'{"temp": "warm"}', b"{}")
    writer = tidied(running)
    found = ColumnCounts(6, 1, {"temp": Unfit(2, 1), "device": Unfit()})
    assert writer.counts([partition]) == found
    again = tidied(running)  # by what the files say
    assert again.counts([partition]) == found


def test_the_newest_rows_are_counted_for_who_asks(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of segments without a file, and behind those that have one."""
    partition = fill(running, *readings(3), b"broken", b'{"temp": "warm"}', b"{}")
    writer = writer_of(running)
    found = ColumnCounts(6, 1, {"temp": Unfit(2, 1), "device": Unfit()})
    assert writer.counts_with_newest([partition]) == found
    writer.tidy()
    assert writer.counts_with_newest([partition]) == found
    fill(running, b'{"tmp": 7}', b'{"temp": {}}')
    more = ColumnCounts(8, 1, {"temp": Unfit(3, 2), "device": Unfit()})
    assert writer.counts_with_newest([partition]) == more
    monkeypatch.setattr("vmq.streams.column_writer.NEWEST", 1)
    last = ColumnCounts(7, 1, {"temp": Unfit(2, 2), "device": Unfit()})
    assert writer.counts_with_newest([partition]) == last


def reschema(running: Running, partition: Partition) -> None:
    stream = running.catalog.streams["sensors"]
    changed = options(filters=["sensors/#"], schema={**SCHEMA, "unit": "string"})
    running.call(lambda: stream.set_options(changed))


def forget(_running: Running, partition: Partition) -> None:
    partition._forget_sealed()


def test_a_schema_that_fits_nothing(tmp_path: Path) -> None:
    """All rows are there, each column of each is null, and counted."""
    schema = {"temp": "int64", "seen": "timestamp", "gone": "bool a.b[3]", "deep": "string level:9"}
    declared = options(filters=["sensors/#"], schema=schema)
    with closing(Running(tmp_path / "s", sensors=declared)) as running:
        rows = [b'{"temp": "warm", "seen": 7}', b"broken", b"\xff\x00", b'[{"temp": 1}]', b""]
        partition = fill(running, *rows)
        query = "select count(*) as n, count(temp) as t, count(seen) as a, count(gone) as g from sensors"
        found = [{"n": 5, "t": 0, "a": 0, "g": 0}]
        assert ask(running, query) == found
        writer = tidied(running)
        assert files(partition)
        assert ask(running, query) == found
        counts = writer.counts([partition]).columns
        assert {name: each.missing + each.unfit for name, each in counts.items()} == dict.fromkeys(
            schema, 5
        )
        assert (counts["temp"], counts["seen"].unfit) == (Unfit(4, 1), 1)


@pytest.mark.parametrize(("change", "left"), [(reschema, 1), (forget, 0)])
def test_files_are_those_of_the_segments_and_the_schema(
    running: Running, change: Callable[[Running, Partition], None], left: int
) -> None:
    partition = fill(running, *readings(4))
    writer = tidied(running)
    before = files(partition)
    change(running, partition)
    writer.tidy()
    assert len(files(partition)) == left
    assert not set(files(partition)) & set(before)


def test_small_segments_have_none(running: Running) -> None:
    partition = fill(running, *readings(4))
    running.catalog.columns.tidy()
    assert files(partition) == []


def flipped(whole: bytes) -> bytes:
    """Each page is hurt, the footer is not."""
    footer = int.from_bytes(whole[-8:-4], "little") + 8
    return bytes(each ^ 0x10 for each in whole[:-footer]) + whole[-footer:]


@pytest.mark.parametrize("hurt", [flipped, lambda whole: whole[:-20], lambda _whole: b""])
def test_a_damaged_file_is_deleted_and_the_segment_has_it_all(
    running: Running, hurt: Callable[[bytes], bytes]
) -> None:
    partition = fill(running, *readings(4))
    writer_of(running).tidy()
    (name,) = files(partition)
    path = partition.folder / name
    path.write_bytes(hurt(path.read_bytes()))
    with pytest.raises(StreamError, match="try again") as refused:
        ask(running, "select sum(temp) as s, max(device) as d, max(topic) as t from sensors")
    assert "Traceback" not in str(refused.value)  # of the process that reads
    assert ask(running, "select sum(temp) as s from sensors") == [{"s": 6.0}]


@pytest.mark.parametrize("command", [["/bin/false"], ["/nowhere/at/all"]])
def test_a_process_that_fails_leaves_the_segments_as_they_are(
    running: Running, command: list[str]
) -> None:
    partition = fill(running, *readings(4))
    running.catalog.columns.least = 0
    running.catalog.columns.command = command
    running.catalog.columns.tidy()
    assert files(partition) == []
    assert ask(running, "select sum(temp) as s from sensors") == [{"s": 6.0}]
    assert list(running.catalog.failures())  # which `/health` tells


def test_what_nobody_expected_of_one_partition_keeps_no_other_from_its_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = {name: options(filters=[f"{name}/#"], schema=SCHEMA) for name in ("ill", "sensors")}
    with closing(Running(tmp_path / "s", **both)) as running:
        partition = fill(running, *readings(4))
        (ill,) = running.catalog.streams["ill"].partitions
        writer = writer_of(running)

        def find(path: Path, *_: object) -> object:
            if path == ill.folder:
                raise RecursionError("too deep")
            return iter(())

        with monkeypatch.context() as patch:
            patch.setattr(column_writer, "leftovers", find)
            writer.tidy()
        assert len(files(partition)) == 1
        assert writer.failures.reasons == {("ill", 0): "too deep"}
        running.call(lambda: running.catalog.streams["ill"].set_options(both["sensors"]))
        writer.tidy()
        assert not writer.failures.reasons


def test_the_process_goes_on_after_what_nobody_expected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RecursionError("too deep")

    (tmp_path / "segment").touch()
    path, target = (str(tmp_path / name) for name in ("segment", "target"))
    monkeypatch.setattr(column_process, "make", fail)
    order = column_process.ColumnOrder("s", 0, path, 0, 1, 0, target, {})
    assert column_process.carry_out(order) == column_process.FAILED


def test_what_the_process_could_not_make_is_told(running: Running) -> None:
    partition = fill(running, *readings(4))
    writer = ColumnWriter(
        running.catalog.all_partitions, least=0, command=["sh", "-c", "read x && printf '!'"]
    )
    writer.tidy()
    assert files(partition) == []
    (reason,) = writer.failures.told(["sensors"])
    assert "cannot be made; standard error says why" in reason


def test_on_a_disk_that_is_short_they_wait(running: Running) -> None:
    partition = fill(running, *readings(4))
    partition.room = room = ShortRoom()
    writer = tidied(running)
    assert files(partition) == []
    assert not writer.failures.reasons
    room.is_short = False
    writer.tidy()
    assert len(files(partition)) == 1
