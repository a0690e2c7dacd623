"""One runner for each checkpoint: locks that end with the processes that hold them."""

import fcntl
import os
import time
from pathlib import Path
from typing import Final

#: Who looks whether a folder is taken holds its lock for a moment: that is worth a few tries.
_TRIES: Final = 5
_PAUSE: Final = 0.02


def take_lock(folder: Path) -> int | None:
    """Takes a folder for this process and those that inherit the descriptor; None: it is taken."""
    fd = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_PAUSE)
        else:
            return fd
    os.close(fd)
    return None


def is_locked(folder: Path) -> bool:
    """Whether somebody has a folder."""
    try:
        fd = os.open(folder / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        # Shared: two who look do not disturb each other.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
