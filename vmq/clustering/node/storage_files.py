"""Whether what a node of a cluster keeps for itself is whole, before LevelDB is let near it."""

from pathlib import Path

from vmq.store.files import StoreFlawError, check_whole
from vmq.store.opening import is_locked, is_of_leveldb
from vmq_cluster.errors import ClusterError
from vmq_cluster.leveldb import LevelStorage


def open_storage(folder: Path) -> LevelStorage:
    """Opens what the node keeps in its folder. Raises `ClusterError`: it is not whole, or cannot be opened."""
    refuse_damaged(folder)
    return LevelStorage(folder)


def refuse_damaged(folder: Path) -> None:
    """Refuses a database of which files are missing or cut: LevelDB would delete the others.

    Raises:
        ClusterError: it is not whole.
    """
    if not folder.is_dir() or not any(is_of_leveldb(each.name) for each in folder.iterdir()):
        return
    try:
        check_whole(folder)
    except StoreFlawError as flaw:
        if is_locked(folder):
            return  # whoever opens it next says so
        raise ClusterError(
            f"the node's own storage in {folder} is damaged ({flaw}), and was left as it is: bring it back from a "
            "copy, or move it away to have this node join as one that has lost its disk"
        ) from None
