"""MQTT 3.1, whose CONNACK does not say whether the far broker still has the session: it is taken to have it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from vmq_bridge import BridgePlugin, BridgesConfig, packets
from vmq_hooks import Message, SubscriberId
from vmq_hooks.testing import FakeBroker

from tests.plugins.vmq_bridge.far import SUBSCRIBE, Scripted, link

TIMEOUT = 20.0
OURS = SubscriberId("vmq-bridge-far")


def config(port: int, **more: Any) -> BridgesConfig:
    bridge = {
        "url": f"mqtt://127.0.0.1:{port}",
        "client_id": "us",
        "protocol_version": 3,
        "topics": [{"pattern": "o/#", "qos": 2}, {"pattern": "i/#", "direction": "in", "qos": 2}],
        "reconnect_delay": 0.02,
        "max_reconnect_delay": 0.1,
        **more,
    }
    return msgspec.convert({"bridges": {"far": bridge}}, BridgesConfig)


@asynccontextmanager
async def bridged(folder: Path, **more: Any) -> AsyncIterator[tuple[Scripted, FakeBroker]]:
    """A bridge that is connected and subscribed."""
    far = Scripted()
    async with asyncio.timeout(TIMEOUT), far.serving(), FakeBroker(folder) as broker:
        await BridgePlugin().start(broker, config(far.port, **more))
        await far.welcome(knows=False)
        await far.expect(SUBSCRIBE)
        yield far, broker


async def come_back(far: Scripted) -> None:
    far.close()
    await far.welcome(knows=False)


def message(payload: bytes, packet_id: int, *, dup: bool = False, qos: int = 2) -> bytes:
    return packets.publish("i/1", payload, qos=qos, retain=False, packet_id=packet_id, dup=dup)


def payloads(broker: FakeBroker) -> list[bytes]:
    return [each.payload for each in broker.published]


async def test_what_comes_again_at_qos_2_is_not_published_again(tmp_path: Path) -> None:
    async with bridged(tmp_path) as (far, broker):
        far.send(message(b"x", 7))
        await far.expect(packets.PUBREC)
        await come_back(far)
        far.send(message(b"x", 7, dup=True))
        await far.expect(packets.PUBREC)
        await come_back(far)
        far.send(packets.answer(packets.PUBREL, 7))
        await far.expect(packets.PUBCOMP)
        assert payloads(broker) == [b"x"]
        far.send(message(b"x", 7))
        await far.expect(packets.PUBREC)
        assert payloads(broker) == [b"x", b"x"]
        assert far.subscribed == 1


async def test_a_far_broker_that_has_lost_its_session_loses_no_message(tmp_path: Path) -> None:
    async with bridged(tmp_path) as (far, broker):
        for packet_id, payload in enumerate((b"1", b"2", b"3"), 1):
            far.send(message(payload, packet_id))
            await far.expect(packets.PUBREC)
        await come_back(far)
        # It gives the ids anew: to other messages, to one of the same content, and to one whose first try was lost.
        far.send(message(b"4", 1), message(b"2", 2), message(b"5", 3, dup=True))
        for _ in range(3):
            await far.expect(packets.PUBREC)
        assert payloads(broker) == [b"1", b"2", b"3", b"4", b"2", b"5"]
        await come_back(far)
        far.send(message(b"4", 1, dup=True), message(b"5", 3, dup=True))
        for _ in range(2):
            await far.expect(packets.PUBREC)
        assert len(broker.published) == 6


async def test_each_half_of_what_goes_out_comes_again(tmp_path: Path) -> None:
    async with bridged(tmp_path) as (far, broker):
        ours = broker.bridges[OURS]
        ours.deliver(Message("o/1", b"x", 2))
        first = await far.expect(packets.PUBLISH)
        await come_back(far)
        again = await far.expect(packets.PUBLISH)
        assert (first.head, again.head) == (0x34, 0x3C)
        assert again.body == first.body
        packet_id = packets.read_publish(again).packet_id
        far.send(packets.answer(packets.PUBREC, packet_id))
        await far.expect(packets.PUBREL)
        await come_back(far)
        await far.expect(packets.PUBREL)
        assert len(far.published) == 2
        # A broker that knows nothing of the id answers it, too.
        far.send(packets.answer(packets.PUBCOMP, packet_id), message(b"", 1, qos=1))
        await far.expect(packets.PUBACK)
        assert ours.unacknowledged == {}


async def test_a_clean_session_is_never_taken_for_present(tmp_path: Path) -> None:
    async with bridged(tmp_path, clean_session=True) as (far, broker):
        far.send(message(b"x", 7))
        await far.expect(packets.PUBREC)
        await come_back(far)
        await far.expect(SUBSCRIBE)
        far.send(message(b"y", 7, dup=True))
        await far.expect(packets.PUBREC)
        assert payloads(broker) == [b"x", b"y"]


async def test_a_far_broker_that_was_not_running_is_subscribed_to_again(
    tmp_path: Path, heard: asyncio.Queue[str]
) -> None:
    far = Scripted()
    async with (
        asyncio.timeout(TIMEOUT),
        far.serving(),
        link(far.port) as wire,
        FakeBroker(tmp_path) as broker,
    ):
        await BridgePlugin().start(broker, config(wire.port))
        await far.welcome(knows=False)
        broker.bridges[OURS].deliver(Message("o/1", b"", 1))
        await far.expect(packets.PUBLISH)  # the bridge has its SUBACK
        wire.cut()
        await far.welcome(knows=False)
        await far.expect(packets.PUBLISH)
        assert far.subscribed == 1
        await wire.close()
        while "bridge far: no connection" not in await heard.get():
            pass
        await wire.open()
        await far.welcome(knows=False)
        await far.expect(SUBSCRIBE)
        far.close()
