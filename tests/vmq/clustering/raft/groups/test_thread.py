"""What goes wrong in one group of a node stops no other, and a leader that can do nothing is replaced."""

import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

import pytest

from tests.support.present import present
from tests.support.until import reach
from tests.vmq.streams.replica.support import failing_syncs, partition_in
from tests.vmq.streams.support import options
from vmq.clustering.raft.groups.envelopes import checked
from vmq.clustering.raft.groups.opened import has_part
from vmq.clustering.raft.groups.thread import WAITING, GroupThread
from vmq.clustering.raft.groups.upkeep import LOOK
from vmq.clustering.raft.produce import DONE, ELSEWHERE, Take
from vmq.clustering.raft.records import node_of
from vmq.streams.log.gathering import Gathering
from vmq.streams.log.keys import Keys
from vmq.streams.replica.log import ReplicaLog
from vmq_cluster.raft.effects import Save
from vmq_cluster.raft.messages import MEMBERS, Append, Batch, Envelope, Mark, Nudge
from vmq_cluster.raft.options import RaftOptions


class Node:
    """One that leads two groups, `g` and `h`."""

    def __init__(self, folder: Path) -> None:
        self.outside = Mock()
        self.thread = thread = GroupThread(folder / "groups", "a", self.outside)
        thread.start()
        for name in "gh":
            partition = partition_in(folder / name, durability="fsync")
            about = name, partition, Keys(options()), (thread.name,)
            thread.turns.call(thread.open, *about).result(10)
        reach(lambda: self.leads("g") and self.leads("h"))

    @property
    def log(self) -> ReplicaLog:
        return present(self.thread.opened["g"].partition.log)

    def leads(self, name: str) -> bool:
        group = self.thread.opened[name].group
        return group is not None and group.leading is not None and group.leading.is_established

    def hand_in(self, name: str, store: str) -> int:
        """Has a group take a row; returns the answer."""
        found: list[int] = []
        rows = Gathering()
        rows.add_run(b"t", [b"1"], 1, "c", 0)
        self.thread.take(Take(name, Mark(store, "b", 0, 1), rows, 100, False, found.append))
        reach(lambda: found)
        return found[0]

    def look(self) -> None:
        """Has the first group looked at soon."""
        self.thread.post(self.thread._looks.set, "g", 0.0)

    def save(self) -> None:
        """Has its ballot written."""
        ballot = present(self.thread.opened["g"].group).replica.ballot
        self.thread.post(self.thread._carry_out, [Save("g", ballot)], time.monotonic())


def mistaken(node: Node, what: str) -> Any:
    """A mistake in something that is done for the first group."""
    mistake = ZeroDivisionError("a mistake")
    partition = node.thread.opened["g"].partition
    if what == "sync":
        return failing_syncs(partition.folder, mistake)
    places: dict[str, tuple[object, str]] = {
        "take": (partition, "check_room"),
        "save": (node.log.mark, "clear"),
        "look": (partition, "retained_from"),
        "tell": (node.outside, "on_committed"),
    }
    return patch.object(*places[what], side_effect=mistake)


@pytest.mark.parametrize("what", ["take", "sync", "save", "look", "tell"])
def test_a_mistake_closes_its_group_for_a_while_and_no_other(tmp_path: Path, what: str) -> None:
    node = Node(tmp_path)
    with mistaken(node, what):
        if what in ("look", "save"):
            getattr(node, what)()
        else:
            assert node.hand_in("g", "x") in (DONE, ELSEWHERE)
        reach(lambda: node.thread.failed == {"g": "ZeroDivisionError('a mistake')"})
    assert node.hand_in("h", "y") == DONE
    node.look()
    reach(lambda: node.leads("g"))
    assert node.hand_in("g", "z") == DONE
    node.look()
    reach(lambda: not node.thread.failed)
    assert not node.thread.failure
    node.thread.stop()


def test_who_was_told_that_it_is_no_member_has_no_part_in_the_group(tmp_path: Path) -> None:
    node = Node(tmp_path)
    assert has_part(node.thread.opened, "g")
    present(node.thread.opened["g"].group).removed = True
    assert not has_part(node.thread.opened, "g")
    assert not has_part(node.thread.opened, "x")
    node.thread.stop()


def test_what_a_peer_says_of_one_group_costs_no_other() -> None:
    bad = Append(1, 0, 0, [Batch(0, 1, 1, MEMBERS, (), b"?")], 0, 0, 0, (0, 0))
    said = Envelope("b@1", 1, [("g", bad), ("h", Nudge(1))])
    assert [name for name, _ in checked("b", said).items] == ["h"]


class Nodes:
    """Three with one group."""

    def __init__(self, folder: Path) -> None:
        swift = RaftOptions(word=0.1, silence=1.0)
        self.outsides = {name: Mock() for name in "abc"}
        self.threads = {
            name: GroupThread(folder / name, name, outside, swift)
            for name, outside in self.outsides.items()
        }
        names = tuple(each.name for each in self.threads.values())
        for name, thread in self.threads.items():
            self.outsides[name].send = partial(self.send, name)
            thread.start()
            thread.post(thread.peers, {*names} - {thread.name})
            partition = partition_in(folder / f"{name}-g", durability="fsync")
            thread.post(thread.open, "g", partition, Keys(options()), names)

    def send(self, sender: str, peer: str, raw: bytes) -> None:
        self.threads[node_of(peer)].receive(sender, raw)

    def leader(self) -> str:
        groups = [each.opened["g"].group for each in self.threads.values() if "g" in each.opened]
        known = Counter(node_of(group.replica.leader) for group in groups if group is not None)
        name, count = known.most_common(1)[0] if known else ("", 0)
        return name if count > 1 else ""

    def is_quiet(self) -> bool:
        return bool(self.leader()) and not any(each.host.awake for each in self.threads.values())


@pytest.mark.parametrize("what", ["disk", "thread"])
def test_a_quiet_leader_whose_disk_or_thread_stops_is_replaced(tmp_path: Path, what: str) -> None:
    nodes = Nodes(tmp_path)
    reach(nodes.is_quiet)
    old = nodes.leader()
    thread = nodes.threads[old]
    partition = thread.opened["g"].partition
    may_go_on = threading.Event()
    with patch.object(partition, "open", side_effect=OSError("the disk failed")):
        stop = may_go_on.wait if what == "thread" else partition.open
        thread.post(thread._guard, "g", stop)
        reach(lambda: nodes.leader() not in ("", old))
    may_go_on.set()
    for each in nodes.threads.values():
        each.stop()


def test_of_what_others_say_only_so_much_waits_for_a_thread_that_hangs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node, goes_on = Node(tmp_path), threading.Event()
    node.thread.post(goes_on.wait)
    for _ in range(3):
        node.thread.receive("b", bytes(WAITING // 2))
    goes_on.set()
    reach(lambda: caplog.text.count("is passed over") == 2)
    node.thread.receive("b", b"")
    node.thread.turns.call(int).result(10)
    node.thread.stop()
    assert caplog.text.count("is passed over") == 3


def test_what_is_given_away_in_vain_is_looked_at_again_soon(tmp_path: Path) -> None:
    node = Node(tmp_path)
    at = node.thread._looks._at
    node.look()
    reach(lambda: at.get("g", 0.0) > time.monotonic() + 2 * LOOK)
    node.thread.post(node.thread.hand_over, ())
    reach(lambda: at["g"] <= time.monotonic() + LOOK)
    node.thread.stop()


def test_who_comes_to_lead_sees_at_once_to_the_members_that_are_decided(tmp_path: Path) -> None:
    nodes = Nodes(tmp_path)
    reach(nodes.is_quiet)
    old = nodes.threads[nodes.leader()]
    one = next(each for each in nodes.threads.values() if each is not old)
    wanted = (one.name, old.name)
    with patch.object(one._looks, "due", return_value=()):
        one.turns.call(one.aim, {"g": wanted}).result(10)
        old.post(old.transfer, "g", one.name)
        reach(lambda: present(one.opened["g"].group).replica.members.voters == wanted)
    for each in nodes.threads.values():
        each.stop()
