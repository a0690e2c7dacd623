"""The file of users is changed whole or not at all."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from vmq_hooks.files import FileError
from vmq_passwd import editing


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "passwd"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_file_is_its_owners_alone(path: Path) -> None:
    assert editing.add(path, "bob", b"1")
    assert not editing.add(path, "bob", b"2")
    assert mode(path) == 0o600
    stored = editing.read(path).get("bob")
    assert stored is not None
    assert stored.verify(b"2")
    assert not stored.verify(b"1")


def test_a_file_that_begins_with_a_byte_order_mark(path: Path) -> None:
    editing.add(path, "bob", b"1")
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert not editing.add(path, "bob", b"2")
    stored = editing.read(path).get("bob")
    assert stored is not None
    assert stored.verify(b"2")
    assert not editing.delete(path, "eve")
    assert editing.delete(path, "bob")
    assert len(editing.read(path)) == 0


def test_deleting_makes_no_file(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        editing.delete(path, "bob")
    assert not path.exists()


def test_the_group_keeps_its_rights_and_others_lose_theirs(path: Path) -> None:
    path.touch()
    path.chmod(0o644)
    editing.add(path, "bob", b"1")
    assert mode(path) == 0o640


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give files away")
def test_the_owner_stays(path: Path) -> None:
    path.touch()
    os.chown(path, 12345, 12346)
    editing.add(path, "bob", b"1")
    assert (path.stat().st_uid, path.stat().st_gid) == (12345, 12346)


def test_a_link_stays_a_link(path: Path) -> None:
    link = path.with_name("link")
    path.touch()
    link.symlink_to(path)
    editing.add(link, "bob", b"1")
    assert link.is_symlink()
    assert "bob" in editing.read(path)


def test_a_reader_has_the_old_file_or_the_new_one(path: Path) -> None:
    editing.add(path, "bob", b"1")
    with path.open("rb") as opened:
        editing.add(path, "eve", b"1")
        assert b"eve" not in opened.read()
    assert "eve" in editing.read(path)


def test_a_broken_file_is_not_touched(path: Path) -> None:
    path.write_text("nonsense")
    with pytest.raises(FileError, match="passwd, line 1: accepted: NAME:HASH"):
        editing.add(path, "bob", b"1")
    assert path.read_text() == "nonsense"


def test_a_failure_leaves_the_file_and_nothing_else(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editing.add(path, "bob", b"1")
    before = path.read_bytes()

    def fail(descriptor: int) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="no space left"):
        editing.add(path, "eve", b"1")
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_of_many_at_once_none_loses_its_change(path: Path) -> None:
    names = [f"user{index}" for index in range(12)]
    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(lambda name: editing.add(path, name, b"1"), names))
    users = editing.read(path)
    assert all(name in users for name in names)


def test_a_name_that_would_be_two_lines_is_refused(path: Path) -> None:
    with pytest.raises(ValueError, match="no colon or line break"):
        editing.add(path, "bob\neve", b"1")
    assert not path.exists()
