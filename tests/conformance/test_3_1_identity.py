"""Sections 3.1.3 and 3.1.4: the payload of CONNECT, client ids, and what the server does."""

import string

import pytest

from tests.conformance.peers import Peers
from tests.support import wire as mqtt

LETTERS = string.digits + string.ascii_letters


def test_mqtt_3_1_3_1_all_five_fields(peers: Peers, raw: mqtt.Wire, watcher: mqtt.Wire) -> None:
    """A CONNECT with all five payload fields, in their order, is understood."""
    will = mqtt.Will(peers.topic("will"), b"gone")
    raw.connect(peers.id("w"), will=will, username="user", password=b"\x00\xff secret")
    raw.close()
    peers.expect_will_once(watcher, "w", will)


def test_mqtt_3_1_3_2_session_belongs_to_the_id(peers: Peers, topic: str) -> None:
    """A session is found again by its client id from another address, and by no other id."""
    peers.subscriber((topic, 1), part="s", clean=False).disconnect()
    peers.publish(topic, b"waiting", qos=1)
    other = peers.raw()
    assert other.connect(peers.id("S"), clean=False).session_present == 0
    other.expect_nothing()
    again = peers.raw(source="127.0.0.2")
    assert again.connect(peers.id("s"), clean=False).session_present == 1
    again.expect_publish(topic, b"waiting", qos=1)


def test_mqtt_3_1_3_5_allowed_client_ids(peers: Peers) -> None:
    """Client ids of 1 and of 23 letters and digits are accepted, with any of these characters."""
    ids = [*LETTERS, LETTERS[:23], LETTERS[20:43], LETTERS[-23:], "x" * 23]
    for client_id in ids:
        wire = peers.raw()
        assert wire.connect(client_id).raw == b"\x20\x02\x00\x00"
        wire.disconnect()


def test_mqtt_3_1_3_6_empty_ids_are_made_unique(peers: Peers, topic: str) -> None:
    """Clients with empty ids get ids of their own: none drops another, each is served."""
    wires = [peers.raw() for _ in range(3)]
    for wire in wires:
        assert wire.connect("", clean=True).session_present == 0
        wire.subscribe((topic, 0))
    peers.publish(topic, b"x")
    for wire in wires:
        wire.expect_publish(topic, b"x")
        wire.expect_nothing()


def test_mqtt_3_1_3_7_empty_id_needs_clean_session(peers: Peers, watcher: mqtt.Wire) -> None:
    """A client with an empty id and clean session 0 is not served: what it sends is ignored."""
    wire = peers.raw()
    wire.send(mqtt.connect_packet("", clean=False), mqtt.publish_packet(peers.topic("a"), b"x"))
    wire.expect(b"\x20\x02\x00\x02")
    wire.expect_closed()
    peers.expect_no_more(watcher)


def test_mqtt_3_1_3_9_refused_id(peers: Peers) -> None:
    """An id longer than the limit of the configuration (100 bytes): CONNACK 2, then the end."""
    base = peers.id()
    peers.raw().connect(base.ljust(100, "x"))
    for clean in (True, False):
        peers.answers(mqtt.connect_packet(base.ljust(101, "x"), clean=clean), b"\x20\x02\x00\x02")
    peers.answers(mqtt.connect_packet(base.ljust(65535, "x")), b"\x20\x02\x00\x02")


def test_mqtt_3_1_4_1_cut_anywhere(peers: Peers) -> None:
    """A CONNECT whose fields are cut short anywhere is closed without CONNACK."""
    good = mqtt.connect_packet("abc", will=mqtt.Will("w", b"x"), username="u", password="p")
    body = good[2:]
    for length in range(len(body)):
        peers.refuses(mqtt.packet(0x10, body[:length]))


# Fields of a CONNECT that do not go together, by the statement that they break.
ILL_MATCHED: dict[str, list[mqtt.ConnectFields]] = {
    "3.1.2-1": [
        {"protocol": name} for name in ("MQTX", "mqtt", "MQT", "MQTTT", "MQIsdq", "", "HTTP/1.1")
    ],
    "3.1.2-3": [{"flags": 0x01}, {"flags": 0x03}],
    "3.1.2-9": [{"flags": 0x06, "tail": b"\0\1a\0\5gone"[:length]} for length in range(10)],
    "3.1.2-11": [{"flags": 0x02, "tail": b"\0\1a\0\4gone"}],
    "3.1.2-13": [{"flags": 0x02 | bits} for bits in (0x08, 0x10, 0x18, 0x28, 0x30)],
    "3.1.2-15": [{"flags": 0x22}],
    "3.1.2-18": [{"username": "user", "flags": 0x02}],
    "3.1.2-19": [{"flags": 0x82}, {"flags": 0x82, "tail": b"\0\5user"}],
    "3.1.2-20": [{"username": "u", "password": "p", "flags": 0x82}],
    "3.1.2-21": [{"username": "u", "flags": 0xC2, "tail": tail} for tail in (b"", b"\0\2p")],
    "3.1.2-22": [{"password": "secret"}],
    "3.1.4-1": [{"tail": tail} for tail in (b"\0", b"\0\0", b"\0\1x")],
    "4.7.1-1": [{"will": mqtt.Will(topic, b"x")} for topic in ("a/+", "a/#", "+", "#")],
    "4.7.3-1": [{"will": mqtt.Will("", b"x")}],
}


@pytest.mark.parametrize("statement", ILL_MATCHED)
def test_mqtt_3_1_4_1_ill_matched(peers: Peers, statement: str) -> None:
    """A CONNECT whose name, flags and fields do not go together, or that goes on behind them: no CONNACK."""
    for fields in ILL_MATCHED[statement]:
        peers.refuses(mqtt.connect_packet(peers.id(), **fields))


def test_mqtt_3_1_4_2_takeover_again_and_again(peers: Peers, topic: str) -> None:
    """Of many connections under one id the last one stays, and works."""
    older = [peers.client("t") for _ in range(5)]
    last = peers.subscriber((topic, 0), part="t")
    for wire in older:
        wire.expect_closed()
    peers.publish(topic, b"x")
    last.expect_publish(topic, b"x")


@pytest.mark.parametrize("clean", [False, True])
def test_mqtt_3_1_4_3_takeover_and_clean_session(peers: Peers, topic: str, clean: bool) -> None:
    """A takeover with clean session 0 keeps the session, with 1 it drops it."""
    old = peers.subscriber((topic, 1), part="t", clean=False)
    peers.publish(topic, b"unfinished", qos=1)
    identifier = old.expect_publish(topic, b"unfinished").packet_id
    new = peers.raw()
    connack = new.connect(peers.id("t"), clean=clean)
    old.expect_closed()
    assert connack.session_present == (0 if clean else 1)
    if clean:
        peers.publish(topic, b"later", qos=1)
    else:
        repeat = new.expect_publish(topic, b"unfinished", qos=1, dup=True)
        assert repeat.packet_id == identifier
        new.acknowledge(repeat)
    new.expect_nothing()


def test_mqtt_3_1_4_4_one_connack(peers: Peers, raw: mqtt.Wire) -> None:
    """A valid CONNECT is answered by one CONNACK with code 0."""
    raw.ask(mqtt.connect_packet(peers.id()), b"\x20\x02\x00\x00")
    raw.expect_nothing()


@pytest.mark.parametrize(
    "refused",
    [
        mqtt.connect_packet("", clean=False),
        mqtt.connect_packet("x" * 101),
        mqtt.connect_packet("abc", level=6),
        mqtt.connect_packet("abc", flags=0x03),
        mqtt.connect_packet("abc", protocol="MQTX"),
    ],
    ids=["empty id", "long id", "level", "reserved flag", "name"],
)
def test_mqtt_3_1_4_5_nothing_behind_a_refusal(
    peers: Peers, raw: mqtt.Wire, refused: bytes, watcher: mqtt.Wire
) -> None:
    """What stands in the same segment behind a refused CONNECT is ignored."""
    raw.send(
        refused,
        mqtt.subscribe_packet(1, (peers.topic("#"), 0)),
        mqtt.publish_packet(peers.topic("a"), b"x", retain=True),
        mqtt.PINGREQ_BYTES,
        mqtt.connect_packet(peers.id()),
        mqtt.publish_packet(peers.topic("b"), b"x"),
    )
    data = b""
    while chunk := raw.stream.recv(10):
        data += chunk
    assert data in (b"", b"\x20\x02\x00\x01", b"\x20\x02\x00\x02")
    peers.expect_none_retained(peers.topic("a"))
    peers.expect_no_more(watcher)
