"""The strict client keeps its side of the protocol, and objects when the broker breaks its own."""

import pytest

from tests.crash import codec
from tests.crash.codec import Packet, Parser, Publish
from tests.crash.history import History, Message
from tests.crash.session import WINDOW, Outgoing, StrictSession

FIRST = Packet(codec.CONNACK, 0, b"\0\0")
RESUMED = Packet(codec.CONNACK, 0, b"\1\0")


class Bench:
    """A session and the broker's side of its wire."""

    def __init__(self) -> None:
        self.history = History()
        self.history.subscribe("c", lambda topic: True, 2)
        self.session = StrictSession("c", self.history)
        self.connect(FIRST)

    def connect(self, connack: Packet) -> list[Packet]:
        """A new connection; returns what the session sends on CONNACK."""
        self.session.lost()
        self.session.begin()
        [sent] = self.sent()
        assert sent.kind == codec.CONNECT
        self.session.receive(connack)
        return self.sent()

    def sent(self) -> list[Packet]:
        """What the session has written since the last look."""
        packets = Parser().feed(bytes(self.session.output))
        self.session.output.clear()
        return packets

    def publish(self, number: int, qos: int) -> Message:
        """Let the session publish."""
        message = Message("c", "t", qos, number)
        self.session.publish(
            Outgoing(
                "t",
                message.payload(),
                qos,
                retain=False,
                on_sent=lambda: self.history.sent(message),
                on_acknowledged=lambda: self.history.acknowledge(message),
            )
        )
        return message

    def acknowledge(self, kind: int, packet_id: int) -> None:
        """The broker acknowledges."""
        [packet] = Parser().feed(codec.acknowledge(kind, packet_id))
        self.session.receive(packet)

    def deliver(self, number: int, qos: int, packet_id: int, *, dup: bool = False) -> None:
        """The broker delivers a message of somebody else."""
        payload = Message("p", "t", qos, number).payload()
        [packet] = Parser().feed(codec.publish(Publish("t", payload, qos, False, dup, packet_id)))
        self.session.receive(packet)

    def delivered(self) -> list[int]:
        """What the application got."""
        return [delivery.message.number for delivery in self.history.deliveries["c"]]


def publishes(packets: list[Packet]) -> list[tuple[int, bool]]:
    """Packet id and DUP of each PUBLISH."""
    found = [codec.parse_publish(p) for p in packets if p.kind == codec.PUBLISH]
    return [(publish.packet_id, publish.dup) for publish in found]


def test_unacknowledged_messages_are_sent_again_in_order() -> None:
    bench = Bench()
    for number in range(4):
        bench.publish(number, qos=1 + number % 2)
    assert publishes(bench.sent()) == [(1, False), (2, False), (3, False), (4, False)]
    bench.acknowledge(codec.PUBACK, 1)
    bench.acknowledge(codec.PUBREC, 2)
    assert bench.sent() == [Packet(codec.PUBREL, 2, b"\0\2")]
    assert list(bench.history.acknowledged) == [Message("c", "t", 1, 0), Message("c", "t", 2, 1)]

    again = bench.connect(RESUMED)
    assert again[0] == Packet(codec.PUBREL, 2, b"\0\2")
    assert publishes(again) == [(3, True), (4, True)]
    assert bench.history.transmissions[Message("c", "t", 1, 2)] == 2
    bench.acknowledge(codec.PUBCOMP, 2)
    bench.publish(4, qos=1)
    bench.publish(5, qos=1)
    assert publishes(bench.sent()) == [(1, False), (2, False)], "lowest free ids first"
    assert bench.session.in_flight == 4
    assert bench.history.objections == []


def test_qos_2_is_handed_over_once() -> None:
    bench = Bench()
    bench.deliver(0, 2, 9)
    assert bench.sent() == [Packet(codec.PUBREC, 0, b"\0\11")]
    bench.connect(RESUMED)
    bench.deliver(0, 2, 9, dup=True)
    assert bench.sent() == [Packet(codec.PUBREC, 0, b"\0\11")]
    assert bench.session.unreleased == 1
    bench.acknowledge(codec.PUBREL, 9)
    assert bench.session.unreleased == 0
    bench.acknowledge(codec.PUBREL, 9)
    assert bench.sent() == [Packet(codec.PUBCOMP, 0, b"\0\11")] * 2
    bench.deliver(1, 2, 9)
    assert bench.delivered() == [0, 1]
    assert bench.history.objections == []


def test_qos_1_is_handed_over_as_often_as_it_comes() -> None:
    bench = Bench()
    bench.deliver(0, 1, 1)
    bench.deliver(0, 1, 1, dup=True)
    assert bench.sent() == [Packet(codec.PUBACK, 0, b"\0\1")] * 2
    assert bench.delivered() == [0, 0]


@pytest.mark.parametrize(
    ("packet", "objection"),
    (
        (Packet(codec.PUBACK, 0, b"\0\1"), "PUBACK for packet id 1"),
        (Packet(codec.PUBREC, 0, b"\0\1"), "PUBREC for packet id 1"),
        (Packet(codec.PUBCOMP, 0, b"\0\1"), "PUBCOMP for packet id 1"),
        (Packet(codec.SUBACK, 0, b"\0\1\0"), "SUBACK for packet id 1"),
        (Packet(codec.CONNACK, 0, b"\0\0"), "CONNACK"),
        (Packet(codec.SUBSCRIBE, 2, b""), "packet of type 8"),
        (Packet(codec.PUBREL, 0, b"\0\1"), "reserved bits"),
        (Packet(codec.PUBLISH, 2, b"\0\1t\0\0"), "packet id 0"),
        (Packet(codec.PUBLISH, 0, b"\0\1tdamaged"), "not a payload"),
        (Packet(codec.PUBLISH, 6, b"\0\1t\0\1"), "malformed"),
    ),
)
def test_unexpected_packets(packet: Packet, objection: str) -> None:
    bench = Bench()
    bench.session.receive(packet)
    assert any(objection in text for text in bench.history.objections), bench.history.objections


def test_lost_session() -> None:
    bench = Bench()
    bench.connect(FIRST)
    assert bench.history.objections == ["c, connection 2: session present False, expected True"]


def test_repetition_without_dup() -> None:
    bench = Bench()
    bench.deliver(0, 2, 9)
    bench.connect(RESUMED)
    bench.deliver(0, 2, 9)
    assert bench.history.objections == ["c, connection 2: packet id 9 sent again without DUP"]


def test_more_repetitions_than_the_window() -> None:
    bench = Bench()
    for number in range(WINDOW):
        bench.deliver(number, 1, 1 + number, dup=True)
    assert bench.history.objections == []
    bench.deliver(WINDOW, 1, 1 + WINDOW, dup=True)
    assert "more than can have been under way" in bench.history.objections[0]


def test_packet_id_used_too_early() -> None:
    bench = Bench()
    bench.deliver(0, 2, 9)
    bench.deliver(1, 2, 9)
    assert "used again before its PUBREL" in bench.history.objections[0]


@pytest.mark.parametrize("chunk", (1, 2, 7, 1000))
def test_parser_takes_any_chunks(chunk: int) -> None:
    publish = Publish("a/b", bytes(300), 2, True, True, 77)
    wire = codec.publish(publish) + codec.pingreq() + codec.acknowledge(codec.PUBREL, 515)
    parser = Parser()
    packets = [
        packet
        for start in range(0, len(wire), chunk)
        for packet in parser.feed(wire[start : start + chunk])
    ]
    assert [packet.kind for packet in packets] == [codec.PUBLISH, codec.PINGREQ, codec.PUBREL]
    assert codec.parse_publish(packets[0]) == publish
    assert packets[2].packet_id == 515
