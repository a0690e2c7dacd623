"""A partition of which one node had the only copy becomes a replica: its segments are the beginning of its group's log.

They stay as they are, of term 0 and committed; the group's first batch begins a segment behind them.
"""

import os
from pathlib import Path

from vmq.streams.log.checkpoint import sync_folder
from vmq.streams.log.partition import Partition
from vmq.streams.log.segment import SUFFIX, index_path
from vmq.streams.replica.log import COMMIT
from vmq.streams.replica.opening import CLEAN, commit_note
from vmq.streams.replica.partition import GROUP, ReplicaPartition


def has_single_log(folder: Path) -> bool:
    """Whether a stream's folder has messages of which this node had the only copy."""
    return any(not (path.parent / GROUP).exists() for path in folder.glob(f"[0-9]*/*{SUFFIX}"))


def leave_log(partition: Partition) -> None:
    """Notes, on the disk itself, that all that is there is committed, and nothing is missing.

    Nothing is written to the partition any more. Raises `OSError`.
    """
    partition.sync()
    partition.publish()
    note = partition.folder / COMMIT
    note.write_bytes(commit_note(partition.end))
    (partition.folder / CLEAN).touch()
    with note.open("rb") as written:
        os.fsync(written.fileno())
    sync_folder(partition.folder)


def become_replica(partition: Partition, *, keeps: bool) -> None:
    """The very same partition is a replica from now on, so that whoever reads it reads on.

    Args:
        partition: what `leave_log` was called for, if it keeps what it has.
        keeps: whether what is there is the beginning of the group's log; else rows of its own are put aside.

    Raises:
        OSError: the disk.
    """
    before = partition.active
    has_rows = not partition.is_copy and partition.kept != partition.end
    with partition.changed:  # nothing is merged or joined from here on
        partition.__class__ = ReplicaPartition
        assert isinstance(partition, ReplicaPartition)
        partition.begin()
        known = {each.path for each in partition.sealed} | {before.path}
    before.file.close()
    partition.checkpoint.close()
    if not keeps:
        if has_rows:
            partition.put_aside()
        else:
            partition.erase()
        return
    for path in partition.folder.glob("*" + SUFFIX):
        if path not in known:  # a join has replaced it just now
            path.unlink(missing_ok=True)
            index_path(path).unlink(missing_ok=True)
