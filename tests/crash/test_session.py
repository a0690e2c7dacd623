"""The strict client keeps its side of the protocol, and objects when the broker breaks its own."""

import pytest

from tests.crash.history import History, Message
from tests.crash.session import WINDOW, Outgoing, StrictSession
from tests.support import wire as mqtt
from tests.support.wire import Packet, split_packets

FIRST = Packet(0x20, b"\0\0")
RESUMED = Packet(0x20, b"\1\0")


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
        assert sent.type == mqtt.CONNECT
        self.session.receive(connack)
        return self.sent()

    def sent(self) -> list[Packet]:
        """What the session has written since the last look."""
        return list(split_packets(self.session.output))

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

    def receive(self, data: bytes) -> None:
        """The broker says something."""
        [packet] = split_packets(bytearray(data))
        self.session.receive(packet)

    def deliver(self, number: int, qos: int, packet_id: int, *, dup: bool = False) -> None:
        """The broker delivers a message of somebody else."""
        payload = Message("p", "t", qos, number).payload()
        self.receive(mqtt.publish_packet("t", payload, qos=qos, packet_id=packet_id, dup=dup))

    def delivered(self) -> list[int]:
        """What the application got."""
        return [delivery.message.number for delivery in self.history.deliveries["c"]]


def publishes(packets: list[Packet]) -> list[tuple[int, bool]]:
    """Packet id and DUP of each PUBLISH."""
    return [(each.packet_id, each.dup) for each in packets if each.type == mqtt.PUBLISH]


def test_unacknowledged_messages_are_sent_again_in_order() -> None:
    bench = Bench()
    for number in range(4):
        bench.publish(number, qos=1 + number % 2)
    assert publishes(bench.sent()) == [(1, False), (2, False), (3, False), (4, False)]
    bench.receive(mqtt.puback_packet(1))
    bench.receive(mqtt.pubrec_packet(2))
    assert bench.sent() == [Packet(mqtt.PUBREL << 4 | 2, b"\0\2")]
    assert list(bench.history.acknowledged) == [Message("c", "t", 1, 0), Message("c", "t", 2, 1)]

    again = bench.connect(RESUMED)
    assert again[0] == Packet(mqtt.PUBREL << 4 | 2, b"\0\2")
    assert publishes(again) == [(3, True), (4, True)]
    assert bench.history.transmissions[Message("c", "t", 1, 2)] == 2
    bench.receive(mqtt.pubcomp_packet(2))
    bench.publish(4, qos=1)
    bench.publish(5, qos=1)
    assert publishes(bench.sent()) == [(1, False), (2, False)], "lowest free ids first"
    assert bench.session.in_flight == 4
    assert bench.history.objections == []


def test_qos_2_is_handed_over_once() -> None:
    bench = Bench()
    bench.deliver(0, 2, 9)
    assert bench.sent() == [Packet(mqtt.PUBREC << 4, b"\0\11")]
    bench.connect(RESUMED)
    bench.deliver(0, 2, 9, dup=True)
    assert bench.sent() == [Packet(mqtt.PUBREC << 4, b"\0\11")]
    assert bench.session.unreleased == 1
    bench.receive(mqtt.pubrel_packet(9))
    assert bench.session.unreleased == 0
    bench.receive(mqtt.pubrel_packet(9))
    assert bench.sent() == [Packet(mqtt.PUBCOMP << 4, b"\0\11")] * 2
    bench.deliver(1, 2, 9)
    assert bench.delivered() == [0, 1]
    assert bench.history.objections == []


def test_qos_1_is_handed_over_as_often_as_it_comes() -> None:
    bench = Bench()
    bench.deliver(0, 1, 1)
    bench.deliver(0, 1, 1, dup=True)
    assert bench.sent() == [Packet(mqtt.PUBACK << 4, b"\0\1")] * 2
    assert bench.delivered() == [0, 0]


@pytest.mark.parametrize(
    ("packet", "objection"),
    (
        (Packet(mqtt.PUBACK << 4, b"\0\1"), "PUBACK for packet id 1"),
        (Packet(mqtt.PUBREC << 4, b"\0\1"), "PUBREC for packet id 1"),
        (Packet(mqtt.PUBCOMP << 4, b"\0\1"), "PUBCOMP for packet id 1"),
        (Packet(mqtt.SUBACK << 4, b"\0\1\0"), "SUBACK for packet id 1"),
        (Packet(mqtt.CONNACK << 4, b"\0\0"), "CONNACK"),
        (Packet(mqtt.SUBSCRIBE << 4 | 2, b""), "packet of type 8"),
        (Packet(mqtt.PUBREL << 4, b"\0\1"), "reserved bits"),
        (Packet(mqtt.PUBLISH << 4 | 2, b"\0\1t\0\0"), "packet id 0"),
        (Packet(mqtt.PUBLISH << 4, b"\0\1tdamaged"), "not a payload"),
        (Packet(mqtt.PUBLISH << 4 | 6, b"\0\1t\0\1"), "malformed"),
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
