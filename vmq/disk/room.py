"""What is to stay free of a disk: whoever writes much to it asks first.

What the store works in must be there when everything else is full, or who has a durable session could not even fetch
what waits for it. So streams and jobs take nothing new on a disk that is short of room; they acknowledge, deliver and
delete as ever, which needs little, and may make room.
"""

import errno
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

#: A disk that has less than so many times `store.min_free_bytes` in all keeps that part of it free.
PART: Final = 10
#: Of a small disk so much stays free, for what LevelDB merges.
WORK_FREE: Final = 16 << 20
#: Seconds for which a disk is not asked again that has so many bytes more than are to stay free: nobody writes as much
#: in them. Asking takes a tenth of what it costs to write a message alone.
MOMENT: Final = 0.1
AMPLE: Final = 1 << 30
#: Who is about to write more than that asks anew.
_LARGE: Final = 16 << 20


def least_free(total: int, wanted: int) -> int:
    """Bytes that are to stay free of so many in all: those wanted, or what a small disk can spare."""
    return min(wanted, max(total // PART, min(total // 4, WORK_FREE)))


class DiskRoom:
    """Which disks are short of room. May be asked by any thread.

    Args:
        clock: monotonic seconds; none that passes: disks are asked each time.
    """

    def __init__(self, clock: Callable[[], float] = lambda: math.inf) -> None:
        self._clock = clock
        #: `store.min_free_bytes`; 0: nothing has to stay free.
        self.wanted = 0
        #: The folders whose disks had ample room when they were asked, and until when that counts.
        self._ample: set[Path] = set()
        self._until = 0.0

    def lack(self, folder: Path, size: int = 0, share: int = 1) -> str:
        """Why so many bytes more are not to be written to a folder; "" if they may be.

        Args:
            folder: it has its disk, whichever that is.
            size: what comes.
            share: only one part in so many has to stay free: what is written makes room soon.
        """
        if not self.wanted:
            return ""
        now = self._clock()
        if now >= self._until:
            self._until = now + MOMENT
            self._ample.clear()
        elif folder in self._ample and size <= _LARGE:
            return ""
        try:
            found = os.statvfs(folder)
        except OSError:
            return ""  # who writes there finds out
        least = least_free(found.f_blocks * found.f_frsize, self.wanted) // share
        free = found.f_bavail * found.f_frsize
        if free - size >= least:
            if free - size >= least + AMPLE:
                self._ample.add(folder)
            return ""
        return f"{free} bytes are free below {folder}, {least} are to stay (store.min_free_bytes)"

    def check(self, folder: Path, size: int = 0, share: int = 1) -> None:
        """Raises `OSError`, as a full disk does, where `lack` gives a reason."""
        if lack := self.lack(folder, size, share):
            raise OSError(errno.ENOSPC, lack)
