from pathlib import Path

import pytest

from vmq.streams.log import checkpoint
from vmq.streams.log.checkpoint import CheckpointFile, PartitionCheckpoint, boot_id, read


def test_what_was_written_last_is_read(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    file = CheckpointFile(path)
    file.write(PartitionCheckpoint(1, 2, 3, 4))
    size = path.stat().st_size
    file.write(PartitionCheckpoint(10, 20, 30, 40))
    file.close()
    assert read(path) == PartitionCheckpoint(10, 20, 30, 40, boot_id())
    assert path.stat().st_size == size


def test_a_harmed_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    assert read(path) is None
    file = CheckpointFile(path)
    file.write(PartitionCheckpoint(10, 20, 30, 40))
    file.close()
    raw = path.read_bytes()
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert read(path) is None
        path.write_bytes(raw[:at])
        assert read(path) is None


def test_after_a_restart_of_the_machine_only_what_was_synced_is_trusted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    noted = PartitionCheckpoint(0, 500, 200, 9, boot_id())
    assert noted.trusted(0) == 500
    assert noted.trusted(9) == 0
    monkeypatch.setattr(checkpoint, "boot_id", lambda: b"x" * 16)
    assert noted.trusted(0) == 200
    nowhere = PartitionCheckpoint(0, 500, 200, 9, b"\0" * 16)
    monkeypatch.setattr(checkpoint, "boot_id", lambda: b"\0" * 16)
    assert nowhere.trusted(0) == 200, "a machine that cannot tell counts as restarted"
