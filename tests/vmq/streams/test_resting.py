"""Partitions that nobody writes to: read as they lie, and left so."""

from pathlib import Path

import pytest

from tests.vmq.streams.support import make, make_with, payloads, plain, put, rows_from
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.partition import CHECKPOINT, Partition
from vmq.streams.resting import RestingLog
from vmq.streams.stored import StoredPartition


def resting(folder: Path) -> RestingLog:
    return RestingLog(StoredPartition(folder, "s", 0))


def numbers(log: RestingLog) -> list[bytes]:
    chunks = LogReader(log).read(log.earliest)
    return [each["payload"] for chunk in chunks for each in plain(chunk.rows)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def segmented(folder: Path, count: int) -> Partition:
    """So many segments of three rows."""
    partition = make(folder)
    for number in range(count):
        if number:
            partition.roll()
        put(partition, rows_from(3 * number, 3))
    return partition


def test_sealed_segments_and_the_last_are_read_and_nothing_is_changed(tmp_path: Path) -> None:
    partition = segmented(tmp_path, 3)
    wanted = payloads(partition)
    partition.close()
    for path in list(tmp_path.glob("*.index"))[:1]:
        path.unlink()
    before = contents(tmp_path)
    log = resting(tmp_path)
    assert (log.earliest, log.end) == (0, 9)
    assert numbers(log) == wanted
    assert contents(tmp_path) == before


def test_a_segment_that_is_not_there_is_told(tmp_path: Path) -> None:
    segmented(tmp_path, 4).close()
    paths = sorted(tmp_path.glob("*.arrows"))
    paths[0].unlink()
    assert len(numbers(resting(tmp_path))) == 9, "the retention may have taken it"
    paths[2].unlink()
    stored = StoredPartition(tmp_path, "s", 0)
    for reading in (lambda: numbers(resting(tmp_path)), lambda: list(stored.spans())):
        with pytest.raises(DamagedError, match="offsets 6 to 8 are in no segment"):
            reading()


def test_a_torn_tail_is_not_read_and_damage_is_refused(tmp_path: Path) -> None:
    partition = make_with(3, tmp_path)
    size = partition.visible
    put(partition, rows_from(3, 3))
    partition.close()
    (path,) = tmp_path.glob("*.arrows")
    whole = path.read_bytes()
    path.write_bytes(whole + whole[size:-5])
    before = contents(tmp_path)
    assert (resting(tmp_path).end, len(numbers(resting(tmp_path)))) == (6, 6)
    assert contents(tmp_path) == before
    path.write_bytes(whole[: size + 20] + b"!" + whole[size + 21 :])
    with pytest.raises(DamagedError):
        resting(tmp_path)
    path.write_bytes(b"?" + whole[1:])
    with pytest.raises(DamagedError, match="does not begin with this stream's schema"):
        resting(tmp_path)


def test_a_partition_without_messages_is_empty(tmp_path: Path) -> None:
    make(tmp_path / "0").close()
    assert numbers(resting(tmp_path / "0")) == []
    (path,) = (tmp_path / "0").glob("*.arrows")
    path.write_bytes(b"")  # its schema did not reach the disk
    (tmp_path / "0" / CHECKPOINT).unlink()
    assert numbers(resting(tmp_path / "0")) == []
    path.unlink()
    assert numbers(resting(tmp_path / "0")) == []
    assert numbers(resting(tmp_path / "never made")) == []
