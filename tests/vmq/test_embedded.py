"""The client inside the broker's own process, on a core without sockets."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest
from vmq_hooks import Refuse

from tests.support.until import turns
from tests.support.wire import PUBLISH
from tests.vmq.support import Client, House
from vmq.embedded import LocalClient, ReceivedMessage

TIMEOUT = 30.0


@asynccontextmanager
async def local(
    house: House, client_id: str = "local", limit: int = 1000
) -> AsyncIterator[LocalClient]:
    with closing(LocalClient(house.registry, client_id, limit)) as client:
        yield client


async def take(messages: AsyncIterator[ReceivedMessage], count: int) -> list[ReceivedMessage]:
    """The next messages of an iterator."""
    async with asyncio.timeout(TIMEOUT):
        return [await anext(messages) for _ in range(count)]


def parts(message: ReceivedMessage) -> tuple[str, bytes, int, bool]:
    return message.topic, message.payload, message.qos, message.retain


@pytest.mark.parametrize("qos", (0, 1, 2))
@pytest.mark.parametrize("retain", (False, True))
async def test_a_publish_reaches_real_clients(
    house: House, qos: int, retain: bool, client: Client
) -> None:
    client.subscribe(("a", 2))
    async with local(house) as publisher, asyncio.timeout(TIMEOUT):
        await publisher.publish("a", b"x", qos, retain)
    packet = client.take_one(PUBLISH)
    assert (packet.topic, packet.payload) == ("a", b"x")
    assert (packet.qos, packet.retain) == (qos, False)
    assert house.retained() == ({"a": b"x"} if retain else {})


async def test_many_publishes_at_once_are_each_acknowledged(house: House, client: Client) -> None:
    client.subscribe(("a", 0))
    async with local(house) as publisher, asyncio.timeout(TIMEOUT):
        works = [publisher.publish("a", b"%d" % n, n % 3, False) for n in range(60)]
        await asyncio.gather(*works)
    assert client.payloads() == [b"%d" % n for n in range(60)]


async def test_a_publish_returns_when_the_broker_owns_the_message(durable: House) -> None:
    durable.client("c", clean=False).subscribe(("a", 1))
    durable.patient = True
    async with local(durable) as publisher:
        work = asyncio.ensure_future(publisher.publish("a", b"x", 1, False))
        await turns(10)
        assert not work.done()
        durable.commit()
        async with asyncio.timeout(TIMEOUT):
            await work


async def test_packet_ids_that_wait_for_an_answer_are_not_used_again(durable: House) -> None:
    durable.client("c", clean=False).subscribe(("a", 1))
    durable.patient = True
    async with local(durable) as publisher:
        waits = asyncio.ensure_future(publisher.publish("a", b"0", 1, False))
        await turns(10)
        publisher._last_id = 65_535
        other = asyncio.ensure_future(publisher.publish("a", b"1", 1, False))
        await turns(10)
        assert publisher._in_use == {1, 2}
        durable.commit()
        async with asyncio.timeout(TIMEOUT):
            await asyncio.gather(waits, other)
        assert publisher._in_use == set()


WRONG = (
    (lambda client: client.publish("", b"", 0, False), "empty topic name"),
    (lambda client: client.publish("a/+", b"", 0, False), "wildcard"),
    (lambda client: client.publish("a\0", b"", 0, False), "U\\+0000"),
    (lambda client: client.publish("\ud800", b"", 0, False), "surrogates not allowed"),
    (lambda client: client.publish("a", b"", 3, False), "QoS 3"),
    (lambda client: client.publish("a", b"", -1, False), "QoS -1"),
    (lambda client: client.subscribe([], 0), "no topic filter"),
    (lambda client: client.subscribe(["a", ""], 0), "empty topic filter"),
    (lambda client: client.subscribe(["a#"], 0), "misplaced #"),
    (lambda client: client.subscribe(["$share/g"], 0), "without a topic filter"),
    (lambda client: client.subscribe(["a"], 3), "QoS 3"),
    # Texts that no packet can hold.
    (lambda client: client.publish("a" * 65_536, b"", 0, False), r"65,?535"),
    (lambda client: client.subscribe(["a" * 65_536], 0), r"65,?535"),
)


@pytest.mark.parametrize(("act", "text"), WRONG)
async def test_wrong_arguments_are_refused_and_the_client_lives_on(
    house: House, act: Callable[[LocalClient], Coroutine[Any, Any, None]], text: str
) -> None:
    async with local(house) as client, asyncio.timeout(TIMEOUT):
        with pytest.raises(ValueError, match=text):
            await act(client)
        await client.publish("a", b"x", 1, False)


async def test_no_plugin_is_asked_about_a_client_inside(house: House) -> None:
    hooks = house.core.hooks
    hooks.auth_on_register = lambda *_arguments: Refuse("no")
    hooks.auth_on_publish = lambda *_arguments: Refuse("no")
    hooks.auth_on_subscribe = lambda *_arguments: Refuse("no")
    hooks.resolve()
    async with local(house) as client, asyncio.timeout(TIMEOUT):
        await client.subscribe(["a"], 0)
        await client.publish("a", b"x", 1, False)
        assert [each.payload for each in await take(client.messages(), 1)] == [b"x"]


@pytest.mark.parametrize("granted", (0, 1, 2))
async def test_messages_come_in_order_with_their_parts(house: House, granted: int) -> None:
    house.publish("a/r", b"retained", 2, retain=True)
    async with local(house) as client, asyncio.timeout(TIMEOUT):
        await client.subscribe(["a/#", "b"], granted)
        for number in range(30):
            house.publish("a/x", b"%d" % number, number % 3)
        received = await take(client.messages(), 31)
    assert parts(received[0]) == ("a/r", b"retained", granted, True)
    for qos in range(3):
        numbers = [n for n in range(30) if min(n % 3, granted) == qos]
        assert [each.payload for each in received[1:] if each.qos == qos] == [
            b"%d" % n for n in numbers
        ]
    assert not any(each.retain for each in received[1:])


async def test_everything_is_acknowledged(house: House) -> None:
    house.options.max_inflight_messages = 2
    async with local(house) as client, asyncio.timeout(TIMEOUT):
        await client.subscribe(["a"], 2)
        for number in range(20):
            house.publish("a", b"%d" % number, 1 + number % 2)
        received = await take(client.messages(), 20)
        await turns(10)
        assert [each.payload for each in received] == [b"%d" % n for n in range(20)]
        queue = house.queue("local")
        assert (queue.waiting(), len(queue.inflight)) == (0, 0)
        assert client._received == set()


async def test_a_repeated_qos_2_message_is_handed_over_once(house: House) -> None:
    house.options.retry_interval = 1.0
    async with local(house) as client, asyncio.timeout(TIMEOUT):
        await client.subscribe(["a"], 2)
        house.publish("a", b"x", 2)
        house.clock.advance(2)
        house.queue("local").retry(house.clock())
        house.settle()
        await turns(10)
        house.publish("a", b"y", 2)
        assert [each.payload for each in await take(client.messages(), 2)] == [b"x", b"y"]


async def test_a_slow_reader_leaves_messages_to_the_queue_and_its_limits(house: House) -> None:
    house.options.max_online_messages = 5
    async with local(house, limit=4) as client, asyncio.timeout(TIMEOUT):
        await client.subscribe(["a"], 0)
        for number in range(12):
            house.publish("a", b"%d" % number)
            await turns(10)
        queue = house.queue("local")
        assert (queue.waiting(), queue.dropped) == (5, 3)
        received = await take(client.messages(), 9)
        assert [each.payload for each in received] == [b"%d" % n for n in range(9)]
        assert queue.waiting() == 0
        house.publish("a", b"more")
        assert [each.payload for each in await take(client.messages(), 1)] == [b"more"]


async def test_a_slow_reader_does_not_hold_up_others(house: House) -> None:
    other = house.subscriber("other", ("a", 0))
    async with local(house, limit=1) as client, asyncio.timeout(TIMEOUT):
        await client.subscribe(["a"], 1)
        for number in range(50):
            house.publish("a", b"%d" % number, 1)
            await turns(10)
        assert len(other.payloads()) == 50


async def test_publishing_from_the_loop_that_reads(house: House) -> None:
    async with local(house) as client, local(house, "second") as second, asyncio.timeout(TIMEOUT):
        await client.subscribe(["ping"], 2)
        await second.subscribe(["pong"], 2)
        for number in range(5):
            await second.publish("ping", b"%d" % number, 2, False)
            [message] = await take(client.messages(), 1)
            await client.publish("pong", message.payload, 2, False)
            [answer] = await take(second.messages(), 1)
            assert answer.payload == b"%d" % number


async def test_closing_ends_the_iterator_and_the_session(house: House) -> None:
    async with asyncio.timeout(TIMEOUT):
        client = LocalClient(house.registry, "local", 10)
        await client.subscribe(["a"], 0)
        house.publish("a", b"x")
        await turns(10)
        client.close()
        client.close()
        assert [each.payload async for each in client.messages()] == [b"x"]
        assert house.registry.subscribers == {}
        assert house.registry.trie.root.is_empty()


async def test_a_close_by_the_broker_ends_the_iterator_and_what_waits(durable: House) -> None:
    durable.client("c", clean=False).subscribe(("a", 1))
    durable.patient = True
    async with asyncio.timeout(TIMEOUT):
        client = LocalClient(durable.registry, "local", 10)
        work = asyncio.ensure_future(client.publish("a", b"x", 2, False))
        await turns(10)
        durable.client("local")
        durable.commit()
        with pytest.raises(ConnectionError, match="closed the connection"):
            await work
        assert [each async for each in client.messages()] == []
        with pytest.raises(ConnectionError):
            await client.publish("a", b"x", 0, False)


async def test_no_will_is_left_and_no_bytes_after_the_end(house: House) -> None:
    watcher = house.subscriber("w", ("#", 0))
    client = LocalClient(house.registry, "local", 10)
    client.abort()
    client.write(b"\x30\x03\0\1a")
    await turns(10)
    watcher.expect()
    assert client.get_write_buffer_size() == 0
    assert client.get_extra_info("socket") is None


def test_a_message_shows_its_parts() -> None:
    message = ReceivedMessage("a/b", b"x", 1, True)
    assert repr(message) == "ReceivedMessage(topic='a/b', payload=b'x', qos=1, retain=True)"


async def test_what_the_broker_writes_in_the_pass_of_the_end_still_arrives(house: House) -> None:
    house.patient = True
    async with local(house) as client, asyncio.timeout(TIMEOUT):
        subscribing = asyncio.ensure_future(client.subscribe(["a"], 1))
        await turns(10)
        await subscribing
        house.publish("a", b"1", 1)
        house.publish("a", b"2", 0)
        client._connection.close("enough")
        house.core.outbox.flush()
        assert client.is_closed
        received = [message async for message in client.messages()]
    assert [message.payload for message in received] == [b"1", b"2"]
