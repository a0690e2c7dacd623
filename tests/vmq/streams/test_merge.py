from pathlib import Path

import pytest
from pyarrow import ipc

from tests.vmq.streams.support import make, plain, put, read_all, row, rows_from
from vmq.streams.cursor import Cursor
from vmq.streams.errors import DamagedError
from vmq.streams.merge import merge


def test_small_batches_become_one_and_a_reader_does_not_notice(tmp_path: Path) -> None:
    partition = make(tmp_path)
    for number in range(40):
        put(partition, rows_from(number * 3, 3))
    partition.roll()
    put(partition, rows_from(120, 3))
    (old,) = partition.unmerged
    with Cursor(partition, 60) as cursor:
        cursor.open()
        assert merge(partition, old)
        span = cursor.read(None)
        assert span is not None
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
    again.close()


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
    partition.close()


def test_a_segment_that_was_deleted_meanwhile_does_not_come_back(tmp_path: Path) -> None:
    partition = make(tmp_path, retention_age="1h")
    for number in range(4):
        put(partition, rows_from(number, 1))
    partition.roll()
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
    partition.close()


def test_a_merge_that_fails_leaves_the_segment_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = make(tmp_path)
    for number in range(4):
        put(partition, rows_from(number, 1))
    partition.roll()
    (old,) = partition.sealed
    raw = old.path.read_bytes()

    def full(_: int) -> None:
        raise OSError("full")

    with monkeypatch.context() as patch:
        patch.setattr("vmq.streams.merge.os.fsync", full)
        with pytest.raises(OSError, match="full"):
            merge(partition, old)
    assert old.path.read_bytes() == raw
    assert not list(tmp_path.glob("*.tmp"))
    old.path.write_bytes(raw[:-50] + b"x" + raw[-49:])
    with pytest.raises(DamagedError):
        merge(partition, old)
    partition.close()
