"""Topics and filters beyond the numbered statements: levels, characters, $ and overlaps."""

import pytest

from tests.conformance.peers import Peers
from tests.support.wire import PINGREQ_BYTES, Wire, publish_packet, subscribe_packet

# Filter, then names it matches and names it does not, all below the test's own level.
MATCHES = [
    ("sport/#", ["sport", "sport/", "sport/a", "sport/a/b", "sport//"], ["sports", "Sport"]),
    ("sport/+", ["sport/", "sport/a", "sport/ "], ["sport", "sport/a/b", "sport//"]),
    ("+/+", ["/finance", "a/b", "/"], ["finance", "a/b/c", "//"]),
    ("/+", ["/finance", "/"], ["finance", "//", "/a/b"]),
    ("+", ["finance", "a"], ["/finance", "finance/"]),
    ("/#", ["/", "/a", "/a/b", "//"], ["a", "a/"]),
    ("finance", ["finance"], ["/finance", "finance/", "Finance", "FINANCE"]),
    ("+/+/#", ["a/b", "a/b/c", "//"], ["a"]),
    ("a/+/c", ["a/b/c", "a//c"], ["a/c", "a/b/c/d", "a/b/C"]),
    ("a//c", ["a//c"], ["a/c", "a/b/c"]),
    ("+/b/+", ["a/b/c", "/b/"], ["a/b", "a/c/b"]),
]


@pytest.mark.parametrize(("name", "matching", "others"), MATCHES)
def test_expected_matching(peers: Peers, name: str, matching: list[str], others: list[str]) -> None:
    """A filter matches these names and not those, live and among the retained messages."""
    live = peers.subscriber((peers.topic(name), 0))
    publisher = peers.client()
    for topic in others + matching:
        publisher.publish(peers.topic(topic), topic.encode(), retain=True)
    for topic in matching:
        live.expect_publish(peers.topic(topic), topic.encode())
    live.expect_nothing()
    late = peers.subscriber((peers.topic(name), 0))
    found = [late.expect_publish(retain=True).topic for _ in matching]
    assert sorted(found) == sorted(map(peers.topic, matching))
    late.expect_nothing()


def test_expected_slash_alone(peers: Peers) -> None:
    """A topic of a single slash is valid, and so are many empty levels."""
    for topic in ("/", "//", "////"):
        wire = peers.subscriber((topic, 0))
        peers.publish(topic, peers.name.encode())
        wire.expect_publish(topic, peers.name.encode())


def test_expected_control_characters(peers: Peers, watcher: Wire) -> None:
    """U+0001 to U+001F, U+007F to U+009F and non-characters: our choice is to accept them."""
    for character in ("\x01", "\t", "\n", "\x1f", "\x7f", "\x80", "\x9f", "\ufffe", "\uffff"):
        topic = peers.topic(f"a{character}b")
        peers.publish(topic, b"x")
        watcher.expect_publish(topic, b"x")


def test_expected_many_levels(peers: Peers) -> None:
    """The number of levels has no limit but the 65535 bytes: a name of slashes only works."""
    deep = peers.name.encode().ljust(65535, b"/")
    other = deep[:-1] + b"x"
    wires = [peers.subscriber((deep, 1)), peers.subscriber((peers.topic("#"), 1))]
    plus = peers.subscriber((peers.name.encode() + b"/+" * 32000, 1))
    for topic in (deep, other):
        peers.publish(topic, b"x", qos=1, retain=True)
    for topic in (deep, other):
        wires[1].acknowledge(wires[1].expect_publish(topic, b"x"))
    wires[0].acknowledge(wires[0].expect_publish(deep, b"x"))
    wires[0].expect_nothing()
    plus.expect_nothing()
    late = peers.subscriber((peers.topic("#"), 0))
    assert {late.expect_publish(retain=True).topic_bytes for _ in range(2)} == {deep, other}
    for topic in (deep, other):
        peers.publish(topic, b"", qos=1, retain=True)
    wires[0].unsubscribe(deep)
    plus.unsubscribe(peers.name.encode() + b"/+" * 32000)


def test_expected_single_copy_of_overlaps(peers: Peers) -> None:
    """Overlapping filters of one client: our choice is one copy, at the highest QoS."""
    filters = ("a/b", "a/+", "a/#", "+/b", "#", "+/+")
    wire = peers.subscriber(*((peers.topic(name), n % 3) for n, name in enumerate(filters)))
    peers.publish(peers.topic("a/b"), b"x", qos=2)
    wire.acknowledge(wire.expect_publish(peers.topic("a/b"), b"x", qos=2))
    wire.expect_nothing()
    wire.unsubscribe(peers.topic("a/#"), peers.topic("+/+"))
    peers.publish(peers.topic("a/b"), b"y", qos=2)
    wire.expect_publish(peers.topic("a/b"), b"y", qos=1)
    wire.expect_nothing()


def test_expected_dollar_publishes_by_clients(peers: Peers) -> None:
    """What clients publish below $SYS goes to filters that name it; our choice, no refusal."""
    topic = f"$SYS/{peers.name}/x"
    wire = peers.subscriber((f"$SYS/{peers.name}/#", 1), (f"+/{peers.name}/x", 1))
    peers.publish(topic, b"x", qos=1)
    wire.acknowledge(wire.expect_publish(topic, b"x", qos=1))
    wire.expect_nothing()


def test_expected_publish_to_share(peers: Peers) -> None:
    """A topic name that begins with $share/ is ordinary, and no message to that group."""
    topic = f"$share/{peers.name}/a"
    member = peers.subscriber((f"$share/{peers.name}/a", 0), (peers.topic("sentinel"), 0))
    peers.publish(topic, b"x", qos=1, retain=True)
    peers.expect_no_more(member)
    peers.publish(topic, b"", qos=1, retain=True)


def test_expected_retained_may_precede_suback(peers: Peers, topic: str) -> None:
    """Retained messages come once, on whichever side of the SUBACK."""
    peers.publish(topic, b"kept", retain=True)
    wire = peers.client()
    wire.send(subscribe_packet(1, (topic, 0)), PINGREQ_BYTES)
    assert sorted(wire.recv_packet().first for _ in range(3)) == [0x31, 0x90, 0xD0]


def test_expected_order_across_filters(peers: Peers, publisher: Wire) -> None:
    """A publisher's messages on topics of one filter keep their order too: what users expect."""
    wire = peers.subscriber((peers.topic("#"), 1))
    parts = [f"{n % 3}" for n in range(30)]
    publisher.send(
        *(
            publish_packet(peers.topic(part), b"%d" % n, qos=1, packet_id=n + 1)
            for n, part in enumerate(parts)
        )
    )
    for number, part in enumerate(parts):
        wire.acknowledge(wire.expect_publish(peers.topic(part), b"%d" % number))
