"""The file with the key that all nodes of a cluster share."""

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Final

from vmq_cluster.addresses import check_key, generate_key
from vmq_cluster.errors import ClusterError

log = logging.getLogger("vmq.cluster")

#: No key file is longer; a file that is was named by mistake.
_MAX_BYTES: Final = 1000
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def key_of(path: str | None) -> str | None:
    """The key in the file that the options name, if they do. Raises as `read_key` does."""
    return None if path is None else read_key(Path(path))


def read_key(path: Path, warn: Callable[[str], object] = log.warning) -> str:
    """The key in a file; `warn` is told of others who may read that file.

    Raises:
        ClusterError: the file cannot be read, or holds no key.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MAX_BYTES + 1)
            mode = os.fstat(file.fileno()).st_mode
    except OSError as error:
        raise ClusterError(f"cannot read the key: {path.absolute()}: {error.strerror}") from None
    key = raw.strip().decode("ascii", errors="replace")
    try:
        check_key(key)
    except ClusterError as error:
        raise ClusterError(f"{path.absolute()}: {error}; `vmq cluster keygen` makes one") from None
    if mode & _OTHERS:
        warn(f"other users may read the cluster's key: chmod 600 {path.absolute()}")
    return key


def write_key(path: Path) -> None:
    """Writes a new key to a new file, which only its owner may read.

    Raises:
        OSError: the file is there already, or cannot be written.
    """
    number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="ascii") as file:
        file.write(generate_key() + "\n")
