"""Durable sessions that go from node to node while they add jobs at QoS 2, or acknowledge them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.support.present import present
from tests.support.until import until
from tests.support.wire import PUBACK, PUBLISH, SUBACK, pubrel_packet, subscribe_packet
from tests.support.wire import PUBREC as PUBREC_TYPE
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House
from tests.vmq.clustering.running.slotted import SLOTS, named, owners_of, service, slotted
from tests.vmq.clustering.running.test_once import half_published, received
from tests.vmq.jobs.mappings.test_mapping import options
from tests.vmq.jobs.mqtt.test_publishing import job
from tests.vmq.jobs.serving import TCP
from tests.vmq.jobs.sharing.nodes import JobNode, job_nodes
from tests.vmq.sockets import session_of
from vmq.broker import Broker
from vmq.clustering.slots.words import slot_of
from vmq.config.jobs import JobOptions
from vmq.jobs.nodes import JobNodes
from vmq.jobs.queue import QUEUED

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
        async with session_of(a.broker, listener=TCP, clean=False) as peer:
            await peer.ask(job("$jobs/mail", b"once", 2), PUBREC)
        async with session_of(b.broker, listener=TCP, clean=False) as peer:
            await peer.ask(job("$jobs/mail", b"once", 2, dup=True), PUBREC)
            assert list(bodies(nodes).values()) == [b"once"]
            peer.send(PUBREL, job("$jobs/mail", b"another", 2))
            await peer.expect(PUBCOMP, PUBREC)
        async with session_of(a.broker, listener=TCP, clean=False) as peer:
            peer.send(job("$jobs/mail", b"another", 2, dup=True), PUBREL)
            await peer.expect(PUBREC, PUBCOMP)
            await peer.ask(job("$jobs/mail", b"third", 2), PUBREC)
        assert sorted(bodies(nodes).values()) == [b"another", b"once", b"third"]


def is_known(nodes: list[JobNode]) -> bool:
    """Whether the session of the client knows a packet id: before it does, nobody can tell that its job came."""
    slot = slot_of("c", SLOTS)
    owners = [service(each.broker).machines.slots.owners.get(slot) for each in nodes]
    found = [each.state.registers.get("c") for each in owners if each is not None]
    return any(each is not None and bool(each.received) for each in found)


async def comes_again_at(node: JobNode) -> None:
    """The client sends its job once more, at another node, and hears of it."""
    async with session_of(node.broker, listener=TCP, clean=False) as peer:
        await peer.ask(job("$jobs/mail", b"once", 2, dup=True), PUBREC)


async def test_a_packet_id_is_known_when_the_job_is_on_its_hosts_though_its_client_is_away(
    tmp_path: Path,
) -> None:
    async with job_nodes(tmp_path, "ab") as nodes:
        a, b = nodes
        post = a.nodes.post.outbox
        post.transmit, transmit = (lambda _name, _payload: None), post.transmit
        async with session_of(a.broker, listener=TCP, clean=False) as peer:
            peer.send(job("$jobs/mail", b"once", 2))
            await until(lambda: len(a.machine.jobs) == 1 and is_known(nodes))
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


async def end(nodes: House) -> None:
    """Nodes that are stopped would wait for the one that is dead, to hand their jobs over."""
    for name in list(nodes.brokers):
        await nodes.kill(name)


async def comes_again(nodes: House, device: Device, name: str) -> None:
    """The node of a publisher dies; it goes on at another, or at that one when it is started anew."""
    died = service(nodes["a"]).here.incarnation
    await nodes.kill("a")
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
    tmp_path: Path, topic: str, name: str
) -> None:
    async with slotted(tmp_path, "abc") as nodes, Device(named(nodes, "b", "p")) as publisher:
        await half_published(nodes, "a", publisher, topic)
        added = jobs(nodes)
        await comes_again(nodes, publisher, name)
        assert len(added) == 1
        assert jobs(nodes) == added


async def test_a_job_that_dies_with_its_node_is_added_when_it_comes_again(tmp_path: Path) -> None:
    """Its packet id is known before the job is on its hosts, and does not count."""
    async with slotted(tmp_path, "abc") as nodes, Device(named(nodes, "b", "p")) as publisher:
        await publisher.connect(nodes["a"])
        here = sharing(nodes["a"])
        await until(lambda: len(here.replicas.peers.up) == 2)
        here.post.outbox.transmit = lambda _name, _payload: None
        publisher.publish("$jobs/mail;replicate=2", "x", 2)
        await until(lambda: bool(received(nodes, publisher.client_id)))
        await comes_again(nodes, publisher, "b")
        assert len(jobs(nodes)) == 1
        await end(nodes)


SENT_ON = {"hot": options("hot", "$jobs/mail;replicate=2")}


async def under_way(nodes: House, publisher: Device, topic: str) -> Callable[..., object]:
    """A job of a node that no host has yet when its client has gone; returns what lets that node send."""
    await publisher.connect(nodes["a"])
    here = sharing(nodes["a"])
    await until(lambda: len(here.replicas.peers.up) == 2)
    transmit = here.post.outbox.transmit
    here.post.outbox.transmit = lambda _name, _payload: None
    publisher.publish(topic, "x", 2)
    await until(lambda: bool(jobs(nodes)) and bool(received(nodes, publisher.client_id)))
    await publisher.drop()
    publisher.unfinished[1] = publisher.again(1, topic, "x")
    return partial(setattr, here.post.outbox, "transmit", transmit)


@pytest.mark.parametrize("topic", ["$jobs/mail;replicate=2", "hot"])
@pytest.mark.parametrize("dies", [True, False])
async def test_a_job_is_on_its_hosts_before_its_client_hears_of_it_from_another_node(
    tmp_path: Path, topic: str, dies: bool
) -> None:
    """Its first node may die while the other waits for it."""
    async with (
        slotted(tmp_path, "abc", mappings=SENT_ON) as nodes,
        Device(named(nodes, "b", "p")) as publisher,
    ):
        let_go = await under_way(nodes, publisher, topic)
        [first] = jobs(nodes)
        await publisher.connect(nodes["b"])
        asked = sharing(nodes["b"]).replicas.questions.questions
        await until(lambda: bool(asked or publisher.found(PUBREC_TYPE)))
        assert not publisher.found(PUBREC_TYPE)
        if dies:
            await nodes.kill("a")
        else:
            let_go()
        await publisher.until(lambda: not publisher.unfinished)
        holders = [each for each in "bc" if each in nodes.brokers]
        machines = [sharing(nodes[each]).commit.machine for each in holders]
        assert sum(first in each.jobs for each in machines) >= 1 + dies
        assert jobs(nodes) == {first}
        await end(nodes)


async def test_a_job_that_is_done_and_forgotten_is_not_added_where_its_client_comes_again(
    tmp_path: Path,
) -> None:
    async with slotted(tmp_path, "abc") as nodes, Device(named(nodes, "b", "p")) as publisher:
        let_go = await under_way(nodes, publisher, "$jobs/mail;replicate=2")
        machine = sharing(nodes["a"]).commit.machine
        [job] = machine.jobs.values()
        let_go()
        await until(lambda: job.state == QUEUED)
        machine.acknowledge(job.id)
        await until(lambda: not jobs(nodes))
        await publisher.connect(nodes["b"])
        await publisher.until(lambda: not publisher.unfinished)
        assert [sharing(each).commit.machine.counts.added for each in nodes.brokers.values()] == [
            1,
            0,
            0,
        ]


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
            async with session_of(a.broker, listener=TCP, clean=False) as peer:
                peer.send(job("$jobs/mail", b"once", 2, dup=is_again))
                await until(lambda: len(pending) == 1 and is_known(nodes))
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
        async with session_of(a.broker, listener=TCP, clean=False) as peer:
            peer.send(subscribe_packet(1, ("$jobs/mail/manual/+", 1)))
            # The job may come before the owner of the session has said that it is subscribed.
            found = {each.type: each for each in [await peer.packet(), await peer.packet()]}
            assert found[SUBACK].body == b"\x00\x01\x01"
            assert job_id in found[PUBLISH].body
        async with session_of(b.broker, listener=TCP, clean=False) as peer:
            for dup in (False, True):
                await peer.ask(job("$jobs/mail/ack", job_id, 2, dup=dup), PUBREC)
            await peer.ask(PUBREL, PUBCOMP)
            await until(lambda: not bodies(nodes))


async def test_a_session_in_a_slot_knows_the_packet_id_of_what_it_acknowledges(
    tmp_path: Path,
) -> None:
    """Under that id, and not under that of what comes next; it is released as others are."""
    async with slotted(tmp_path, "ab") as nodes, Device(named(nodes, "b", "p")) as worker:
        await worker.connect(nodes["a"])
        worker.answers = False
        job_id = sharing(nodes["a"]).commit.machine.ids.new(60, True).decode()
        worker.publish("$jobs/mail/ack", job_id, 2)
        await worker.until(lambda: bool(worker.found(PUBREC_TYPE)))
        assert list(received(nodes, worker.client_id)) == [1]
        worker.publish("t", "x", 1)
        await worker.until(lambda: bool(worker.found(PUBACK)))
        worker.send(pubrel_packet(1))
        await until(lambda: not received(nodes, worker.client_id))
