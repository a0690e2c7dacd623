"""What retention takes is in the archive, and read from there at its offsets and times as if it were here."""

import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tests.vmq.streams.support import Clock, ShortRoom, make, options, put, read_all, row, rows_from
from vmq.config.values import read_archive
from vmq.streams.log import archive as module
from vmq.streams.log.archive import ArchivedSegment, RecallingError, joined
from vmq.streams.log.cursor import Cursor, LogReader
from vmq.streams.log.errors import OutOfRangeError
from vmq.streams.log.partition import Partition
from vmq.streams.parking import Parking, take_in
from vmq.streams.tidying.janitor import Janitor
from vmq.streams.times import offset_at


@pytest.fixture(autouse=True)
def asks_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a store that is away; what is fetched may take long on a busy machine."""
    monkeypatch.setattr(module, "_AGAIN", module.PATIENCE)


@pytest.fixture
def clock() -> Clock:
    return Clock()


def url_of(folder: Path) -> str:
    return f"file://{folder / 'archive'}"


@pytest.fixture
def partition(tmp_path: Path, clock: Clock) -> Iterator[Partition]:
    found = archived(tmp_path, clock)
    yield found
    found.close()


def archived(folder: Path, clock: Clock, **changes: Any) -> Partition:
    given = {"retention_age": "1h", "archive": url_of(folder), **changes}
    return make(folder / "s" / "0", clock, **given)


def fill(partition: Partition, segments: int, rows: int = 5) -> None:
    """So many sealed segments, and one that grows."""
    for _ in range(segments):
        put(partition, rows_from(partition.end, rows))
        partition.roll()
    put(partition, rows_from(partition.end, rows))


def tidy(partition: Partition) -> None:
    Janitor(lambda: [partition]).tidy()


def grow_old(partition: Partition, clock: Clock) -> None:
    clock.now += 2 * 3600
    tidy(partition)


def fill_old(partition: Partition, clock: Clock, segments: int, rows: int = 5) -> None:
    """So many sealed segments that retention has taken, and one that grows."""
    fill(partition, segments, rows)
    grow_old(partition, clock)


def test_what_is_gone_here_is_read_from_the_archive(
    partition: Partition, clock: Clock, tmp_path: Path
) -> None:
    fill(partition, 3)
    before = read_all(partition)
    grow_old(partition, clock)
    assert (partition.kept, partition.earliest, partition.end) == (15, 0, 20)
    assert read_all(partition) == before == rows_from(0, 20)
    assert read_all(partition, 7, 12) == rows_from(7, 5)
    for number in range(20):
        assert offset_at(partition, row(number)["timestamp"]) == number
    assert len(list((tmp_path / "archive").rglob("*.parquet"))) == 3


def test_of_what_is_compacted_the_archive_has_what_was_left(clock: Clock, tmp_path: Path) -> None:
    """At its offsets, with the gaps between them, from wherever a reader begins."""
    partition = archived(tmp_path, clock, compact=True)
    for first in (0, 10):
        put(
            partition,
            [{**row(number), "topic": f"t/{number % 3}"} for number in range(first, first + 10)],
        )
        partition.roll()
    put(partition, rows_from(20, 5))
    tidy(partition)
    reader = LogReader(partition, ["offset", "payload"])

    def rows(start: int) -> list[tuple[int, bytes]]:
        return [
            (each["offset"], each["payload"])
            for chunk in reader.read(start)
            for each in chunk.rows.to_pylist()
        ]

    before = rows(0)
    assert [offset for offset, _ in before] == [17, 18, 19, *range(20, 25)]
    grow_old(partition, clock)
    assert (partition.kept, partition.earliest) == (20, 0)
    assert list((tmp_path / "archive").rglob("*.parquet"))
    for start in range(25):
        assert rows(start) == [each for each in before if each[0] >= start]


def test_any_tool_reads_it(partition: Partition, clock: Clock, tmp_path: Path) -> None:
    fill_old(partition, clock, 2)
    hive = ds.partitioning(
        pa.schema([("stream", pa.string()), ("date", pa.string()), ("partition", pa.int32())]),
        flavor="hive",
    )
    found = ds.dataset(tmp_path / "archive", partitioning=hive).to_table(
        columns=["offset", "topic", "date"], filter=ds.field("date") == "2023-11-14"
    )
    assert sorted(found.column("offset").to_pylist()) == list(range(10))


def test_it_is_there_after_a_restart_though_the_store_is_away(clock: Clock, tmp_path: Path) -> None:
    partition = archived(tmp_path, clock)
    fill_old(partition, clock, 2)
    partition.close()
    (tmp_path / "archive").rename(tmp_path / "away")
    again = archived(tmp_path, clock)
    assert (again.kept, again.earliest) == (10, 0)
    with pytest.raises(RecallingError, match="try again"):
        read_all(again, 0)
    (tmp_path / "away").rename(tmp_path / "archive")
    assert read_all(again, 0) == rows_from(0, 15)


def test_who_has_no_note_asks_the_store(clock: Clock, tmp_path: Path) -> None:
    """As does the next owner of a partition: before it knows, nothing counts as gone."""
    partition = archived(tmp_path, clock)
    fill_old(partition, clock, 2)
    partition.close()
    (tmp_path / "s" / "0" / module.NOTE).unlink()
    again = archived(tmp_path, clock)
    assert again.earliest == 0
    with pytest.raises(RecallingError, match="not known yet"):
        read_all(again, 3)
    tidy(again)
    assert read_all(again, 3) == rows_from(3, 12)


@pytest.mark.parametrize("gone", [[0], [1], [0, 1, 2]])
def test_what_somebody_deletes_there_is_out_of_range_with_what_lies_before_it(
    partition: Partition,
    clock: Clock,
    tmp_path: Path,
    gone: list[int],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """As the rules of a bucket do with what is old. Until it is noticed readers are told to try again."""
    fill_old(partition, clock, 3)
    files = sorted((tmp_path / "archive").rglob("*.parquet"))
    for each in gone:
        files[each].unlink()
    first = 5 * (gone[-1] + 1)
    assert read_all(partition, first) == rows_from(first, 20 - first)
    tidy(partition)
    assert partition.earliest == 0, "nobody has asked for it"
    with pytest.raises(RecallingError, match="try again"):
        read_all(partition, first - 1)
    tidy(partition)
    assert partition.earliest == first
    with pytest.raises(OutOfRangeError):
        read_all(partition, first - 1)
    assert read_all(partition) == rows_from(first, 20 - first)
    assert f"it begins at offset={first}, not at 0 any more" in caplog.text
    caplog.clear()
    tidy(partition)
    assert not caplog.text


def test_a_folder_that_is_not_there_deletes_nothing(
    partition: Partition, clock: Clock, tmp_path: Path
) -> None:
    """It is not mounted, perhaps."""
    fill_old(partition, clock, 2)
    (tmp_path / "archive").rename(tmp_path / "away")
    with pytest.raises(RecallingError, match="try again"):
        read_all(partition, 0)
    tidy(partition)
    assert partition.earliest == 0
    assert partition.archive is not None
    assert "is not there" in partition.archive.failure
    (tmp_path / "away").rename(tmp_path / "archive")
    tidy(partition)
    assert read_all(partition) == rows_from(0, 15)
    assert not partition.archive.failure


def test_while_the_store_is_away_segments_stay(
    partition: Partition, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "archive").write_text("no folder")
    fill_old(partition, clock, 2)
    tidy(partition)
    assert partition.kept == 0
    assert caplog.text.count("cannot be archived") == 1
    assert partition.archive is not None
    assert partition.archive.failure
    (tmp_path / "archive").unlink()
    tidy(partition)
    assert (partition.kept, partition.archive.failure) == (10, "")
    assert read_all(partition) == rows_from(0, 15)


@pytest.mark.parametrize("required", [False, True])
def test_without_room_what_is_not_archived_goes_unless_it_is_required(
    tmp_path: Path, clock: Clock, required: bool, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "archive").write_text("no folder")
    partition = archived(tmp_path, clock, retention_bytes=1, archive_required=required)
    fill(partition, 2)
    tidy(partition)
    assert ("10 messages are deleted that the archive does not have" in caplog.text) != required
    assert (partition.kept, partition.unarchived) == ((0, 0) if required else (10, 10))
    (tmp_path / "archive").unlink()
    fill(partition, 1)
    tidy(partition)
    # What lies before a gap nobody reads by offsets.
    assert partition.earliest == (0 if required else 10)
    assert read_all(partition) == rows_from(partition.earliest, partition.end - partition.earliest)


def test_readers_that_ask_again_fill_no_log(
    partition: Partition, clock: Clock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It says once that the archive is away, and once more when it was there meanwhile."""
    fill_old(partition, clock, 2)
    away = tmp_path / "away"
    for time in (1, 2):
        (tmp_path / "archive").rename(away)
        for _ in range(3):
            with pytest.raises(RecallingError, match="try again"):
                read_all(partition, 0)
        assert caplog.text.count("cannot be fetched from") == time
        away.rename(tmp_path / "archive")
        assert read_all(partition, 0) == rows_from(0, 15)
        shutil.rmtree(tmp_path / "s" / "0" / module.RECALLED)


def test_who_asks_while_others_are_told_of_a_failure_has_it_fetched_anew(
    partition: Partition, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill_old(partition, clock, 1)
    has_asked = threading.Event()

    class Slow(Future[Any]):
        def set_exception(self, exception: BaseException | None) -> None:
            super().set_exception(exception)
            has_asked.wait(module.PATIENCE)

    monkeypatch.setattr(module, "Future", Slow)
    away = (tmp_path / "archive").rename(tmp_path / "away")
    with pytest.raises(RecallingError, match="try again"):
        read_all(partition, 0)
    away.rename(tmp_path / "archive")
    assert read_all(partition, 0) == rows_from(0, 10)
    has_asked.set()


def test_few_segments_stay_that_were_fetched(
    partition: Partition, clock: Clock, tmp_path: Path
) -> None:
    fill_old(partition, clock, 8, rows=2)
    cursors = [Cursor(partition, 0)]
    assert cursors[0].read(None) is not None
    assert read_all(partition) == rows_from(0, 18)
    recalled = list((tmp_path / "s" / "0" / module.RECALLED).glob("*.arrows"))
    assert len(recalled) == module.KEPT
    # Whoever reads one that has gone reads on.
    span = cursors[0].read(None)
    assert span is not None
    assert span.offset == 2
    cursors[0].close()


def test_a_file_that_is_not_what_was_written_is_refused(
    partition: Partition, clock: Clock, tmp_path: Path
) -> None:
    fill_old(partition, clock, 2)
    first, second = sorted((tmp_path / "archive").rglob("*.parquet"))
    shutil.copyfile(second, first)
    with pytest.raises(RecallingError, match="offset 0 is missing"):
        read_all(partition, 0)
    assert read_all(partition, 5) == rows_from(5, 10)


def test_a_partition_that_goes_elsewhere_forgets_it(partition: Partition, clock: Clock) -> None:
    fill_old(partition, clock, 1)
    assert partition.clear(partition.end)
    assert partition.archive is not None
    assert not partition.archive.is_known
    assert partition.kept == partition.end


def test_a_new_stream_takes_no_folder_with_files_of_an_earlier_one(
    clock: Clock, tmp_path: Path
) -> None:
    partition = archived(tmp_path, clock)
    fill_old(partition, clock, 1)
    partition.close()
    shutil.rmtree(tmp_path / "s")
    again = archived(tmp_path, clock)
    fill_old(again, clock, 2, rows=3)
    assert again.archive is not None
    assert "an earlier stream" in again.archive.failure
    assert again.kept == 0


def test_what_waits_beside_a_damaged_partition_has_no_archive(tmp_path: Path, clock: Clock) -> None:
    """Else it would begin where the archive does."""
    given = options(archive=url_of(tmp_path))
    folder = tmp_path / "s" / "0"
    partition = Partition(folder, "s", 0, given, clock)
    put(partition, rows_from(0, 3))
    parking = Parking(folder, "s", 0, given, clock)
    put(parking.log(), rows_from(3, 2))
    parking.close()
    assert parking.log().archive is None
    parking.close()
    take_in(partition)
    partition.publish()
    assert read_all(partition)[-2:] == rows_from(3, 2)
    partition.close()


def test_segments_of_the_archive_are_joined() -> None:
    def segments(*pairs: tuple[int, int]) -> list[ArchivedSegment]:
        return [ArchivedSegment(base, end, 0) for base, end in pairs]

    assert joined(segments((0, 5), (5, 9)), 9) == segments((0, 5), (5, 9))
    assert joined(segments((0, 5), (6, 9)), 9) == segments((6, 9))
    assert joined(segments((0, 5), (0, 9), (5, 9)), 9) == segments((0, 9))
    assert joined(segments((0, 5), (3, 9)), 9) == segments((0, 5), (3, 9))
    assert joined(segments((0, 5)), 9) == []
    assert joined(segments((0, 5), (5, 12)), 9) == segments((0, 5), (5, 12))
    assert joined(segments((9, 12)), 9) == []


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("s3://key:secret@bucket/x", "credentials stand in the environment"),
        ("ftp://host/x", "names no archive"),
        ("file://host/x", "names no archive"),
        ("file://", "names no archive"),
        ("s3:///x", "names no archive"),
        ("s3://bucket?secret=x", "names no archive"),
        ("s3://bucket?endpoint=ftp://host", "endpoint is an address"),
    ],
)
def test_what_is_no_archive_says_why(text: str, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        read_archive(text)


def test_nothing_is_fetched_to_a_disk_that_is_short(partition: Partition, clock: Clock) -> None:
    fill_old(partition, clock, 2)
    partition.room = room = ShortRoom()
    with pytest.raises(RecallingError, match="the disk is short: try again"):
        read_all(partition, 0)
    assert not list(partition.folder.glob("recalled/*.arrows"))
    room.is_short = False
    assert read_all(partition, 0) == rows_from(0, 15)
