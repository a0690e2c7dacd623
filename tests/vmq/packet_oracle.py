"""What a broker does with a client's packets, one after the other: a naive reading of the standard, with no tables."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support import wire as mqtt

#: The topic, and the filter, whose verdicts come later.
LATER = "later"
LATER_FILTER = "in/later"

SERVER_ONLY = (0, 2, 9, 11, 13, 15)


def numbered(first: int, packet_id: int, rest: bytes = b"") -> bytes:
    return mqtt.packet(first, packet_id.to_bytes(2, "big") + rest)


@dataclass
class Kept:
    """What of the session outlives the connection: the client keeps its client id and clean session 0."""

    exists: bool = False
    filters: dict[str, int] = field(default_factory=dict)
    #: The packet that is due for each message in flight to the client, with payload and QoS.
    due: dict[int, tuple[str, bytes, int]] = field(default_factory=dict)
    received: set[int] = field(default_factory=set)


class Oracle:
    """One connection. `take` takes a packet, `verdict` what was asked for."""

    def __init__(self, kept: Kept, level: int, login_later: bool, claim_later: bool) -> None:
        self.kept = kept
        self.level = level
        self.login_later = login_later
        self.claim_later = claim_later
        self.where = "awaiting CONNECT"
        #: The statement that the client broke, if it did.
        self.broken = ""
        self.unread: list[bytes] = []
        self.go_on: Callable[[bool], None] | None = None
        #: What the client is sent besides PUBLISH, and those: payload, QoS, DUP.
        self.answers: list[bytes] = []
        self.sent: list[tuple[bytes, int, bool]] = []
        #: What others see: topic and payload.
        self.seen: list[tuple[str, bytes]] = []

    def is_over(self) -> bool:
        return self.where in ("disconnected", "refused", "broken", "closing")

    def wait(self, where: str, go_on: Callable[[bool], None]) -> None:
        self.where = where
        self.go_on = go_on

    def verdict(self, is_good: bool) -> None:
        """What was asked for is answered; then what came meanwhile is handled."""
        go_on, self.go_on = self.go_on, None
        assert go_on is not None
        if self.where == "waiting":
            self.where = "online"
        go_on(is_good)
        while self.where == "online" and self.unread:
            self.take(self.unread.pop(0))

    def end(self, where: str, broken: str = "") -> None:
        had_session = self.where in ("online", "waiting", "opening")
        if had_session and self.where != "opening" and where != "disconnected":
            self.seen.append(("will", b"will"))
        self.where = where
        self.broken = broken
        self.go_on = None

    def lose(self) -> None:
        """The transport is gone."""
        if not self.is_over():
            self.end("closing")

    def take(self, data: bytes) -> None:
        """A packet comes."""
        kind, flags, body = data[0] >> 4, data[0] & 15, data[2:]
        if self.is_over():
            return
        if self.go_on is not None:
            self.unread.append(data)
        elif self.where == "awaiting CONNECT":
            if kind != 1:
                self.end("broken", "MQTT-3.1.0-1")
            elif flags and self.level == 4:
                self.end("broken", "MQTT-2.2.2-2")
            else:
                self.connect()
        elif kind == 1:
            self.end("broken", "MQTT-3.1.0-2")
        elif kind in SERVER_ONLY:
            self.end("broken", "MQTT-4.8.0-1")
        elif kind == 3:
            self.publish(flags, body)
        elif self.level == 4 and flags != (2 if kind in (6, 8, 10) else 0):
            own = {6: "MQTT-3.6.1-1", 8: "MQTT-3.8.1-1", 10: "MQTT-3.10.1-1", 14: "MQTT-3.14.1-1"}
            self.end("broken", own.get(kind, "MQTT-2.2.2-2"))
        elif kind in (4, 5, 7):
            self.acknowledge(kind, int.from_bytes(body, "big"))
        elif kind == 6:
            packet_id = int.from_bytes(body, "big")
            self.kept.received.discard(packet_id)
            self.answers.append(mqtt.pubcomp_packet(packet_id))
        elif kind in (8, 10):
            self.request(kind, body)
        elif kind == 12:
            self.answers.append(mqtt.packet(mqtt.PINGRESP << 4))
        else:
            assert kind == 14
            self.end("disconnected")

    # CONNECT

    def connect(self) -> None:
        if self.login_later:
            self.wait("authenticating", self.logged_in)
        else:
            self.logged_in(True)

    def logged_in(self, is_good: bool) -> None:
        if not is_good:
            self.refuse(5)
        elif self.claim_later:
            self.wait("taking over", self.taken_over)
        else:
            self.taken_over(True)

    def taken_over(self, is_good: bool) -> None:
        if not is_good:
            self.refuse(3)
        elif self.kept.exists and LATER_FILTER in self.kept.filters:
            self.wait("opening", self.opened)
        else:
            self.opened(True)

    def opened(self, is_good: bool) -> None:
        if not is_good:
            self.refuse(3)
            return
        present = self.kept.exists and self.level == 4
        self.kept.exists = True
        self.where = "online"
        self.answers.append(bytes([0x20, 2, 1 if present else 0, 0]))
        for packet_id, (due, payload, qos) in self.kept.due.items():
            if due == "PUBCOMP":
                self.answers.append(mqtt.pubrel_packet(packet_id))
            else:
                self.sent.append((payload, qos, True))

    def refuse(self, code: int) -> None:
        self.answers.append(bytes([0x20, 2, 0, code]))
        self.end("refused")

    # PUBLISH to the broker

    def publish(self, flags: int, body: bytes) -> None:
        qos = flags >> 1 & 3
        if qos == 3:
            self.end("broken", "MQTT-3.3.1-4")
            return
        if qos == 0 and flags & 8 and self.level == 4:
            self.end("broken", "MQTT-3.3.1-2")
            return
        length = int.from_bytes(body[:2], "big")
        topic = body[2 : 2 + length].decode()
        rest = body[2 + length :]
        packet_id = int.from_bytes(rest[:2], "big") if qos else 0
        payload = rest[2:] if qos else rest
        if qos == 2 and packet_id in self.kept.received:
            self.answers.append(mqtt.pubrec_packet(packet_id))
        elif topic == LATER:
            self.wait("waiting", lambda good: self.published(good, topic, payload, qos, packet_id))
        else:
            self.published(True, topic, payload, qos, packet_id)

    def published(
        self, is_good: bool, topic: str, payload: bytes, qos: int, packet_id: int
    ) -> None:
        if not is_good and self.level == 4:
            self.where = "online"
            self.end("closing", "MQTT-3.3.5-2")
            return
        if is_good:
            self.seen.append((topic, payload))
            if qos == 2:
                self.kept.received.add(packet_id)
        if qos == 1:
            self.answers.append(mqtt.puback_packet(packet_id))
        elif qos == 2:
            self.answers.append(mqtt.pubrec_packet(packet_id))

    # SUBSCRIBE and UNSUBSCRIBE, of one filter

    def request(self, kind: int, body: bytes) -> None:
        packet_id = int.from_bytes(body[:2], "big")
        name = body[4 : 4 + int.from_bytes(body[2:4], "big")].decode()
        if kind == 10:
            self.kept.filters.pop(name, None)
            self.answers.append(numbered(0xB0, packet_id))
        elif name == LATER_FILTER:
            self.wait("waiting", lambda good: self.granted(good, packet_id, name, body[-1]))
        else:
            self.granted(True, packet_id, name, body[-1])

    def granted(self, is_good: bool, packet_id: int, name: str, qos: int) -> None:
        if is_good:
            self.kept.filters[name] = qos
        code = qos if is_good or self.level == 3 else 0x80
        self.answers.append(numbered(0x90, packet_id, bytes([code])))

    # Messages to the client

    def deliver(self, payload: bytes, qos: int) -> None:
        """Somebody published to the filter `in`."""
        if "in" in self.kept.filters:
            self.sent.append((payload, min(qos, self.kept.filters["in"]), False))

    def acknowledge(self, kind: int, packet_id: int) -> None:
        name = {4: "PUBACK", 5: "PUBREC", 7: "PUBCOMP"}[kind]
        if packet_id not in self.kept.due:
            if kind == 5:
                self.answers.append(mqtt.pubrel_packet(packet_id))
            return
        due, payload, qos = self.kept.due[packet_id]
        if name == "PUBREC" and due == "PUBCOMP":
            self.answers.append(mqtt.pubrel_packet(packet_id))
        elif name != due:
            self.end("broken", "MQTT-4.8.0-1")
        elif name == "PUBREC":
            del self.kept.due[packet_id]
            self.kept.due[packet_id] = ("PUBCOMP", payload, qos)
            self.answers.append(mqtt.pubrel_packet(packet_id))
        else:
            del self.kept.due[packet_id]


def wished(packet_id: int, name: str, qos: int, first: int) -> bytes:
    """A SUBSCRIBE of one filter."""
    return mqtt.subscribe_packet(packet_id, (name, qos), first=first)
