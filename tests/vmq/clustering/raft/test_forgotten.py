"""What a node that was killed may have forgotten is among its ballots before anything else is said."""

import shutil
from pathlib import Path
from unittest.mock import Mock

from tests.vmq.streams.replica.support import partition_in
from vmq.clustering.raft.ballots import Ballots
from vmq.clustering.raft.thread import GroupThread
from vmq.streams.replica.partition import ReplicaPartition


def opened(folder: Path) -> tuple[GroupThread, ReplicaPartition]:
    """A node with one group, open."""
    thread = GroupThread(folder / "groups", "a", Mock())
    partition = partition_in(folder / "partition", durability="memory")
    thread.start()
    thread.post(thread.open, "g", partition, None, (thread.name,)).result(10)
    return thread, partition


def test_the_mark_of_what_was_forgotten_goes_when_the_ballots_say_it(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    thread, _ = opened(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "killed")
    thread.stop()
    thread, partition = opened(tmp_path / "killed")
    log = partition.log
    assert log is not None
    assert log.forgot
    thread.stop()
    assert not log.mark.is_set
    assert not (partition.folder / "forgot").exists()
    ballots = Ballots(tmp_path / "killed" / "groups" / "ballots")
    assert ballots.known["g"].abstains
    ballots.close()
