"""Frames in words: whatever bytes come, and never a secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import wire as mqtt
from vmq.tracing.frames import PacketFrames, client_id_of

CONNECT = mqtt.connect_packet("c", username="u", password=b"secret", will=mqtt.Will("w", b"x"))


@pytest.mark.parametrize(
    ("packet", "text"),
    (
        (CONNECT, "CONNECT level=4 client='c' user='u' clean=1 keep_alive=0 will='w'"),
        (b"\x20\x02\x01\x05", "CONNACK code=5 session_present=1"),
        (mqtt.publish_packet("a", b"hello"), "PUBLISH 'a' qos=0 retain=0 dup=0 bytes=5 'hel'..."),
        (
            mqtt.publish_packet("a", b"\0", qos=1, packet_id=7, retain=True),
            r"PUBLISH 'a' qos=1 retain=1 dup=0 id=7 bytes=1 '\x00'",
        ),
        (mqtt.subscribe_packet(1, ("a/#", 1), ("b", 0)), "SUBSCRIBE id=1 'a/#':1 'b':0"),
        (mqtt.unsubscribe_packet(2, "a"), "UNSUBSCRIBE id=2 'a'"),
        (b"\x90\x04\0\1\1\x80", "SUBACK id=1 codes=1,128"),
        (mqtt.puback_packet(9), "PUBACK id=9"),
        (b"\xc0\x00", "PINGREQ"),
        (b"\x30\x01\x00", "PUBLISH malformed, 1 bytes"),
    ),
)
def test_a_frame_is_a_line(packet: bytes, text: str) -> None:
    (line,) = PacketFrames().feed(packet, 3)
    assert line.replace("keep_alive=60", "keep_alive=0") == text


@given(st.lists(st.integers(1, 20), max_size=10))
def test_chunks_of_any_size_are_the_same_frames(sizes: list[int]) -> None:
    stream = CONNECT + mqtt.publish_packet("a", b"hello") + mqtt.puback_packet(9)
    whole = PacketFrames().feed(stream, 10)
    frames, found, place = PacketFrames(), [], 0
    for size in [*sizes, len(stream)]:
        found += frames.feed(stream[place : place + size], 10)
        place += size
    assert found == whole
    assert not any("secret" in line for line in found)


@given(st.binary(max_size=60))
def test_no_bytes_raise(data: bytes) -> None:
    PacketFrames().feed(data, 5)
    client_id_of(data)


def test_the_client_of_a_connect_is_known() -> None:
    assert client_id_of(CONNECT) == "c"
    assert client_id_of(CONNECT[:5]) is None
    assert client_id_of(mqtt.puback_packet(1)) is None
