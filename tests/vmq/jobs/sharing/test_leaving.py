"""A node that leaves, is drained, is reset, or stops: its jobs go to those that stay."""

from contextlib import suppress
from pathlib import Path

import pytest
from redis.exceptions import ClusterDownError
from redis.exceptions import ConnectionError as Lost

from tests.support.until import PATIENCE, until
from tests.vmq.clustering.nodes import address, clustering
from tests.vmq.jobs.sharing.nodes import job_config, job_nodes, meet, node_of
from vmq.admin import cluster
from vmq.clustering.messages.jobs import JobTalk
from vmq.config.jobs import JobOptions


async def test_a_node_that_leaves_gives_its_jobs_away(tmp_path: Path) -> None:
    async with job_nodes(tmp_path) as (a, b, c):
        ids = {await a("ADDJOB", "q", "x", 5000, "REPLICATE", 1) for _ in range(10)}
        ids.add(await a("ADDJOB", "q", "x", 5000, "REPLICATE", 1, "DELAY", 2))
        once = await a("ADDJOB", "q", "x", 5000, "RETRY", 0)
        assert await a("CLUSTER", "LEAVING", "yes") == b"OK"

        def queued() -> int:
            queues = [each.machine.queues.get(b"q") for each in (b, c)]
            return sum(int(each.depth) for each in queues if each is not None)

        await until(lambda: queued() >= 11)
        got = {await b.get("q") for _ in range(12)}
        assert got == {*ids, once}


async def test_a_drained_node_gives_its_jobs_away_and_serves_none_until_it_is_let_in(
    tmp_path: Path,
) -> None:
    async with job_nodes(tmp_path) as (a, b, c):
        ids = {await a("ADDJOB", "q", "x", 5000, "REPLICATE", 1) for _ in range(5)}
        assert (await cluster.drain(a.broker, 10)).complete
        async with a.again() as client:
            with pytest.raises(ClusterDownError, match="this node is drained"):
                await client.execute_command("ADDJOB", "q", "x", 5000)
            with pytest.raises(ClusterDownError):
                await client.execute_command("QLEN", "q")
            assert await client.ping()
            assert b"leaving" in await client.execute_command("CLUSTER", "NODES")
        shown = await b.show(await b("ADDJOB", "other", "x", 5000))
        assert shown[b"repl"] == 2, "as many as take part"
        assert {await c.get("q") for _ in range(5)} == ids
        await cluster.drain(a.broker, 10, undo=True)
        async with a.again() as client:
            assert await client.execute_command("ADDJOB", "q", "x", 5000, "REPLICATE", 3)


async def test_a_node_that_is_reset_gives_its_jobs_away_and_is_alone(tmp_path: Path) -> None:
    async with job_nodes(tmp_path) as (a, b, c):
        ids = {await a("ADDJOB", "q", "x", 5000, "REPLICATE", 1) for _ in range(5)}
        assert await a("CLUSTER", "RESET") == b"OK"
        await until(lambda: len(b.nodes.replicas.peers.members) == 1)
        assert {await c.get("q") for _ in range(5)} == ids
        assert len((await b("HELLO"))[2:]) == 2
        assert not a.nodes.replicas.is_leaving or a.nodes.core.shut_to_clients
        await until(lambda: bool(a.nodes.core.shut_to_clients))
        with pytest.raises(ClusterDownError):
            await a("ADDJOB", "q", "x", 5000)


async def test_no_job_is_taken_by_a_node_that_is_between_its_cluster_and_nothing(
    tmp_path: Path,
) -> None:
    async with job_nodes(tmp_path, "ab") as (a, b):
        added = []
        async with a.again() as client:
            assert await a("CLUSTER", "RESET") == b"OK"
            with suppress(ClusterDownError, Lost):
                while True:
                    added.append(await client.execute_command("ADDJOB", "q", "x", 5000))
        await until(lambda: not b.nodes.replicas.peers.members)
        for job_id in added:
            assert b.state(job_id), "what was acknowledged is where the cluster is"


async def test_a_broker_that_stops_hands_over_what_is_in_memory_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.jobs.service._HAND_OVER", PATIENCE)  # however busy the machine is
    jobs = {"q": JobOptions(persistence="off")}
    async with job_nodes(tmp_path, "ab", jobs) as (a, b):
        async with node_of(job_config(tmp_path, "c", [address(a.broker)], jobs)) as c:
            await meet(a, b, c)
            ids = {await c("ADDJOB", "q", "x", 5000, "REPLICATE", 1) for _ in range(30)}
        got = set()
        for _ in range(30):
            got.add(await a.get("q"))
        assert got == ids


async def test_jobs_are_handed_over_once_somebody_can_be_reached(tmp_path: Path) -> None:
    async with job_nodes(tmp_path, "ab") as (a, b):
        job_id = await a("ADDJOB", "q", "x", 5000, "REPLICATE", 1)
        for name in a.nodes.links.up():
            a.nodes.on_down(name)  # it is greeted again within a second
        assert await a.nodes.hand_over(20)
        assert b.state(job_id) == "queued"


async def test_a_job_that_cannot_be_read_is_not_taken_for_handed_over(tmp_path: Path) -> None:
    async with job_nodes(tmp_path, "ab") as (a, b):
        job = a.machine.jobs[await a("ADDJOB", "q", "x", 5000, "REPLICATE", 1)]
        (segment,) = (tmp_path / "a" / "jobs").glob("*.jobs")
        whole = segment.read_bytes()
        segment.write_bytes(whole[:-1] + b"y")
        job.body = None
        a.machine.memory -= job.size
        assert not await a.nodes.hand_over(0.3)
        segment.write_bytes(whole)
        assert await a.nodes.hand_over(20)
        assert b.state(job.id) == "queued"


@pytest.mark.parametrize("is_delayed", [False, True])
async def test_what_waits_and_goes_once_at_most_waits_with_others_when_its_node_leaves(
    tmp_path: Path, is_delayed: bool
) -> None:
    async with node_of(job_config(tmp_path, "a", [])) as a:
        config = job_config(tmp_path, "b", [address(a.broker)])
        async with node_of(config) as b:
            await meet(a, b)
            delay = ("DELAY", 1000) if is_delayed else ()
            job_id = await a("ADDJOB", "q", "x", 5000, "RETRY", 0, *delay)
            assert await a("DEQUEUE", job_id) == (not is_delayed)
            await a("CLUSTER", "LEAVING", "yes")
            await until(lambda: b.state(job_id) == "active" and not a.state(job_id))
        async with node_of(config) as b:
            assert b.state(job_id) == "active"
            assert await b("ENQUEUE", job_id) == 1
            assert await b.get("q") == job_id


async def test_a_broker_that_stops_opens_no_jobs_again_when_others_speak_of_them(
    tmp_path: Path,
) -> None:
    async with job_nodes(tmp_path, "ab") as (a, b):
        await b.broker.jobs.stop()
        # Its links are up for as long as there is more to end.
        clustering(b.broker).job_links._on_talk(a.name, JobTalk(b""))
        assert b.broker.jobs.service is None
