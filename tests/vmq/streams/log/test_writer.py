import threading
from pathlib import Path

import pytest

from tests.vmq.streams.support import Clock, batch_of, make, options, read_all, rows_from
from vmq.streams.log.keys import Keys
from vmq.streams.log.partition import Partition
from vmq.streams.log.writer import Commit, Item, PartitionWriter, promised

KEYS = Keys(options())


def write(writer: PartitionWriter, *parts: tuple[Partition, int]) -> None:
    """One commit with three rows of each of these partitions, from this one on."""
    done = threading.Event()
    items = [Item(each, batch_of(rows_from(first, 3)), KEYS) for each, first in parts]
    writer.start()
    writer.submit(Commit(items, done.set))
    assert done.wait(30)
    writer.stop()


def test_one_commit_for_several_partitions_is_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = make(tmp_path / "1"), make(tmp_path / "2")
    writer = PartitionWriter()
    writer.retry_after = 0.0
    append, failures = other.append, [OSError("full"), ValueError("a mistake in a program")]

    def fail(*arguments: object) -> None:
        if failures:
            assert read_all(one) == []
            raise failures.pop()
        append(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(other, "append", fail)
    reports: list[str | None] = []
    writer.failed = reports.append
    write(writer, (one, 0), (other, 0))
    assert read_all(one) == read_all(other) == rows_from(0, 3)
    assert reports == ["a mistake in a program", "full", None]


def test_a_partition_that_is_deleted_is_written_no_more(tmp_path: Path) -> None:
    one, other = make(tmp_path / "1"), make(tmp_path / "2")
    one.gone = True
    writer = PartitionWriter()
    write(writer, (one, 0), (other, 0))
    assert (one.end, other.end) == (0, 3)


def test_calls_come_between_commits_and_answer(tmp_path: Path) -> None:
    partition = make(tmp_path)
    writer = PartitionWriter()
    writer.submit(Commit([Item(partition, batch_of(rows_from(0, 3)), KEYS)], lambda: None))
    first = writer.call(lambda: partition.end)
    second = writer.call(lambda: 1 // 0)
    writer.start()
    assert first.result(30) == 3
    with pytest.raises(ZeroDivisionError):
        second.result(30)
    writer.stop()


def test_who_ceases_to_wait_ends_no_thread() -> None:
    done: list[bool] = []
    future, work = promised(lambda: done.append(future.cancel()))
    work()
    assert done == [False], "it is being done"
    assert future.result() is None
    future, work = promised(lambda: done.append(True))
    assert future.cancel()
    work()
    assert done == [False, True]


def test_old_segments_are_sealed_although_nobody_writes(tmp_path: Path) -> None:
    clock = Clock()
    partition = make(tmp_path, clock, segment_age="1h")
    writer = PartitionWriter(lambda: [partition])
    tidied: list[int] = []
    writer.tidy = lambda: tidied.append(1)
    partition.append(batch_of(rows_from(0, 3)), 5)
    partition.publish()
    writer.roll_due()
    assert not partition.sealed
    clock.now += 3600
    writer.roll_due()
    assert [each.end for each in partition.sealed] == [3]
    assert tidied == [1]


def test_a_segment_that_cannot_be_sealed_keeps_no_other_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    ill, well = (make(tmp_path / name, clock, segment_age="1h") for name in "12")
    ill.stream = "ill"

    def fail() -> None:
        raise RecursionError("too deep")

    writer = PartitionWriter(lambda: [ill, well])
    for each in (ill, well):
        each.append(batch_of(rows_from(0, 3)), 5)
        each.publish()
    clock.now += 3600
    with monkeypatch.context() as patch:
        patch.setattr(ill, "roll", fail)
        writer.roll_due()
    assert [each.end for each in well.sealed] == [3]
    assert [*writer.failures.told(["ill"])] == [
        "partition 0 of stream 'ill' has a segment that cannot be sealed: too deep"
    ]
    writer.roll_due()
    assert [each.end for each in ill.sealed] == [3]
    assert not writer.failures.reasons


def test_a_commit_may_have_rows_of_a_partition_from_several_sides(tmp_path: Path) -> None:
    """Each is shown before the next is written, for which a new segment may have to begin."""
    one, other = make(tmp_path / "1", segment_bytes=1), make(tmp_path / "2")
    writer = PartitionWriter()
    reports: list[str | None] = []
    writer.failed = reports.append
    write(writer, (one, 0), (other, 0), (one, 3), (one, 6), (other, 3))
    assert (read_all(one), read_all(other)) == (rows_from(0, 9), rows_from(0, 6))
    assert len(one.sealed) == 2
    assert reports == []
