"""What a node keeps without a quorum, in files: all that was said to be written, whatever befalls the rest."""

import os
import tempfile
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmq.clustering.messages.raft import Produce
from vmq.clustering.raft import kept
from vmq.clustering.raft.kept import KeptFile, produce
from vmq.clustering.raft.produce import Sent
from vmq.streams.log.gathering import Gathering
from vmq_cluster.raft.messages import Mark


def batch(first: int, *payloads: bytes) -> Sent:
    rows = Gathering()
    rows.add_run(b"t", list(payloads), 5, "c", 7)
    rows.headers[0] = [("name", "value")]
    return Sent(Mark("node@1", "0001", first, len(payloads)), rows, 0)


def made(first: int, *payloads: bytes) -> Produce:
    return produce(0, "g/0", batch(first, *payloads), early=False)


@given(
    sizes=st.lists(st.integers(0, 60), min_size=1, max_size=6),
    cut=st.integers(0),
    bit=st.integers(0),
)
@settings(max_examples=50, deadline=None)
def test_what_was_written_before_a_tear_or_a_flipped_bit_is_read(
    sizes: list[int], cut: int, bit: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s-0.kept"
        batches = [made(number, b"x" * size) for number, size in enumerate(sizes)]
        ends = []
        for each in batches:
            KeptFile(path, is_synced=False).add([each])
            ends.append(path.stat().st_size)
        raw = path.read_bytes()

        torn = raw[: cut % (len(raw) + 1)]
        path.write_bytes(torn)
        whole = [each for each, end in zip(batches, ends, strict=True) if end <= len(torn)]
        assert KeptFile(path, is_synced=False).read() == whole
        assert not path.with_suffix(".damaged").exists()
        KeptFile(path, is_synced=True).add(batches[-1:])  # it goes on behind what is whole
        assert KeptFile(path, is_synced=False).read() == [*whole, batches[-1]]

        flipped = bytearray(raw)
        flipped[bit % len(raw)] ^= 1 << bit % 8
        path.write_bytes(flipped)
        before = [each for each, end in zip(batches, ends, strict=True) if end <= bit % len(raw)]
        assert KeptFile(path, is_synced=False).read() == before
        assert path.with_suffix(".damaged").read_bytes() == flipped


def test_what_is_kept_is_replaced_and_dropped(tmp_path: Path) -> None:
    file = KeptFile(tmp_path / "s-0.kept", is_synced=True)
    assert file.read() == []
    file.drop()
    file.add([made(0, b"a", b"b"), made(2, b"c")])
    file.replace([made(0, b"c")])
    assert file.read() == [made(0, b"c")]
    file.drop()
    assert file.read() == []
    assert list(tmp_path.iterdir()) == []


@patch.object(kept, "sync_folder", side_effect=[OSError("full"), None])
def test_nothing_counts_before_the_folder_has_the_file(sync: Mock, tmp_path: Path) -> None:
    file = KeptFile(tmp_path / "s-0.kept", is_synced=True)
    with pytest.raises(OSError, match="full"):
        file.add([made(0, b"a")])
    assert file.read() == []
    for each in made(0, b"a"), made(1, b"b"):
        file.add([each])
    assert sync.call_count == 2


def test_who_cannot_write_keeps_nothing_of_it(tmp_path: Path) -> None:
    path = tmp_path / "s-0.kept"
    file = KeptFile(path, is_synced=True)
    file.add([made(0, b"a")])
    size = path.stat().st_size

    def full(_fd: int) -> None:
        raise OSError(28, "No space left on device")

    with patch("os.fdatasync", full), pytest.raises(OSError, match="No space"):
        file.add([made(1, b"b")])
    assert path.stat().st_size == size
    assert file.read() == [made(0, b"a")]

    def full_and_not_to_be_cut(fd: int) -> None:
        with path.open("rb") as other:
            os.dup2(other.fileno(), fd)
        full(fd)

    with (
        patch("os.fdatasync", full_and_not_to_be_cut),
        pytest.raises(OSError, match="Invalid argument"),
    ):
        file.add([made(1, b"b")])
    assert path.stat().st_size > size
    file.add([made(2, b"c")])
    assert file.read() == [made(0, b"a"), made(2, b"c")]
