"""The end of LevelDB's log: gone after a clean stop, it is missed."""

import os
from pathlib import Path

import plyvel
import pytest

from vmq.store.files import LOG_END, StoreFlawError, check_whole, note_log_end
from vmq.store.opening import open_store
from vmq.store.tools import check, repair


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    with plyvel.DB(str(folder), create_if_missing=True) as db:
        for number in range(200):
            db.put(b"k%03d" % number, b"x" * 40)
    note_log_end(folder)
    return folder


def log_of(folder: Path) -> Path:
    (log,) = folder.glob("*.log")
    return log


def test_a_log_that_was_cut_after_a_clean_stop_is_told(closed: Path) -> None:
    check_whole(closed)
    size = log_of(closed).stat().st_size
    os.truncate(log_of(closed), size - 2000)
    with pytest.raises(StoreFlawError, match=f"has {size - 2000} bytes of {size}"):
        check_whole(closed)


def test_the_note_is_of_no_later_log(closed: Path) -> None:
    with plyvel.DB(str(closed)) as db:
        db.put(b"later", b"")
    check_whole(closed)
    os.truncate(log_of(closed), 0)  # as if the process had been killed
    check_whole(closed)


def test_a_note_that_says_nothing_is_none(closed: Path) -> None:
    for text in (b"", b"\xff", b"000003.log\n", b"000003.log many\n", b"999999.log 7\n"):
        (closed / LOG_END).write_bytes(text)
        check_whole(closed)


def test_a_repair_leaves_no_note_of_the_logs_before_it(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    open_store(folder, "os", lambda: None).db.close()
    with plyvel.DB(str(folder)) as db:
        db.put(b"zz", b"")
        db.put(b"zzz", b"")
    note_log_end(folder)
    size = log_of(folder).stat().st_size
    os.truncate(log_of(folder), size - 3)
    with pytest.raises(StoreFlawError):
        check_whole(folder)
    assert not check(tmp_path).ok
    assert repair(tmp_path).ok
    assert not (folder / LOG_END).exists()
    assert check(tmp_path).ok
