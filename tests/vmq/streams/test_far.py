"""Far partitions give what near ones give; random walks over both are in test_log_model."""

from pathlib import Path

import pytest

from tests.support.flipped import flip
from tests.vmq.streams.support import make, payloads, put, rows_from
from vmq.streams import far
from vmq.streams.far import FarCursor, FarLog, Located, examine, locate
from vmq.streams.log.cursor import Cursor, LogReader
from vmq.streams.log.errors import DamagedError, OutOfRangeError, StreamError
from vmq.streams.log.merging import merge
from vmq.streams.log.partition import Partition


@pytest.fixture
def partition(tmp_path: Path) -> Partition:
    """Offsets 0 to 9 sealed, in two batches; 10 to 14 in the active segment."""
    partition = make(tmp_path)
    for first in (0, 5):
        put(partition, rows_from(first, 5))
    partition.roll()
    put(partition, rows_from(10, 5))
    return partition


def far_log(partition: Partition, start: int = 0) -> FarLog:
    return FarLog("s", 0, locate(partition, start), lambda offset: locate(partition, offset))


def read(log: FarLog, start: int = 0, end: int | None = None) -> list[bytes]:
    reader = LogReader(log, ["payload"], cursor=FarCursor)
    return [each.as_py() for chunk in reader.read(start, end) for each in chunk.rows.column(0)]


def test_what_is_far_reads_like_what_is_near(partition: Partition) -> None:
    for start in range(15):
        assert read(far_log(partition, start), start) == payloads(partition, start)
    assert read(far_log(partition, 15), 15) == []


def test_rows_that_are_not_published_are_not_seen(partition: Partition) -> None:
    put(partition, rows_from(15, 3), publish=False)
    log = far_log(partition)
    assert (log.earliest, log.end) == (0, 15)
    assert len(read(log)) == 15


@pytest.mark.parametrize("hurt", [0, 17, 39])
def test_damage_is_found_wherever_a_batch_lies(tmp_path: Path, hurt: int) -> None:
    """Of small batches several have one entry of the index."""
    partition = make(tmp_path)
    for number in range(40):
        put(partition, rows_from(number, 1))
    partition.roll()
    path = partition.sealed[0].path
    raw = path.read_bytes()
    flip(path, raw.index(b"crc32c=", raw.index(b"offset=%020d" % hurt)) - 100)
    with pytest.raises(DamagedError, match=f"offset {hurt}"):
        examine(partition, hurt)
    assert [flaw.offset for flaw in partition.flaws.values()] == [hurt]


def test_an_offset_that_is_not_there_is_refused(partition: Partition) -> None:
    with pytest.raises(OutOfRangeError, match="accepted: 0 to 15"):
        locate(partition, 16)
    with pytest.raises(OutOfRangeError, match="accepted: 0 to 15"):
        read(far_log(partition), 0, 16)


def test_a_segment_that_is_sealed_and_merged_meanwhile_is_looked_up_again(
    partition: Partition,
) -> None:
    wanted = payloads(partition)
    asked: list[int] = []

    def ask(offset: int) -> Located:
        asked.append(offset)
        return locate(partition, offset)

    log = FarLog("s", 0, locate(partition, 0), ask)
    assert merge(partition, partition.unmerged.pop())
    assert read(log) == wanted
    assert asked == [0, 10]


def test_a_segment_that_goes_under_its_reader_is_read_to_its_end(partition: Partition) -> None:
    log = far_log(partition)
    with FarCursor(log, 0) as cursor:
        cursor.open()
        partition.gone = True
        partition.retain()
        span = cursor.read(None)
        assert span is not None
        assert span.rows.num_rows == 10
        partition.close()
        with pytest.raises(StreamError, match="closed or deleted"):
            cursor.read(None)


def test_a_segment_that_is_gone_before_it_is_opened_is_out_of_range(partition: Partition) -> None:
    log = far_log(partition)
    partition.gone = True
    partition.retain()
    with pytest.raises(OutOfRangeError, match=r"offset 0 .* accepted: 10 to 15"):
        read(log)


def test_answers_that_are_always_out_of_date_end_somewhere(partition: Partition) -> None:
    stale = locate(partition, 0)
    assert merge(partition, partition.unmerged.pop())
    asked: list[int] = []

    def ask(offset: int) -> Located:
        asked.append(offset)
        return stale

    with pytest.raises(StreamError, match="change too fast"):
        read(FarLog("s", 0, stale, ask))
    assert len(asked) == far.TRIES - 1


def test_nothing_stays_open(partition: Partition) -> None:
    with FarCursor(far_log(partition), 3) as cursor:
        place = cursor.open()
        assert isinstance(cursor, Cursor)
        assert place.path == partition.sealed[0].path
    assert cursor.place is None
