"""Section 4.7: topic names and filters."""

import pytest

from tests.conformance.peers import Peers
from tests.support import wire as mqtt

MISPLACED = ["a#", "a/#/b", "##", "#/a", "a/#b", "a/b#", "/#/", "+#", "#/"]
MISPLACED += ["a+", "a/+b", "++", "+a", "a/b+/c", "+a/b", "a/+#", "a/++/b"]


@pytest.mark.parametrize("name", MISPLACED)
def test_mqtt_4_7_1_2_misplaced_wildcard(peers: Peers, name: str) -> None:
    """A filter with # elsewhere than as its last level, or + beside another character: our choice is to close."""
    peers.closes_for_filter(name)


@pytest.mark.parametrize("root", ["$SYS", "$x", "$"])
def test_mqtt_4_7_2_1_dollar_topics_are_hidden(peers: Peers, root: str) -> None:
    """Filters that start with # or + get nothing from topics that start with $.

    Filters that name the first level do.
    """
    topic = f"{root}/{peers.name}"
    hidden = peers.subscriber(
        (f"+/{peers.name}", 0), ("+/+", 0), (f"+/{peers.name}/#", 0), (peers.topic("#"), 0)
    )
    everything = peers.subscriber(("#", 0))
    seen = [peers.subscriber((f"{root}/{rest}", 0)) for rest in ("#", "+", peers.name)]
    peers.publish(topic, b"x")
    for wire in seen:
        while wire.expect_publish().topic != topic:
            pass
    for wire in (hidden, everything):
        wire.send(mqtt.publish_packet(peers.topic("sentinel"), b""))
        while (found := wire.expect_publish().topic) != peers.topic("sentinel"):
            assert not found.startswith("$")


def test_mqtt_4_7_2_1_retained_dollar_topics_are_hidden(peers: Peers) -> None:
    """The rule holds for retained messages too."""
    topic = f"$x/{peers.name}"
    peers.publish(topic, b"x", qos=1, retain=True)
    for name in ("#", "+/#", f"+/{peers.name}"):
        wire = peers.client()
        wire.subscribe((name, 0))
        wire.send(b"\xc0\x00")
        while (found := wire.recv_packet()).first != 0xD0:
            assert not found.topic.startswith("$")
        wire.disconnect()
    for name in ("$x/#", f"$x/{peers.name}"):
        peers.expect_retained(name, topic, b"x", 1)
    peers.publish(topic, b"", qos=1, retain=True)


def test_mqtt_4_7_2_1_dollar_elsewhere_is_ordinary(peers: Peers) -> None:
    """A $ in another place than the first hides nothing."""
    wire = peers.subscriber((peers.topic("#"), 0))
    for part in ("$SYS/x", "a/$", "a$"):
        peers.publish(peers.topic(part), b"x")
        wire.expect_publish(peers.topic(part), b"x")


def test_mqtt_4_7_3_1_empty(peers: Peers) -> None:
    """An empty topic name in PUBLISH, an empty filter in SUBSCRIBE or UNSUBSCRIBE: closed."""
    peers.closes_for_topic("")
    peers.closes_for_filter("")


def test_mqtt_4_7_3_4_no_normalisation(peers: Peers) -> None:
    """Characters that look alike but differ in code points make different topics."""
    alike = (
        "\u00e9",
        "e\u0301",
        "\u212b",
        "\u00c5",
        "\ufb01",
        "fi",
        "\uff0b",
        "\uff03",
        "%20",
        " ",
    )
    wires = {text: peers.subscriber((peers.topic(text), 0)) for text in alike}
    for text in wires:
        peers.publish(peers.topic(text), text.encode())
    for text, wire in wires.items():
        wire.expect_publish(peers.topic(text), text.encode())
        wire.expect_nothing()


def test_mqtt_4_7_3_4_bytes_as_published(peers: Peers) -> None:
    """The topic arrives byte by byte as published, through any filter and the retained store."""
    topics = [
        peers.topic(text) for text in ("e\u0301", "\u1e9b\u0323", "A/a//", " /\u3000", "\ufeff")
    ]
    watcher = peers.watcher()
    for topic in topics:
        peers.publish(topic, b"x", qos=1, retain=True)
        watcher.expect_publish(topic, b"x")
        peers.expect_retained(topic, topic, b"x", 1)
