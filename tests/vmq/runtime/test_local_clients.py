"""Clients inside the process: the embedding API of a broker."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from tests.vmq.sockets import TIMEOUT, config_in, take
from vmq.broker import Broker
from vmq.config.options import SessionOptions


@pytest.mark.parametrize("qos", (0, 1, 2))
async def test_publish_and_subscribe_within_the_process(embedded: Broker, qos: int) -> None:
    async with embedded.subscribe("a/#", "b", qos=2) as messages:
        await embedded.publish("a/1", b"x", qos=qos)
        await embedded.publish("b", b"y", qos=qos, retain=True)
        async with asyncio.timeout(TIMEOUT):
            one, two = await anext(messages), await anext(messages)
    assert (one.topic, one.payload, one.qos, one.retain) == ("a/1", b"x", qos, False)
    assert (two.topic, two.payload, two.qos, two.retain) == ("b", b"y", qos, False)


async def test_leaving_the_block_ends_the_subscription(embedded: Broker) -> None:
    registry = embedded.registry()
    async with embedded.subscribe("a") as messages:
        assert registry.trie.count == 1
    assert registry.trie.count == 0
    assert [message async for message in messages] == []


async def test_an_error_in_the_block_ends_the_subscription(embedded: Broker) -> None:
    registry = embedded.registry()
    with pytest.raises(ZeroDivisionError):
        async with embedded.subscribe("a"):
            raise ZeroDivisionError
    assert registry.trie.count == 0


async def test_several_subscriptions_get_a_copy_each(embedded: Broker) -> None:
    async with embedded.subscribe("a") as one, embedded.subscribe("a", "+") as two:
        await embedded.publish("a", b"x")
        assert await take(one, 1) == [b"x"]
        assert await take(two, 1) == [b"x"]


async def test_a_publish_that_is_too_large_is_an_error_and_does_not_end_publishing(
    tmp_path: Path,
) -> None:
    config = msgspec.structs.replace(
        config_in(tmp_path), session=SessionOptions(max_packet_size=1000)
    )
    async with Broker(config) as broker:
        with pytest.raises((ValueError, ConnectionError)):
            await broker.publish("a", b"x" * 2000)
        await broker.publish("a", b"x", qos=1)


async def test_stopping_ends_the_iterators_of_embedded_subscribers(tmp_path: Path) -> None:
    broker = Broker(config_in(tmp_path))
    await broker.start()
    async with broker.subscribe("a") as messages:
        await broker.publish("a", b"x", qos=1)
        assert await take(messages, 1) == [b"x"]
        await broker.stop()
        async with asyncio.timeout(TIMEOUT):
            assert [message async for message in messages] == []
