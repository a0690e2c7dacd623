"""Files that are replaced as a whole."""

import os
from pathlib import Path


def replace_file(path: Path, data: bytes) -> None:
    """Has a file hold other bytes: all of them, or still those before, whatever comes between.

    Returns when that is on the disk itself, so it belongs in a thread. A file with `.tmp` behind its name may be left.

    Raises:
        OSError: the disk; the file is as it was.
    """
    work = path.with_name(path.name + ".tmp")
    with work.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    work.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # else a power failure may bring the old one back
    finally:
        os.close(folder)
