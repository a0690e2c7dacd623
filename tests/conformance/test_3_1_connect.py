"""Section 3.1: CONNECT, its place, its variable header, clean session and keep alive.

Wills are in test_3_1_will.py, the payload in test_3_1_identity.py.
"""

from time import monotonic

import pytest

from tests.conformance.peers import Peers
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
    "connack": b"\x20\x02\x00\x00",
    "suback": b"\x90\x03\x00\x01\x00",
    "unsuback": b"\xb0\x02\x00\x01",
    "pingresp": b"\xd0\x00",
    "type-0": b"\x00\x00",
    "type-15": b"\xf0\x00",
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


@pytest.mark.parametrize("name", ["MQTX", "mqtt", "MQT", "MQTTT", "MQIsdq", "", "HTTP/1.1"])
def test_mqtt_3_1_2_1_unknown_protocol_name(peers: Peers, name: str) -> None:
    """An unknown protocol name closes the connection. Our choice: without CONNACK."""
    peers.refuses(mqtt.connect_packet(peers.id(), protocol=name))


@pytest.mark.parametrize("level", [0, 1, 2, 3, 6, 99, 0x85, 255])
def test_mqtt_3_1_2_2_unknown_level(peers: Peers, level: int) -> None:
    """Name MQTT with a level that is not served: CONNACK 1, then the end."""
    peers.answers(mqtt.connect_packet(peers.id(), level=level), b"\x20\x02\x00\x01")


def test_mqtt_3_1_2_3_reserved_flag(peers: Peers) -> None:
    """CONNECT with the reserved bit set closes the connection without CONNACK."""
    for flags in (0x01, 0x03):
        peers.refuses(mqtt.connect_packet(peers.id(), flags=flags))


def test_mqtt_3_1_2_4_resume(peers: Peers, topic: str) -> None:
    """With clean session 0 subscriptions and unfinished exchanges outlive the connection."""
    wire = peers.subscriber((topic, 1), part="s", clean=False)
    peers.publish(topic, b"unfinished", qos=1)
    identifier = wire.expect_publish(topic, b"unfinished", qos=1, dup=False).packet_id
    wire.close()
    again = peers.resume("s")
    repeat = again.expect_publish(topic, b"unfinished", qos=1, dup=True)
    assert repeat.packet_id == identifier
    again.acknowledge(repeat)
    peers.publish(topic, b"later", qos=1)
    again.expect_publish(topic, b"later", qos=1, dup=False)


def test_mqtt_3_1_2_4_new_session_is_kept(peers: Peers) -> None:
    """With nothing stored clean session 0 creates a session, which is there the next time."""
    wire = peers.client("s", clean=False)
    wire.disconnect()
    peers.resume("s")


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


def test_mqtt_3_1_2_18_surplus_without_user_name_flag(peers: Peers) -> None:
    """User name flag 0 and a user name all the same: closed without CONNACK."""
    peers.refuses(mqtt.connect_packet(peers.id(), username="user", flags=0x02))


def test_mqtt_3_1_2_19_user_name_missing(peers: Peers) -> None:
    """User name flag 1 and no user name: closed without CONNACK."""
    peers.refuses(mqtt.connect_packet(peers.id(), flags=0x82))
    peers.refuses(mqtt.connect_packet(peers.id(), flags=0x82, tail=b"\x00\x05user"))


def test_mqtt_3_1_2_20_surplus_without_password_flag(peers: Peers) -> None:
    """Password flag 0 and a password all the same: closed without CONNACK."""
    peers.refuses(mqtt.connect_packet(peers.id(), username="u", password="p", flags=0x82))


def test_mqtt_3_1_2_21_password_missing(peers: Peers) -> None:
    """Password flag 1 and no password: closed without CONNACK."""
    peers.refuses(mqtt.connect_packet(peers.id(), username="user", flags=0xC2))
    peers.refuses(mqtt.connect_packet(peers.id(), username="user", flags=0xC2, tail=b"\x00\x02p"))


def test_mqtt_3_1_2_22_password_without_user_name(peers: Peers) -> None:
    """Password flag 1 with user name flag 0: closed without CONNACK."""
    peers.refuses(mqtt.connect_packet(peers.id(), password="secret"))


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
