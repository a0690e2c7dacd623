"""Small files of this broker's owner: what they hold is replaced as a whole, or not at all."""

from pathlib import Path
from typing import Any

import msgspec
from vmq_hooks.replacing import replace_file


def replace_private(path: Path, content: Any) -> None:
    """Writes an object as JSON in the place of a file, which nobody but its owner may read at any moment.

    Raises:
        OSError: the disk; the file is as it was.
    """
    data = msgspec.json.format(msgspec.json.encode(content), indent=2)
    replace_file(path, data + b"\n", 0o600)
