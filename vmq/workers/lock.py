"""One supervisor a data directory."""

import fcntl
import os
import shutil
from pathlib import Path

from vmq.workers.plan import workers_folder


class InUseError(Exception):
    """Somebody else has the workers of this data directory."""


class FolderLock:
    """The folder of the workers, as long as it is held; made when missing.

    Worker 1 holds the lock of the store, but not while it is started again; this one is held throughout.

    Raises:
        InUseError: another process holds it.
        OSError: it cannot be had.
    """

    def __init__(self, data_dir: Path) -> None:
        self.folder = workers_folder(data_dir)
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise InUseError(f"{data_dir} is in use by another broker") from None

    def release(self) -> None:
        """Lets others have it."""
        os.close(self._file)


def forget_workers(data_dir: Path) -> None:
    """Removes what workers had beside the durable state of the first one, which goes on alone.

    Its node goes too: it would come back with what it knew long ago. To be called when no other worker has left
    anything behind.

    Raises:
        InUseError: they run.
        OSError: the folder cannot be removed.
    """
    if not workers_folder(data_dir).is_dir():
        return
    lock = FolderLock(data_dir)
    try:
        shutil.rmtree(lock.folder)
    finally:
        lock.release()
