"""Options that change on a running broker reach what is at work already."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from vmq import Broker
from vmq.mqtt.packets import ProtocolError
from vmq.protocol.connection import Connection

CONNECT = b"\x10\x0e\x00\x04MQTT\x04\x02\x00\x00\x00\x02me"


@pytest.fixture
async def stream(embedded: Broker) -> AsyncIterator[asyncio.StreamReader]:
    """A client called me."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port(embedded))
    writer.write(CONNECT)
    await reader.readexactly(4)
    yield reader
    writer.close()
    await writer.wait_closed()


def port(broker: Broker) -> int:
    return int(broker.addresses[0].rpartition(":")[2])


def connection(broker: Broker) -> Connection:
    found = broker.registry().subscribers["me"].output
    assert isinstance(found, Connection)
    return found


@pytest.mark.usefixtures("stream")
async def test_rates_hold_for_those_who_are_connected(embedded: Broker) -> None:
    me = connection(embedded)
    assert (me.message_rate, me.byte_rate) == (None, None)
    embedded.set_option("limits.max_message_rate", "5")
    embedded.set_option("limits.max_byte_rate", "500")
    assert me.message_rate is not None
    assert me.message_rate.rate == 5.0
    assert me.byte_rate is not None
    assert me.byte_rate.rate == 500.0
    embedded.reset_option("limits.max_message_rate")
    assert me.message_rate is None


async def test_the_size_of_packets_holds_for_those_who_are_connected(
    embedded: Broker, stream: asyncio.StreamReader
) -> None:
    embedded.set_option("session.max_packet_size", "64")
    me = connection(embedded)
    me.data_received(b"\x30\x41\x00\x01t" + bytes(62))
    assert me.closing
    assert await stream.read() == b""


@pytest.mark.usefixtures("stream")
async def test_the_size_of_other_packets_too(embedded: Broker) -> None:
    embedded.set_option("session.max_control_packet_size", "64")
    me = connection(embedded)
    me.data_received(b"\x82\x41")
    assert me.closing


@pytest.mark.usefixtures("stream")
async def test_buffers_of_sockets_change(embedded: Broker) -> None:
    embedded.set_option("network.write_buffer", "2048")
    me = connection(embedded)
    assert me.transport.get_write_buffer_limits()[1] == 2048
    assert me.listener.reply_limit == 4 * 2048


async def test_remembered_routes_do_not_outlive_a_lower_depth(embedded: Broker) -> None:
    registry = embedded.registry()
    registry.route(b"a/b/c")
    embedded.set_option("limits.topic_max_depth", "2")
    with pytest.raises(ProtocolError, match="topic_max_depth"):
        registry.route(b"a/b/c")
    registry.route(b"a/b")


async def test_the_route_cache_keeps_fewer(embedded: Broker) -> None:
    routes = embedded.registry().routes
    embedded.set_option("network.topic_cache", "4")
    for number in range(10):
        embedded.registry().route(b"t/%d" % number)
    assert len(routes.young) + len(routes.old) <= 4


async def test_flapping_is_watched_from_now_on(embedded: Broker) -> None:
    flapping = embedded.registry().flapping
    assert not flapping.is_banned("x", 0.0)
    embedded.set_option("limits.flapping_limit", "1")
    embedded.set_option("limits.flapping_ban", "7")
    assert not flapping.is_banned("x", 1.0)
    assert flapping.is_banned("x", 2.0)
    assert flapping.is_banned("x", 8.9)
    assert not flapping.is_banned("x", 9.1)


async def test_the_memory_limit_changes_and_ends_an_alarm(embedded: Broker) -> None:
    memory = embedded.parts.memory
    assert memory is not None
    embedded.set_option("limits.max_memory", "1")
    memory.look()
    assert memory.core.memory_is_high
    embedded.set_option("limits.max_memory", "-1")
    memory.look()
    assert not memory.core.memory_is_high


async def test_a_listener_lets_in_fewer(embedded: Broker) -> None:
    embedded.set_option("listeners.tcp.max_connections", "1")
    first = await asyncio.open_connection("127.0.0.1", port(embedded))
    first[1].write(CONNECT)
    await first[0].readexactly(4)
    second = await asyncio.open_connection("127.0.0.1", port(embedded))
    second[1].write(CONNECT.replace(b"me", b"us"))
    with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
        await second[0].readexactly(1)
    for _, writer in (first, second):
        writer.close()


async def test_a_larger_window_is_filled_at_once(
    embedded: Broker, stream: asyncio.StreamReader
) -> None:
    embedded.set_option("queue.max_inflight_messages", "1")
    connection(embedded).data_received(b"\x82\x06\x00\x01\x00\x01t\x01")
    assert await stream.readexactly(5) == b"\x90\x03\x00\x01\x01"
    for number in range(3):
        await embedded.publish("t", b"%d" % number, qos=1)
    assert (await stream.readexactly(8))[-1:] == b"0"
    embedded.set_option("queue.max_inflight_messages", "3")
    assert (await stream.readexactly(16))[7::8] == b"12"
