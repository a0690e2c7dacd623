"""Shared subscriptions, `$share/group/filter`, for clients of 3.1.1."""

from collections import Counter

import pytest

from tests.conformance.peers import Peers
from tests.support import wire as mqtt


def share(peers: Peers, part: str, group: str = "g") -> str:
    """A shared filter below the test's own level, in a group of its own."""
    return f"$share/{peers.name}{group}/{peers.topic(part)}"


def gather(wire: mqtt.Wire) -> list[mqtt.Packet]:
    """What came for this client so far, completely acknowledged."""
    found: list[mqtt.Packet] = []
    wire.send(mqtt.PINGREQ_BYTES)
    pings, releases = 1, 0
    while pings or releases:
        received = wire.recv_packet()
        if received.raw == mqtt.PINGRESP_BYTES:
            pings -= 1
        elif received.type == mqtt.PUBREL:
            # What waited behind a full window comes before the answer to the PINGREQ.
            wire.send(mqtt.pubcomp_packet(received.packet_id), mqtt.PINGREQ_BYTES)
            releases -= 1
            pings += 1
        else:
            found.append(received)
            if received.qos == 1:
                wire.send(mqtt.puback_packet(received.packet_id), mqtt.PINGREQ_BYTES)
                pings += 1
            elif received.qos == 2:
                wire.pubrec(received.packet_id)
                releases += 1
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_expected_share_one_member_each(peers: Peers, publisher: mqtt.Wire, qos: int) -> None:
    """Each message goes to exactly one member; over many messages every member gets some."""
    members = [peers.subscriber((share(peers, "a/+"), qos)) for _ in range(3)]
    for number in range(90):
        publisher.publish(peers.topic("a/b"), b"%d" % number, qos=qos)
    found = [gather(member) for member in members]
    numbers = Counter(int(got.payload) for part in found for got in part)
    assert numbers == Counter(range(90))
    assert all(found), "a member got nothing"
    for part in found:
        received = [int(got.payload) for got in part]
        assert received == sorted(received)
        assert {(got.qos, got.dup, got.retain, got.topic) for got in part} == {
            (qos, False, False, peers.topic("a/b"))
        }


def test_expected_share_beside_others(peers: Peers, publisher: mqtt.Wire) -> None:
    """Ordinary subscribers get every message, and so does each group as a whole."""
    plain = peers.subscriber((peers.topic("a"), 1))
    groups = [
        [peers.subscriber((share(peers, name, group), 1)) for _ in range(2)]
        for group, name in (("g", "a"), ("h", "a"), ("i", "+"))
    ]
    for number in range(20):
        publisher.publish(peers.topic("a"), b"%d" % number, qos=1)
    assert len(gather(plain)) == 20
    for members in groups:
        numbers = [int(got.payload) for member in members for got in gather(member)]
        assert sorted(numbers) == list(range(20))


def test_expected_share_same_name_other_filter(peers: Peers) -> None:
    """Group name and filter together make a group: another filter is another group."""
    one = peers.subscriber((share(peers, "a"), 0))
    two = peers.subscriber((share(peers, "+"), 0))
    peers.publish(peers.topic("a"), b"x")
    one.expect_publish(peers.topic("a"), b"x")
    two.expect_publish(peers.topic("a"), b"x")


@pytest.mark.parametrize(("published", "granted"), [(2, 0), (1, 2), (2, 1), (0, 2)])
def test_expected_share_lower_qos(peers: Peers, published: int, granted: int) -> None:
    """A member gets messages at the lower of the published and its granted QoS."""
    member = peers.client()
    assert member.subscribe((share(peers, "a"), granted)).codes == [granted]
    peers.publish(peers.topic("a"), b"x", qos=published)
    member.expect_publish(peers.topic("a"), b"x", qos=min(published, granted))


def test_expected_share_unsubscribe(peers: Peers) -> None:
    """Who unsubscribes leaves the group: the others get everything; then nobody does."""
    name = share(peers, "a")
    one, two = (peers.subscriber((name, 0), (peers.topic("sentinel"), 0)) for _ in range(2))
    one.unsubscribe(name)
    publisher = peers.client()
    for number in range(10):
        publisher.publish(peers.topic("a"), b"%d" % number)
        two.expect_publish(peers.topic("a"), b"%d" % number)
    two.unsubscribe(name)
    publisher.publish(peers.topic("a"), b"x")
    publisher.publish(peers.topic("sentinel"), b"last")
    for wire in (one, two):
        wire.expect_publish(peers.topic("sentinel"), b"last")


def test_expected_share_is_no_plain_subscription(peers: Peers) -> None:
    """A shared and a plain subscription to one filter come and go independently."""
    name, topic = share(peers, "a"), peers.topic("a")
    wire = peers.subscriber((name, 0), (topic, 0))
    wire.unsubscribe(name)
    peers.publish(topic, b"plain")
    wire.expect_publish(topic, b"plain")
    wire.expect_nothing()
    wire.subscribe((name, 0))
    wire.unsubscribe(topic)
    peers.publish(topic, b"shared")
    wire.expect_publish(topic, b"shared")
    wire.expect_nothing()


@pytest.mark.parametrize("qos", [1, 2])
def test_expected_share_redelivery(peers: Peers, publisher: mqtt.Wire, qos: int) -> None:
    """What a member holds unacknowledged when it dies goes to another member.

    There is more than its window holds, so that some of it waited in its queue.
    """
    name, topic = share(peers, "a"), peers.topic("a")
    dying = peers.subscriber((name, qos), part="dying")
    for number in range(40):
        publisher.publish(topic, b"%d" % number, qos=qos)
    held = dying.expect_publish(topic, b"0", qos=qos)
    heir = peers.subscriber((name, qos))
    if qos == 1:
        dying.puback(held.packet_id)
        dying.ping()
    dying.close()
    peers.settle("dying")
    numbers = [int(got.payload) for got in gather(heir)]
    assert numbers == list(range(1 if qos == 1 else 0, 40))


def test_expected_share_redelivery_of_the_absent(peers: Peers, publisher: mqtt.Wire) -> None:
    """A durable member that leaves hands on what it holds too, but for QoS 2 that was sent.

    That it may own already: it gets it again when it comes back, and no other member does.
    """
    name, topic = share(peers, "a"), peers.topic("a")
    leaving = peers.subscriber((name, 2), part="s", clean=False)
    for number in range(40):
        publisher.publish(topic, b"%d" % number, qos=1 + number % 2)
    sent = [leaving.expect_publish(topic, b"%d" % number) for number in range(20)]
    heir = peers.subscriber((name, 2))
    leaving.close()
    peers.settle("s", clean=False)
    numbers = [int(got.payload) for got in gather(heir)]
    assert numbers == [number for number in range(40) if number % 2 == 0 or number >= 20]
    again = peers.resume("s")
    for held in sent[1::2]:
        assert again.expect_publish(topic, held.payload, qos=2, dup=True) == mqtt.Packet(
            held.first | 8, held.body
        )
    again.expect_nothing()


def test_expected_share_only_member_resumes(peers: Peers, publisher: mqtt.Wire) -> None:
    """What the only member holds when it leaves is repeated to it as MQTT-4.4.0-1 has it."""
    name, topic = share(peers, "a"), peers.topic("a")
    wire = peers.subscriber((name, 2), part="s", clean=False)
    for number in range(30):
        publisher.publish(topic, b"%d" % number, qos=1 + number % 2)
    sent = [wire.expect_publish(topic, b"%d" % number) for number in range(20)]
    wire.close()
    again = peers.resume("s")
    for held in sent:
        repeat = again.expect_publish(topic, held.payload, qos=held.qos, dup=True)
        assert repeat.packet_id == held.packet_id
        again.acknowledge(repeat)
    assert [int(got.payload) for got in gather(again)] == list(range(20, 30))


def test_expected_share_no_retained(peers: Peers) -> None:
    """A new member gets no retained messages: they were not published to the group."""
    peers.publish(peers.topic("a"), b"kept", qos=1, retain=True)
    peers.expect_none_retained(share(peers, "a"))


def test_expected_share_hides_dollar_topics(peers: Peers) -> None:
    """In a shared filter too a leading wildcard does not match topics that start with $."""
    member = peers.subscriber((f"$share/{peers.name}/+/{peers.name}", 0))
    peers.publish(f"$x/{peers.name}", b"hidden")
    peers.expect_no_more(member, f"x/{peers.name}")


@pytest.mark.parametrize("rest", ["g", "g/", "/a", "+/a", "#", "g+/a", "g#/a", "g/a#", "g/a+/b"])
def test_expected_share_bad_names(peers: Peers, rest: str) -> None:
    """A share without group or filter, or with an ill-formed one: our choice is to close."""
    peers.closes_for_filter(f"$share/{rest}")
