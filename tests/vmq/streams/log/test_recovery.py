"""What a process that was killed, a disk that lost its tail, and a bit that flipped leave behind."""

import random
import shutil
from contextlib import closing
from pathlib import Path

import pytest

from tests.vmq.streams.support import Row, make, make_with, plain, put, read_all, rows_from
from vmq.streams.log import checkpoint
from vmq.streams.log.cursor import LogReader
from vmq.streams.log.errors import DamagedError
from vmq.streams.log.frame import END
from vmq.streams.log.partition import CHECKPOINT
from vmq.streams.log.recovery import recover_active
from vmq.streams.log.segment import Header, index_path


def written(folder: Path, batches: int = 3, compression: str = "none") -> Path:
    """A partition of batches of two rows; returns its one segment."""
    partition = make(folder, compression=compression)
    for number in range(batches):
        put(partition, rows_from(2 * number, 2))
    partition.close()
    return partition.active.path


def recovered(folder: Path) -> list[Row]:
    with closing(make(folder)) as partition:
        found = read_all(partition)
        # It goes on where it ended.
        put(partition, rows_from(len(found), 1))
        assert read_all(partition) == rows_from(0, len(found) + 1)
        return found


def as_after_a_power_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "boot_id", lambda: b"another boot id.")


@pytest.mark.parametrize("trusted", [None, 0])
def test_a_tail_torn_at_any_byte_is_cut(tmp_path: Path, trusted: int | None) -> None:
    first_two = written(tmp_path / "two", batches=2).stat().st_size
    segment = written(tmp_path / "whole")
    raw = segment.read_bytes()
    for length in range(first_two, len(raw)):
        segment.write_bytes(raw[:length])
        index = recover_active(segment, 0, Header("s", 0), trusted)
        assert (index.end, index.size) == (4, first_two)
        assert segment.read_bytes() == raw[:first_two]
    segment.write_bytes(raw)
    assert recover_active(segment, 0, Header("s", 0), trusted).end == 6


@pytest.mark.parametrize("lost", ["checkpoint", "boot"])
def test_a_partition_goes_on_where_its_torn_tail_was_cut(
    tmp_path: Path, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    segment = written(tmp_path)
    raw = segment.read_bytes()
    noted = (tmp_path / CHECKPOINT).read_bytes()
    if lost == "boot":
        as_after_a_power_failure(monkeypatch)
    for cut in (1, 7, 8, 300, 800):
        segment.write_bytes(raw[:-cut])
        (tmp_path / CHECKPOINT).write_bytes(noted)
        if lost == "checkpoint":
            (tmp_path / CHECKPOINT).unlink()
        assert recovered(tmp_path) == rows_from(0, 4)


def test_a_torn_schema_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "p"
    partition = make(folder)
    partition.close()
    raw = partition.active.path.read_bytes()
    as_after_a_power_failure(monkeypatch)
    for length in range(0, len(raw), 7):
        (folder / CHECKPOINT).unlink(missing_ok=True)
        partition.active.path.write_bytes(raw[:length])
        assert recovered(folder) == []
        partition.active.path.unlink()


def test_what_was_written_on_this_boot_cannot_be_short(tmp_path: Path) -> None:
    segment = written(tmp_path)
    raw = segment.read_bytes()
    for length in range(len(Header("s", 0).raw), len(raw), 97):
        segment.write_bytes(raw[:length])
        with pytest.raises(DamagedError, match="is damaged at byte"):
            make(tmp_path)


def test_what_was_not_noted_is_kept_if_it_is_whole_and_cut_if_not(tmp_path: Path) -> None:
    """The process died between the write and the note of it."""
    partition = make_with(2, tmp_path)
    put(partition, rows_from(2, 2), publish=False)
    partition.close()
    raw = partition.active.path.read_bytes()
    assert recovered(tmp_path) == rows_from(0, 4)
    for torn in (raw[:-1], raw + b"\xff" * 5, raw[:-20] + b"x" * 20):
        noted = make_with(2, tmp_path / "other")
        noted.close()
        noted.active.path.write_bytes(torn)
        assert recovered(tmp_path / "other") == rows_from(0, 4 if torn.startswith(raw) else 2)
        shutil.rmtree(tmp_path / "other")


@pytest.mark.parametrize("compression", ["none", "zstd"])
@pytest.mark.parametrize("noted", [True, False])
def test_a_flipped_bit_anywhere_is_refused_or_harmless(
    tmp_path: Path, compression: str, noted: bool
) -> None:
    """Whatever the bit: the rows are never wrong, and those that were acknowledged never fewer."""
    segment = written(tmp_path, compression=compression)
    raw = segment.read_bytes()
    note = (tmp_path / CHECKPOINT).read_bytes()
    chosen = random.Random(7)
    start = len(Header("s", 0).raw)
    refused = 0
    for at in [*chosen.sample(range(start), 60), *chosen.sample(range(start, len(raw)), 300)]:
        segment.write_bytes(raw[:at] + bytes([raw[at] ^ 1 << chosen.randrange(8)]) + raw[at + 1 :])
        (tmp_path / CHECKPOINT).write_bytes(note)
        if not noted:
            (tmp_path / CHECKPOINT).unlink()
        try:
            partition = make(tmp_path)
        except DamagedError as error:
            refused += 1
            assert error.path == segment
            assert str(segment) in str(error)
            assert f"offset {error.offset}" in str(error)
            assert error.position <= at
            continue
        found = read_all(partition)
        partition.close()
        if noted:
            assert found == rows_from(0, 6)
            assert at < start, "a flipped bit of a batch went through"
        else:
            # Without a note, a length that leads beyond the file cannot be told from a torn tail.
            assert found == rows_from(0, len(found))
    assert refused > 280


def test_zeros_that_the_file_system_added_are_cut(tmp_path: Path) -> None:
    segment = written(tmp_path)
    (tmp_path / CHECKPOINT).unlink()
    raw = segment.read_bytes()
    segment.write_bytes(raw + bytes(5000))
    assert recovered(tmp_path) == rows_from(0, 6)


def sealed_partition(folder: Path) -> Path:
    partition = make(folder)
    for number in range(3):
        put(partition, rows_from(2 * number, 2))
    partition.roll()
    put(partition, rows_from(6, 2))
    partition.close()
    return partition.sealed[0].path


@pytest.mark.parametrize("harm", ["gone", "torn", "other"])
def test_an_index_is_rebuilt_from_its_segment(tmp_path: Path, harm: str) -> None:
    path = index_path(sealed_partition(tmp_path))
    before = path.read_bytes()
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(before[:20] if harm == "torn" else b"x" * len(before))
    partition = make(tmp_path)
    assert read_all(partition) == rows_from(0, 8)
    partition.close()
    assert path.read_bytes() == before


def test_a_sealed_segment_that_is_harmed_is_refused_on_reading(tmp_path: Path) -> None:
    path = sealed_partition(tmp_path)
    raw = path.read_bytes()
    path.write_bytes(raw[:-100] + bytes([raw[-100] ^ 1]) + raw[-99:])
    partition = make(tmp_path)
    reader = LogReader(partition)
    with pytest.raises(DamagedError, match=r"at byte \d+ \(offset 4\): the checksum") as caught:
        [plain(chunk.rows) for chunk in reader.read(4)]
    assert caught.value.path == path
    assert read_all(partition, 6) == rows_from(6, 2), "other segments are as good as ever"


def test_a_sealed_segment_that_is_short_is_refused_on_opening(tmp_path: Path) -> None:
    path = sealed_partition(tmp_path)
    raw = path.read_bytes()
    for cut in (1, len(END), 50):
        path.write_bytes(raw[:-cut])
        with pytest.raises(DamagedError):
            make(tmp_path)


def test_a_segment_that_is_missing_is_noticed(tmp_path: Path) -> None:
    path = sealed_partition(tmp_path)
    partition = make(tmp_path)
    partition.roll()
    put(partition, rows_from(8, 1))
    partition.close()
    active, middle = partition.active.path, partition.sealed[1].path
    moved = tmp_path / "moved"
    active.rename(moved)
    with pytest.raises(DamagedError, match="the file is missing"):
        make(tmp_path)
    moved.rename(active)
    middle.unlink()
    with pytest.raises(DamagedError, match="offsets 6 to 7 are in no segment"):
        make(tmp_path)
    path.unlink()
    # The oldest may go: that is what the retention does.
    assert read_all(make(tmp_path)) == rows_from(8, 1)


def test_a_damaged_last_segment_can_be_given_up_with_its_checkpoint(tmp_path: Path) -> None:
    """As docs/streams.md says."""
    sealed_partition(tmp_path)
    _, last = sorted(tmp_path.glob("*.arrows"))
    raw = last.read_bytes()
    last.write_bytes(raw[:-50] + b"x" + raw[-49:])
    with pytest.raises(DamagedError, match="the checksum"):
        make(tmp_path)
    last.unlink()
    with pytest.raises(DamagedError, match="the file is missing"):
        make(tmp_path)
    (tmp_path / CHECKPOINT).unlink()
    assert recovered(tmp_path) == rows_from(0, 6)


def test_a_segment_of_another_stream_is_refused(tmp_path: Path) -> None:
    segment = written(tmp_path)
    header = Header("other", 0).raw
    raw = segment.read_bytes()
    segment.write_bytes(header + raw[len(Header("s", 0).raw) :])
    with pytest.raises(DamagedError, match="this stream's schema"):
        make(tmp_path)


def test_a_roll_that_was_interrupted_anywhere_goes_on(tmp_path: Path) -> None:
    partition = make_with(4, tmp_path)
    partition.close()
    path = partition.active.path
    path.write_bytes(path.read_bytes() + END)
    assert recovered(tmp_path) == rows_from(0, 4)
    # The new segment is there, and the checkpoint still names the old one.
    noted = (tmp_path / CHECKPOINT).read_bytes()
    partition = make(tmp_path)
    partition.roll()
    partition.close()
    (tmp_path / CHECKPOINT).write_bytes(noted)
    index_path(path).unlink()
    assert recovered(tmp_path) == rows_from(0, 5)
