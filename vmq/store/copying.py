"""A copy of a store that shares nothing with it: whatever happens to the one, the other stays as it is.

Hard links would not do: LevelDB writes over a file of the same name in place. Where the file system can share blocks
until one side changes them (Btrfs, XFS), that costs neither time nor room.
"""

import errno
import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from vmq.store.store import StoreError

#: ioctl(2): have a file share another one's blocks.
FICLONE: Final = 0x40049409

#: Bytes that are copied at once.
PIECE: Final = 4 << 20

#: Called with the bytes done and their total number.
Copied = Callable[[int, int], None]


def copy_database(source: Path, target: Path, copied: Copied = lambda _done, _total: None) -> None:
    """Copies a database into a new folder, all but its lock.

    Raises:
        StoreError: there is no room for it.
        OSError: the disk.
    """
    target.mkdir(mode=0o700)
    left = []
    for each in sorted(source.iterdir()):
        if each.is_file() and each.name != "LOCK" and not share(each, target / each.name):
            left.append(each)
    total = sum(each.stat().st_size for each in left)
    check_room(target, total, f"the copy of {source}")
    done = 0
    for each in left:
        with each.open("rb") as old, (target / each.name).open("wb") as new:
            while piece := old.read(PIECE):
                new.write(piece)
                done += len(piece)
                copied(done, total)


def share(source: Path, target: Path) -> bool:
    """Makes a file of the blocks of another one; False if this file system cannot."""
    with source.open("rb") as old, target.open("wb") as new:
        try:
            fcntl.ioctl(new.fileno(), FICLONE, old.fileno())
        except OSError as error:
            if error.errno == errno.ENOSPC:
                raise
            return False
    return True


def check_room(folder: Path, size: int, what: str) -> None:
    """Whether the disk of a folder has room for so many bytes.

    Raises:
        StoreError: it has not; the text says how many bytes are lacking.
    """
    free = shutil.disk_usage(folder).free
    if size > free:
        raise StoreError(
            f"{what} takes {mebibytes(size)}, and {mebibytes(free)} are free on the disk of "
            f"{folder.parent}: make room for {mebibytes(size - free)} more"
        )


def mebibytes(size: int) -> str:
    """A number of bytes, as an operator is told of it."""
    return f"{-(-size // 2**20)} MiB"
