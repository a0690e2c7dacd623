"""Packets to bytes: against bytes written by hand, and against amqtt's codec."""

from typing import Any

from amqtt.mqtt.connack import ConnackPacket
from amqtt.mqtt.puback import PubackPacket
from amqtt.mqtt.pubcomp import PubcompPacket
from amqtt.mqtt.publish import PublishPacket
from amqtt.mqtt.pubrec import PubrecPacket
from amqtt.mqtt.pubrel import PubrelPacket
from amqtt.mqtt.suback import SubackPacket
from amqtt.mqtt.subscribe import SubscribePacket
from amqtt.mqtt.unsuback import UnsubackPacket
from amqtt.mqtt.unsubscribe import UnsubscribePacket
from hypothesis import example, given
from hypothesis import strategies as st

from tests.vmq.mqtt.amqtt_codec import amqtt_bytes, amqtt_read
from tests.vmq.mqtt.strategies import (
    ANY_FILTER,
    PACKET_IDS,
    PAYLOADS,
    QOS,
    TEXT,
    TOPICS,
    draw_connect,
)
from vmq.mqtt import encoder
from vmq.mqtt.packets import Connect

ANSWERS = (
    (encoder.PUBACK_HEAD, PubackPacket),
    (encoder.PUBREC_HEAD, PubrecPacket),
    (encoder.PUBREL_HEAD, PubrelPacket),
    (encoder.PUBCOMP_HEAD, PubcompPacket),
    (encoder.UNSUBACK_HEAD, UnsubackPacket),
)


@given(st.integers(0, 268_435_455))
@example(127)
@example(128)
@example(16_384)
@example(2_097_152)
@example(268_435_455)
def test_the_remaining_length_is_base_128_with_the_low_digit_first(length: int) -> None:
    raw = encoder.remaining_length(length)
    assert sum((byte & 127) << 7 * place for place, byte in enumerate(raw)) == length
    assert [byte >= 128 for byte in raw] == [True] * (len(raw) - 1) + [False]
    assert len(raw) == 1 or raw[-1] != 0


def test_packets_without_a_body() -> None:
    found = (encoder.PINGREQ, encoder.PINGRESP, encoder.DISCONNECT)
    assert found == (b"\xc0\0", b"\xd0\0", b"\xe0\0")


@given(TOPICS, PAYLOADS, st.integers(1, 2), PACKET_IDS)
def test_a_head_with_packet_id_and_payload_is_a_publish(
    topic: str, payload: bytes, qos: int, pid: int
) -> None:
    raw = topic.encode()
    head = encoder.publish_head(raw, len(payload), qos, False, False)
    pieces = head + encoder.PACKET_IDS[pid] + payload
    assert pieces == encoder.publish(raw, payload, qos, pid, False, False)


@given(TOPICS, PAYLOADS, QOS, PACKET_IDS, st.booleans(), st.booleans())
def test_publish_against_amqtt(
    topic: str, payload: bytes, qos: int, pid: int, retain: bool, dup: bool
) -> None:
    dup = dup and qos > 0
    ours = encoder.publish(topic.encode(), payload, qos, pid, retain, dup)
    theirs = PublishPacket.build(topic, payload, pid if qos else None, dup, qos, retain)
    assert ours == amqtt_bytes(theirs)
    read = amqtt_read(ours)
    assert (read.topic_name, bytes(read.data)) == (topic, payload)
    assert (read.qos, read.retain_flag, read.dup_flag) == (qos, retain, dup)
    assert read.packet_id == (pid if qos else None)


@given(st.sampled_from(ANSWERS), PACKET_IDS)
def test_acknowledgements_against_amqtt(answer: tuple[bytes, Any], pid: int) -> None:
    head, packet = answer
    ours = head + encoder.PACKET_IDS[pid]
    assert ours == amqtt_bytes(packet.build(pid))
    assert amqtt_read(ours).variable_header.packet_id == pid


@given(st.booleans(), st.integers(0, 5))
def test_connack_against_amqtt(present: bool, code: int) -> None:
    assert encoder.connack(present, code) == amqtt_bytes(ConnackPacket.build(int(present), code))


@given(PACKET_IDS, st.lists(st.sampled_from([0, 1, 2, 128]), min_size=1, max_size=200))
def test_suback_against_amqtt(pid: int, codes: list[int]) -> None:
    assert encoder.suback(pid, bytes(codes)) == amqtt_bytes(SubackPacket.build(pid, codes))


@given(PACKET_IDS, st.lists(st.tuples(ANY_FILTER, QOS), min_size=1, max_size=5))
def test_subscribe_against_amqtt(pid: int, filters: list[tuple[str, int]]) -> None:
    assert encoder.subscribe(pid, filters) == amqtt_bytes(SubscribePacket.build(filters, pid))


@given(PACKET_IDS, st.lists(ANY_FILTER, min_size=1, max_size=5))
def test_unsubscribe_against_amqtt(pid: int, filters: list[str]) -> None:
    assert encoder.unsubscribe(pid, filters) == amqtt_bytes(UnsubscribePacket.build(filters, pid))


@st.composite
def connects(draw: st.DrawFn) -> Connect:
    """Any CONNECT of MQTT 3.1.1 whose password is text, which is all that amqtt knows."""
    connect = draw_connect(draw, TEXT.map(str.encode))
    connect.client_id = draw(TEXT.filter(bool))
    return connect


@given(connects())
def test_connect_against_amqtt(connect: Connect) -> None:
    read = amqtt_read(encoder.connect(connect))
    assert (read.proto_name, read.proto_level) == ("MQTT", 4)
    assert read.client_id == connect.client_id
    assert read.clean_session_flag == connect.clean_session
    assert read.keep_alive == connect.keep_alive
    assert not read.reserved_flag
    assert read.will_flag == connect.has_will
    assert (read.will_qos, read.will_retain_flag) == (connect.will_qos, connect.will_retain)
    if connect.has_will:
        assert read.will_topic == connect.will_topic.decode()
        assert bytes(read.will_message) == connect.will_payload
    assert read.username == connect.username
    password = connect.password
    assert read.password == (None if password is None else password.decode())


def test_a_connect_of_mqtt_3_1_has_the_older_name() -> None:
    connect = Connect()
    connect.level = 3
    connect.client_id = "c"
    assert encoder.connect(connect) == b"\x10\x0f\0\6MQIsdp\3\2\0\0\0\1c"
