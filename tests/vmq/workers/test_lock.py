from pathlib import Path

import pytest

from vmq.workers.lock import FolderLock, InUseError, forget_workers


def test_one_holds_it_at_a_time(tmp_path: Path) -> None:
    lock = FolderLock(tmp_path)
    with pytest.raises(InUseError, match=f"{tmp_path} is in use"):
        FolderLock(tmp_path)
    lock.release()
    FolderLock(tmp_path).release()


def test_what_workers_had_is_forgotten_unless_they_run(tmp_path: Path) -> None:
    forget_workers(tmp_path)  # there were none
    assert not list(tmp_path.iterdir())
    lock = FolderLock(tmp_path)
    (lock.folder / "1" / "cluster").mkdir(parents=True)
    with pytest.raises(InUseError):
        forget_workers(tmp_path)
    assert (lock.folder / "1" / "cluster").is_dir()
    lock.release()
    forget_workers(tmp_path)
    assert not list(tmp_path.iterdir())
