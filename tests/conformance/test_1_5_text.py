"""Section 1.5: text fields."""

import pytest

from tests.conformance.peers import ILL_FORMED, Peers
from tests.support import wire as mqtt

CONNECT_FIELDS = ("client id", "user name", "will topic", "protocol name")
LATER_FIELDS = ("topic name", "filter to subscribe", "filter to unsubscribe")


def connect_with(field: str, text: bytes) -> bytes:
    """A CONNECT with this text in one of its text fields."""
    if field == "client id":
        return mqtt.connect_packet(text)
    if field == "user name":
        return mqtt.connect_packet("a", username=text)
    if field == "will topic":
        return mqtt.connect_packet("a", will=mqtt.Will(text))
    return mqtt.connect_packet("a", protocol=text)


def packet_with(field: str, text: bytes) -> bytes:
    """A packet of an accepted client with this text in its text field."""
    if field == "topic name":
        return mqtt.publish_packet(text, b"x")
    if field == "filter to subscribe":
        return mqtt.subscribe_packet(1, (text, 0))
    return mqtt.unsubscribe_packet(1, text)


@pytest.mark.parametrize("kind", ILL_FORMED)
@pytest.mark.parametrize("field", CONNECT_FIELDS)
def test_mqtt_1_5_3_1_ill_formed_text_in_connect(peers: Peers, field: str, kind: str) -> None:
    """Ill-formed UTF-8 in a text field of CONNECT closes the connection without CONNACK."""
    for text in (ILL_FORMED[kind], b"ab" + ILL_FORMED[kind] + b"cd", b"ab" + ILL_FORMED[kind]):
        peers.refuses(connect_with(field, text))


@pytest.mark.parametrize("kind", ILL_FORMED)
@pytest.mark.parametrize("field", LATER_FIELDS)
def test_mqtt_1_5_3_1_ill_formed_text_later(peers: Peers, field: str, kind: str) -> None:
    """Ill-formed UTF-8 in a topic name or filter closes the connection unanswered."""
    for text in (ILL_FORMED[kind], b"a/" + ILL_FORMED[kind] + b"/b", b"a/" + ILL_FORMED[kind]):
        peers.closes(packet_with(field, text))


def test_mqtt_1_5_3_1_well_formed_text(peers: Peers, watcher: mqtt.Wire) -> None:
    """Characters of one to four bytes, on both sides of the surrogates, arrive unchanged."""
    edges = ("\u007e", "\u00a0", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\U00010000", "\U0010fffd")
    for character in edges:
        topic = peers.topic(f"a{character}b")
        peers.publish(topic, b"x")
        watcher.expect_publish(topic, b"x")


@pytest.mark.parametrize("field", CONNECT_FIELDS)
def test_mqtt_1_5_3_2_nul_in_connect(peers: Peers, field: str) -> None:
    """U+0000 in a text field of CONNECT closes the connection without CONNACK."""
    for text in (b"\x00", b"ab\x00", b"\x00ab", b"a\x00b"):
        peers.refuses(connect_with(field, text))


@pytest.mark.parametrize("field", LATER_FIELDS)
def test_mqtt_1_5_3_2_nul_later(peers: Peers, field: str) -> None:
    """U+0000 in a topic name or filter closes the connection unanswered."""
    for text in (b"\x00", b"ab\x00", b"\x00ab", b"a\x00b"):
        peers.closes(packet_with(field, text))


def test_mqtt_1_5_3_3_bom_is_a_character(peers: Peers) -> None:
    """Bytes EF BB BF at the start of a topic are a character of it: kept, and matched as one."""
    with_mark = b"\xef\xbb\xbf" + peers.name.encode()
    marked = peers.subscriber((with_mark, 0), (peers.name + "/sentinel", 0))
    plain = peers.subscriber((peers.name, 0), (peers.name + "/sentinel", 0))
    peers.publish(with_mark, b"marked")
    marked.expect_publish(with_mark, b"marked")
    peers.expect_no_more(plain)
    marked.expect_publish(peers.topic("sentinel"))
    peers.publish(peers.name, b"plain")
    plain.expect_publish(peers.name, b"plain")
    peers.expect_no_more(marked)
