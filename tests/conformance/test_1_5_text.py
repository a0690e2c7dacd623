"""Section 1.5: text fields."""

import pytest

from tests.conformance.peers import ILL_FORMED, Peers
from tests.support import wire as mqtt


def texts(kind: str) -> list[bytes]:
    """What is no text, alone and at each place of one."""
    bad = ILL_FORMED[kind]
    return [bad, b"ab" + bad, bad + b"ab", b"a/" + bad + b"/b"]


@pytest.mark.parametrize("kind", ILL_FORMED)
def test_mqtt_1_5_3_1_ill_formed_text_in_connect(peers: Peers, kind: str) -> None:
    """Ill-formed UTF-8 or U+0000 in a text field of CONNECT closes the connection without CONNACK."""
    for text in texts(kind):
        peers.refuses(mqtt.connect_packet(text))
        peers.refuses(mqtt.connect_packet("a", username=text))
        peers.refuses(mqtt.connect_packet("a", will=mqtt.Will(text)))
        peers.refuses(mqtt.connect_packet("a", protocol=text))


@pytest.mark.parametrize("kind", ILL_FORMED)
def test_mqtt_1_5_3_1_ill_formed_text(peers: Peers, watcher: mqtt.Wire, kind: str) -> None:
    """Ill-formed UTF-8 or U+0000 in a topic name or filter closes the connection, and nobody receives it."""
    for text in (*texts(kind), peers.topic("").encode() + ILL_FORMED[kind]):
        peers.closes_for_topic(text)
        peers.closes_for_filter(text)
    peers.expect_no_more(watcher)


def test_mqtt_1_5_3_1_well_formed_text(peers: Peers, watcher: mqtt.Wire) -> None:
    """Characters of one to four bytes, on both sides of the surrogates, arrive unchanged."""
    edges = ("\u007e", "\u00a0", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\U00010000", "\U0010fffd")
    for character in edges:
        topic = peers.topic(f"a{character}b")
        peers.publish(topic, b"x")
        watcher.expect_publish(topic, b"x")


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
