"""What a node that was killed may have forgotten is among its ballots before anything else is said."""

import shutil
import time
from pathlib import Path
from unittest.mock import Mock

from tests.support.present import present
from tests.support.until import reach
from tests.vmq.streams.replica.support import partition_in
from vmq.clustering.raft.groups.ballots import Ballots
from vmq.clustering.raft.groups.thread import GroupThread
from vmq.streams.replica.partition import ReplicaPartition
from vmq_cluster.raft.members import Members


def opened(folder: Path) -> tuple[GroupThread, ReplicaPartition]:
    """A node with one group, open."""
    thread = GroupThread(folder / "groups", "a", Mock())
    partition = partition_in(folder / "partition", durability="memory")
    thread.start()
    thread.turns.call(thread.open, "g", partition, None, (thread.name,)).result(10)
    return thread, partition


def test_the_mark_of_what_was_forgotten_goes_when_the_ballots_say_it(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    thread, _ = opened(tmp_path / "one")
    shutil.copytree(tmp_path / "one", tmp_path / "killed")
    thread.stop()
    thread, partition = opened(tmp_path / "killed")
    log = present(partition.log)
    assert log.forgot
    thread.stop()
    assert not log.mark.is_set
    assert not (partition.folder / "forgot").exists()
    ballots = Ballots(tmp_path / "killed" / "groups" / "ballots")
    assert ballots.known["g"].abstains
    ballots.close()


def test_whose_log_lost_its_end_to_damage_knows_the_members_by_its_ballot(tmp_path: Path) -> None:
    thread, partition = opened(tmp_path)
    members = Members((thread.name,), ("b@1",))
    group = present(thread.opened["g"].group)

    def grow() -> bool:
        return group.leading is not None and group.change(members, time.monotonic())

    reach(lambda: thread.turns.call(grow).result(10))
    assert thread.turns.call(lambda: group.replica.members).result(10) == members
    thread.stop()
    [segment] = partition.folder.glob("*.arrows")
    raw = segment.read_bytes()
    segment.write_bytes(raw[: len(raw) // 2])
    thread, _ = opened(tmp_path)
    again = present(thread.opened["g"].group)
    assert again.replica.state.members != members
    assert again.replica.members == members
    thread.stop()
