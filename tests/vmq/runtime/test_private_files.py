"""Files that are replaced as a whole."""

import json
import os
import stat
from pathlib import Path

import pytest

from vmq.runtime.private_files import replace_private


def test_the_new_one_is_its_owners_and_whole_and_has_its_name_on_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "file.json"
    path.write_text("old")
    path.chmod(0o644)
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
    )
    replace_private(path, {"new": [1]})
    assert synced == ["file.json.tmp", tmp_path.name]
    assert json.loads(path.read_text()) == {"new": [1]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text("old")
    (tmp_path / "file.json.tmp").mkdir()
    with pytest.raises(OSError, match=r"file\.json\.tmp"):
        replace_private(path, {})
    assert path.read_text() == "old"


def test_what_an_attempt_that_died_has_left_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    left = tmp_path / "file.json.tmp"
    left.write_text("half")
    left.chmod(0o644)
    replace_private(path, [])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "[]\n"
