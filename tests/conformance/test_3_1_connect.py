"""Section 3.1: CONNECT, its place, its variable header, clean session and keep alive.

Wills are in test_3_1_will.py, the payload in test_3_1_identity.py.
"""

from time import monotonic

import pytest

from tests.conformance.peers import WRONG_TYPES, Peers
from tests.support import wire as mqtt

FIRST_PACKETS = {
    "publish-0": mqtt.publish_packet("a", b"x"),
    "publish-1": mqtt.publish_packet("a", b"x", qos=1, packet_id=1),
    "publish-2": mqtt.publish_packet("a", b"x", qos=2, packet_id=1),
    "puback": mqtt.puback_packet(1),
    "pubrec": mqtt.pubrec_packet(1),
    "pubrel": mqtt.pubrel_packet(1),
    "pubcomp": mqtt.pubcomp_packet(1),
    "subscribe": mqtt.subscribe_packet(1, ("a", 0)),
    "unsubscribe": mqtt.unsubscribe_packet(1, "a"),
    "pingreq": mqtt.PINGREQ_BYTES,
    "disconnect": mqtt.DISCONNECT_BYTES,
    **WRONG_TYPES,
}


@pytest.mark.parametrize("kind", FIRST_PACKETS)
def test_mqtt_3_1_0_1_connect_comes_first(peers: Peers, kind: str) -> None:
    """Any packet but CONNECT as the first closes the connection without one byte sent."""
    peers.refuses(FIRST_PACKETS[kind])
    peers.refuses(FIRST_PACKETS[kind], mqtt.connect_packet(peers.id()))


def test_mqtt_3_1_0_1_publish_first_is_not_delivered(peers: Peers, watcher: mqtt.Wire) -> None:
    """A PUBLISH ahead of CONNECT reaches nobody."""
    peers.refuses(mqtt.publish_packet(peers.topic("a"), b"x"), mqtt.connect_packet(peers.id()))
    peers.expect_no_more(watcher)


@pytest.mark.parametrize("same_segment", [False, True])
def test_mqtt_3_1_0_2_second_connect(peers: Peers, same_segment: bool, watcher: mqtt.Wire) -> None:
    """A second CONNECT ends the connection: no second CONNACK, and the will is published."""
    will = mqtt.Will(peers.topic("will"), b"gone")
    connect = mqtt.connect_packet(peers.id("w"), will=will)
    wire = peers.raw()
    if same_segment:
        wire.send(connect, connect)
        wire.expect(b"\x20\x02\x00\x00")
    else:
        wire.ask(connect, b"\x20\x02\x00\x00")
        wire.send(connect)
    wire.expect_closed()
    peers.expect_will_once(watcher, "w", will)


@pytest.mark.parametrize("level", [0, 1, 2, 3, 6, 99, 0x85, 255])
def test_mqtt_3_1_2_2_unknown_level(peers: Peers, level: int) -> None:
    """Name MQTT with a level that is not served: CONNACK 1, then the end."""
    peers.answers(mqtt.connect_packet(peers.id(), level=level), b"\x20\x02\x00\x01")


@pytest.mark.parametrize("cut", [False, True])
def test_mqtt_3_1_2_5_messages_while_away(peers: Peers, cut: bool) -> None:
    """Messages of the absence arrive on resuming: in order, DUP 0, at their QoS."""
    one, two = peers.topic("1"), peers.topic("2")
    wire = peers.subscriber((one, 1), (two, 2), part="s", clean=False)
    if cut:
        wire.close()
        peers.settle("s", clean=False)
    else:
        wire.disconnect()
    publisher = peers.client()
    for number in range(10):
        publisher.publish(one, b"1-%d" % number, qos=1)
        publisher.publish(two, b"2-%d" % number, qos=2)
    again = peers.resume("s")
    for topic, qos in ((one, 1), (two, 2)) * 10:
        found = again.expect_publish(topic, qos=qos, dup=False, retain=False)
        number = int(found.payload[2:])
        assert found.payload == b"%d-%d" % (qos, number)
        again.acknowledge(found)
    again.expect_nothing()


def test_mqtt_3_1_2_6_clean_session_forgets(peers: Peers, topic: str) -> None:
    """Nothing of a clean session is there afterwards: no session, subscription or message."""
    wire = peers.subscriber((topic, 1), part="s")
    peers.publish(topic, b"unfinished", qos=1)
    wire.expect_publish(topic, b"unfinished")
    wire.disconnect()
    peers.publish(topic, b"missed", qos=1)
    later = peers.raw()
    assert later.connect(peers.id("s"), clean=False).session_present == 0
    peers.publish(topic, b"missed too", qos=1)
    later.expect_nothing()


def test_mqtt_3_1_2_6_clean_session_throws_the_old_away(peers: Peers, topic: str) -> None:
    """Clean session 1 ends the session stored before it, with all that waited in it."""
    peers.subscriber((topic, 1), part="s", clean=False).disconnect()
    peers.publish(topic, b"old", qos=1)
    wire = peers.client("s", clean=True)
    peers.publish(topic, b"new", qos=1)
    wire.expect_nothing()
    wire.disconnect()
    later = peers.raw()
    assert later.connect(peers.id("s"), clean=False).session_present == 0
    later.expect_nothing()


def test_mqtt_3_1_2_7_retained_outlives_the_session(peers: Peers, topic: str) -> None:
    """A retained message is there after the session of its publisher ended."""
    wire = peers.client("p")
    wire.publish(topic, b"kept", qos=1, retain=True)
    wire.disconnect()
    peers.settle("p")
    peers.expect_retained(topic, topic, b"kept", 1)


def test_mqtt_3_1_2_24_silent_client_is_cut_off(peers: Peers, publisher: mqtt.Wire) -> None:
    """A silent client is cut off after one and a half times its keep alive, not before.

    What the server sends to it does not count as a sign of life. The will is published.
    """
    watcher = peers.subscriber((peers.topic("will"), 0), (peers.topic("sentinel"), 0))
    will = mqtt.Will(peers.topic("will"), b"silent")
    silent = peers.client("silent", keep_alive=1, will=will)
    started = monotonic()
    silent.subscribe((peers.topic("news"), 0))
    while True:
        assert monotonic() - started < mqtt.TIMEOUT, "it stays"
        publisher.publish(peers.topic("news"), b"x")
        try:
            while True:
                silent.expect_publish(peers.topic("news"), timeout=0.1)
        except TimeoutError:
            continue
        except mqtt.ConnectionEnded:
            break
    assert monotonic() - started >= 1.45
    peers.expect_will_once(watcher, "silent", will)
