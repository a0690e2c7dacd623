"""What a process of Spark is told once, so that reading from it costs less: its memory, its garbage."""

import ctypes
import gc
import sys
from functools import cache
from typing import Final

#: Parameters of glibc's mallopt(3).
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3

#: Bytes that the heap keeps for the next batch. One takes a few MiB on its way.
KEPT: Final = 32 << 20


@cache
def prepare() -> None:
    """Sets up a process that reads, the first time that it is called there."""
    # For its effect alone: it is by far most of what a read would load later on, in every process again.
    import pyarrow.compute  # noqa: F401

    gc.freeze()
    keep_memory()


@cache
def spare_collector() -> None:
    """Takes what is loaded by now out of the garbage collector's sight, the first time that it is called.

    Spark's Python processes collect garbage after each task, and go through all modules for it: some 30 ms.
    """
    gc.freeze()


def keep_memory() -> bool:
    """Tells glibc to keep some freed memory; False where the C library is another.

    gRPC takes a batch from the heap. Left alone, the heap gives each back to the kernel and gets it anew,
    page by page and zeroed, which costs as much as copying it.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is None:
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, KEPT)) and bool(mallopt(M_TRIM_THRESHOLD, KEPT))
