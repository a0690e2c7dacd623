"""The stand-in for a bridge's session gives what is subscribed to, and again what was not acknowledged."""

from pathlib import Path

import pytest
from vmq_hooks import BridgeMessage, BridgeSession, Message, SubscriberId, Subscription
from vmq_hooks.testing import FakeBroker, Published


async def test_what_is_not_acknowledged_comes_again(tmp_path: Path) -> None:
    async with FakeBroker(tmp_path) as broker:
        async with broker.bridge("b", mountpoint="m") as fake:
            session: BridgeSession = fake
            await session.subscribe([Subscription("a/#", 1)])
            assert not fake.deliver(Message("b", b""))
            for qos in (0, 1, 2):
                assert fake.deliver(Message("a", b"%d" % qos, qos, True))
            found = [await session.receive() for _ in range(3)]
            assert [each.message.qos for each in found] == [0, 1, 1]
            assert found[0] == BridgeMessage(Message("a", b"0", 0, True))
            session.acknowledge(found[1].packet_id)
        assert not fake.deliver(Message("a", b"nobody is there"))
        assert fake.deliver(Message("a", b"kept", 1))
        async with broker.bridge("b", mountpoint="m") as fake:
            again, kept = await fake.receive(), await fake.receive()
            assert (again.packet_id, again.again) == (found[2].packet_id, True)
            assert kept.message.payload == b"kept"
        assert set(broker.bridges) == {SubscriberId("b", "m")}


async def test_what_it_publishes_is_remembered(tmp_path: Path) -> None:
    async with FakeBroker(tmp_path) as broker, broker.bridge("b", mountpoint="m") as session:
        await session.subscribe([Subscription("#", 1)])
        await session.publish("a", b"x", qos=1, retain=True)
        assert broker.published == [Published("a", b"x", 1, True, "m")]
        assert session.unacknowledged == {}


async def test_the_halves_of_qos_2(tmp_path: Path) -> None:
    async with FakeBroker(tmp_path) as broker:
        async with broker.bridge("b") as fake:
            session: BridgeSession = fake
            with pytest.raises(ValueError, match="packet id"):
                await session.publish("x", b"", qos=2)
            for _ in range(2):
                await session.publish("x", b"", qos=2, packet_id=7)
            assert len(broker.published) == 1
            assert await session.remembered() == [7]
            await session.release(7)
            assert await session.remembered() == []
            await session.publish("x", b"", qos=2, packet_id=7)
            await session.forget()
            await session.publish("x", b"", qos=2, packet_id=7)
            assert len(broker.published) == 3
            await session.subscribe([Subscription("a", 2)])
            fake.deliver(Message("a", b"1", 2))
            packet_id = (await session.receive()).packet_id
            session.received(packet_id)
            assert (await session.receive()).released
        async with broker.bridge("b") as fake:
            found = await fake.receive()
            assert (found.packet_id, found.released) == (packet_id, True)
            fake.acknowledge(packet_id)
        assert fake.unacknowledged == {}
