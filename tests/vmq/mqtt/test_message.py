"""Messages and the pieces of PUBLISH packets that they keep."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.wire import publish_packet
from tests.vmq.mqtt.strategies import PACKET_IDS, PAYLOADS, TOPICS
from vmq.mqtt.message import NO_MESSAGE, Delivery, Message


@given(TOPICS, PAYLOADS, st.booleans())
def test_the_frame_is_the_publish_at_qos_0_with_retain_0(
    topic: str, payload: bytes, retain: bool
) -> None:
    message = Message(topic.encode(), payload, 2, retain)
    assert message.frame() == publish_packet(topic, payload)


def test_the_frame_is_built_once() -> None:
    message = Message(b"t", b"x", 0, False)
    assert message.frame() is message.frame()


@given(TOPICS, PAYLOADS, st.lists(st.sampled_from([1, 2]), min_size=1, max_size=4), PACKET_IDS)
def test_the_head_fits_its_qos_whichever_was_asked_for_before(
    topic: str, payload: bytes, asked: list[int], pid: int
) -> None:
    message = Message(topic.encode(), payload, 2, False)
    for qos in asked:
        raw = message.head(qos) + pid.to_bytes(2) + payload
        assert raw == publish_packet(topic, payload, qos=qos, packet_id=pid)


def test_the_head_is_built_once_for_a_qos() -> None:
    message = Message(b"t", b"x", 1, False)
    assert message.head(1) is message.head(1)


def test_a_head_that_came_in_goes_out_again_at_its_own_qos_only() -> None:
    message = Message(b"t", b"x", 1, False)
    message.cut = came_in = b"\x32\x86\x00\0\1t"  # with a remaining length of two bytes
    assert message.head(1) is came_in
    assert message.head(2) == b"\x34\x06\0\1t"


def test_a_new_delivery_is_neither_sent_nor_stored() -> None:
    message = Message(b"t", b"x", 2, False)
    delivery = Delivery(message, 1, True, "$share/g/t")
    assert delivery.message is message
    assert (delivery.qos, delivery.retain, delivery.group) == (1, True, "$share/g/t")
    assert (delivery.seq, delivery.ref, delivery.packet_id) == (0, 0, 0)
    assert not delivery.released
    assert delivery.sent_at == 0.0


def test_no_message_is_empty() -> None:
    assert (NO_MESSAGE.topic, NO_MESSAGE.payload, NO_MESSAGE.ref) == (b"", b"", 0)
