"""Files that are replaced as a whole."""

import json
import stat
from pathlib import Path

import pytest

from vmq.runtime.private_files import replace_private


def test_the_new_one_is_its_owners_and_whole(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text("old")
    path.chmod(0o644)
    replace_private(path, {"new": [1]})
    assert json.loads(path.read_text()) == {"new": [1]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_what_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text("old")
    (tmp_path / "file.new").mkdir()
    with pytest.raises(OSError, match=r"file\.new"):
        replace_private(path, {})
    assert path.read_text() == "old"


def test_what_an_attempt_that_died_has_left_is_no_obstacle(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    (tmp_path / "file.new").write_text("half")
    replace_private(path, [])
    assert path.read_text() == "[]\n"
