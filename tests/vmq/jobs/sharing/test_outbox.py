"""What is said of many jobs in one pass is one message, and what does not hurry waits for the next one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.simulator.jobs.node import QUEUE, SimNode
from tests.simulator.jobs.world import JobWorld
from vmq.jobs.queue import Job
from vmq.jobs.sharing.messages import AnyEntry, Copies, Done, Forget, Heard, Stored, decode
from vmq.jobs.sharing.outbox import cut
from vmq.jobs.sharing.post import messages_of

COUNT = 50


class Three:
    """Nodes that know each other; what one of them says in a pass is looked at before the others have it."""

    def __init__(self, folder: Path) -> None:
        self.world = JobWorld(1, folder, ["a", "b", "c"])
        self.world.is_idle = True
        for _ in range(30):
            self.world.step(adds=False)
        self.nodes: dict[str, SimNode] = self.world.nodes
        self.one, *self.others = self.nodes.values()

    def said(self, node: SimNode) -> dict[str, list[AnyEntry]]:
        """Ends a pass of a node; what it says to whom, who has it from then on."""
        found: dict[str, list[AnyEntry]] = {}
        for peer, payload in node.end_pass():
            found.setdefault(peer, []).extend(map(decode, messages_of(payload)))
            self.nodes[peer].post.receive(node.name, payload, self.nodes[peer].clock_now)
        return found

    def add(self, sizes: list[int]) -> list[Job]:
        one = self.one
        queue = one.machine.queue(QUEUE, one.clock_now)
        return [one.machine.add(queue, b"x" * each, one.clock_now, replicate=3) for each in sizes]

    def done(self, jobs: list[Job]) -> None:
        for job in jobs:
            assert self.one.machine.acknowledge(job.id)


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Three]:
    found = Three(tmp_path)
    yield found
    for node in found.nodes.values():
        node.segments.close()


def kinds(said: dict[str, list[AnyEntry]]) -> dict[str, list[type]]:
    return {peer: [type(each) for each in entries] for peer, entries in said.items()}


def to_both(three: Three, entries: list[type]) -> dict[str, list[type]]:
    return {node.name: entries for node in three.others}


def test_jobs_of_a_pass_are_one_message_on_all_their_way(three: Three) -> None:
    one = three.one
    jobs = three.add([10] * COUNT)
    assert kinds(three.said(one)) == to_both(three, [Copies])
    for node in three.others:
        assert [node.machine.find(job.id) is not None for job in jobs] == [True] * COUNT
        said = three.said(node)
        assert kinds(said) == {one.name: [Stored]}
    assert three.said(one) == {}
    three.done(jobs)
    assert kinds(three.said(one)) == to_both(three, [Done])
    for node in three.others:
        assert three.said(node) == {}, "that it heard so does not hurry"
        node.replicas.tick(node.clock_now)
        assert kinds(three.said(node)) == {one.name: [Heard]}
    assert not three.one.machine.count()
    assert three.said(one) == {}
    jobs = three.add([10])
    said = three.said(one)
    assert kinds(said) == to_both(three, [Forget, Copies])
    for node in three.others:
        assert list(node.machine.jobs) == [jobs[0].id]


def test_what_differs_is_said_apart_and_in_order(three: Three) -> None:
    one = three.one
    jobs = three.add([10, 20])
    queue = one.machine.queue(QUEUE, one.clock_now)
    jobs.append(one.machine.add(queue, b"late", one.clock_now, delay=5, replicate=3))
    jobs.append(one.machine.add(queue, b"high", one.clock_now, priority=9, replicate=3))
    jobs.append(one.machine.add(queue, b"keyed", one.clock_now, ttl=99, retry=7, replicate=3))
    for entries in three.said(one).values():
        assert [len(each.bodies) for each in entries if isinstance(each, Copies)] == [2, 1, 1, 1]
    for node in three.others:
        for job in jobs:
            copy = node.machine.find(job.id)
            assert copy is not None
            assert copy.size == job.size
            assert copy.delay == job.delay
            assert copy.priority == job.priority
            assert copy.retry == job.retry
            assert copy.is_delayed == job.is_delayed


def test_a_message_has_a_bound(three: Three) -> None:
    three.add([40_000] * 6)
    for peer, payload in three.one.end_pass():
        entries = [decode(each) for each in messages_of(payload)]
        assert [len(each.bodies) for each in entries if isinstance(each, Copies)] == [2, 2, 2]
        assert [decode(each) for part in cut(payload) for each in messages_of(part)] == entries
        assert peer in three.nodes


def test_what_waits_leaves_before_what_is_said_next_and_at_a_tick(three: Three) -> None:
    one, (second, third) = three.one, three.others
    jobs = three.add([10])
    three.said(one)
    three.said(second)
    three.said(third)
    three.said(one)
    three.done(jobs)
    three.said(one)
    more = three.add([10])
    three.said(one)
    assert kinds(three.said(second)) == {one.name: [Heard, Stored]}
    third.replicas.tick(third.clock_now)
    assert kinds(three.said(third)) == {one.name: [Heard, Stored]}
    assert one.machine.find(jobs[0].id) is None
    assert one.machine.find(more[0].id) is not None
    one.replicas.tick(one.clock_now)
    assert kinds(three.said(one)) == to_both(three, [Forget])
