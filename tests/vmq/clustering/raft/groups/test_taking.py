"""What producers are answered: never that their rows are safe where the disk, or Arrow, would not have them."""

import threading
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest

from tests.support.present import present
from tests.support.until import reach
from tests.vmq.streams.replica.support import failing_syncs, partition_in
from tests.vmq.streams.support import options, payloads
from vmq.clustering.raft.groups.thread import GroupThread
from vmq.clustering.raft.produce import DONE, ELSEWHERE, REFUSED, Take
from vmq.streams.log.gathering import Gathering
from vmq.streams.log.keys import Keys
from vmq_cluster.raft.dots import DOTTED
from vmq_cluster.raft.messages import Mark
from vmq_cluster.raft.progress import Progress


class Node:
    """One with one group, which it leads."""

    def __init__(self, folder: Path, durability: str) -> None:
        self.thread = GroupThread(folder / "groups", "a", Mock())
        self.partition = partition_in(folder / "partition", durability=durability)
        self.thread.start()
        self.thread.turns.call(self.open).result(10)
        self.answers: list[tuple[str, int]] = []
        reach(lambda: present(self.thread.opened["g"].group).leading is not None)

    def open(self) -> None:
        self.thread.open("g", self.partition, Keys(options()), (self.thread.name,))

    def hand_in(self, *takes: Take) -> None:
        """All in one pass."""
        may_go = threading.Event()
        self.thread.post(may_go.wait, 10)
        for each in takes:
            self.thread.take(each)
        may_go.set()

    def take(self, store: str, payloads: list[bytes], *, early: bool = False) -> Take:
        rows = Gathering()
        rows.add_run(b"t", payloads, 1, "c", 0)
        mark = Mark(store, "b", 0, len(payloads))
        return Take(
            "g", mark, rows, 100, early, lambda status: self.answers.append((store, status))
        )


@pytest.mark.parametrize("early", [True, False])
def test_what_could_not_be_synced_is_not_acknowledged(tmp_path: Path, early: bool) -> None:
    node = Node(tmp_path, "fsync")
    with (
        failing_syncs(node.partition.folder, OSError("the disk failed")),
        patch.object(node.partition, "open", side_effect=OSError("the disk failed")),
    ):
        node.hand_in(node.take("x", [b"1"], early=early))
        reach(lambda: bool(node.answers))
        assert node.thread.failed["g"] == "the disk failed"
    node.thread.stop()
    assert {*node.answers} == {("x", ELSEWHERE)}


def test_a_row_that_arrow_refuses_costs_no_other_producer_a_row(tmp_path: Path) -> None:
    node = Node(tmp_path, "os")
    bad = node.take("y", [b"bad"])
    bad.rows.clients[0] = "\ud800"
    node.hand_in(node.take("x", [b"1", b"2"]), bad, node.take("z", [b"3"]))
    reach(lambda: len(node.answers) == 3)
    assert sorted(node.answers) == [("x", DONE), ("y", REFUSED), ("z", DONE)]
    assert payloads(node.partition) == [b"1", b"2", b"3"]
    node.thread.stop()


@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("headers", [[("\ud800", "")], [("a", "b", "c")]])
def test_a_row_that_arrow_refuses_costs_its_own_producer_no_other_row(
    tmp_path: Path, headers: list[Any], early: bool
) -> None:
    node = Node(tmp_path, "os")
    bad = node.take("x", [b"1", b"bad", b"2"], early=early)
    bad.rows.headers[1] = headers
    node.hand_in(bad)
    behind = node.take("x", [b"3"])
    behind.mark = Mark("x", "b", 3, 1)
    node.hand_in(behind)
    reach(lambda: len(node.answers) == 2)
    assert sorted(node.answers) == [("x", DONE), ("x", REFUSED + 1)]
    assert payloads(node.partition) == [b"1", b"2", b"3"]
    node.thread.stop()


def test_of_rows_that_are_its_own_a_node_is_told_where_its_copy_cannot_know_it(
    tmp_path: Path,
) -> None:
    node = Node(tmp_path, "os")
    leading = present(present(node.thread.opened["g"].group).leading)
    leading.progress["x"] = Progress(0, 0.0)
    leading.progress["x"].knows = 1 << 40
    is_told = []
    for dots in ([b"x1"], [b"x1"], [b"x1", b"x2"], [b"x3", b"y1"], [b"x4", b"x5"]):
        take = node.take(DOTTED + "x", dots)
        take.rows.dots += [(each[:1].decode(), "b", int(each[1:])) for each in dots]
        before = len(node.answers)
        node.hand_in(take)
        for _ in range(2):  # the pass that takes it, and the one behind that
            node.thread.turns.call(lambda: None).result(10)
        is_told.append(len(node.answers) > before)
    assert is_told == [False, True, True, True, False]
    assert payloads(node.partition) == [b"x1", b"x2", b"x3", b"y1", b"x4", b"x5"]
    node.thread.stop()
