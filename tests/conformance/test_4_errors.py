"""Section 4.8: errors."""

import resource
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest

from tests.conformance.peers import WRONG_TYPES, Peers
from tests.conftest import BrokerFactory
from tests.support.wire import Wire, packet, publish_packet
from vmq.testing.process import BrokerProcess

# First bytes of packets, and bodies for them that end too early or too late.
WRONG_LENGTHS = {
    "publish": (b"\x30\x32\x34", (b"", b"\0", b"\0\1", b"\0\5abcd", b"\xff\xffabcd\0\1")),
    "publish without an identifier": (b"\x32\x34", (b"\0\1a", b"\0\1a\1")),
    "acknowledgement": (b"\x40\x50\x62\x70", (b"", b"\0", b"\0\1\0")),
    "subscribe": (b"\x82", (b"", b"\0", b"\0\1", b"\0\1\0", b"\0\1\0\1", b"\0\1\0\1a")),
    "subscribe inside a filter": (b"\x82", (b"\0\1\0\5a\0", b"\0\1\0\1a\0\0")),
    "unsubscribe": (b"\xa2", (b"", b"\0", b"\0\1", b"\0\1\0", b"\0\1\0\1", b"\0\1\0\2a")),
    "unsubscribe inside a filter": (b"\xa2", (b"\0\1\0\1a\0", b"\0\1\0\1a\0\2b")),
    "pingreq and disconnect": (b"\xc0\xe0", (b"\0", b"\0\1")),
}


@pytest.mark.parametrize("kind", WRONG_TYPES)
def test_mqtt_4_8_0_1_wrong_type(peers: Peers, kind: str) -> None:
    """A reserved packet type, or one that only servers send, closes the connection."""
    peers.closes(WRONG_TYPES[kind])


@pytest.mark.parametrize("kind", WRONG_LENGTHS)
def test_mqtt_4_8_0_1_wrong_length(peers: Peers, kind: str) -> None:
    """A packet whose length does not fit its fields closes the connection."""
    firsts, bodies = WRONG_LENGTHS[kind]
    for first, body in product(firsts, bodies):
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
