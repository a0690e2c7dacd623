"""A copy of a store shares nothing with it, and is made only where there is room."""

import errno
import fcntl
import os
import shutil
from collections import namedtuple
from pathlib import Path

import pytest

from vmq.store import copying as store_copy
from vmq.store.copying import check_room, copy_database
from vmq.store.store import StoreError

Usage = namedtuple("Usage", ("total", "used", "free"))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    for name, size in (("000005.ldb", 5000), ("000006.log", 0), ("CURRENT", 16), ("LOCK", 0)):
        (folder / name).write_bytes(os.urandom(size))
    return folder


def test_a_copy_is_no_link(source: Path, tmp_path: Path) -> None:
    """LevelDB writes over a file of the same name in place."""
    target = tmp_path / "copy"
    copy_database(source, target)
    before = {each.name: each.read_bytes() for each in source.iterdir()}
    assert sorted(each.name for each in target.iterdir()) == ["000005.ldb", "000006.log", "CURRENT"]
    assert target.stat().st_mode & 0o077 == 0
    for each in target.iterdir():
        assert each.read_bytes() == before[each.name]
        with each.open("r+b") as file:
            file.write(b"other")
    assert {each.name: each.read_bytes() for each in source.iterdir()} == before


def test_it_tells_how_far_it_is(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EOPNOTSUPP, "not here")

    monkeypatch.setattr(fcntl, "ioctl", refuse)
    monkeypatch.setattr(store_copy, "PIECE", 2000)
    told: list[tuple[int, int]] = []
    copy_database(source, tmp_path / "copy", lambda done, total: told.append((done, total)))
    assert told == [(2000, 5016), (4000, 5016), (5000, 5016), (5016, 5016)]


def test_a_file_system_that_shares_blocks_is_asked_to(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def clone(target: int, request: int, origin: int) -> int:
        assert request == store_copy.FICLONE
        os.write(target, os.read(origin, 1 << 20))
        return 0

    def no_room(_folder: Path) -> Usage:
        return Usage(0, 0, 0)

    monkeypatch.setattr(fcntl, "ioctl", clone)
    monkeypatch.setattr(shutil, "disk_usage", no_room)
    copy_database(source, tmp_path / "copy")
    assert (tmp_path / "copy" / "000005.ldb").read_bytes() == (source / "000005.ldb").read_bytes()


def test_a_disk_without_room_is_told_before_anything_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: Usage(0, 0, 3 << 20))
    with pytest.raises(
        StoreError,
        match=r"the repair takes 11 MiB, and 3 MiB are free on the disk of .*: make room for 8 MiB more",
    ):
        check_room(tmp_path / "copy", (10 << 20) + 1, "the repair")
    check_room(tmp_path / "copy", 3 << 20, "the repair")
