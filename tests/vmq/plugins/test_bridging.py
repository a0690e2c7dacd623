"""The session of a bridge, on a real broker: nothing of its own, RETAIN as published, kept until acknowledged."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import pytest
from vmq_hooks import BridgeMessage, BridgeSession, Broker, Message, Plugin, SubscriberId
from vmq_hooks import Subscription as Wanted

from tests.support.until import until
from tests.vmq.clustering.nodes import clustering
from tests.vmq.plugins.support import TIMEOUT, serving
from vmq import broker as brokers
from vmq.config.options import ClusterOptions

OURS = SubscriberId("b")


class Holder(Plugin):
    """Keeps its handle for the test."""

    def start(self, broker: Broker, config: object) -> None:
        self.handle = broker


@pytest.fixture(params=["alone", "slots"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> ClusterOptions:
    """Of a broker that is in none, and of a node whose durable sessions are in slots."""
    if request.param == "alone":
        return ClusterOptions()
    listen = f"ipc://{tmp_path}/node.socket"
    return ClusterOptions(node_name="n", listen=listen, slots=8)


Start = Callable[[], AbstractAsyncContextManager[tuple[brokers.Broker, Broker]]]


@pytest.fixture
def start(tmp_path: Path, cluster: ClusterOptions) -> Start:
    """Starts the broker, or the one that it was before, and gives its plugin's handle as well."""

    @asynccontextmanager
    async def started() -> AsyncIterator[tuple[brokers.Broker, Broker]]:
        plugin = Holder()
        async with serving(tmp_path, {"p": plugin}, cluster=cluster) as broker:
            yield broker, plugin.handle

    return started


def has_session(broker: brokers.Broker) -> bool:
    if broker.clustering is None:
        return OURS.client_id in broker.registry("").subscribers
    slots = clustering(broker).slots
    assert slots is not None
    return slots.status.figures(OURS.client_id) is not None


async def take(session: BridgeSession) -> BridgeMessage:
    async with asyncio.timeout(TIMEOUT):
        return await session.receive()


async def take_message(session: BridgeSession) -> BridgeMessage:
    """What comes behind the ids of those whose session ended at that moment."""
    while True:
        found = await take(session)
        if not found.released:
            return found


async def test_a_bridge_does_not_get_what_it_published(start: Start) -> None:
    async with (
        start() as (broker, handle),
        handle.bridge("b") as session,
        broker.subscribe("#", qos=2) as others,
    ):
        await session.subscribe([Wanted("#", 2)])
        for qos in (0, 1, 2):
            await session.publish("own", b"", qos=qos, packet_id=7)
            await broker.publish(f"other/{qos}", b"", qos=qos)
        found = [(await take(session)).message.topic for _ in range(3)]
        assert found == ["other/0", "other/1", "other/2"]
        async with asyncio.timeout(TIMEOUT):
            seen = [(await anext(others)).topic for _ in range(6)]
        assert seen.count("own") == 3


@pytest.mark.parametrize("qos", (0, 1, 2))
async def test_retain_is_as_it_was_published(start: Start, qos: int) -> None:
    async with start() as (broker, handle), handle.bridge("b") as session:
        await session.subscribe([Wanted("#", 2)])
        await broker.publish("a", b"1", qos=qos, retain=True)
        await broker.publish("a", b"2", qos=qos)
        await broker.publish("a", b"", qos=qos, retain=True)
        found = [(await take(session)).message for _ in range(3)]
        seen = [(each.payload, each.retain) for each in found]
        assert seen == [(b"1", True), (b"2", False), (b"", True)]


@pytest.mark.parametrize("qos", (1, 2))
async def test_what_is_not_acknowledged_comes_again_under_its_id(start: Start, qos: int) -> None:
    async with start() as (broker, handle):
        async with handle.bridge("b") as session:
            await session.subscribe([Wanted("a", 2)])
            for payload in (b"1", b"2", b"3"):
                await broker.publish("a", payload, qos=qos, retain=payload == b"2")
            first, second, third = [await take(session) for _ in range(3)]
            assert not first.again
            session.acknowledge(first.packet_id)
            session.acknowledge(third.packet_id)
            session.acknowledge(4711)  # nobody knows it
        await broker.publish("a", b"4", qos=qos, retain=True)
    async with start() as (_, handle), handle.bridge("b") as session:
        again = await take_message(session)
        assert again == BridgeMessage(Message("a", b"2", qos, True), second.packet_id, True)
        later = await take_message(session)
        assert (later.message, later.again) == (Message("a", b"4", qos, True), False)


async def test_only_so_many_are_on_their_way(start: Start) -> None:
    async with start() as (broker, handle), handle.bridge("b", max_inflight_messages=2) as session:
        await session.subscribe([Wanted("a", 1)])
        for number in range(5):
            await broker.publish("a", b"%d" % number, qos=1)
        first, second = await take(session), await take(session)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(session.receive(), 0.05)
        session.acknowledge(second.packet_id)
        assert (await take(session)).message.payload == b"2"
        session.acknowledge(first.packet_id)
        assert (await take(session)).message.payload == b"3"


async def test_subscriptions_are_exactly_what_was_asked_for_last(start: Start) -> None:
    async with start() as (broker, handle):
        await broker.publish("a", b"x", qos=1, retain=True)
        async with handle.bridge("b") as session:
            await session.subscribe([Wanted("a", 1), Wanted("b", 1)])
            session.acknowledge((await take(session)).packet_id)
            await session.subscribe([Wanted("a", 1), Wanted("c", 1)])
            await broker.publish("b", b"", qos=1)
            await broker.publish("c", b"", qos=1)
            # `a` was subscribed to before, so its retained message does not come again.
            assert (await take(session)).message.topic == "c"
        assert has_session(broker)
        assert await handle.disconnect(OURS, cleanup=True) is False
        await until(lambda: not has_session(broker))


async def test_whoever_opens_it_later_has_it(start: Start) -> None:
    async with start() as (_, handle), handle.bridge("b") as first, handle.bridge("b"):
        with pytest.raises(ConnectionError):
            await take(first)
        with pytest.raises(ConnectionError):
            await first.publish("a", b"", qos=1)


async def test_what_the_broker_does_not_take_is_named(start: Start) -> None:
    async with start() as (_, handle), handle.bridge("b") as session:
        for topic in ("", "a/#", "a\0"):
            with pytest.raises(ValueError, match="topic"):
                await session.publish(topic, b"", qos=1)
        with pytest.raises(ValueError, match="packet id 0 at QoS 2"):
            await session.publish("a", b"", qos=2)
        await session.publish("fine", b"", qos=1)


async def test_a_qos_2_message_that_comes_again_is_not_published_again(start: Start) -> None:
    async with start() as (broker, handle), handle.bridge("keeper") as keeper:
        await keeper.subscribe([Wanted("#", 2)])
        async with handle.bridge("b") as session:
            await session.publish("a", b"1", qos=2, packet_id=7)
            await session.publish("a", b"1", qos=2, packet_id=7)
        async with handle.bridge("b") as session:
            await session.publish("a", b"1", qos=2, packet_id=7)
            await session.publish("a", b"2", qos=2, packet_id=8)
    async with (
        start() as (broker, handle),
        handle.bridge("b") as session,
        handle.bridge("keeper") as keeper,
    ):
        assert await session.remembered() == [7, 8]
        await session.publish("a", b"1", qos=2, packet_id=7)
        await session.release(7)
        await session.release(4711)  # nobody knows it
        assert await session.remembered() == [8]
        await session.publish("a", b"3", qos=2, packet_id=7)
        await session.forget()
        for packet_id in (7, 8):
            await session.publish("a", b"4%d" % packet_id, qos=2, packet_id=packet_id)
        await broker.publish("end", b"", qos=2)
        found = [(await take(keeper)).message.payload for _ in range(6)]
        assert found == [b"1", b"2", b"3", b"47", b"48", b""]


async def test_of_a_qos_2_message_that_was_received_only_the_id_comes_again(start: Start) -> None:
    async with start() as (broker, handle), handle.bridge("b") as session:
        await session.subscribe([Wanted("a", 2)])
        for payload in (b"1", b"2"):
            await broker.publish("a", payload, qos=2)
        first, second = await take(session), await take(session)
        session.received(first.packet_id)
        half = await take(session)
        assert half == BridgeMessage(Message("", b"", 2), first.packet_id, released=True)
        session.received(first.packet_id)  # once more, as a far broker may
        session.received(4711)  # nobody knows it, but somebody waits for its PUBREL
        unknown = await take(session)
        assert (unknown.packet_id, unknown.released) == (4711, True)
        session.acknowledge(4711)
    async with start() as (broker, handle):
        async with handle.bridge("b") as session:
            found = {each.packet_id: each for each in [await take(session), await take(session)]}
            assert found[first.packet_id].released
            assert found[second.packet_id].message.payload == b"2"
            session.acknowledge(first.packet_id)
            session.acknowledge(second.packet_id)
            await broker.publish("a", b"3", qos=1)
            assert (await take(session)).message.payload == b"3"
        async with handle.bridge("b") as session:
            assert (await take(session)).message.payload == b"3", "nothing else is left"
