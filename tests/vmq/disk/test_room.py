"""What is to stay free of a disk."""

import errno
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from vmq.disk.room import MOMENT, DiskRoom, least_free

MIB = 1 << 20
GIB = 1 << 30


@pytest.mark.parametrize(
    ("total", "least"),
    [(32 * MIB, 8 * MIB), (64 * MIB, 16 * MIB), (GIB, GIB // 10), (100 * GIB, GIB)],
)
def test_a_small_disk_keeps_what_it_can_spare(total: int, least: int) -> None:
    assert least_free(total, GIB) == least
    assert least_free(total, 5) == 5


def test_what_would_take_what_is_to_stay_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = DiskRoom()
    assert room.lack(tmp_path, 1 << 60) == ""
    room.wanted = GIB
    assert room.lack(tmp_path / "nowhere") == ""
    disk = SimpleNamespace(f_frsize=MIB, f_blocks=100 * 1024, f_bavail=1030)
    monkeypatch.setattr(os, "statvfs", lambda _folder: disk)
    assert room.lack(tmp_path, 6 * MIB) == ""
    assert room.lack(tmp_path, 500 * MIB, 2) == ""
    lack = room.lack(tmp_path, 7 * MIB)
    assert lack == (
        f"{1030 * MIB} bytes are free below {tmp_path}, {GIB} are to stay (store.min_free_bytes)"
    )
    with pytest.raises(OSError, match="are to stay") as full:
        room.check(tmp_path, 7 * MIB)
    assert full.value.errno == errno.ENOSPC
    disk.f_bavail = 1000
    assert room.lack(tmp_path)
    assert room.lack(tmp_path, 400 * MIB, 2) == ""
    room.check(tmp_path, 400 * MIB, 2)


def test_a_disk_with_ample_room_is_asked_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []
    disk = SimpleNamespace(f_frsize=MIB, f_blocks=100 * 1024, f_bavail=3000)
    now = 100.0

    def statvfs(folder: Path) -> SimpleNamespace:
        asked.append(folder)
        return disk

    monkeypatch.setattr(os, "statvfs", statvfs)
    room = DiskRoom(lambda: now)
    room.wanted = GIB
    for size, count in ((0, 1), (MIB, 1), (16 * MIB, 1), (17 * MIB, 2), (0, 2)):
        assert room.lack(tmp_path, size) == ""
        assert len(asked) == count
    now += MOMENT
    disk.f_bavail = 2000  # not ample
    for count in (3, 4):
        assert room.lack(tmp_path) == ""
        assert len(asked) == count
    disk.f_bavail = 1000
    assert room.lack(tmp_path)
    disk.f_bavail = 3000
    assert room.lack(tmp_path) == ""
