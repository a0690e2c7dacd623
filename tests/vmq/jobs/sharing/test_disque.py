"""Scenarios of Disque's own tests that `test_nodes.py` and tests/cluster_processes/test_jobs.py have not."""

from pathlib import Path
from typing import Any

from tests.support.until import until
from tests.vmq.clustering.nodes import address
from tests.vmq.jobs.sharing.nodes import JobNode, job_config, job_nodes, meet, node_of


async def flags(node: JobNode) -> dict[str, str]:
    """The flags of each node that another one knows, by its id."""
    told: Any = await node("CLUSTER", "NODES")
    lines = (told if isinstance(told, bytes) else told["text"]).decode().splitlines()
    return {line.split()[0]: line.split()[2] for line in lines}


async def test_a_failure_is_seen_and_the_flag_goes_when_the_node_is_back(tmp_path: Path) -> None:
    async with job_nodes(tmp_path, "ab") as (a, b):
        config = job_config(tmp_path, "c", [address(a.broker)])
        async with node_of(config) as c:
            await meet(a, b, c)
            name = (await c("CLUSTER", "MYID")).decode()
            assert (await flags(a))[name] == "noflags"
        await until(lambda: len(a.nodes.replicas.peers.up) == 1)
        assert "fail" in (await flags(a))[name]
        async with node_of(config) as c:
            await meet(a, b, c)
            assert (await flags(a))[name] == "noflags"


async def test_copies_are_sent_again_to_a_node_that_did_not_get_them(tmp_path: Path) -> None:
    async with job_nodes(tmp_path, "ab") as (a, b):
        transmit = a.nodes.post.outbox.transmit
        lost: list[bytes] = []

        def loses(name: str, payload: bytes) -> None:
            if not lost:
                lost.append(payload)
            else:
                transmit(name, payload)

        a.nodes.post.outbox.transmit = loses
        job_id = await a("ADDJOB", "q", "x", 20_000, "REPLICATE", 2)
        assert lost
        assert b.state(job_id) == "active"


async def test_of_the_nodes_that_have_a_job_one_queues_it_when_its_retry_is_over(
    tmp_path: Path,
) -> None:
    async with job_nodes(tmp_path, "ab") as (a, b):
        async with node_of(job_config(tmp_path, "c", [address(a.broker)])) as c:
            await meet(a, b, c)
            job_id = await c("ADDJOB", "q", "x", 5000, "REPLICATE", 3, "RETRY", 1)
            assert await c.get("q") == job_id
        expected = ["active", "queued"]
        await until(lambda: sorted(each.state(job_id) for each in (a, b)) == expected)
        found = await b("GETJOB", "WITHCOUNTERS", "TIMEOUT", 20_000, "FROM", "q")
        assert found[0][1] == job_id
        assert found[0][3:] == [b"nacks", 0, b"additional-deliveries", 1]


async def test_a_queued_job_is_queued_nowhere_else_when_its_retry_is_over(tmp_path: Path) -> None:
    """Those that have copies ask, hear that it is queued, and wait on."""
    async with job_nodes(tmp_path) as nodes:
        job_id = await nodes[0]("ADDJOB", "q", "x", 5000, "REPLICATE", 3, "RETRY", 1)
        copies = [each.machine.jobs[job_id] for each in nodes[1:]]
        first = [copy.due for copy in copies]
        await until(
            lambda: all(copy.due > due + 1 for copy, due in zip(copies, first, strict=True))
        )
        assert [each.state(job_id) for each in nodes] == ["queued", "active", "active"]
        assert await nodes[2].get("q") == job_id
        assert not any(each.machine.jobs[job_id].repeats for each in nodes)


async def test_a_fast_acknowledgement_at_a_node_that_has_the_job(tmp_path: Path) -> None:
    async with job_nodes(tmp_path) as nodes:
        for node in nodes:
            job_id = await nodes[0]("ADDJOB", "q", "x", 5000, "REPLICATE", 3)
            assert await node("FASTACK", job_id) == 1
            await until(lambda: not any(each.machine.jobs for each in nodes))


async def test_many_jobs_whose_time_ends_at_once_are_one_dead_letter_each(tmp_path: Path) -> None:
    async with job_nodes(tmp_path) as nodes:
        a = nodes[0]
        bodies = [b"%d" % number for number in range(300)]
        await a("ADDJOBS", "q", 20_000, "REPLICATE", 3, "TTL", 1, "JOBS", *bodies)
        await until(lambda: sum(depth(each, b"q!dead") for each in nodes) == 300)
        assert not any(depth(each, b"q") for each in nodes)


def depth(node: JobNode, queue: bytes) -> int:
    found = node.machine.queues.get(queue)
    return 0 if found is None else int(found.depth)
