"""What a session in a slot is held to: its user, its queue's limits, its age; and what it gets besides."""

from pathlib import Path
from typing import Literal

import pytest
from msgspec.structs import replace

from tests.support.until import until
from tests.support.wire import PUBLISH, PUBREL, Packet, puback_packet, pubcomp_packet, pubrec_packet
from tests.vmq.clustering.device import Device
from tests.vmq.clustering.house import House
from tests.vmq.clustering.running.slotted import named, owner_of, owners_of, slotted
from vmq.broker import Broker, StartError
from vmq.clustering.slots.owner import SlotOwner
from vmq.config.options import QueueOptions, SessionOptions
from vmq.protocol.front_queue import FrontQueue

BAD_ID = 2


async def test_another_user_neither_takes_nor_ends_it(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        name = named(nodes, "b", "s")
        async with Device(name, username="alice") as alice:
            await alice.connect(nodes["a"])
            for clean in (False, True):
                async with Device(name, username="bob", clean=clean) as bob:
                    assert await bob.refusal(nodes["b"]) == BAD_ID
            assert alice.is_connected


async def test_the_next_owner_knows_since_when_a_client_is_away(tmp_path: Path) -> None:
    session = SessionOptions(persistent_client_expiration="1h")
    async with (
        slotted(tmp_path, session=session) as nodes,
        Device(named(nodes, "b", "s")) as device,
    ):
        name = device.client_id
        await device.connect(nodes["a"])
        [owner] = owners_of(nodes, name).values()
        away, register = owner.attachments.away, owner.state.registers[name]
        await device.disconnect()
        await until(lambda: name in away.left)
        assert register.left == away.left[name]
        await device.connect(nodes["a"])
        assert register.left == 0
        await device.disconnect()
        await until(lambda: name in away.left)
        since = away.left[name]
        await nodes.brokers.pop("b").stop()
        await until(lambda: owner_of(nodes, name) == "a")
        [heir] = owners_of(nodes, name).values()
        await until(lambda: name in heir.attachments.away.left)
        assert heir.attachments.away.left[name] == since


async def four_wait(nodes: House, device: Device) -> SlotOwner:
    """A device subscribes, goes, and four messages come for it; the owner of its slot."""
    await device.connect(nodes["a"], ("t", 1))
    await device.disconnect()
    [owner] = owners_of(nodes, device.client_id).values()
    await until(lambda: device.client_id not in owner.attachments.serving)
    for each in range(4):
        await nodes["a"].publish("t", b"%d" % each, 1)
    return owner


@pytest.mark.parametrize("drops", ["newest", "oldest"])
async def test_a_queue_has_its_limit(tmp_path: Path, drops: Literal["newest", "oldest"]) -> None:
    queue = QueueOptions(max_offline_messages=2, drop=drops)
    async with slotted(tmp_path, queue=queue) as nodes, Device(named(nodes, "b", "s")) as device:
        await four_wait(nodes, device)
        await device.connect(nodes["b"])
        wanted = ["0", "1"] if drops == "newest" else ["2", "3"]
        await device.until(lambda: device.log == wanted)


async def test_one_message_goes_for_one_in_a_queue_beyond_its_limit(tmp_path: Path) -> None:
    queue = QueueOptions(
        drop="oldest", max_inflight_messages=1, max_online_messages=1, max_offline_messages=4
    )
    async with slotted(tmp_path, queue=queue) as nodes, Device(named(nodes, "b", "s")) as device:
        owner = await four_wait(nodes, device)
        device.answers = False
        await device.connect(nodes["b"])
        await until(lambda: len(owner.state.registers[device.client_id].window) == 1)
        await nodes["a"].publish("t", b"4", 1)
        device.answers = True
        await device.disconnect()
        await device.connect(nodes["b"])
        await device.until(lambda: sorted(set(device.log)) == ["0", "2", "3", "4"])


async def test_retained_messages_come_at_their_qos(tmp_path: Path) -> None:
    async with slotted(tmp_path) as nodes:
        await nodes["a"].publish("t/0", b"0", 0, retain=True)
        await nodes["a"].publish("t/1", b"1", 1, retain=True)
        await until(lambda: nodes["b"].registry().retained.count == 2)
        async with Device(named(nodes, "a", "s")) as device:
            await device.connect(nodes["b"], ("t/+", 2))
            await device.until(lambda: sorted(device.log) == ["0", "1"])
            found = {each.payload: (each.qos, each.retain) for each in device.found(3)}
            assert found == {b"0": (0, True), b"1": (1, True)}


@pytest.mark.parametrize(("qos", "is_durable"), [(1, False), (2, True)])
async def test_publishers_wait_for_a_slow_client_instead_of_losing_messages(
    tmp_path: Path, qos: int, is_durable: bool
) -> None:
    queue = QueueOptions(overflow="pause_publisher", max_inflight_messages=1, max_online_messages=3)
    async with (
        slotted(tmp_path, queue=queue) as nodes,
        Device(named(nodes, "b", "s")) as device,
        Device("publisher", clean=not is_durable) as publisher,
    ):
        await device.connect(nodes["a"], ("t", 2))
        device.answers = False
        await publisher.connect(nodes["a"])
        wanted = [str(number) for number in range(10)]
        for text in wanted:
            publisher.publish("t", text, qos)
            if int(text) < 4:  # one is under way, three wait
                await publisher.until(lambda: not publisher.unfinished)
        [owner] = owners_of(nodes, device.client_id).values()
        await until(lambda: owner.state.waiting(device.client_id) == 10)
        assert owner.attachments.held.has(device.client_id)
        await nodes["b"].publish("other", b"", qos)  # nobody else waits
        assert len(publisher.unfinished) == 6
        device.answers = True
        [packet] = device.found(PUBLISH)
        answer = puback_packet if qos == 1 else pubrec_packet
        device.send(answer(packet.packet_id))
        await device.until(lambda: device.log == wanted)
        await publisher.until(lambda: not publisher.unfinished)
        assert not owner.attachments.held.are_any()


async def test_a_publisher_waits_no_more_when_the_slow_client_goes(tmp_path: Path) -> None:
    queue = QueueOptions(overflow="pause_publisher", max_inflight_messages=1, max_online_messages=1)
    async with (
        slotted(tmp_path, queue=queue) as nodes,
        Device(named(nodes, "b", "s")) as device,
        Device("publisher", clean=True) as publisher,
    ):
        await device.connect(nodes["a"], ("t", 1))
        device.answers = False
        await publisher.connect(nodes["a"])
        for text in "1234":
            publisher.publish("t", text, 1)
        [owner] = owners_of(nodes, device.client_id).values()
        await until(lambda: owner.attachments.held.has(device.client_id))
        await device.drop()
        await publisher.until(lambda: not publisher.unfinished)
        device.answers = True
        await device.connect(nodes["b"])
        await device.until(lambda: sorted(set(device.log)) == ["1", "2", "3", "4"])


async def test_what_is_not_answered_is_sent_again(tmp_path: Path) -> None:
    session = SessionOptions(retry_interval=0.05)
    async with (
        slotted(tmp_path, session=session) as nodes,
        Device(named(nodes, "b", "s")) as device,
    ):
        await device.connect(nodes["a"], ("t", 2))
        device.answers = False
        for qos in (1, 2):
            await nodes["b"].publish("t", b"%d" % qos, qos)

        def found(payload: bytes) -> list[Packet]:
            return [each for each in device.found(PUBLISH) if each.payload == payload]

        await device.until(lambda: min(len(found(b"1")), len(found(b"2"))) > 2)
        ids = []
        for payload in (b"1", b"2"):
            first, *again = found(payload)
            assert not first.dup
            assert all(each.dup and each.packet_id == first.packet_id for each in again)
            ids.append(first.packet_id)
        device.send(puback_packet(ids[0]) + pubrec_packet(ids[1]))
        await device.until(lambda: len(device.found(PUBREL)) > 2)
        device.send(pubcomp_packet(ids[1]))
        [owner] = owners_of(nodes, device.client_id).values()
        await until(lambda: not owner.state.registers[device.client_id].window)
        queue = nodes["a"].registry().subscribers[device.client_id].queue
        assert isinstance(queue, FrontQueue)
        assert not queue.unanswered


async def test_a_data_directory_keeps_to_its_number_of_slots(tmp_path: Path) -> None:
    async with slotted(tmp_path, "a") as nodes:
        config = nodes["a"].config
    more = replace(config, cluster=replace(config.cluster, slots=9))
    with pytest.raises(StartError, match=r"cluster.slots is 9, and this store's cluster has 8"):
        await Broker(more).start()
