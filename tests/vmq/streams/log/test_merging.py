from math import log2
from pathlib import Path

import pytest
from pyarrow import ipc

from tests.support.present import present
from tests.vmq.streams.support import make, plain, put, read_all, row, rows_from, seal
from vmq.streams.log.copying import spans_of
from vmq.streams.log.cursor import Cursor
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.merging import FEW, join, joinable, merge
from vmq.streams.log.partition import Partition
from vmq.streams.log.segment import Sealed
from vmq.streams.stored import StoredPartition


def test_small_batches_become_one_and_a_reader_does_not_notice(tmp_path: Path) -> None:
    partition = make(tmp_path)
    seal(partition, 40, 3)
    put(partition, rows_from(120, 3))
    (old,) = partition.unmerged
    with Cursor(partition, 60) as cursor:
        cursor.open()
        assert merge(partition, old)
        span = present(cursor.read(None))
        assert plain(span.rows) == rows_from(span.offset, span.rows.num_rows)
    (new,) = partition.sealed
    assert new.size < old.size / 3
    assert (new.base, new.end, new.time, new.merged) == (old.base, old.end, old.time, True)
    with ipc.open_stream(new.path) as reader:
        assert len(list(reader)) == 1
    assert read_all(partition) == rows_from(0, 123)
    assert not merge(partition, new), "once is enough"
    partition.close()
    again = make(tmp_path)
    assert read_all(again) == rows_from(0, 123)
    assert again.unmerged == []


def test_a_segment_of_large_batches_is_left_alone_for_good(tmp_path: Path) -> None:
    partition = make(tmp_path)
    for number in range(3):
        put(partition, [row(number, payload=bytes(2 << 20))])
    partition.roll()
    (sealed,) = partition.unmerged
    raw = sealed.path.read_bytes()
    assert not merge(partition, sealed)
    assert sealed.path.read_bytes() == raw
    partition.close()
    partition = make(tmp_path)
    assert partition.unmerged == []


def test_a_segment_that_was_deleted_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    partition = make(tmp_path, retention_age="1h")
    seal(partition, 4)
    (old,) = partition.sealed
    path = old.path

    def deleted(*_: object) -> None:
        partition.clock = lambda: 1_900_000_000.0
        partition.retain()
        path.write_bytes(b"")
        replace(*_)  # type: ignore[arg-type]

    replace = partition.replace
    raw = path.read_bytes()
    partition.replace = deleted  # type: ignore[method-assign, assignment]
    assert raw
    merge(partition, old)
    assert path.read_bytes() == b"", "nothing was put in its place"
    assert not list(tmp_path.glob("*.tmp"))


def test_a_merge_that_fails_leaves_the_segment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = make(tmp_path)
    seal(partition, 4)
    (old,) = partition.sealed
    raw = old.path.read_bytes()

    def full(_: int) -> None:
        raise OSError("full")

    with monkeypatch.context() as patch:
        patch.setattr("vmq.streams.log.merging.os.fsync", full)
        with pytest.raises(OSError, match="full"):
            merge(partition, old)
    assert old.path.read_bytes() == raw
    assert not list(tmp_path.glob("*.tmp"))
    old.path.write_bytes(raw[:-50] + b"x" + raw[-49:])
    with pytest.raises(DamagedError):
        merge(partition, old)


def seal_and_merge(partition: Partition, batches: int) -> None:
    seal(partition, batches)
    merge(partition, partition.unmerged.pop())


def test_small_neighbours_become_one_segment_and_readers_do_not_notice(tmp_path: Path) -> None:
    partition = make(tmp_path)
    for _ in range(FEW - 1):
        seal_and_merge(partition, 3)
    assert not join(partition), "few files harm nobody"
    seal_and_merge(partition, 3)
    end = FEW * 3
    with Cursor(partition, 4) as cursor:
        cursor.open()
        assert join(partition)
        while cursor.offset < end:
            span = present(cursor.read(None))
            assert plain(span.rows) == rows_from(span.offset, span.rows.num_rows)
    (joined,) = partition.sealed
    assert (joined.base, joined.end, joined.merged) == (0, end, True)
    with ipc.open_stream(joined.path) as reader:
        assert len(list(reader)) == 1
    assert [path.stem for path in sorted(tmp_path.glob("*.arrows"))] == [f"{0:020}", f"{end:020}"]
    assert len(list(tmp_path.glob("*.index"))) == 1
    partition.close()
    again = make(tmp_path)
    assert read_all(again) == rows_from(0, end)


def sealed(number: int, size: int, hours: float, *, merged: bool = True) -> Sealed:
    return Sealed(Path(), number, number + 1, size, int(hours * 3.6e9), 0, merged)


def test_a_row_is_copied_as_often_as_its_segment_doubles() -> None:
    count = 5000
    copied, most = 0, 0
    there: list[Sealed] = []
    for number in range(count):
        there.append(sealed(number, 1, 0))
        run = joinable(there, count, 1.0)
        if len(run) >= FEW:
            size = sum(each.size for each in run)
            copied += size
            there[-len(run) :] = [run[0]._replace(size=size)]
        most = max(most, len(there))
    assert copied < count * log2(count)
    assert most < FEW + log2(count)


def test_what_is_joined_is_a_segment_by_size_and_age() -> None:
    day = 86_400.0
    same = [sealed(number, 10, number) for number in range(30)]
    assert joinable(same, 200, day) == same[-20:]
    assert joinable(same, 1_000, 36_000) == same[-11:]
    assert joinable([sealed(0, 61, 0), *same[-6:]], 1_000, day) == same[-6:]
    assert joinable([sealed(0, 60, 0), *same[-6:]], 1_000, 1e9) == [sealed(0, 60, 0), *same[-6:]]
    assert joinable([*same, sealed(30, 10, 30, merged=False)], 1_000, 1e9) == []


@pytest.mark.parametrize("moment", ["index", "rename", "first unlink", "second unlink"])
def test_a_join_that_is_interrupted_loses_and_repeats_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    partition = make(tmp_path)
    for _ in range(FEW):
        seal_and_merge(partition, 3)
    left = {"index": 0, "rename": 1, "first unlink": 2, "second unlink": 4}[moment]

    class Killed(BaseException):
        pass

    unlink = Path.unlink

    def unlink_some(path: Path, missing_ok: bool = False) -> None:
        nonlocal left
        if left == 0:
            raise Killed
        left -= 1
        unlink(path, missing_ok=missing_ok)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", unlink_some)
        with pytest.raises(Killed):
            join(partition)
    partition.close()
    stored = StoredPartition(tmp_path, "s", 0)
    found = [row for span in stored.spans() for row in plain(span.rows)]
    assert found == rows_from(0, FEW * 3)
    assert not stored.verify().problems
    again = make(tmp_path)
    assert read_all(again) == rows_from(0, FEW * 3)
    assert len(list(tmp_path.glob("*.arrows"))) == (FEW + 1 if moment == "index" else 2)


def test_who_reads_the_folder_meanwhile_gets_every_row_once(tmp_path: Path) -> None:
    partition = make(tmp_path)
    for _ in range(FEW):
        seal_and_merge(partition, 3)
    spans = StoredPartition(tmp_path, "s", 0).spans()
    found = plain(next(spans).rows)
    assert join(partition)
    found += [row for span in spans for row in plain(span.rows)]
    assert found == rows_from(0, FEW * 3)


def test_a_segment_that_was_cut_while_somebody_reads_it_ends_with_an_error(tmp_path: Path) -> None:
    """As a follower cuts what its leader has not: nobody reads on and on where nothing is."""
    partition = make(tmp_path)
    seal(partition, 3, 3)
    (whole,) = partition.sealed
    spans = spans_of(partition.header, [whole])
    with whole.path.open("r+b") as file:
        file.truncate(partition.header.size_in(file.fileno()))
    with pytest.raises(DamagedError, match="it ends before it should"):
        next(spans)
    with Cursor(partition, 0) as cursor, pytest.raises(DamagedError, match="ends before"):
        cursor.read(None)
