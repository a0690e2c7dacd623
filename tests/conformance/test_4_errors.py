"""Section 4.8: errors."""

import resource
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.peers import Peers
from tests.conftest import BrokerFactory
from tests.support.wire import Wire, packet, publish_packet
from vmq.testing.process import BrokerProcess

# Packets that only a server sends, and the two reserved types.
WRONG_TYPES = {
    "type 0": b"\x00\x00",
    "type 0 with a body": b"\x00\x02\x00\x01",
    "type 15": b"\xf0\x00",
    "type 15 with a body": b"\xf0\x02\x00\x01",
    "connack": b"\x20\x02\x00\x00",
    "suback": b"\x90\x03\x00\x01\x00",
    "unsuback": b"\xb0\x02\x00\x01",
    "pingresp": b"\xd0\x00",
}

# Fixed header and body of packets whose length does not fit their fields.
WRONG_LENGTHS = {
    "puback": [(0x40, b""), (0x40, b"\x00"), (0x40, b"\x00\x01\x00")],
    "pubrec": [(0x50, b""), (0x50, b"\x00"), (0x50, b"\x00\x01\x00")],
    "pubrel": [(0x62, b""), (0x62, b"\x00"), (0x62, b"\x00\x01\x00")],
    "pubcomp": [(0x70, b""), (0x70, b"\x00"), (0x70, b"\x00\x01\x00")],
    "subscribe": [(0x82, b""), (0x82, b"\x00"), (0x82, b"\x00\x01\x00\x01a")],
    "unsubscribe": [(0xA2, b""), (0xA2, b"\x00"), (0xA2, b"\x00\x01\x00\x02a")],
    "pingreq": [(0xC0, b"\x00"), (0xC0, b"\x00\x01")],
    "disconnect": [(0xE0, b"\x00"), (0xE0, b"\x00\x01")],
}


@pytest.mark.parametrize("kind", WRONG_TYPES)
def test_mqtt_4_8_0_1_wrong_type(peers: Peers, kind: str) -> None:
    """A reserved packet type, or one that only servers send, closes the connection."""
    peers.closes(WRONG_TYPES[kind])


@pytest.mark.parametrize("kind", WRONG_LENGTHS)
def test_mqtt_4_8_0_1_wrong_length(peers: Peers, kind: str) -> None:
    """A packet whose length does not fit its fields closes the connection."""
    for first, body in WRONG_LENGTHS[kind]:
        peers.closes(packet(first, body))


def test_mqtt_4_8_0_1_only_this_connection(peers: Peers, watcher: Wire) -> None:
    """A violation ends the connection it came on; what came before it counts, others go on."""
    bad = peers.client()
    bad.send(
        publish_packet(peers.topic("a"), b"before"),
        b"\xf0\x00",
        publish_packet(peers.topic("a"), b"behind"),
    )
    bad.expect_closed()
    watcher.expect_publish(peers.topic("a"), b"before")
    peers.expect_no_more(watcher)


def test_mqtt_4_8_0_2_store_cannot_write(
    fresh_broker: BrokerFactory, peers_at: Callable[[BrokerProcess], Peers], tmp_path: Path
) -> None:
    """While the store cannot write, no message for a stored session is acknowledged.

    Its publisher is closed; other clients go on. The operating system refuses the broker any
    growth of a file, which is what a full disk looks like.
    """
    broker = fresh_broker(data_dir=tmp_path)
    peers = peers_at(broker)
    topic = peers.topic("a")
    peers.subscriber((topic, 1), part="s", clean=False).disconnect()
    other = peers.subscriber((peers.topic("b"), 0))
    publisher = peers.client()
    publisher.publish(topic, b"stored", qos=1)
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))
    publisher.ended_by(publish_packet(topic, bytes(1 << 16), qos=1, packet_id=77))
    other.expect_nothing()
    peers.publish(peers.topic("b"), b"live")
    other.expect_publish(peers.topic("b"), b"live")
    resource.prlimit(broker.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
    assert broker.is_running()
