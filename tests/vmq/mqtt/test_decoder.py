"""Bytes to packets: streams in any pieces, runs, hostile bytes, and every rule of each packet."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import wire as mqtt
from tests.vmq.mqtt.strategies import (
    ANY_FILTER,
    PACKET_IDS,
    PAYLOADS,
    QOS,
    TEXT,
    Found,
    cut,
    draw_connect,
    naive_split,
)
from vmq.mqtt import encoder
from vmq.mqtt.decoder import (
    Decoder,
    Reader,
    packet_id_at,
    read_connect,
    read_subscribe,
    read_unsubscribe,
)
from vmq.mqtt.encoder import remaining_length
from vmq.mqtt.packets import Connect, ConnectRefused, ProtocolError

PACKETS = st.builds(mqtt.packet, st.integers(0, 255), PAYLOADS)
#: Streams of few topics, first bytes and sizes, so that packets in a row are often alike.
PUBLISHES = st.builds(
    lambda first, topic, size: mqtt.packet(first, mqtt.encode_text(topic) + b"\x07" * size),
    st.sampled_from([0x30, 0x30, 0x30, 0x31, 0x32]),
    st.sampled_from(["a", "a", "ab", "b"]),
    st.sampled_from([0, 1, 2, 123, 124, 125, 126, 127, 300]),
)
#: The same packets with the remaining length spelt in more bytes than it needs.
STRETCHED = st.builds(
    lambda topic, payload: (
        bytes([0x30, 0x80 | (3 + len(payload)), 0]) + mqtt.encode_text(topic) + payload
    ),
    st.sampled_from(["a", "b"]),
    st.binary(max_size=20),
)
PLACES = st.lists(st.integers(0, 1 << 20), max_size=12)


def pull(decoder: Decoder) -> list[Found]:
    """All whole packets of the chunk that was just fed."""
    found: list[Found] = []
    while decoder.next():
        data = decoder.data
        raw = data[decoder.start : decoder.end]
        found.append(Found(decoder.head, raw, data[decoder.body : decoder.end]))
    return found


def decode(chunks: list[bytes]) -> list[Found]:
    """All whole packets of a stream in these pieces."""
    decoder = Decoder()
    found: list[Found] = []
    for chunk in chunks:
        decoder.feed(chunk)
        found += pull(decoder)
    return found


# --- finding packets in a stream


@given(st.lists(PACKETS, max_size=6), PLACES)
def test_a_stream_gives_the_same_packets_however_it_is_cut(
    packets: list[bytes], places: list[int]
) -> None:
    stream = b"".join(packets)
    whole = decode([stream])
    assert whole == naive_split(stream)[0]
    assert [found.raw for found in whole] == packets
    assert decode(cut(stream, places)) == whole
    if len(stream) < 3000:
        assert decode([stream[i : i + 1] for i in range(len(stream))]) == whole


@given(st.lists(PACKETS, min_size=1, max_size=4), st.integers(0, 1 << 20), PLACES)
def test_the_rest_of_a_cut_packet_is_kept_and_nothing_else(
    packets: list[bytes], at: int, places: list[int]
) -> None:
    stream = b"".join(packets)
    stream = stream[: at % len(stream)]
    decoder = Decoder()
    for chunk in cut(stream, places):
        decoder.feed(chunk)
        pull(decoder)
    assert decoder.waiting_bytes() == len(naive_split(stream)[1])
    assert decoder.data == b""


@given(st.lists(st.one_of(PUBLISHES, STRETCHED), min_size=1, max_size=12), PLACES)
def test_a_run_holds_exactly_the_packets_with_the_same_first_byte_and_topic(
    packets: list[bytes], places: list[int]
) -> None:
    stream = b"".join(packets)
    for chunks in ([stream], cut(stream, places)):
        expected = naive_split(stream)[0]
        decoder = Decoder()
        for chunk in chunks:
            decoder.feed(chunk)
            while decoder.next():
                present = expected[0]
                field = present.body[: 2 + int.from_bytes(present.body[:2])]
                shortest = decoder.is_shortest()
                assert shortest == (present.raw == mqtt.packet(present.head, present.body))
                count = decoder.run(field) if shortest else 1
                run, expected = expected[:count], expected[count:]
                assert decoder.data[decoder.start : decoder.end] == b"".join(
                    each.raw for each in run
                )
                assert all(each.head == present.head for each in run)
                assert all(each.raw == mqtt.packet(each.head, each.body) for each in run[1:])
                assert all(each.body.startswith(field) for each in run)
                if expected and len(chunks) == 1 and shortest:
                    following = expected[0]
                    alike = following.head == present.head and following.body.startswith(field)
                    alike = alike and following.raw == mqtt.packet(following.head, following.body)
                    assert not alike, "a run ended too early"
        assert expected == []


def test_a_run_ends_at_a_packet_above_the_limit() -> None:
    small, large = mqtt.publish_packet("a", b"x"), mqtt.publish_packet("a", b"x" * 50)
    decoder = Decoder(20)
    decoder.feed(small + large)
    assert decoder.next()
    assert decoder.run(mqtt.encode_text("a")) == 1
    with pytest.raises(ProtocolError, match=r"above session\.max_packet_size = 20"):
        decoder.next()


@pytest.mark.parametrize("length", (0, 1, 127, 128, 16_383, 16_384, 2_097_151, 2_097_152))
def test_every_longer_spelling_is_told_from_the_shortest(length: int) -> None:
    spelling = bytearray(remaining_length(length))
    while True:
        decoder = Decoder()
        decoder.feed(b"\x30" + bytes(spelling) + bytes(length))
        assert decoder.next()
        assert decoder.end - decoder.body == length
        assert decoder.is_shortest() == (bytes(spelling) == remaining_length(length))
        if len(spelling) == 4:
            break
        spelling[-1] |= 128
        spelling.append(0)


def test_a_run_leaves_packets_of_16_kib_to_next() -> None:
    large = mqtt.publish_packet("a", b"x" * 20_000)
    decoder = Decoder()
    decoder.feed(large + large)
    assert decoder.next()
    assert decoder.run(mqtt.encode_text("a")) == 1
    assert decoder.next()


def test_a_packet_at_the_limit_passes_and_one_above_is_refused_before_it_arrives() -> None:
    decoder = Decoder(100)
    decoder.feed(mqtt.packet(0x30, b"x" * 98))
    assert decoder.next()
    decoder.feed(mqtt.packet(0x30, b"x" * 99)[:2])
    with pytest.raises(
        ProtocolError, match=r"PUBLISH of 101 bytes is above session\.max_packet_size"
    ):
        decoder.next()


def test_packets_that_are_not_publish_have_a_limit_of_their_own() -> None:
    decoder = Decoder()
    decoder.limit(100, 10)
    decoder.feed(
        mqtt.packet(0x30, b"x" * 98) + mqtt.packet(0x82, b"x" * 8) + mqtt.packet(0x82, b"x" * 9)[:2]
    )
    assert decoder.next()
    assert decoder.next()
    with pytest.raises(
        ProtocolError, match=r"SUBSCRIBE of 11 bytes .*max_control_packet_size = 10"
    ):
        decoder.next()
    assert decoder.waiting_bytes() == 0


def test_the_limit_of_all_packets_binds_the_others_too() -> None:
    decoder = Decoder()
    decoder.limit(10, 100)
    decoder.feed(mqtt.packet(0x82, b"x" * 9)[:2])
    with pytest.raises(ProtocolError, match=r"SUBSCRIBE of 11 bytes .*max_packet_size = 10"):
        decoder.next()


@pytest.mark.parametrize("head", (0x10, 0x30))
def test_before_connect_every_packet_has_the_limit_of_connect(head: int) -> None:
    decoder = Decoder(10)
    decoder.before_connect = True
    decoder.feed(mqtt.packet(head, b"x" * 9)[:2])
    with pytest.raises(ProtocolError, match=r"of 11 bytes is above session\.max_connect_size = 10"):
        decoder.next()


@pytest.mark.parametrize("cut_at", range(1, 6))
def test_a_remaining_length_of_five_bytes_is_refused(cut_at: int) -> None:
    raw = b"\x30\xff\xff\xff\xff\x01"
    decoder = Decoder()
    with pytest.raises(ProtocolError, match="more than 4 bytes"):  # noqa: PT012 - cut anywhere
        for chunk in (raw[:cut_at], raw[cut_at:]):
            decoder.feed(chunk)
            decoder.next()


# --- opening packets


Opener = Callable[[bytes, int, int], Any]
OPENERS: tuple[Opener, ...] = (read_connect, read_subscribe, read_unsubscribe)


@given(st.binary(max_size=80), st.integers(0, 5), st.sampled_from(OPENERS))
def test_opening_random_bytes_raises_a_protocol_error_or_nothing(
    body: bytes, before: int, opener: Opener
) -> None:
    data = b"\xee" * before + body + b"\xee"
    try:
        opener(data, before, before + len(body))
    except ProtocolError as error:
        assert error.statement.startswith("MQTT-")
    except ConnectRefused as refused:
        assert refused.code == 1


@given(st.binary(max_size=12), st.integers(0, 12), st.integers(0, 12))
def test_a_reader_never_reads_beyond_its_end(data: bytes, start: int, end: int) -> None:
    end = min(end, len(data))
    reader = Reader(data, start, end, "PACKET", "MQTT-0.0.0-0")
    taken = b""
    try:
        while not reader.is_at_end():
            field = reader.field()
            taken += mqtt.encode_text(field)
    except ProtocolError as error:
        assert error.statement == "MQTT-0.0.0-0"
    assert data[start:end].startswith(taken)


@given(st.lists(PACKET_IDS, min_size=1, max_size=9), st.integers(1, 9), st.data())
def test_a_run_of_acknowledgements_is_taken_at_once(
    ids: list[int], most: int, data: st.DataObject
) -> None:
    """As many as there are whole ones of the same first byte, spelled the shortest way, or as many as may be."""
    run = b"".join(b"\x40\x02" + each.to_bytes(2) for each in ids)
    tail = data.draw(
        st.sampled_from((b"", b"\x40", b"\x40\x02\0", b"\x50\2\0\1", b"\x40\x82\0\0\1"))
    )
    decoder = Decoder()
    decoder.feed(run + tail)
    assert decoder.next()
    count = decoder.run_of_ids(most)
    assert count == min(most, len(ids))
    assert decoder.data[decoder.start : decoder.end] == run[: 4 * count]
    found = [packet_id_at(run, 4 * place, 4) for place in range(count)]
    assert found == ids[:count]
    assert decoder.position == 4 * count


def test_no_packet_has_the_id_0() -> None:
    with pytest.raises(ProtocolError, match="packet id 0 in PUBACK"):
        packet_id_at(b"\x40\2\0\0", 0, 4)


# --- CONNECT


def open_body(opener: Opener, raw: bytes) -> Any:
    found = naive_split(raw)[0][0]
    return opener(raw, len(raw) - len(found.body), len(raw))


def open_connect(raw: bytes) -> Connect:
    found: Connect = open_body(read_connect, raw)
    return found


@st.composite
def connects(draw: st.DrawFn) -> Connect:
    connect = draw_connect(draw, PAYLOADS)
    connect.level = draw(st.sampled_from([3, 4]))
    connect.bridge = draw(st.booleans())
    connect.client_id = draw(TEXT)
    return connect


def fields_of(connect: Connect) -> dict[str, object]:
    names = (
        *("level", "bridge", "client_id", "clean_session", "keep_alive", "has_will", "will_topic"),
        *("will_payload", "will_qos", "will_retain", "username", "password"),
    )
    return {name: getattr(connect, name) for name in names}


@given(connects())
def test_connect_round_trip(connect: Connect) -> None:
    assert fields_of(open_connect(encoder.connect(connect))) == fields_of(connect)


def test_an_mqtt_3_1_client_may_leave_out_an_announced_login() -> None:
    for flags in (0x82, 0xC2):
        raw = mqtt.connect_packet("c", protocol="MQIsdp", level=3, flags=flags)
        connect = open_connect(raw)
        assert (connect.username, connect.password) == (None, None)
    raw = mqtt.connect_packet(
        "c", protocol="MQIsdp", level=3, flags=0xC2, tail=mqtt.encode_text("me")
    )
    connect = open_connect(raw)
    assert (connect.username, connect.password) == ("me", None)


WILL = mqtt.encode_text("w") + mqtt.encode_text(b"x")

BAD_CONNECTS = (
    # protocol name and level
    (mqtt.connect_packet("c", protocol="MQTX"), "MQTT-3.1.2-1"),
    (mqtt.connect_packet("c", protocol=""), "MQTT-3.1.2-1"),
    (mqtt.connect_packet("c", protocol="mqtt"), "MQTT-3.1.2-1"),
    (mqtt.connect_packet("c", protocol="MQIsdp", level=4), "MQTT-3.1.2-1"),
    # flags
    (mqtt.connect_packet("c", flags=0x03), "MQTT-3.1.2-3"),
    (mqtt.connect_packet("c", flags=0x1E, tail=WILL), "MQTT-3.1.2-14"),
    (mqtt.connect_packet("c", flags=0x0A), "MQTT-3.1.2-13"),
    (mqtt.connect_packet("c", flags=0x12), "MQTT-3.1.2-13"),
    (mqtt.connect_packet("c", flags=0x22), "MQTT-3.1.2-15"),
    (mqtt.connect_packet("c", flags=0x42, tail=mqtt.encode_text("p")), "MQTT-3.1.2-22"),
    # fields that are missing or too many
    (mqtt.packet(0x10, mqtt.encode_text("MQTT")), "MQTT-3.1.4-1"),
    (mqtt.packet(0x10, mqtt.encode_text("MQTT") + b"\4"), "MQTT-3.1.4-1"),
    (mqtt.packet(0x10, mqtt.encode_text("MQTT") + b"\4\2\0"), "MQTT-3.1.4-1"),
    (mqtt.packet(0x10, mqtt.encode_text("MQTT") + b"\4\2\0\0"), "MQTT-3.1.3-3"),
    (mqtt.packet(0x10, mqtt.encode_text("MQTT") + b"\4\2\0\0\0\2c"), "MQTT-3.1.3-3"),
    (mqtt.connect_packet("c", flags=0x06), "MQTT-3.1.2-9"),
    (mqtt.connect_packet("c", flags=0x06, tail=mqtt.encode_text("w")), "MQTT-3.1.2-9"),
    (mqtt.connect_packet("c", flags=0x82), "MQTT-3.1.2-19"),
    (mqtt.connect_packet("c", flags=0xC2, tail=mqtt.encode_text("u")), "MQTT-3.1.2-21"),
    (mqtt.connect_packet("c", tail=b"\0"), "MQTT-3.1.4-1"),
    (mqtt.connect_packet("c", protocol="MQIsdp", level=3, tail=b"\0"), "MQTT-3.1.4-1"),
    # texts
    (mqtt.connect_packet(b"\xc0\x80"), "MQTT-1.5.3-1"),
    (mqtt.connect_packet(b"\xed\xa0\x80"), "MQTT-1.5.3-1"),
    (mqtt.connect_packet(b"a\0"), "MQTT-1.5.3-2"),
    (mqtt.connect_packet("c", username=b"\xff"), "MQTT-1.5.3-1"),
    (mqtt.connect_packet("c", will=mqtt.Will(b"\xff")), "MQTT-1.5.3-1"),
    (mqtt.connect_packet("c", will=mqtt.Will("")), "MQTT-4.7.3-1"),
    (mqtt.connect_packet("c", will=mqtt.Will("a/+")), "MQTT-3.3.2-2"),
)


# --- SUBSCRIBE and UNSUBSCRIBE


@given(PACKET_IDS, st.lists(st.tuples(ANY_FILTER, QOS), min_size=1, max_size=6))
def test_subscribe_round_trip(pid: int, filters: list[tuple[str, int]]) -> None:
    read_id, requests = open_body(read_subscribe, encoder.subscribe(pid, filters))
    assert read_id == pid
    assert [(request.topic_filter, request.qos) for request in requests] == filters


@given(PACKET_IDS, st.lists(ANY_FILTER, min_size=1, max_size=6))
def test_unsubscribe_round_trip(pid: int, filters: list[str]) -> None:
    assert open_body(read_unsubscribe, encoder.unsubscribe(pid, filters)) == (pid, filters)


BAD_SUBSCRIBES = (
    (mqtt.packet(0x82), "MQTT-3.8.3-3"),
    (mqtt.packet(0x82, b"\0"), "MQTT-3.8.3-3"),
    (mqtt.packet(0x82, b"\0\1"), "MQTT-3.8.3-3"),
    (mqtt.subscribe_packet(0, ("a", 0)), "MQTT-2.3.1-1"),
    (mqtt.subscribe_packet(1, ("a", 3)), "MQTT-3.8.3-4"),
    (mqtt.subscribe_packet(1, ("a", 0), ("b", 0x80)), "MQTT-3.8.3-4"),
    (mqtt.subscribe_packet(1, ("", 0)), "MQTT-4.7.3-1"),
    (mqtt.subscribe_packet(1, ("a#", 0)), "MQTT-4.7.1-2"),
    (mqtt.subscribe_packet(1, (b"\xff", 0)), "MQTT-1.5.3-1"),
    (mqtt.packet(0x82, b"\0\1" + mqtt.encode_text("a")), "MQTT-3.8.3-3"),
    (mqtt.packet(0x82, b"\0\1\0\5ab"), "MQTT-3.8.3-3"),
)


BAD_UNSUBSCRIBES = (
    (mqtt.packet(0xA2), "MQTT-3.10.3-2"),
    (mqtt.packet(0xA2, b"\0\1"), "MQTT-3.10.3-2"),
    (mqtt.unsubscribe_packet(0, "a"), "MQTT-2.3.1-1"),
    (mqtt.unsubscribe_packet(1, "a", ""), "MQTT-4.7.3-1"),
    (mqtt.unsubscribe_packet(1, b"\0"), "MQTT-1.5.3-2"),
    (mqtt.packet(0xA2, b"\0\1\0\5ab"), "MQTT-3.10.3-2"),
)


@pytest.mark.parametrize(
    ("opener", "raw", "statement"),
    [
        *((read_connect, *bad) for bad in BAD_CONNECTS),
        *((read_subscribe, *bad) for bad in BAD_SUBSCRIBES),
        *((read_unsubscribe, *bad) for bad in BAD_UNSUBSCRIBES),
    ],
)
def test_a_bad_packet_is_refused_by_the_statement_it_breaks(
    opener: Opener, raw: bytes, statement: str
) -> None:
    with pytest.raises(ProtocolError) as caught:
        open_body(opener, raw)
    assert caught.value.statement == statement
