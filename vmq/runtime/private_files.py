"""Small files of this broker's owner: what they hold is replaced as a whole, or not at all."""

import os
from pathlib import Path
from typing import Any

import msgspec


def replace_private(path: Path, content: Any) -> None:
    """Writes an object as JSON in the place of a file, which nobody but its owner may read at any moment.

    Raises:
        OSError: the disk; the file is as it was.
    """
    fresh = path.with_suffix(".new")
    data = msgspec.json.format(msgspec.json.encode(content), indent=2)
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(data + b"\n")
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
