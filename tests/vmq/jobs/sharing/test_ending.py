"""A job that is done is forgotten when all that may have it, or may still get it, know so."""

from pathlib import Path

from tests.simulator.jobs.node import QUEUE, RETRY, SimNode
from tests.simulator.jobs.world import JobWorld
from tests.support.present import present


def world_of(folder: Path, hosts: str) -> tuple[JobWorld, list[SimNode]]:
    """Nodes that know each other, and on which nobody works, and the world that they are in."""
    world = JobWorld(1, folder, list(hosts))
    world.is_idle = True
    passes(world, 3)
    return world, list(world.nodes.values())


def passes(world: JobWorld, seconds: float) -> None:
    for _ in range(round(seconds * 10)):
        world.step(adds=False)


def add(world: JobWorld, node: SimNode, copies: int, delay: int = 0) -> bytes:
    queue = node.machine.queue(QUEUE, node.clock_now)
    job = node.machine.add(queue, b"x", node.clock_now, delay=delay, replicate=copies)
    job_id: bytes = job.id
    world._send(node.name)
    return job_id


def send(world: JobWorld, node: SimNode) -> None:
    world._send(node.name)
    passes(world, 2)


def acknowledge(world: JobWorld, node: SimNode, job_id: bytes) -> None:
    assert node.machine.acknowledge(job_id)
    world._send(node.name)


def ends(world: JobWorld) -> None:
    """No job is left to do, and after a while none is remembered."""
    assert [node.undone() for node in world.nodes.values()] == [0, 0, 0]
    passes(world, 60)
    assert [node.left() for node in world.nodes.values()] == [0, 0, 0]


def counted(node: SimNode) -> tuple[int, int]:
    """Jobs that are not done, and all that a node remembers, as its queue counts them."""
    queue = node.machine.queues.get(QUEUE)
    return (0, 0) if queue is None else (int(queue.jobs - queue.done), int(queue.jobs))


def test_a_job_that_is_done_and_not_forgotten_yet_is_none_of_its_queue(tmp_path: Path) -> None:
    """Nor in the node's next life."""
    world, (first, second) = world_of(tmp_path, "ab")
    ids = [add(world, first, 2) for _ in range(3)]
    passes(world, 1)
    world.crash(second.name)
    acknowledge(world, first, ids[0])
    passes(world, 1)
    assert counted(first) == (2, 3)
    world.crash(first.name)
    world.start(first.name)
    assert counted(first) == (2, 3)
    world.start(second.name)
    passes(world, 60)
    assert counted(first) == counted(second) == (2, 2)


def test_a_copy_that_is_under_way_is_heard_of_before_its_job_is_forgotten(tmp_path: Path) -> None:
    """It comes by one link; that its job is done, and may be forgotten, comes sooner by another."""
    world, (first, second, third) = world_of(tmp_path, "abc")
    world.links[first.name, third.name].append((world.now + 5, b""))  # nothing passes before that
    ids = [add(world, first, 2) for _ in range(20)]
    passes(world, 1)
    assert all(second.machine.find(each) is not None for each in ids), "they were on two hosts"
    copies = [job.copies for each in ids if (job := first.machine.find(each)) is not None]
    waited = [each for each in copies if each is not None and third.number in each.nodes]
    assert waited, "some were given to the third node first, which did not answer"
    for job_id in ids:
        acknowledge(world, second, job_id)
    passes(world, 5 + 2 * RETRY)
    ends(world)


def test_who_heard_of_a_job_before_it_had_a_copy_is_told_again(tmp_path: Path) -> None:
    """It kept nothing of that, and got its copy later, of a node that had not heard."""
    world, (first, second, third) = world_of(tmp_path, "abc")
    job_id = add(world, first, 1)
    world.cut.add(frozenset((first.name, second.name)))
    world.break_link(first.name, second.name)
    assert second.replicas.acknowledge_unknown(job_id)
    send(world, second)
    assert third.machine.find(job_id) is None
    job = present(first.machine.find(job_id))
    first.machine.set_aside(job)
    assert first.replicas.federation.give(job, third.number, first.clock_now)
    send(world, first)
    assert third.machine.find(job_id) is not None
    world.cut.clear()
    passes(world, 10)
    ends(world)


def test_who_does_not_have_a_job_is_not_taken_for_its_holder(tmp_path: Path) -> None:
    """A job is acknowledged at two nodes in turn, and who has it hears of neither; at once when it can be reached."""
    world, (first, second, third) = world_of(tmp_path, "abc")
    job_id = add(world, first, 1)
    pairs = [frozenset((first.name, each.name)) for each in (second, third)]
    world.cut.update(pairs)
    for pair in pairs:
        world.break_link(*sorted(pair))
    for node in (second, third):
        assert node.replicas.acknowledge_unknown(job_id)
        world._send(node.name)
        passes(world, 40)
    third.replicas.ending.on_forget([job_id])  # by the word of one that knows none of its holders
    assert [node.left() for node in world.nodes.values()] == [1, 1, 1]
    world.cut.clear()
    passes(world, 3)
    ends(world)


def test_a_dead_letter_that_is_queued_again_is_newer_than_its_copies(tmp_path: Path) -> None:
    world, (first, second) = world_of(tmp_path, "ab")
    job_id = add(world, first, 2)
    passes(world, 2)
    job = present(first.machine.find(job_id))
    job.nacks, job.deliveries = 3, 3
    first.machine.bury(job, "max_deliveries", first.clock_now)
    send(world, first)
    assert first.machine.enqueue(job, first.clock_now)
    generation = job.generation
    send(world, first)
    copy = present(second.machine.find(job_id))
    assert (generation, job.deliveries, copy.deliveries) == (4, 0, 0)
    assert copy.generation == generation


def test_a_job_of_which_a_copy_is_under_way_is_not_paged_out(tmp_path: Path) -> None:
    """A page knows of nobody who has not confirmed: its end would be taken to be known where the copy comes later."""
    world, (first, second, third) = world_of(tmp_path, "abc")
    job_id = add(world, first, 2)
    passes(world, 2)
    job = present(first.machine.find(job_id))
    assert job.copies is not None
    job.copies.is_away = True
    job.copies.add([second.number, third.number])
    missing = [each for each in job.copies.nodes if each not in job.copies.confirmed]
    assert len(missing) == 1
    assert not first.machine.pager.is_plain(job)
    job.copies.confirm(missing[0])
    assert first.machine.pager.is_plain(job)


def test_a_queue_that_is_paused_has_its_jobs_after_all_nodes_were_restarted(tmp_path: Path) -> None:
    world, (first, second) = world_of(tmp_path, "ab")
    added = [add(world, first, 2), add(world, first, 2, delay=5)]
    passes(world, 1)
    for node in (first, second):
        world.crash(node.name)
    for node in (first, second):
        world.start(node.name)
        node.machine.pause(node.machine.queue(QUEUE, node.clock_now), True, True)
    passes(world, 30)
    assert sum(int(node.machine.queues[QUEUE].depth) for node in (first, second)) == 1
    for job_id in added:
        jobs = [present(node.machine.find(job_id)) for node in (first, second)]
        assert [present(job.copies).is_away for job in jobs].count(True) == 1


def test_a_delayed_job_that_was_queued_elsewhere_is_delayed_no_more_after_a_restart(
    tmp_path: Path,
) -> None:
    world, (first, second) = world_of(tmp_path, "ab")
    job_id = add(world, first, 2, delay=1000)
    passes(world, 1)
    assert first.machine.enqueue(first.machine.jobs[job_id], first.clock_now)
    passes(world, 1)
    for node in (first, second):
        world.crash(node.name)
    world.start(second.name)
    assert not present(second.machine.find(job_id)).is_delayed
    world.remove(first.name)
    passes(world, 30)
    assert second.machine.queues[QUEUE].depth == 1
