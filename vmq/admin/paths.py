"""Where the admin socket lies, for the broker that opens it and the command that connects to it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

NAME: Final = "admin.sock"
#: The longest path of a socket everywhere (Linux takes 107 bytes, macOS 103).
MAX_PATH: Final = 103


def socket_of(folder: Path) -> Path:
    """The admin socket of a data directory."""
    return folder / NAME


@contextmanager
def within_limit(path: Path) -> Iterator[str]:
    """An address for a socket whose path may be longer than addresses are.

    Raises:
        OSError: it is too long, and the system has no way around that.
    """
    if len(os.fsencode(path)) <= MAX_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        around = Path(f"/proc/self/fd/{folder}")
        if not around.exists():
            raise OSError(f"the path is longer than {MAX_PATH} bytes")
        yield str(around / path.name)
    finally:
        os.close(folder)
