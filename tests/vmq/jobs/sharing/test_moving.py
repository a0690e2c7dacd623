"""Durable sessions that go from node to node while they add jobs at QoS 2, or acknowledge them."""

from pathlib import Path

import pytest

from tests.support.present import present
from tests.support.until import until
from tests.support.wire import PUBLISH, SUBACK, subscribe_packet
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House
from tests.vmq.clustering.running.slotted import named, owners_of, service, slotted
from tests.vmq.clustering.running.test_once import half_published, received
from tests.vmq.jobs.mqtt.test_publishing import TCP, connected, job
from tests.vmq.jobs.sharing.nodes import JobNode, job_nodes
from tests.vmq.sockets import peer_of
from vmq.broker import Broker
from vmq.config.jobs import JobOptions
from vmq.jobs.nodes import JobNodes

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


async def comes_again_at(node: JobNode) -> None:
    """The client sends its job once more, at another node, and hears of it."""
    async with peer_of(node.broker, TCP) as peer:
        await connected(peer, clean=False)
        await peer.ask(job("$jobs/mail", b"once", 2, dup=True), PUBREC)


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
        await comes_again_at(b)
        assert list(bodies(nodes).values()) == [b"once"]


def sharing(broker: Broker) -> JobNodes:
    return present(broker.jobs.open().nodes)


def jobs(nodes: House) -> set[bytes]:
    return {
        each for broker in nodes.brokers.values() for each in sharing(broker).commit.machine.jobs
    }


async def comes_again(
    nodes: House, device: Device, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node of a publisher dies; it goes on at another, or at that one when it is started anew."""
    died = service(nodes["a"]).here.incarnation
    await nodes.kill("a", monkeypatch)
    if name == "a":
        await nodes.start("a")

    def is_missed() -> bool:
        owners = owners_of(nodes, device.client_id).values()
        return bool(owners) and not any(each.here.is_there(died) for each in owners)

    await until(is_missed)
    await device.connect(nodes[name])
    await device.until(lambda: not device.unfinished)


@pytest.mark.parametrize(
    ("topic", "name"),
    [("$jobs/mail;replicate=2", "b"), ("$jobs/mail", "a"), ("$jobs/mail;replicate=1", "a")],
)
async def test_a_job_is_added_once_though_its_node_dies_before_its_client_hears_of_pubrec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic: str, name: str
) -> None:
    async with slotted(tmp_path, "abc") as nodes, Device(named(nodes, "b", "p")) as publisher:
        await half_published(nodes, "a", publisher, topic)
        added = jobs(nodes)
        await comes_again(nodes, publisher, name, monkeypatch)
        assert len(added) == 1
        assert jobs(nodes) == added


async def test_a_job_that_dies_with_its_node_is_added_when_it_comes_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its packet id is known before the job is on its hosts, and does not count."""
    async with slotted(tmp_path, "abc") as nodes, Device(named(nodes, "b", "p")) as publisher:
        await publisher.connect(nodes["a"])
        here = sharing(nodes["a"])
        await until(lambda: len(here.replicas.peers.up) == 2)
        here.post.outbox.transmit = lambda _name, _payload: None
        publisher.publish("$jobs/mail;replicate=2", "x", 2)
        await until(lambda: bool(received(nodes, publisher.client_id)))
        await comes_again(nodes, publisher, "b", monkeypatch)
        assert len(jobs(nodes)) == 1


@pytest.mark.parametrize("connections", ["stays", "goes", "comes back"])
async def test_a_job_that_came_to_no_host_in_time_is_added_once(
    tmp_path: Path, connections: str
) -> None:
    """Also that of a client which is away when the time is over, or back, and then waits for the hosts, too."""
    async with job_nodes(tmp_path, "ab", {"mail": JobOptions(refuse_after=2)}) as nodes:
        a, b = nodes
        post = a.nodes.post.outbox
        post.transmit, transmit = (lambda _name, _payload: None), post.transmit
        pending = a.nodes.replicas.adder.pending
        for is_again in (False, True)[: 1 + (connections == "comes back")]:
            async with peer_of(a.broker, TCP) as peer:
                await connected(peer, clean=False)
                peer.send(job("$jobs/mail", b"once", 2, dup=is_again))
                await until(lambda: len(pending) == 1)
                if connections == "stays" or is_again:
                    assert await peer.rest() == b""
        await until(lambda: not any(each.told for each in pending.values()))
        post.transmit = transmit
        await comes_again_at(b)
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
