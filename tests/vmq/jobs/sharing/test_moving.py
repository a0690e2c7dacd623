"""Durable sessions that go from node to node while they add jobs at QoS 2, or acknowledge them."""

from pathlib import Path

from tests.support.until import until
from tests.support.wire import PUBLISH, SUBACK, subscribe_packet
from tests.vmq.jobs.mqtt.test_publishing import TCP, connected, job
from tests.vmq.jobs.sharing.nodes import JobNode, job_nodes
from tests.vmq.sockets import peer_of

PUBREC = b"\x50\x02\x00\x07"
PUBREL = b"\x62\x02\x00\x07"
PUBCOMP = b"\x70\x02\x00\x07"


def bodies(nodes: list[JobNode]) -> dict[bytes, bytes]:
    """The jobs that there are, by their ids."""
    return {
        each.id: node.nodes.commit.writer.body(each) if each.body is None else each.body
        for node in nodes
        for each in node.machine.jobs.values()
        if node.state(each.id) != "acked"
    }


async def test_a_job_is_added_once_though_its_session_moves_before_the_packet_id_is_released(
    tmp_path: Path,
) -> None:
    async with job_nodes(tmp_path, "ab") as nodes:
        a, b = nodes
        async with peer_of(a.broker, TCP) as peer:
            await connected(peer, clean=False)
            await peer.ask(job("$jobs/mail", b"once", 2), PUBREC)
        async with peer_of(b.broker, TCP) as peer:
            await connected(peer, clean=False)
            await peer.ask(job("$jobs/mail", b"once", 2, dup=True), PUBREC)
            assert list(bodies(nodes).values()) == [b"once"]
            peer.send(PUBREL, job("$jobs/mail", b"another", 2))
            await peer.expect(PUBCOMP, PUBREC)
        async with peer_of(a.broker, TCP) as peer:
            await connected(peer, clean=False)
            peer.send(job("$jobs/mail", b"another", 2, dup=True), PUBREL)
            await peer.expect(PUBREC, PUBCOMP)
            await peer.ask(job("$jobs/mail", b"third", 2), PUBREC)
        assert sorted(bodies(nodes).values()) == [b"another", b"once", b"third"]


async def test_a_packet_id_is_known_when_the_job_is_on_its_hosts_though_its_client_is_away(
    tmp_path: Path,
) -> None:
    async with job_nodes(tmp_path, "ab") as nodes:
        a, b = nodes
        post = a.nodes.post.outbox
        post.transmit, transmit = (lambda _name, _payload: None), post.transmit
        async with peer_of(a.broker, TCP) as peer:
            await connected(peer, clean=False)
            peer.send(job("$jobs/mail", b"once", 2))
            await until(lambda: len(a.machine.jobs) == 1)
        subscriber = a.broker.registry().subscribers["c"]
        await until(lambda: subscriber.output is None)
        post.transmit = transmit
        await until(lambda: [each.state for each in a.machine.jobs.values()] == [2])
        async with peer_of(b.broker, TCP) as peer:
            await connected(peer, clean=False)
            await peer.ask(job("$jobs/mail", b"once", 2, dup=True), PUBREC)
        assert list(bodies(nodes).values()) == [b"once"]


async def test_a_worker_acknowledges_at_the_node_to_which_its_session_goes(tmp_path: Path) -> None:
    async with job_nodes(tmp_path, "ab") as nodes:
        a, b = nodes
        job_id = await a("ADDJOB", "mail", "x", 5000, "REPLICATE", 2)
        async with peer_of(a.broker, TCP) as peer:
            await connected(peer, clean=False)
            peer.send(subscribe_packet(1, ("$jobs/mail/manual/+", 1)))
            # The job may come before the owner of the session has said that it is subscribed.
            found = {each.type: each for each in [await peer.packet(), await peer.packet()]}
            assert found[SUBACK].body == b"\x00\x01\x01"
            assert job_id in found[PUBLISH].body
        async with peer_of(b.broker, TCP) as peer:
            await connected(peer, clean=False)
            for dup in (False, True):
                await peer.ask(job("$jobs/mail/ack", job_id, 2, dup=dup), PUBREC)
            await peer.ask(PUBREL, PUBCOMP)
            await until(lambda: not bodies(nodes))
