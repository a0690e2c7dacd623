"""What the operating system says about this process. Where it says nothing, the answer is 0."""

import ctypes
import fcntl
import os
import platform
import resource
import sys
import time
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Final

_DESCRIPTORS: Final = Path("/proc/self/fd")
_MEMORY: Final = "/proc/self/statm"
_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_PAGE: Final = resource.getpagesize()

#: Files of a table that is made at once: 8 bytes each.
_MOST_FILES: Final = 1 << 16

# Of mallopt(3), and of glibc's malloc.h.
_TRIM_THRESHOLD: Final = -1, 16 * 1024 * 1024
_MMAP_THRESHOLD: Final = -3, 4 * 1024 * 1024


def cpu_seconds() -> float:
    """Processor time used so far, of user and system together."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def resident_bytes() -> int:
    """Memory in RAM; where only the most that it ever was is known, that."""
    try:
        # A third of the system calls that `open` makes.
        file = os.open(_MEMORY, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return int(os.read(file, 200).split()[1]) * _PAGE
        finally:
            os.close(file)
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def keep_files_private() -> None:
    """Has files and folders that this process makes from now on belong to its user alone."""
    os.umask(0o077)


def own_folder(folder: Path) -> None:
    """Makes a folder that only its owner may enter, or makes one that there is such.

    What is in it is nobody else's then, whatever rights its files were given: by an earlier version, or when embedded.

    Raises:
        OSError: it cannot be had.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        folder.chmod(0o700)


def open_files() -> int:
    """Open file descriptors."""
    try:
        # Newer kernels (Linux 6.2) say the number without a walk over all of them.
        return _DESCRIPTORS.stat().st_size or sum(1 for _ in _DESCRIPTORS.iterdir())
    except OSError:
        return 0


def max_files() -> int:
    """File descriptors that may be open; 0 is no limit."""
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 0 if soft == resource.RLIM_INFINITY else soft


def reserve_file_table() -> None:
    """Has the system make the table of this process's open files as long as it may get, or 65,536; before its threads.

    Linux doubles the table of a process when it is full, at 256, 512, 1,024 files and so on, and waits where there are
    threads until every processor has done with the old one: `expand_fdtable` in its fs/file.c. An event loop that
    accepts a connection then stands for 5 to 20 ms.
    """
    last = min(max_files() or _MOST_FILES, _MOST_FILES) - 1
    with suppress(OSError), Path(os.devnull).open("rb") as file:
        os.close(fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, last))


def keep_freed_memory() -> bool:
    """Has some MiB of freed memory stay with the process; returns whether the C library lets itself be told.

    Frames between nodes are large and live for a moment. By default glibc gives such memory back to the system at once,
    and takes it anew for the next frame: its page faults cost more than all else that is done with the frame.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and all(
        mallopt(*each) == 1 for each in (_TRIM_THRESHOLD, _MMAP_THRESHOLD)
    )


def give_back_memory() -> None:
    """Has the C library give freed memory back to the system, if it lets itself be told. It may take milliseconds."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@cache
def python_version() -> str:
    """The version of Python that runs."""
    return platform.python_version()


def since_boot() -> int:
    """Nanoseconds since the machine was started, suspended or not."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def ahead() -> int:
    """Nanoseconds by which the wall clock is ahead of the time since the machine was started."""
    return time.time_ns() - since_boot()


def boot_id() -> str:
    """What names the time from a start of the machine to its end; empty: unknown."""
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""
