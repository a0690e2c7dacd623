"""Two sides that meet, where something of what they say is lost: of two jobs with one key one goes all the same."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.simulator.jobs.node import QUEUE, SimNode
from tests.simulator.jobs.world import JobWorld
from vmq.jobs.queue import ACKED, WAITING, Job
from vmq.jobs.sharing.messages import KeyHeld, decode
from vmq.jobs.sharing.outbox import framed
from vmq.jobs.sharing.post import messages_of

#: If nobody took either, the lower one stays.
LOW, HIGH = (b"D-%08x-%s-05a1" % (each, 24 * b"m") for each in range(2))
#: Steps after a start, or a split, in which keys may have to wait.
SOME = 35


@pytest.fixture
def world(tmp_path: Path) -> Iterator[JobWorld]:
    found = JobWorld(1, tmp_path, ["a", "b", "c"])
    steps(found, SOME)
    yield found
    found.close()


def steps(world: JobWorld, count: int) -> None:
    world.is_idle = True  # workers are the tests'
    for _ in range(count):
        world.step(adds=False)


def until(world: JobWorld, is_so: Callable[[], bool]) -> None:
    for _ in range(SOME):
        if is_so():
            return
        steps(world, 1)
    raise AssertionError("it does not come to that")


def part(world: JobWorld, one: str, other: str) -> None:
    world.cut.add(frozenset((one, other)))
    world.break_link(one, other)


def add(world: JobWorld, name: str, job_id: bytes, copies: int = 1) -> Job:
    node = world.nodes[name]
    queue = node.machine.queue(QUEUE, node.clock_now)
    job = node.machine.add(queue, b"x", node.clock_now, key=b"k", replicate=copies, job_id=job_id)
    world._send(name)
    return job


def add_on_both_sides(world: JobWorld) -> None:
    """One job on the side of n0 and n2, the other on that of n1."""
    part(world, "n0", "n1")
    part(world, "n1", "n2")
    add(world, "n0", LOW)
    add(world, "n1", HIGH)
    steps(world, SOME)
    assert jobs_of(world) == {LOW, HIGH}


def take(world: JobWorld) -> None:
    """A worker has the job of n1."""
    node = world.nodes["n1"]
    (job,) = node.machine.take_some([node.machine.queues[QUEUE]], 1, node.clock_now)
    assert job.id == HIGH
    world._send("n1")


def jobs_of(world: JobWorld) -> set[bytes]:
    jobs = [job for node in world.nodes.values() for job in node.machine.jobs.values()]
    return {job.id for job in jobs if job.state != ACKED}


def lose_first(node: SimNode) -> list[KeyHeld]:
    """Of the keys that a node tells others the first one is lost; it is in the list then."""
    lost: list[KeyHeld] = []

    def transmit(peer: str, payload: bytes) -> None:
        for raw in messages_of(payload):
            entry = decode(raw)
            if isinstance(entry, KeyHeld) and not lost:
                lost.append(entry)
            else:
                node.sent.append((peer, framed(entry)))

    node.post.outbox.transmit = transmit
    return lost


def test_it_is_enough_that_one_side_hears_of_the_job_of_the_other(world: JobWorld) -> None:
    add_on_both_sides(world)
    take(world)
    lost = lose_first(world.nodes["n1"])
    world.cut.discard(frozenset(("n0", "n1")))
    until(world, lambda: bool(lost))
    steps(world, SOME)
    assert jobs_of(world) == {HIGH}


def test_a_job_that_is_taken_after_the_other_side_was_told_of_it_stays(world: JobWorld) -> None:
    """That would keep its own, as long as it does not hear that this one was taken."""
    add_on_both_sides(world)
    world.cut.discard(frozenset(("n0", "n1")))
    n0, n1 = (world.nodes[each] for each in ("n0", "n1"))
    until(world, lambda: n0.number in n1.replicas.peers.up)
    take(world)
    steps(world, SOME)
    assert jobs_of(world) == {HIGH}


def test_a_job_that_was_being_copied_when_the_other_side_came_is_told_of_later(
    world: JobWorld,
) -> None:
    """Before, its node can say neither that it stays nor that it goes, and the other node was not asked."""
    part(world, "n0", "n1")
    part(world, "n1", "n2")
    add(world, "n1", HIGH)
    steps(world, SOME)
    take(world)
    job = add(world, "n0", LOW, copies=2)
    until(world, lambda: b"k" not in [name[1] for name in world.nodes["n0"].replicas.keys.claims])
    assert job.state == WAITING
    world.lost.add(("n2", "n0"))
    world.cut.clear()
    n0, n1 = (world.nodes[each] for each in ("n0", "n1"))
    until(world, lambda: n1.number in n0.replicas.peers.up)
    assert job.state == WAITING
    steps(world, 2)
    world.find_again()
    steps(world, 2 * SOME)
    assert job.state != WAITING
    assert jobs_of(world) == {HIGH}
