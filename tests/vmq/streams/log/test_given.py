"""Rows that another node gives keep their offsets, though some are compacted away, and some come twice."""

from pathlib import Path
from typing import Any

import pytest

from tests.vmq.streams.support import Clock, Row, make, options, plain, put, row
from vmq.clustering.streams.handover import read
from vmq.clustering.streams.rows import RowsError, newest_of, unpack
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.given import append_given
from vmq.streams.log.partition import Partition
from vmq.streams.stored import StoredPartition
from vmq.streams.tidying.compaction import TOMBSTONES_STAY, compact

OPTIONS: dict[str, Any] = {"compact": True, "retention_age": "never"}


def by_offset(partition: Partition) -> dict[int, Row]:
    found: dict[int, Row] = {}
    for chunk in LogReader(partition).read(partition.earliest):
        found.update(zip(chunk.rows["offset"].to_pylist(), plain(chunk.rows), strict=True))
    return found


def compacted(folder: Path) -> Partition:
    """Of ten segments some have gaps, one is as it was written, and of the second nothing is left; then some rows."""
    clock = Clock()
    partition = make(folder, clock, **OPTIONS)
    for number in range(9):
        topics = ["lone"] if number == 5 else ["gone"] if number < 2 else ["a", "b", f"c{number}"]
        payload = b"" if number == 1 else None
        put(partition, [row(number * 9 + at, topics[at % len(topics)], payload) for at in range(9)])
        partition.roll()
    clock.now += TOMBSTONES_STAY + 1
    assert compact(partition)
    put(partition, [row(90 + at) for at in range(5)])
    partition.roll()
    put(partition, [row(95 + at) for at in range(5)])
    return partition


def give(from_: Partition, to: Partition, offset: int, times: int = 1) -> int:
    """One message of a node to another; returns where it ends."""
    raw, end = read(from_, offset, True)
    rows = unpack(raw, end)
    for _ in range(times):
        append_given(to, rows, newest_of(rows), end)
        to.publish()
    return end


def test_a_compacted_partition_is_given_with_its_offsets(tmp_path: Path) -> None:
    here = compacted(tmp_path / "here")
    expected = by_offset(here)
    assert 0 < len(expected) < here.end
    there = make(tmp_path / "there", Clock(), **OPTIONS)
    there.begin_at(here.kept, "a")
    offset, parts = here.kept, 0
    while offset < here.end:
        offset, parts = give(here, there, offset, times=2), parts + 1
        assert there.end == offset
    assert parts > 2
    put(there, [row(200)])
    assert by_offset(there) == {**expected, here.end: row(200)}
    there.close()
    there = make(tmp_path / "there", Clock(), **OPTIONS)
    assert by_offset(there) == {**expected, here.end: row(200)}
    assert not StoredPartition(tmp_path / "there", "s", 0).verify().problems


def test_nothing_is_left_at_the_end(tmp_path: Path) -> None:
    clock = Clock()
    here = make(tmp_path / "here", clock, **OPTIONS)
    put(here, [row(0, "gone"), row(1, "gone", b"")])
    here.roll()
    clock.now += TOMBSTONES_STAY + 1
    assert compact(here)
    there = make(tmp_path / "there", clock, **OPTIONS)
    assert give(here, there, 0) == there.end == 2
    assert by_offset(there) == {}
    put(there, [row(2)])
    assert by_offset(there) == {2: row(2)}


def test_what_retention_takes_meanwhile_is_a_gap(tmp_path: Path) -> None:
    here = compacted(tmp_path / "here")
    there = make(tmp_path / "there", Clock(), **OPTIONS)
    offset = first = give(here, there, here.kept)
    given = by_offset(there)
    here.set_options(options(**{**OPTIONS, "retention_bytes": 1}))
    here.retain()
    assert here.earliest > first
    while offset < here.end:
        offset = give(here, there, offset)
    assert by_offset(there) == {**given, **by_offset(here)}


class KilledError(BaseException):
    """As SIGKILL, between two steps."""


def test_who_is_killed_meanwhile_can_be_given_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = compacted(tmp_path / "here")
    there = make(tmp_path / "there", Clock(), **OPTIONS)
    there.begin_at(0, "a")

    def die(_base: int) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(there, "_begin", die)
        with pytest.raises(KilledError):
            give(here, there, 0)
    there.close()
    there = make(tmp_path / "there", Clock(), **OPTIONS)
    put(there, [row(300)])
    assert max(by_offset(there)) == there.end - 1
    there.begin_at(here.kept, "a")
    offset = here.kept
    while offset < here.end:
        offset = give(here, there, offset)
    assert by_offset(there) == by_offset(here)


@pytest.mark.parametrize("end", [0, 3])
def test_offsets_that_do_not_rise_are_refused(tmp_path: Path, end: int) -> None:
    here = compacted(tmp_path)
    raw, right = read(here, 0, True)
    assert unpack(raw, right).num_rows
    with pytest.raises(RowsError):
        unpack(raw, end)
