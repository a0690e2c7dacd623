"""Durable sessions that nodes had, or a broker alone, come into slots with all that is theirs."""

from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.support import wire as mqtt
from tests.support.until import until
from tests.vmq.clustering.house import House, durable, publish, received, store_of, subscribed
from tests.vmq.clustering.running.slotted import SLOTS, are_owned, owners_of, service, slotted
from tests.vmq.sockets import Peer, peer_of
from vmq.broker import Broker
from vmq.clustering.slots.flow import PACKETS
from vmq.clustering.slots.queued import StoredMessage
from vmq.clustering.slots.register import ReceivedId
from vmq.clustering.slots.words import group_queue, handed_on
from vmq.config.options import ClusterOptions
from vmq.runtime.errors import StartError
from vmq.store.opening import stored_sessions
from vmq.store.tools import check


async def in_slots(folder: Path) -> tuple[House, Broker]:
    """Node `a`, alone in its cluster, once it serves all slots."""
    made = House(folder, slots=SLOTS)
    node = await made.start("a")
    await until(partial(are_owned, made))
    return made, node


def alone(folder: Path, name: str = "a") -> Broker:
    """The broker of a node, as one without a cluster."""
    return Broker(replace(durable(folder, name, []), cluster=ClusterOptions()))


async def go(peer: Peer) -> None:
    peer.send(mqtt.DISCONNECT_BYTES)
    assert await peer.rest() == b""


async def drained(peer: Peer, count: int) -> list[bytes]:
    """Takes messages at QoS 2, and finishes each."""
    found = []
    released = 0
    while released < count:
        packet = await peer.packet()
        if packet.type == mqtt.PUBREL:
            peer.send(mqtt.pubcomp_packet(packet.packet_id))
            released += 1
            continue
        assert packet.type == mqtt.PUBLISH
        found.append(packet.payload)
        peer.send(mqtt.pubrec_packet(packet.packet_id))
    return found


async def test_a_broker_alone_becomes_a_node_with_all_its_sessions(tmp_path: Path) -> None:
    async with alone(tmp_path) as broker:
        await subscribed(broker, "c1", "c2")
        async with peer_of(broker) as peer:  # one is under way, of one PUBREC came, the rest waits
            await peer.connect("c1", clean=False)
            await publish(broker, b"1", b"2", b"3", qos=2)
            first, second, third = [await peer.packet() for _ in range(3)]
            assert (await peer.ask(mqtt.pubrec_packet(first.packet_id))).type == mqtt.PUBREL
            await go(peer)
        await publish(broker, b"4", b"5", qos=2)
        async with peer_of(broker) as peer:  # a packet id is received, and not released
            await peer.connect("p", clean=False)
            peer.send(mqtt.publish_packet("t", b"6", qos=2, packet_id=7))
            assert (await peer.packet()).type == mqtt.PUBREC
            await go(peer)
    _, node = await in_slots(tmp_path)
    async with peer_of(node) as peer:
        await peer.connect("p", clean=False)
        peer.send(mqtt.publish_packet("t", b"6", qos=2, packet_id=7, dup=True))
        assert (await peer.packet()).type == mqtt.PUBREC
        assert (await peer.ask(mqtt.pubrel_packet(7))).type == mqtt.PUBCOMP
        peer.send(mqtt.publish_packet("t", b"7", qos=2, packet_id=8))
        assert (await peer.packet()).type == mqtt.PUBREC
        await go(peer)
    async with peer_of(node) as peer:
        assert (await peer.connect("c1", clean=False)).body == b"\1\0"
        again = [await peer.packet() for _ in range(3)]
        under_way = {each.packet_id: (each.type, each.payload) for each in again}
        assert under_way == {
            first.packet_id: (mqtt.PUBREL, b""),
            second.packet_id: (mqtt.PUBLISH, b"2"),
            third.packet_id: (mqtt.PUBLISH, b"3"),
        }
        assert all(each.dup for each in again if each.type == mqtt.PUBLISH)
        peer.send(mqtt.pubcomp_packet(first.packet_id))
        peer.send(mqtt.pubrec_packet(second.packet_id) + mqtt.pubrec_packet(third.packet_id))
        assert await drained(peer, 6) == [b"4", b"5", b"6", b"7"]
        await go(peer)
    async with peer_of(node) as peer:
        assert (await peer.connect("c2", clean=False)).body == b"\1\0"
        assert await drained(peer, 7) == [b"%d" % number for number in range(1, 8)]
    assert stored_sessions(store_of(node)) == []
    await node.stop()


async def test_packet_ids_that_sessions_in_slots_do_not_use_are_finished(tmp_path: Path) -> None:
    """Those above 32,767, at QoS 2: the client knows the messages by them. At QoS 1 another one is as good."""
    async with alone(tmp_path) as broker:
        await subscribed(broker, "c")
        async with peer_of(broker) as peer:
            await peer.connect("c", clean=False)
            broker.registries[""].subscribers["c"].queue.inflight.last_packet_id = 40_000
            await publish(broker, b"1", b"2", qos=2)
            await publish(broker, b"3", qos=1)
            sent = [await peer.packet() for _ in range(3)]
            assert [each.packet_id for each in sent] == [40_001, 40_002, 40_003]
            assert (await peer.ask(mqtt.pubrec_packet(40_001))).type == mqtt.PUBREL
            await go(peer)
    _, node = await in_slots(tmp_path)
    async with peer_of(node) as peer:
        assert (await peer.connect("c", clean=False)).body == b"\1\0"
        again = [await peer.packet() for _ in range(3)]
        found = {each.packet_id: (each.type, each.payload) for each in again}
        assert found.pop(40_001) == (mqtt.PUBREL, b"")
        assert found.pop(40_002) == (mqtt.PUBLISH, b"2")
        [(other, sent_again)] = found.items()
        assert other <= PACKETS
        assert sent_again == (mqtt.PUBLISH, b"3")
        peer.send(mqtt.puback_packet(other))
        peer.send(mqtt.pubcomp_packet(40_001) + mqtt.pubrec_packet(40_002))
        assert (await peer.packet()).packet_id == 40_002
        peer.send(mqtt.pubcomp_packet(40_002))
        owners = service(node).machines.slots.owners.values()
        [register] = [each.state.registers["c"] for each in owners if each.state.registers]
        await until(lambda: not register.window)
        await publish(node, b"4", qos=2)
        assert await drained(peer, 1) == [b"4"]
        await go(peer)
    await node.stop()


async def test_without_a_cluster_sessions_are_in_the_store_again_as_often_as_wanted(
    tmp_path: Path,
) -> None:
    async with alone(tmp_path) as broker:
        await subscribed(broker, "c", "mine")
        await publish(broker, b"1", b"2", qos=2)
    for round_ in range(2):
        _, node = await in_slots(tmp_path)
        assert not node.registry().subscribers
        await publish(node, b"s%d" % round_, qos=2)
        await node.stop()
        async with alone(tmp_path) as broker:
            assert sorted(broker.registry().subscribers) == ["c", "mine"]
            await publish(broker, b"a%d" % round_, qos=2)
            if round_:
                async with peer_of(broker) as peer:
                    assert (await peer.connect("c", clean=False)).body == b"\1\0"
                    found = await drained(peer, 6)
                    assert found == [b"1", b"2", b"s0", b"a0", b"s1", b"a1"]
        assert check(tmp_path / "a" / "store").problems == []


async def test_what_a_node_died_with_before_a_slot_took_it_comes_again_without_a_cluster(
    tmp_path: Path,
) -> None:
    """A packet id is written before its message is offered: alone it is no proof that anybody has that."""
    made, node = await in_slots(tmp_path)
    await subscribed(node, "c")
    await publish(node, b"1", qos=2)
    [owner] = owners_of(made, "c").values()
    [(origin, runs)] = owner.state.context.runs.items()
    for packet, place in enumerate((runs[-1] - 1, runs[-1]), 1):
        owner.state.receive("c", packet, ReceivedId(((owner.slot, (origin, place), ""),), b""))
    service(node).machines.slots.turns.touch(owner.slot)
    await node.stop()
    async with alone(tmp_path) as broker, peer_of(broker) as peer:
        assert (await peer.connect("c", clean=False)).body == b"\1\0"
        for packet, payload in enumerate((b"1", b"2"), 1):
            peer.send(mqtt.publish_packet("t", payload, qos=2, packet_id=packet, dup=True))
        found = [await peer.packet() for _ in range(4)]
        assert sorted((each.type, each.payload) for each in found) == [
            (mqtt.PUBLISH, b"1"),
            (mqtt.PUBLISH, b"2"),
            (mqtt.PUBREC, b""),
            (mqtt.PUBREC, b""),
        ]


async def test_what_was_on_its_way_to_another_slot_is_taken_back_once(tmp_path: Path) -> None:
    """It stays where it was until that slot says that it has it; there nobody else need have a session."""
    made, node = await in_slots(tmp_path)
    async with peer_of(node) as peer:
        await peer.connect("c", clean=False)
        await peer.ask(mqtt.subscribe_packet(1, ("$share/g/t", 1)))
        await go(peer)
    slots = service(node).machines.slots
    [there] = owners_of(made, "c").values()
    here = slots.owners[(there.slot + 1) % SLOTS]
    for place, payload in enumerate((b"1", b"2"), 1):
        dot, message = (1, place), StoredMessage(place, b"t", payload, 1, "$share/g/t")
        here.state.see(dot)
        here.state.put(group_queue("$share/g/t", there.slot), dot, 1, message)
        if place == 1:
            there.state.see(handed_on(here.slot, dot))
            there.state.put("c", handed_on(here.slot, dot), 1, message.placed(place, 1))
    for owner in (here, there):
        slots.turns.touch(owner.slot)
    await node.stop()
    async with alone(tmp_path) as broker, peer_of(broker) as peer:
        assert (await peer.connect("c", clean=False)).body == b"\1\0"
        await publish(broker, b"3")
        assert await received(peer, 3) == [b"1", b"2", b"3"]


async def test_what_other_nodes_have_too_is_not_taken_back(tmp_path: Path) -> None:
    async with slotted(tmp_path, "ab") as made:
        await subscribed(made["a"], "c")
        await until(lambda: are_owned(made))
    with pytest.raises(StartError, match=r"other nodes have \d+ of these, too: start with cluster"):
        await alone(tmp_path).start()
