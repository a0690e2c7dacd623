"""The stand-in for the broker remembers what a plugin asks for, and refuses what a broker would."""

import asyncio
from pathlib import Path

import pytest
from vmq_hooks import Broker, Message, SubscriberId
from vmq_hooks.testing import Disconnected, FakeBroker, Figure, Published


async def test_it_is_a_broker_handle(tmp_path: Path) -> None:
    async with FakeBroker(tmp_path) as fake:
        handle: Broker = fake
        assert handle.data_dir.is_dir()
        assert handle.config_dir == tmp_path


async def test_what_is_published_is_remembered_and_reaches_subscriptions(tmp_path: Path) -> None:
    async with FakeBroker(tmp_path) as broker, broker.subscribe("a/#") as messages:
        await broker.publish("a/b", b"1", qos=1, retain=True)
        await broker.publish("b", b"2")
        assert broker.published == [Published("a/b", b"1", 1, True), Published("b", b"2")]
        assert await anext(messages) == Message("a/b", b"1", 1)
        assert broker.deliver(Message("a", b"3")) == 1
        assert (await anext(messages)).payload == b"3"
        assert broker.deliver(Message("a", b"4"), mountpoint="other") == 0


async def test_what_a_broker_refuses_is_refused(tmp_path: Path) -> None:
    async with FakeBroker(tmp_path) as broker:
        with pytest.raises(ValueError, match="no topic name"):
            await broker.publish("a/#", b"")
        with pytest.raises(ValueError, match="QoS 3"):
            await broker.publish("a", b"", qos=3)
        with pytest.raises(TypeError, match="'text'; accepted: bytes"):
            await broker.publish("a", "text")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="'a/#/b' is no topic filter"):
            async with broker.subscribe("a/#/b"):
                pass
        with pytest.raises(ValueError, match="client id"):
            async with broker.subscribe("a", clean_session=False):
                pass
        with pytest.raises(ValueError, match="only grows"):
            broker.counter("n", "").add(-1)


async def test_disconnects_counters_and_figures(tmp_path: Path) -> None:
    async with FakeBroker(tmp_path) as broker:
        client = SubscriberId("c")
        assert await broker.disconnect(client, cleanup=True)
        broker.connected = set()
        assert not await broker.disconnect(client)
        assert broker.disconnected == [Disconnected(client, True), Disconnected(client, False)]
        broker.counter("hits", "Hits.").add(2)
        broker.figures.append(Figure("uptime", 1.0))
        found = [(each.name, each.value) for each in broker.metrics()]
        assert found == [("uptime", 1.0), ("hits", 2)]
        assert await broker.disconnect_users(["bob", "eve"]) == 0
        assert broker.disconnected_users == [{"bob", "eve"}]
        assert await broker.drop_wills(["eve"]) == 0
        assert broker.dropped_wills == [{"eve"}]
        assert await broker.reauthorize(client) == 0
        broker.forget_verdicts()
        assert (broker.reauthorized, broker.forgotten) == ([client], 1)
        assert await broker.run_in_thread(sum, [1, 2]) == 3


async def test_spawned_work_ends_with_the_broker_and_its_errors_are_told(tmp_path: Path) -> None:
    broker = FakeBroker(tmp_path)
    forever = broker.spawn(asyncio.Event().wait())

    async def fail() -> None:
        raise OSError("broken")

    failing = broker.spawn(fail())
    await asyncio.wait([failing])
    with pytest.raises(BaseExceptionGroup, match="spawned"):
        await broker.close()
    assert forever.cancelled()
