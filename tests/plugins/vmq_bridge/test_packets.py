"""The bridge's packets, with another implementation's reading as a second opinion."""

import asyncio

import pytest
from amqtt.adapters import BufferReader
from amqtt.mqtt import packet_class
from amqtt.mqtt.packet import MQTTFixedHeader
from hypothesis import given
from hypothesis import strategies as st
from vmq_bridge import packets
from vmq_hooks import Subscription

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0+#"), min_size=1)
IDS = st.integers(1, 65535)


async def amqtt_read(raw: bytes) -> object:
    reader = BufferReader(raw)
    header = await MQTTFixedHeader.from_stream(reader)
    return await packet_class(header).from_stream(reader, fixed_header=header)


async def read(raw: bytes, limit: int = 1 << 28) -> packets.Packet:
    reader = asyncio.StreamReader()
    reader.feed_data(raw)
    reader.feed_eof()
    return await packets.read_packet(reader, limit)


@given(TEXT, st.binary(max_size=300), st.integers(0, 2), st.booleans(), IDS, st.booleans())
def test_publish(
    topic: str, payload: bytes, qos: int, retain: bool, packet_id: int, dup: bool
) -> None:
    raw = packets.publish(topic, payload, qos=qos, retain=retain, packet_id=packet_id, dup=dup)
    seen: object = asyncio.run(amqtt_read(raw))
    assert (seen.topic_name, seen.data, seen.qos, seen.retain_flag, seen.dup_flag) == (  # type: ignore[attr-defined]
        topic,
        payload,
        qos,
        retain,
        dup and qos > 0,
    )
    found = packets.read_publish(asyncio.run(read(raw)))
    assert found == (topic, payload, qos, retain, packet_id if qos else 0, dup and qos > 0)


@given(TEXT, st.integers(0, 65535), st.booleans(), st.none() | TEXT, st.booleans())
def test_connect(
    name: str, keepalive: int, clean: bool, username: str | None, bridge: bool
) -> None:
    password = None if username is None else username + "!"
    raw = packets.connect(
        name,
        level=4,
        bridge=bridge,
        clean_session=clean,
        keepalive=keepalive,
        username=username,
        password=password,
    )
    seen: object = asyncio.run(amqtt_read(raw))
    assert (seen.client_id, seen.keep_alive, seen.clean_session_flag) == (name, keepalive, clean)  # type: ignore[attr-defined]
    assert (seen.username, seen.password) == (username, password)  # type: ignore[attr-defined]
    assert seen.proto_level == (0x84 if bridge else 4)  # type: ignore[attr-defined]


@given(IDS, st.lists(st.tuples(TEXT, st.integers(0, 2)), min_size=1, max_size=5))
def test_subscribe_and_unsubscribe(packet_id: int, wanted: list[tuple[str, int]]) -> None:
    raw = packets.subscribe(packet_id, [Subscription(*each) for each in wanted])
    seen: object = asyncio.run(amqtt_read(raw))
    assert seen.variable_header.packet_id == packet_id  # type: ignore[attr-defined]
    assert seen.payload.topics == wanted  # type: ignore[attr-defined]
    filters = [each for each, _ in wanted]
    seen = asyncio.run(amqtt_read(packets.unsubscribe(packet_id, filters)))
    assert seen.payload.topics == filters  # type: ignore[attr-defined]


def test_acknowledgements() -> None:
    assert packets.answer(packets.PUBACK, 258) == b"\x40\x02\x01\x02"
    assert packets.answer(packets.PUBREL, 1) == b"\x62\x02\x00\x01"


@given(st.binary(max_size=40))
def test_any_bytes_are_a_packet_or_an_error(raw: bytes) -> None:
    try:
        packet = asyncio.run(read(raw, 20))
        assert len(packet.body) <= 20
        packets.read_packet_id(packet)
        packets.read_publish(packet)
    except ConnectionError:
        pass


def test_a_packet_above_the_limit_is_refused_before_it_is_read() -> None:
    with pytest.raises(packets.PacketError, match="2097151 bytes; accepted: 1000"):
        asyncio.run(read(b"\x30\xff\xff\x7f", 1000))
