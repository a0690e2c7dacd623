import errno
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyarrow import ipc

from tests.support.forgetful_disk import ForgetfulDisk
from tests.support.present import present
from tests.vmq.streams.support import (
    Clock,
    batch_of,
    make,
    make_with,
    options,
    payloads,
    plain,
    put,
    read_all,
    row,
    rows_from,
)
from vmq.streams.log import column_file
from vmq.streams.log.frame import BATCH_BYTES, BATCH_ROWS, pieces
from vmq.streams.log.ordered import file as ordered_file
from vmq.streams.log.partition import MANY, SMALL, Partition
from vmq.streams.log.schema import STORED
from vmq.streams.log.segment import index_path, walk

DAY = 86_400


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_segment_is_a_plain_arrow_stream(tmp_path: Path, compression: str) -> None:
    partition = make_with(3, tmp_path, compression=compression)
    put(partition, rows_from(3, 2))
    for sealed in (False, True):
        if sealed:
            partition.roll()
        path = partition.sealed[0].path if sealed else partition.active.path
        with ipc.open_stream(path) as reader:
            assert reader.schema.equals(STORED)
            assert reader.schema.metadata == {b"vmq.stream": b"s", b"vmq.partition": b"0"}
            assert [row for batch in reader for row in plain(batch)] == rows_from(0, 5)
        assert path.name == "00000000000000000000.arrows"


def test_segments_are_sealed_by_size(tmp_path: Path) -> None:
    partition = make(tmp_path, segment_bytes=65_536)
    for number in range(100):
        put(partition, [row(number, payload=bytes([number]) * 3000)])
    assert len(partition.sealed) >= 4
    assert all(each.size <= 65_536 + 8 for each in partition.sealed)
    assert [each.end for each in partition.sealed[:-1]] == [
        each.base for each in partition.sealed[1:]
    ]
    assert payloads(partition) == [bytes([number]) * 3000 for number in range(100)]


def test_segments_are_sealed_by_age_also_after_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    partition = make_with(1, tmp_path, clock, segment_age="1h")
    assert not partition.is_due()
    clock.now += 3599
    put(partition, rows_from(1, 1))
    assert not partition.sealed
    clock.now += 1
    assert partition.is_due()
    put(partition, [row(2, time=int(clock.now * 1e6))])
    assert [each.end for each in partition.sealed] == [2]
    assert not partition.is_due()
    partition.close()
    clock.now += 3600
    partition = make(tmp_path, clock, segment_age="1h")
    assert partition.is_due()


def test_a_sealed_segment_is_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = make_with(3, tmp_path)
    inode, synced = partition.active.path.stat().st_ino, []

    def sync(fd: int) -> None:
        found = os.fstat(fd)
        synced.append((found.st_ino, found.st_size))

    monkeypatch.setattr(os, "fdatasync", sync)
    partition.roll()
    assert synced[0] == (inode, partition.sealed[0].size)


def test_a_segment_of_many_small_batches_is_sealed_and_one_of_large_ones_is_not(
    tmp_path: Path,
) -> None:
    partition = make(tmp_path)
    for number in range(MANY):
        assert not partition.is_due()
        put(partition, rows_from(number, 1))
    assert partition.is_due()
    put(partition, rows_from(MANY, 1))
    assert [each.end for each in partition.sealed] == [MANY]
    for number in range(MANY + 1, 2 * MANY + 1):
        put(partition, [row(number, payload=bytes(SMALL))])
    assert not partition.is_due()


def test_an_empty_segment_is_never_due(tmp_path: Path) -> None:
    clock = Clock()
    partition = make(tmp_path, clock, segment_age="1h")
    clock.now += DAY
    assert not partition.is_due(1 << 40)


def test_retention_by_age_deletes_whole_segments(tmp_path: Path) -> None:
    clock = Clock()
    partition = make(tmp_path, clock, retention_age="2d")
    for day in range(5):
        clock.now = 1_700_000_000 + day * DAY
        put(partition, [row(day, time=int(clock.now * 1e6))])
        partition.roll()
    gone = partition.retain()
    assert [each.base for each in gone] == [0, 1]
    assert partition.earliest == 2
    assert [each.base for each in partition.unmerged] == [2, 3, 4]
    assert not any(each.path.exists() or index_path(each.path).exists() for each in gone)
    clock.now += 30 * DAY
    partition.retain()
    assert (partition.earliest, partition.end) == (5, 5), "the active segment stays"
    partition.close()
    partition = make(tmp_path, clock)
    assert (partition.earliest, partition.end) == (5, 5)


def test_retention_by_bytes_is_shared_by_the_partitions(tmp_path: Path) -> None:
    partition = make(tmp_path, retention_bytes=200_000, partitions=2, retention_age="never")
    for number in range(10):
        put(partition, [row(number, payload=bytes(20_000))])
        partition.roll()
    partition.retain()
    assert 60_000 < partition.size <= 100_000
    assert partition.end == 10


def test_what_lies_beside_segments_counts_for_retention_by_bytes(tmp_path: Path) -> None:
    schema = {"temp": "float64"}
    partition = make(tmp_path, retention_bytes=100_000, retention_age="never", schema=schema)
    for number in range(4):
        put(partition, [row(number, payload=bytes(20_000))])
        partition.roll()
    assert partition.retain() == []
    first, second, third, _ = partition.sealed
    place = first.path, first.size, first.inode
    ordered_file.path_of(*place).write_bytes(bytes(10_000))
    column_file.path_of(*place, schema).write_bytes(bytes(5000))
    assert [each.base for each in partition.retain()] == [0], "its own bytes and those beside it"
    ordered_file.path_of(second.path, second.size, second.inode).write_bytes(bytes(19_000))
    path = ordered_file.path_of(third.path, third.size, third.inode)
    path.write_bytes(bytes(15_000))
    assert partition.retain() == []
    partition.set_options(options(retention_bytes=65_000, retention_age="never"))
    assert [each.base for each in partition.retain()] == [1], "what lies beside it is gone with it"
    partition.set_options(options(retention_bytes=50_000, topic_order=False))
    assert partition.retain() == [], "of a stream without them there are none"


def test_a_reader_is_undisturbed_by_a_deletion(tmp_path: Path) -> None:
    from vmq.streams.log.cursor import Cursor

    partition = make(tmp_path, segment_bytes=65_536, retention_age="1h")
    for number in range(30):
        put(partition, [row(number, payload=bytes([number]) * 3000)])
    with Cursor(partition, 0) as cursor:
        cursor.open()
        partition.clock = lambda: 1_900_000_000.0
        assert partition.retain()[0].base == 0
        span = present(cursor.read(None))
        assert [row["payload"][0] for row in plain(span.rows)] == list(range(span.rows.num_rows))


def test_a_large_batch_is_written_in_parts(tmp_path: Path) -> None:
    many = batch_of([row(0)] * (BATCH_ROWS + 1))
    assert [each.num_rows for each in pieces(many)] == [BATCH_ROWS, 1]
    heavy = batch_of([row(number, payload=bytes(BATCH_BYTES // 2)) for number in range(5)])
    assert all(each.nbytes <= BATCH_BYTES for each in pieces(heavy))
    assert sum(each.num_rows for each in pieces(heavy)) == 5
    one = batch_of([row(0, payload=bytes(3 * BATCH_BYTES))])
    assert [each.num_rows for each in pieces(one)] == [1]


class FullDisk:
    """Takes `room` more bytes, then says ENOSPC, as a file system does: after a part of a write."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
        self.room = room
        self.write = os.pwrite
        monkeypatch.setattr(os, "pwrite", self.pwrite)

    def pwrite(self, fd: int, data: Any, offset: int) -> int:
        data = memoryview(data)
        if os.fstat(fd).st_size >= offset + len(data):
            return self.write(fd, data, offset)  # in place
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        part = data[: self.room]
        self.room -= len(part)
        return self.write(fd, part, offset)


def test_the_parts_of_a_large_batch_name_their_own_last_receipts(tmp_path: Path) -> None:
    """Of a batch that was torn between two of them a receipt must not say more than is there."""
    partition = make(tmp_path)
    rows = [row(number, payload=bytes(1 << 20)) for number in range(10)]
    given = [(number, f"{1:016x}{number + 1:020}") for number in (0, 5, 9)]
    put(partition, rows, True, given)
    with partition.active.path.open("rb") as file:
        start = present(partition.header.size_in(file.fileno()))
        frames = [each.frame for each in walk(file.fileno(), start, partition.visible, 0)]
    partition.close()
    assert len(frames) > 2
    for frame in frames:
        known = [receipt for number, receipt in given if number < frame.end]
        assert frame.receipt in ("", known[-1])
    assert frames[-1].receipt == given[-1][1]


def test_a_full_disk_corrupts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = make_with(3, tmp_path)
    for room in range(0, 1500, 100):
        with monkeypatch.context() as patch:
            FullDisk(patch, room)
            try:
                put(partition, rows_from(partition.end, 3), publish=False)
            except OSError as error:
                assert error.errno == errno.ENOSPC
                partition.rollback()
            else:
                partition.publish()
        assert read_all(partition) == rows_from(0, partition.end)
    put(partition, rows_from(partition.end, 3))
    assert read_all(partition) == rows_from(0, partition.end)
    partition.close()
    partition = make(tmp_path)
    assert read_all(partition) == rows_from(0, partition.end)


def test_a_full_disk_at_a_roll_leaves_the_segment_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = make_with(3, tmp_path)
    no_space = OSError(errno.ENOSPC, "full")

    def fail(*_: object) -> None:
        raise no_space

    for what, patched in (("pwrite", os), ("_note", partition), ("write_bytes", Path)):
        with monkeypatch.context() as patch:
            if what == "pwrite":
                FullDisk(patch, 5)
            else:
                patch.setattr(patched, what, fail)
            with pytest.raises(OSError, match=r"full|space"):
                partition.roll()
        assert not partition.sealed
        assert len(list(tmp_path.glob("*.arrows"))) == 1
    put(partition, rows_from(3, 3))
    partition.roll()
    assert read_all(partition) == rows_from(0, 6)
    partition.close()
    partition = make(tmp_path)
    assert read_all(partition) == rows_from(0, 6)


LIMITED = """
import sys
from pathlib import Path
from tests.vmq.streams.support import make, put, read_all, rows_from
partition = make(Path(sys.argv[1]))
refused = 0
while refused < 3:
    try:
        put(partition, rows_from(partition.end, 40), publish=False)
    except OSError as error:
        refused += 1
        partition.rollback()
    else:
        partition.publish()
    assert read_all(partition) == rows_from(0, partition.end)
print(partition.end)
"""


def test_a_file_that_the_kernel_lets_grow_no_further_is_cut_back(tmp_path: Path) -> None:
    root = Path(__file__).parents[4]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path)],
        cwd=root,
        # Python would keep what it compiles, cut to that size, for whoever imports it next.
        env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    partition = make(tmp_path)
    assert partition.end == int(done.stdout) > 0
    put(partition, rows_from(partition.end, 40))
    assert read_all(partition) == rows_from(0, partition.end)


def test_options_change_for_what_comes_next(tmp_path: Path) -> None:
    partition = make_with(3, tmp_path)
    partition.set_options(options(compression="zstd", segment_age="1h"))
    put(partition, rows_from(3, 3))
    assert read_all(partition) == rows_from(0, 6)
    assert isinstance(partition, Partition)


# --- copies for and of other nodes


def test_an_empty_partition_begins_anywhere_once(tmp_path: Path) -> None:
    partition = make(tmp_path)
    partition.begin_at(1000)
    assert (partition.earliest, partition.end, partition.is_copy) == (1000, 1000, False)
    put(partition, rows_from(0, 3))
    partition.begin_at(5000)  # it has rows of its own
    assert (partition.earliest, partition.end) == (1000, 1003)
    partition.close()
    again = make(tmp_path)
    assert (again.earliest, again.end) == (1000, 1003)
    assert read_all(again) == rows_from(0, 3)


def test_a_copy_begins_anew_until_it_is_accepted(tmp_path: Path) -> None:
    partition = make(tmp_path, segment_bytes=1)
    for base in (10, 10, 4):
        partition.begin_at(base, "a")
        put(partition, rows_from(0, 3))
        put(partition, rows_from(3, 3))
        assert (partition.earliest, partition.end) == (base, base + 6)
    partition.close()
    partition = make(tmp_path, segment_bytes=1)
    assert partition.is_copy
    assert read_all(partition) == rows_from(0, 6)
    partition.accept_copy()
    partition.begin_at(50, "a")
    assert (partition.earliest, partition.end) == (4, 10)
    assert not make(tmp_path / "other").is_copy


def test_what_another_node_has_is_deleted_unless_there_is_more(tmp_path: Path) -> None:
    partition = make_with(3, tmp_path, segment_bytes=1)
    put(partition, rows_from(3, 3))
    assert not partition.clear(3)
    assert read_all(partition) == rows_from(0, 6)
    assert partition.clear(6)
    assert (partition.earliest, partition.end) == (6, 6)
    assert len(list(tmp_path.glob("*.arrows"))) == 1
    put(partition, rows_from(6, 1))
    assert read_all(partition) == rows_from(6, 1)


def test_rows_that_an_earlier_life_could_not_sync_are_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = ForgetfulDisk(monkeypatch)
    partition = make_with(3, tmp_path, durability="fsync")
    put(partition, rows_from(3, 3), publish=False)
    disk.fails = True
    with pytest.raises(OSError, match="Input/output error"):
        partition.sync()
    partition.close()
    disk.fails = False
    partition = make(tmp_path, durability="fsync")
    assert read_all(partition) == rows_from(0, 6)
    assert disk.is_whole


@pytest.mark.parametrize("sync", [Partition.sync_behind, Partition.roll])
@pytest.mark.parametrize("restarts", [False, True])
def test_what_a_failed_sync_was_to_take_behind_the_acknowledgements_is_written_again(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    sync: Callable[[Partition], None],
    restarts: bool,
) -> None:
    disk = ForgetfulDisk(monkeypatch)
    partition = make_with(3, tmp_path, durability="os")
    disk.fails = True
    with pytest.raises(OSError, match="Input/output error"):
        sync(partition)
    disk.fails = False
    if restarts:
        partition.close()
        partition = make(tmp_path, durability="os")
    sync(partition)
    assert disk.is_whole
    assert read_all(partition) == rows_from(0, 3)


def test_what_is_sealed_while_it_is_brought_to_disk_is_no_failure(tmp_path: Path) -> None:
    partition = make_with(3, tmp_path)
    active = partition.active

    class Sealing:
        """The lock of the segment's syncs: who is to have it finds the segment sealed."""

        def __enter__(self) -> None:
            active.syncing = lock
            partition.roll()

        def __exit__(self, *_: object) -> None: ...

    sealing: Any = Sealing()
    lock, active.syncing = active.syncing, sealing
    partition.sync_behind()
    assert partition.sealed
    assert active.file.users == 0
    partition.close()
