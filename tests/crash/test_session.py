"""The strict client objects when the broker breaks its side of the protocol. (That it keeps its own: the runs.)"""

import pytest

from tests.crash.history import History, Message
from tests.crash.session import WINDOW, StrictSession
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

    def connect(self, connack: Packet) -> None:
        self.session.lost()
        self.session.begin()
        self.session.receive(connack)

    def receive(self, data: bytes) -> None:
        [packet] = split_packets(bytearray(data))
        self.session.receive(packet)

    def deliver(self, number: int, qos: int, packet_id: int, *, dup: bool = False) -> None:
        """The broker delivers a message of somebody else."""
        payload = Message("p", "t", qos, number).payload()
        self.receive(mqtt.publish_packet("t", payload, qos=qos, packet_id=packet_id, dup=dup))


@pytest.fixture
def bench() -> Bench:
    return Bench()


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
def test_unexpected_packets(packet: Packet, objection: str, bench: Bench) -> None:
    bench.session.receive(packet)
    assert any(objection in text for text in bench.history.objections), bench.history.objections


def test_lost_session(bench: Bench) -> None:
    bench.connect(FIRST)
    assert bench.history.objections == ["c, connection 2: session present False, expected True"]


def test_repetition_without_dup(bench: Bench) -> None:
    bench.deliver(0, 2, 9)
    bench.connect(RESUMED)
    bench.deliver(0, 2, 9)
    assert bench.history.objections == ["c, connection 2: packet id 9 sent again without DUP"]


def test_more_repetitions_than_the_window(bench: Bench) -> None:
    for number in range(WINDOW):
        bench.deliver(number, 1, 1 + number, dup=True)
    assert bench.history.objections == []
    bench.deliver(WINDOW, 1, 1 + WINDOW, dup=True)
    assert "more than can have been under way" in bench.history.objections[0]


def test_packet_id_used_too_early(bench: Bench) -> None:
    bench.deliver(0, 2, 9)
    bench.deliver(1, 2, 9)
    assert "used again before its PUBREL" in bench.history.objections[0]
