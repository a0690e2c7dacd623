"""Files that are replaced as a whole."""

import os
from pathlib import Path


def replace_file(path: Path, data: bytes, mode: int = 0o666) -> None:
    """Has a file hold other bytes: all of them, or still those before, whatever comes between.

    Returns when that is on the disk itself, so it belongs in a thread. A file with `.tmp` behind its name may be left.

    Args:
        path: the file, which need not be there.
        data: the bytes.
        mode: who may read and write it, at any moment; without what the process's umask takes away.

    Raises:
        OSError: the disk; the file is as it was.
    """
    work = path.with_name(path.name + ".tmp")
    work.unlink(missing_ok=True)  # an attempt that died may have left it, open to others
    with os.fdopen(os.open(work, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    work.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)  # else a power failure may bring the old one back
    finally:
        os.close(folder)
