"""The clients of one test, and the sentences that conformance tests are made of."""

from contextlib import ExitStack
from typing import Unpack

from tests.support import wire as mqtt
from tests.support.byte_streams import TcpStream
from vmq.testing.process import BrokerProcess

SENTINEL = b"sentinel"

# UTF-8 that no text field may hold [MQTT-1.5.3-1, MQTT-1.5.3-2].
ILL_FORMED = {
    "overlong-2": b"\xc0\xaf",
    "overlong-nul": b"\xc0\x80",
    "overlong-3": b"\xe0\x80\xaf",
    "overlong-4": b"\xf0\x80\x80\xaf",
    "surrogate-first": b"\xed\xa0\x80",
    "surrogate-last": b"\xed\xbf\xbf",
    "surrogate-pair": b"\xed\xa0\xbd\xed\xb8\x80",
    "cut-2": b"\xc3",
    "cut-3": b"\xe2\x82",
    "cut-4": b"\xf0\x9f\x98",
    "lone-continuation": b"\x80",
    "beyond-10ffff": b"\xf4\x90\x80\x80",
    "five-bytes": b"\xf8\x88\x80\x80\x80",
    "byte-ff": b"\xff",
    "nul": b"\x00",
}

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


class Peers:
    """Clients at one broker. All end with the test.

    `name` is unique at the broker: client ids begin with it and topics stand below it, so that
    tests that share a broker do not meet.
    """

    def __init__(self, broker: BrokerProcess, name: str, stack: ExitStack) -> None:
        self.broker = broker
        self.name = name
        self._stack = stack
        self._count = 0

    def id(self, part: str = "") -> str:
        """A client id; the same part gives the same id, no part a new one."""
        if not part:
            self._count += 1
            part = str(self._count)
        return f"{self.name}{part}"

    def topic(self, part: str) -> str:
        """A topic name or filter below this test's own level."""
        return f"{self.name}/{part}"

    # --- clients

    def raw(self, source: str | None = None) -> mqtt.Wire:
        """A TCP connection on which nothing was sent yet, from a local address if one is given."""
        return self._stack.enter_context(mqtt.Wire(TcpStream(self.broker.tcp, source=source)))

    def client(self, part: str = "", **fields: Unpack[mqtt.ConnectFields]) -> mqtt.Wire:
        """An accepted client, whose CONNECT has these fields."""
        wire = self.raw()
        wire.connect(self.id(part), **fields)
        return wire

    def subscriber(
        self, *pairs: tuple[mqtt.Text, int], part: str = "", clean: bool = True
    ) -> mqtt.Wire:
        """An accepted client whose subscriptions were all granted as asked."""
        wire = self.client(part, clean=clean)
        assert wire.subscribe(*pairs).codes == [qos for _, qos in pairs]
        return wire

    def watcher(self, qos: int = 0) -> mqtt.Wire:
        """A subscriber to all topics of this test."""
        return self.subscriber((self.topic("#"), qos))

    def resume(self, part: str) -> mqtt.Wire:
        """Come back to a stored session, which must still be there."""
        wire = self.raw()
        assert wire.connect(self.id(part), clean=False).session_present == 1
        return wire

    # --- deeds

    def publish(
        self, topic: mqtt.Text, payload: bytes = b"", *, qos: int = 0, retain: bool = False
    ) -> None:
        """Publish by a client of its own, which then leaves; on return the broker has it."""
        wire = self.client()
        wire.publish(topic, payload, qos=qos, retain=retain)
        wire.disconnect()

    def settle(self, part: str, *, clean: bool = True) -> None:
        """Connect once more under an id and leave.

        Whatever the end of that id's last connection brings about has happened then.
        """
        wire = self.client(part, clean=clean)
        wire.disconnect()

    # --- judgements

    def refuses(self, *data: bytes) -> None:
        """The broker closes a new connection that sends this, without a byte of its own."""
        wire = self.raw()
        wire.ended_by(*data)

    def closes(self, *data: bytes) -> None:
        """The broker closes an accepted client that sends this, without answering it."""
        wire = self.client()
        wire.ended_by(*data)
        wire.close()

    def closes_for_topic(self, topic: mqtt.Text) -> None:
        """The broker closes a client that publishes on this topic, at each QoS."""
        for qos, number in ((0, None), (1, 1), (2, 1)):
            self.closes(mqtt.publish_packet(topic, b"x", qos=qos, packet_id=number))
            self.closes(mqtt.publish_packet(topic, b"x", qos=qos, packet_id=number, retain=True))

    def closes_for_filter(self, name: mqtt.Text) -> None:
        """The broker closes a client that names this filter, alone or behind a good one."""
        for before in ([], [self.topic("a")]):
            self.closes(mqtt.unsubscribe_packet(1, *before, name))
            self.closes(mqtt.subscribe_packet(1, *((each, 0) for each in (*before, name))))

    def answers(self, connect: bytes, connack: bytes) -> None:
        """The broker answers a CONNECT with these bytes and closes."""
        wire = self.raw()
        wire.ask(connect, connack)
        wire.expect_closed()

    def expect_no_more(self, subscriber: mqtt.Wire, topic: mqtt.Text | None = None) -> None:
        """Nothing was sent to this subscriber: a message published only now comes first.

        The message goes to `topic`, by default one that `watcher` sees.
        """
        target = self.topic("sentinel") if topic is None else topic
        self.publish(target, SENTINEL)
        subscriber.expect_publish(target, SENTINEL)

    def expect_none_retained(self, name: str) -> None:
        """A new subscriber to this filter gets no retained message."""
        wire = self.subscriber((name, 2))
        wire.expect_nothing()
        wire.disconnect()

    def expect_retained(self, name: str, topic: mqtt.Text, payload: bytes, qos: int) -> None:
        """A new subscriber to this filter gets one retained message, this one."""
        wire = self.subscriber((name, 2))
        found = wire.expect_publish(topic, payload, qos=qos, retain=True, dup=False)
        wire.acknowledge(found)
        wire.expect_nothing()
        wire.disconnect()

    def expect_will_once(self, watcher: mqtt.Wire, part: str, will: mqtt.Will) -> None:
        """The will of the client `part`, whose connection has ended, comes, and once only."""
        found = watcher.expect_publish(will.topic, will.payload, retain=False, dup=False)
        watcher.acknowledge(found)
        self.settle(part)
        self.expect_no_more(watcher)

    def expect_no_will(self, watcher: mqtt.Wire, part: str) -> None:
        """The end of the last connection of client `part` published nothing."""
        self.settle(part)
        self.expect_no_more(watcher)
