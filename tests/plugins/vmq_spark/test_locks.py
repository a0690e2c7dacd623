"""Locks end with the last process that holds them."""

import os
import subprocess
import sys
from pathlib import Path

from vmq_spark.locks import is_locked, take_lock

from tests.support.present import present


def test_a_folder_is_taken_once(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    lock = present(take_lock(tmp_path))
    assert is_locked(tmp_path)
    assert take_lock(tmp_path) is None
    os.close(lock)
    assert not is_locked(tmp_path)


def test_a_child_holds_what_it_inherited(tmp_path: Path) -> None:
    lock = present(take_lock(tmp_path))
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=[lock],
    )
    os.close(lock)
    assert is_locked(tmp_path)
    child.communicate(b"\n")
    assert not is_locked(tmp_path)
