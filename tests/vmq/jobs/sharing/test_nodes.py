"""Jobs in a cluster of brokers, besides what seven processes show (`tests/cluster_processes/test_disque.py`)."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
from redis.exceptions import ResponseError
from vmq_hooks import Refuse

from tests.support.present import present
from tests.support.until import until
from tests.support.wire import publish_packet
from tests.vmq.clustering.nodes import address
from tests.vmq.jobs.mappings.test_mapping import options
from tests.vmq.jobs.sharing.nodes import JobNode, job_config, job_nodes, meet, node_of
from tests.vmq.sockets import peer_of, session_of
from vmq.clustering.node.job_links import ClusterJobLinks
from vmq.config.jobs import JobOptions
from vmq.jobs.mappings.mapping import Mapped


@pytest.fixture
async def nodes(tmp_path: Path) -> AsyncIterator[list[JobNode]]:
    """Three that know each other."""
    async with job_nodes(tmp_path) as found:
        yield found


def nobody_has(nodes: list[JobNode]) -> bool:
    return not any(each.machine.jobs for each in nodes)


async def test_ids_are_unique_over_all_nodes(nodes: list[JobNode]) -> None:
    ids = [await node("ADDJOB", "q", "x", 5000) for node in nodes for _ in range(20)]
    assert len(set(ids)) == 60
    assert len({each[2:10] for each in ids}) == 3


async def test_one_copy_stays_where_it_was_added(tmp_path: Path) -> None:
    async with job_nodes(tmp_path) as (a, b, c):
        job_id = await a("ADDJOB", "q", "x", 5000, "REPLICATE", 1)
        assert [each.state(job_id) for each in (a, b, c)] == ["queued", "", ""]


async def test_three_copies_are_the_default(nodes: list[JobNode]) -> None:
    job_id = await nodes[0]("ADDJOB", "q", "x", 5000)
    assert all(each.state(job_id) for each in nodes)


async def test_it_is_told_that_too_few_hosts_are_in_reach(tmp_path: Path) -> None:
    async with job_nodes(tmp_path, "ab", {"lone": JobOptions(when_split="reach")}) as (a, _):
        a.machine.queue(b"lone", 0.0)
        a.nodes.on_down("b")
        assert not a.broker.jobs.problems(), "this one takes them all the same"
        a.machine.queue(b"q", 0.0)
        [problem] = a.broker.jobs.problems()
        assert problem.startswith("jobs are refused: 1 of 2 hosts can be reached; ")


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


async def test_copies_go_last_to_a_node_that_is_short_of_memory(tmp_path: Path) -> None:
    async with job_nodes(tmp_path) as (a, b, c):
        peers = a.nodes.replicas.peers
        number = b.nodes.replicas.peers.me.number
        b.nodes.commit.spill_above = 0
        await b("ADDJOB", "other", "x", 5000, "REPLICATE", 1)
        await until(lambda: peers.all[number].is_short)
        # Which of them gets it: who is late to say that it has it is not the only one that is given it.
        chosen = [peers.choose(1, [peers.me.number]) for _ in range(20)]
        assert chosen == [[c.nodes.replicas.peers.me.number]] * 20
        assert c.state(await a("ADDJOB", "q", "x", 5000, "REPLICATE", 2))
        assert b.state(await a("ADDJOB", "q", "x", 5000, "REPLICATE", 3))
        b.nodes.commit.spill_above = 1 << 40
        await until(lambda: not peers.all[number].is_short)


async def test_async_answers_at_once_and_copies_follow(nodes: list[JobNode]) -> None:
    job_id = await nodes[0]("ADDJOB", "q", "x", 5000, "REPLICATE", 3, "ASYNC")
    assert nodes[0].state(job_id) == "queued"
    await until(lambda: all(each.state(job_id) for each in nodes))


async def test_more_hosts_than_there_are_is_refused(nodes: list[JobNode]) -> None:
    with pytest.raises(ResponseError, match="NOREPL"):
        await nodes[0]("ADDJOB", "q", "x", 5000, "REPLICATE", 4)
    with pytest.raises(ResponseError, match="REPLICATE to 1"):
        await nodes[0]("ADDJOB", "q", "x", 5000, "REPLICATE", 2, "RETRY", 0)
    assert nobody_has(nodes)


async def test_two_nodes_on_one_host_are_one(tmp_path: Path) -> None:
    async with job_nodes(tmp_path, hosts={"b": "rack", "c": "rack"}) as (a, b, c):
        with pytest.raises(ResponseError, match="NOREPL"):
            await a("ADDJOB", "q", "x", 5000, "REPLICATE", 3)
        for _ in range(10):
            job_id = await b("ADDJOB", "q", "x", 5000, "REPLICATE", 2)
            assert [bool(each.state(job_id)) for each in (a, b, c)] == [True, True, False]


async def test_an_acknowledgement_at_a_node_without_the_job(nodes: list[JobNode]) -> None:
    for command in ("ACKJOB", "FASTACK"):
        job_id = await nodes[0]("ADDJOB", "q", "x", 5000, "REPLICATE", 2)
        (other,) = [each for each in nodes if not each.state(job_id)]
        assert await other(command, job_id) == 0
        await until(lambda: nobody_has(nodes))


async def test_an_id_that_is_unknown_here_is_acknowledged_by_who_may_do_so_everywhere(
    tmp_path: Path,
) -> None:
    async with job_nodes(tmp_path, "ab") as (a, b):
        service = present(a.broker.jobs.service)
        hooks = service.listeners[0].door.hooks
        refused, granted = [await b("ADDJOB", "q", "x", 5000, "REPLICATE", 1) for _ in range(2)]
        hooks.auth_on_subscribe = lambda *_asked: Refuse("not everywhere")
        assert await a("ACKJOB", refused) == 0
        hooks.auth_on_subscribe = None
        assert await a("ACKJOB", granted) == 0
        await until(lambda: not b.state(granted))
        assert b.state(refused) == "queued"


async def test_a_worker_that_waits_gets_what_is_added_elsewhere(nodes: list[JobNode]) -> None:
    waiting = asyncio.create_task(nodes[2].get("q"))
    await until(lambda: bool(nodes[0].nodes.replicas.federation.waiters))
    job_id = await nodes[0]("ADDJOB", "q", "x", 5000, "REPLICATE", 1)
    assert await waiting == job_id


async def test_a_job_that_is_given_up_counts_everywhere(nodes: list[JobNode]) -> None:
    a, b, _ = nodes
    job_id = await a("ADDJOB", "q", "x", 5000, "REPLICATE", 3)
    assert await a.get("q") == job_id
    assert await b("NACK", job_id) == 1, "told to another node than the one that gave it"
    await until(lambda: all(each.machine.jobs[job_id].nacks == 1 for each in nodes))
    assert sorted(each.state(job_id) for each in nodes) == ["active", "active", "queued"]
    found = await b("GETJOB", "WITHCOUNTERS", "FROM", "q")
    assert found[0][3:] == [b"nacks", 1, b"additional-deliveries", 0]


async def test_a_delayed_job_is_queued_once(nodes: list[JobNode]) -> None:
    job_id = await nodes[0]("ADDJOB", "q", "x", 5000, "REPLICATE", 3, "DELAY", 1)
    assert [each.state(job_id) for each in nodes] == ["active"] * 3
    got = await asyncio.gather(*[each("GETJOB", "TIMEOUT", 6000, "FROM", "q") for each in nodes])
    assert [each for each in got if each] == [[[b"q", job_id, b"x"]]]


async def test_a_job_whose_time_ends_is_one_dead_letter(nodes: list[JobNode]) -> None:
    job_id = await nodes[0]("ADDJOB", "q", "x", 5000, "REPLICATE", 3, "TTL", 1)
    await until(lambda: all(each.machine.jobs[job_id].reason == "expired" for each in nodes))
    assert sorted(each.state(job_id) for each in nodes) == ["active", "active", "queued"]
    assert await nodes[1].get("q!dead") == job_id, "a worker anywhere may look at it"
    assert await nodes[1]("ACKJOB", job_id) == 1
    await until(lambda: nobody_has(nodes))


async def test_maxlen_counts_what_a_node_has_queued(tmp_path: Path) -> None:
    async with job_nodes(tmp_path) as (a, b, _):
        await a("ADDJOB", "q", "x", 5000, "MAXLEN", 1)
        with pytest.raises(ResponseError, match="MAXLEN"):
            await a("ADDJOB", "q", "x", 5000, "MAXLEN", 1)
        assert await b("ADDJOB", "q", "x", 5000, "MAXLEN", 1)


async def test_a_job_that_is_deleted_is_gone_everywhere(nodes: list[JobNode]) -> None:
    job_id = await nodes[0]("ADDJOB", "q", "x", 5000)
    assert await nodes[1]("DELJOB", job_id) == 1
    await until(lambda: nobody_has(nodes))


async def test_each_job_of_a_batch_is_on_its_hosts(nodes: list[JobNode]) -> None:
    ids = await nodes[0]("ADDJOBS", "q", 5000, "REPLICATE", 3, "JOBS", *["x"] * 50)
    assert all(each.state(job_id) for each in nodes for job_id in ids)


async def test_adding_goes_on_while_copies_are_under_way(nodes: list[JobNode]) -> None:
    """A pipeline of commands is answered in order, though only some of them wait for other nodes."""
    pipe = nodes[0].redis.pipeline(transaction=False)
    for number in range(30):
        pipe.execute_command("ADDJOB", "q", b"%d" % number, 5000, "REPLICATE", 3)
        pipe.execute_command("PING")
        pipe.execute_command("QLEN", "nothing")
    found = await pipe.execute()
    assert found[1::3] == [True] * 30
    assert found[2::3] == [0] * 30
    assert len(set(found[::3])) == 30
    assert all(each.state(job_id) for each in nodes for job_id in found[::3])


async def test_a_queue_that_is_paused_everywhere(tmp_path: Path) -> None:
    async with job_nodes(tmp_path) as (a, b, _):
        assert await a("PAUSE", "q", "in", "bcast") == b"in"
        await until(lambda: b"q" in b.machine.queues and b.machine.queues[b"q"].paused_in)
        with pytest.raises(ResponseError, match="PAUSED"):
            await b("ADDJOB", "q", "x", 5000)
        assert await a("PAUSE", "q", "none", "bcast") == b"none"
        await until(lambda: not b.machine.queues[b"q"].paused_in)


async def test_a_node_that_was_away_hears_what_was_paused_and_resumed(tmp_path: Path) -> None:
    async with node_of(job_config(tmp_path, "a", [])) as a:
        config = job_config(tmp_path, "b", [address(a.broker)])
        async with node_of(config) as b:
            await meet(a, b)
            assert await a("PAUSE", "resumed", "in", "bcast") == b"in"
            await until(lambda: b"resumed" in b.machine.queues)
        await a("PAUSE", "resumed", "none", "bcast")
        await a("PAUSE", "paused", "out", "bcast")
        await a("PAUSE", "here", "all")
        async with node_of(config) as b:
            await meet(a, b)
            await until(lambda: b"paused" in b.machine.queues)
            assert await b("PAUSE", "resumed", "state") == b"none"
            assert await b("PAUSE", "paused", "state") == b"out"
            assert await b("PAUSE", "here", "state") == b"none"


async def test_nodes_meet_by_the_addresses_of_their_clients(tmp_path: Path) -> None:
    async with (
        node_of(job_config(tmp_path, "a", [])) as a,
        node_of(job_config(tmp_path, "b", [])) as b,
        node_of(job_config(tmp_path, "c", [])) as c,
    ):
        port = a.redis.connection_pool.connection_kwargs["port"]
        for node in (b, c):
            assert await node("CLUSTER", "MEET", "127.0.0.1", port) == b"OK"
        await meet(a, b, c)
        assert len((await c("HELLO"))[2:]) == 3
        job_id = await c("ADDJOB", "q", "x", 5000, "REPLICATE", 3)
        assert all(each.state(job_id) for each in (a, b, c))


async def test_a_greeting_that_is_lost_is_repeated_where_there_are_no_jobs_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[str] = []
    send = ClusterJobLinks.send

    def lose_some(links: ClusterJobLinks, peer: str, payload: bytes) -> None:
        if len(lost) < 6:
            lost.append(peer)
        else:
            send(links, peer, payload)

    monkeypatch.setattr(ClusterJobLinks, "send", lose_some)
    async with job_nodes(tmp_path, "ab") as nodes:
        await meet(*nodes)
    assert len(lost) == 6


async def test_what_is_refused_to_the_operator_of_a_node(tmp_path: Path) -> None:
    async with job_nodes(tmp_path, "a") as (a,):
        for command, error in (
            ("MEET 127.0.0.1 0", "Invalid node address"),
            ("MEET 127.0.0.1 65536", "Invalid node address"),
            ("MEET 127.0.0.1", "syntax error"),
            ("FORGET " + 40 * "0", "Unknown node ID"),
            ("LEAVING maybe", "syntax error"),
            ("LEAVING yes", "no other node can be reached"),
            ("RESET", "this node is in no cluster"),
        ):
            with pytest.raises(ResponseError, match=error):
                await a("CLUSTER", *command.split())
            assert await a("CLUSTER", "LEAVING") == b"no"
            assert await a("ADDJOB", "q", "x", 5000)


async def test_a_dead_node_is_forgotten_and_its_copies_made_anew(tmp_path: Path) -> None:
    async with job_nodes(tmp_path) as (a, b, c):
        async with node_of(job_config(tmp_path, "d", [address(a.broker)])) as d:
            await meet(a, b, c, d)
            gone = await d("CLUSTER", "MYID")
            ids = [await d("ADDJOB", "q", "x", 5000, "REPLICATE", 2) for _ in range(20)]
        await meet(a, b, c)
        assert await a("CLUSTER", "FORGET", gone) == b"OK"
        with pytest.raises(ResponseError, match="Unknown node"):
            await a("CLUSTER", "FORGET", b"0" * 40)

        def copies_of(job_id: bytes) -> int:
            return sum(bool(each.state(job_id)) for each in (a, b, c))

        await until(lambda: all(copies_of(job_id) == 2 for job_id in ids))


async def test_a_program_inside_adds_with_copies(nodes: list[JobNode]) -> None:
    job_id = (await nodes[0].broker.jobs.add("q", b"x", replicate=3)).encode()
    assert all(each.state(job_id) for each in nodes)
    with pytest.raises(ValueError, match="NOREPL"):
        await nodes[0].broker.jobs.add("q", b"x", replicate=4)
    async for job in nodes[1].broker.jobs.take("q"):
        assert job.body == b"x"
        await job.ack()
        break
    await until(lambda: nobody_has(nodes))


async def test_what_a_mapping_makes_is_on_its_hosts_before_the_publisher_is_acknowledged(
    tmp_path: Path,
) -> None:
    mappings = {"m": options("a", "$jobs/q")}
    jobs = {"q": JobOptions(refuse_after=1), "both": JobOptions(groups=["one", "two"])}
    config = job_config(tmp_path, "a", [], jobs)
    config = msgspec.structs.replace(config, mappings=mappings)
    async with (
        node_of(config) as a,
        node_of(job_config(tmp_path, "b", [address(a.broker)])) as b,
        peer_of(a.broker, 1) as device,
    ):
        await meet(a, b)
        await device.connect("device")
        await device.ask(publish_packet("a", b"x", qos=1, packet_id=1), b"\x40\x02\x00\x01")
        (job_id,) = a.machine.jobs
        assert sorted((a.state(job_id), b.state(job_id))) == ["active", "queued"]
        # At QoS 2 a session knows the message though its hosts were away for too long: it gets there later.
        outbox = a.nodes.post.outbox
        outbox.transmit, transmit = (lambda _name, _payload: None), outbox.transmit
        async with session_of(a.broker, "durable", listener=1, clean=False) as peer:
            peer.send(publish_packet("a", b"y", qos=2, packet_id=1))
            assert await peer.rest() == b""
        outbox.transmit = transmit
        async with session_of(a.broker, "durable", listener=1, clean=False) as peer:
            again = publish_packet("a", b"y", qos=2, packet_id=1, dup=True)
            await peer.ask(again, b"\x50\x02\x00\x01")
        await until(lambda: {b.state(each) for each in a.machine.jobs} <= {"active", "queued"})
        assert len(a.machine.jobs) == 2
        # Of a queue with groups that of each of them.
        sender = present(a.broker.jobs.open().mappings).sender
        waiting = sender._add(Mapped("$jobs/both", b"z"), 1, "", b"")
        assert [each.queue.name for each in waiting] == [b"both@one", b"both@two"]


async def test_when_split_reach_adds_with_those_that_are_there(tmp_path: Path) -> None:
    jobs = {"r": JobOptions(when_split="reach")}
    async with job_nodes(tmp_path, "ab", jobs) as (a, b):
        async with node_of(job_config(tmp_path, "c", [address(a.broker)], jobs)) as c:
            await meet(a, b, c)
        await meet(a, b)
        with pytest.raises(ResponseError, match="NOREPL"):
            await a("ADDJOB", "q", "x", 5000)
        job_id = await a("ADDJOB", "r", "x", 5000)
        assert [a.state(job_id), b.state(job_id)] == ["queued", "active"]
        assert a.nodes.replicas.counts.fewer_copies == 1
        async with node_of(job_config(tmp_path, "c", [address(a.broker)], jobs)) as c:
            await meet(a, b, c)
            await until(lambda: bool(c.state(job_id)))


async def test_the_longest_times_and_what_only_looks_like_an_id_are_borne(tmp_path: Path) -> None:
    longest = 0xFFFF_FFFF
    async with job_nodes(tmp_path, "ab") as (a, b):
        how = ("TTL", longest, "DELAY", longest, "RETRY", longest >> 1, "REPLICATE", 2)
        job_id = await a("ADDJOB", "q", "x", 20_000, *how)
        assert a.state(job_id) == b.state(job_id) == "active"
        assert await a("ACKJOB", "D-" + "z" * 38) == 0
        assert await a("ACKJOB", job_id) == 1
        await until(lambda: not a.state(job_id) and not b.state(job_id))
