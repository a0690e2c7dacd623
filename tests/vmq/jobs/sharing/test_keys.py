"""Keys over nodes: a second job with a key is kept out wherever it is added."""

import asyncio
from pathlib import Path

from redis.exceptions import ResponseError

from tests.simulator.jobs.node import QUEUE, SimNode
from tests.simulator.jobs.world import JobWorld
from tests.support.until import until
from tests.vmq.clustering.nodes import address
from tests.vmq.jobs.sharing.nodes import JobNode, job_config, job_nodes, meet, node_of
from vmq.config.jobs import JobOptions


def jobs_of(nodes: list[JobNode], queue: bytes = b"q") -> set[bytes]:
    return {
        job.id
        for node in nodes
        for job in node.machine.jobs.values()
        if job.queue.name == queue and node.state(job.id) != "acked"
    }


async def test_a_key_keeps_out_a_second_job_at_any_node(tmp_path: Path) -> None:
    async with job_nodes(tmp_path) as nodes:
        a, b, c = nodes
        first = await a("ADDJOB", "q", "x", 5000, "KEY", "k", "REPLICATE", 1)
        assert await b("ADDJOB", "q", "y", 5000, "KEY", "k") == first
        assert await c("ADDJOB", "q", "y", 5000, "KEY", "k", "RETRY", 0) == first
        assert await c.broker.jobs.add("q", b"y", key="k") == first.decode()
        assert await b("ADDJOB", "q", "y", 5000, "KEY", "other") != first
        assert await b("ADDJOB", "p", "y", 5000, "KEY", "k") != first
        assert len(jobs_of(nodes)) == 2
        assert await b.get("q")


async def test_a_key_outlives_its_job_and_the_node_that_added_it(tmp_path: Path) -> None:
    async with job_nodes(tmp_path, "ab") as (a, b):
        async with node_of(job_config(tmp_path, "c", [address(a.broker)])) as c:
            await meet(a, b, c)
            lives = await c("ADDJOB", "q", "x", 5000, "KEY", "lives", "REPLICATE", 3)
            done = await c("ADDJOB", "q", "x", 5000, "KEY", "done", "REPLICATE", 3)
            assert await c("ACKJOB", done) == 1
            await until(lambda: not any(each.state(done) for each in (a, b, c)))
        await until(lambda: len(a.nodes.replicas.peers.up) == 1)
        for node in (a, b):
            assert await node("ADDJOB", "q", "y", 5000, "KEY", "lives") == lives
            assert await node("ADDJOB", "q", "y", 5000, "KEY", "done") == done
        assert jobs_of([a, b]) == {lives}


async def test_a_job_that_could_not_be_added_keeps_nobody_out(tmp_path: Path) -> None:
    async with job_nodes(tmp_path, "ab") as (a, b):
        outbox = a.nodes.post.outbox
        outbox.transmit, transmit = (lambda name, payload: None), outbox.transmit
        try:
            await a("ADDJOB", "q", "x", 100, "KEY", "k", "REPLICATE", 2)
        except ResponseError as error:
            assert "NOREPL" in str(error)
        outbox.transmit = transmit
        job_id = await b("ADDJOB", "q", "y", 20_000, "KEY", "k")
        assert b.machine.find(job_id) is not None or a.machine.find(job_id) is not None


async def test_each_group_has_one_job_of_a_key(tmp_path: Path) -> None:
    jobs = {"q": JobOptions(groups=["one", "two"])}
    async with job_nodes(tmp_path, "ab", jobs) as nodes:
        adding = [each("ADDJOB", "q", "x", 20_000, "KEY", "k") for each in nodes]
        assert len(set(await asyncio.gather(*adding))) == 1
        assert [len(jobs_of(nodes, name)) for name in (b"q@one", b"q@two")] == [1, 1]


def test_a_side_that_dropped_what_it_was_told_is_told_again(tmp_path: Path) -> None:
    """The answer to its greeting is lost: what comes behind it comes of somebody who is not known yet."""
    world = JobWorld(1, tmp_path, ["a", "b"])
    world.cut.add(frozenset(world.nodes))  # what goes between them goes by hand
    a, b = world.nodes.values()
    for node in (a, b):
        node.set_members([])
        queue = node.machine.queue(QUEUE, node.clock_now)
        node.machine.add(queue, b"", node.clock_now, key=b"k")
    (taken,) = b.machine.take_some([b.machine.queue(QUEUE, b.clock_now)], 1, b.clock_now)
    for node in (a, b):
        node.end_pass()
        node.set_members(world.members)
    a.post.greet(b.name)
    hand_over(a, b)
    b.end_pass()  # its answer is lost
    for _ in range(20):
        for one, other in ((a, b), (b, a)):
            one.set_time(one.clock_now - one.offset + 0.1)
            one.tick()
            hand_over(one, other)
    assert [job.id for node in (a, b) for job in node.machine.jobs.values() if not job.is_gone] == [
        taken.id
    ]
    world.close()


def hand_over(sender: SimNode, receiver: SimNode) -> None:
    for _, payload in sender.end_pass():
        receiver.post.receive(sender.name, payload, receiver.clock_now)


async def test_of_two_sides_that_meet_the_job_goes_that_nobody_took(tmp_path: Path) -> None:
    async with (
        node_of(job_config(tmp_path, "a", [])) as a,
        node_of(job_config(tmp_path, "b", [])) as b,
    ):
        for key in ("taken", "neither"):
            await a("ADDJOB", key, "a", 5000, "KEY", "k")
            await b("ADDJOB", key, "b", 5000, "KEY", "k")
        taken = await b.get("taken")
        port = a.redis.connection_pool.connection_kwargs["port"]
        assert await b("CLUSTER", "MEET", "127.0.0.1", port) == b"OK"
        await meet(a, b)
        await until(lambda: len(jobs_of([a, b], b"taken")) == 1)
        assert jobs_of([a, b], b"taken") == {taken}
        await until(lambda: len(jobs_of([a, b], b"neither")) == 1)
        assert await a.get("neither")
