"""The queue of a client whose durable session is in a slot: what its connection is sent comes from the slot's owner.

Messages of QoS 1 and 2 are the slot's business, and so are their packet ids and acknowledgements; of what subscriptions
match here, QoS 0 alone is delivered. What is no session state (`Transient`) has packet ids of its own, above those of
sessions. See `vmq.clustering.slots`.
"""

from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i64

from vmq.core.context import Core
from vmq.core.output import Output
from vmq.core.ports import FrontPort
from vmq.core.queue import Queue
from vmq.core.source import Source
from vmq.core.waiting import TOO_LARGE
from vmq.mqtt.decoder import packet_id_at
from vmq.mqtt.encoder import PACKET_IDS, PUBREL_HEAD, publish, publish_head
from vmq.mqtt.message import NO_MESSAGE, Delivery, Message, Transient
from vmq.mqtt.packets import PUBACK

#: The last packet id of sessions (`vmq.clustering.slots.attachments.PACKETS`).
LAST_OF_SESSION: Final = 32_767


class FrontQueue(Queue):
    """What one connection of a client is sent whose durable session is in a slot. It ends with the connection."""

    def __init__(
        self,
        client_id: str,
        core: Core,
        wake: "Callable[[Queue], None]",
        number: int,
        port: FrontPort,
    ) -> None:
        """`number` is the connection's to the `port`."""
        super().__init__(client_id, core, b"", wake)
        self.number = number
        self.port = port
        #: The packet id of the QoS 2 message that comes of the client now, and whether it is sent again; 0: none.
        self.arriving: int = 0
        self.arrives_again = False
        #: Addresses and numbers of its rows in streams that take it once.
        self.rows: list[tuple[str, int]] = []
        #: QoS 2 packet ids of the client's earlier connections, and the digests of their messages (b"": of any); None:
        #: of one that came to a node that is gone, and is for all again.
        self.earlier: dict[int, bytes | None] = {}
        #: What the client has not answered, by packet id, where it is sent again to who is connected.
        self.unanswered: dict[int, Delivery] = {}
        #: Higher packet ids of messages of the session, which it was sent while it was a node's.
        self.older: set[int] = set()

    # Messages come

    def is_for(self, qos: int) -> bool:
        return qos == 0

    def deliver(self, message: Message, qos: int, retain: bool, group: str, source: Source) -> None:
        if qos == 0:
            super().deliver(message, qos, retain, group, source)
        elif message.qos == 0 and (group or not self.core.options.upgrade_outgoing_qos):
            # A plugin has decided that it gets this at the QoS granted; else slots were offered it.
            if not (self.bridge and source.output is self.output):
                self.port.keep(self.number, message, qos, self.bridge and message.retain)

    def deliver_retained(
        self,
        topic_filter: str,
        messages: list[Message],
        granted: int,
        allowance: int,
        more: bool = False,
    ) -> None:
        """Those of QoS 1 and 2 join the queue in the slot."""
        rest: list[Message] = []
        for message in messages:
            qos = granted if self.options.upgrade_outgoing_qos else min(message.qos, granted)
            if qos and not self.is_too_large(message):
                self.port.keep(self.number, message, qos, True)
            else:
                rest.append(message)
        super().deliver_retained(topic_filter, rest, granted, allowance, more)

    def came_before(self, packet_id: int, message: Message, is_again: bool) -> bool:
        digest = self.earlier.pop(packet_id, None)
        if digest is None or not (is_again or self.port.is_unreleased(self.number, packet_id)):
            return False
        return digest == b"" or digest == self.port.digest(message)

    def reserve_rows(self, taps: list[Any], message: Message) -> frozenset[str] | None:
        rows: list[tuple[str, int]] = []
        rest: list[str] = []
        for tap in taps:
            reserved = tap.reserve(message.topic, message.payload, self.client_id)
            if reserved is None:
                rest.append(tap.name)
            else:
                rows.append(reserved)
        self.rows = rows
        return frozenset(rest) if rows else None

    def on_received(self, packet_id: int, is_again: bool) -> None:
        self.arriving = packet_id
        self.arrives_again = is_again

    def on_routed(self, message: Message, source: Source) -> None:
        if self.arriving:  # it went to no slot: its id is the session's all the same
            self.port.receive(message, source)

    def earlier_ids(self) -> list[int]:
        return list(self.earlier)

    def release_earlier(self, packet_id: int) -> bool:
        if packet_id not in self.earlier:
            return False
        del self.earlier[packet_id]
        return True

    def on_pubrels(self, run: bytes, output: Output) -> None:
        self.port.on_pubrels(self.number, run, output)

    # Messages go

    def enter_window(self, delivery: Transient) -> None:
        inflight = self.inflight
        inflight.last_packet_id = max(inflight.last_packet_id, LAST_OF_SESSION)
        super().enter_window(delivery)
        # An id that is passed over may be the last: behind that come those of sessions.
        while delivery.packet_id <= LAST_OF_SESSION or delivery.packet_id in self.older:
            inflight.remove(delivery)
            inflight.last_packet_id = max(inflight.last_packet_id, LAST_OF_SESSION)
            inflight.send(delivery)

    def least_id(self) -> int:
        return LAST_OF_SESSION + 1

    def is_free(self, first: int, count: int) -> bool:
        if self.older and not self.older.isdisjoint(range(first, first + count)):
            return False
        return super().is_free(first, count)

    def send_from_slot(self, packet_id: int, message: Message, qos: int, is_again: bool) -> bool:
        """Sends a message of the session; False: it is kept back, for good."""
        delivery = Delivery(message, qos, message.retain, "")
        if self.is_too_large(message):
            self.drop(delivery, TOO_LARGE)
            return False
        if self.core.hooks.on_deliver is not None:
            rewritten = self.rewrite(message, qos, message.retain)
            if rewritten is None:
                self.withhold(delivery)
                return False
            message = rewritten
        self.note_sent(packet_id, delivery)
        self.core.counters.mqtt_publish_sent += 1
        if packet_id > LAST_OF_SESSION:
            self.older.add(packet_id)
        output = self.output
        if is_again or delivery.retain:
            topic, payload = message.topic, message.payload
            output.add(publish(topic, payload, qos, packet_id, delivery.retain, is_again))
            return True
        pieces = output.gather()
        pieces.append(message.head(qos))
        pieces.append(PACKET_IDS[packet_id])
        pieces.append(message.payload)
        return True

    def send_run_from_slot(self, first: int, topic: bytes, payloads: list[bytes]) -> bool:
        """Sends messages of the session at QoS 1 under packet ids from one on; False: they are to go one by one."""
        if self.core.hooks.on_deliver is not None or self.options.retry_interval:
            return False
        longest: i64 = self.options.max_outgoing_length - 4 - len(topic)
        for payload in payloads:
            if len(payload) > longest:
                return False
        pieces = self.output.gather()
        packet_id = first
        length: i64 = -1
        head = b""
        for payload in payloads:
            if len(payload) != length:
                length = len(payload)
                head = publish_head(topic, length, 1, False, False)
            pieces.append(head)
            pieces.append(PACKET_IDS[packet_id])
            pieces.append(payload)
            packet_id += 1
        self.core.counters.mqtt_publish_sent += len(payloads)
        return True

    def send_pubrel(self, packet_id: int) -> None:
        """The client has a message at QoS 2."""
        if self.options.retry_interval:
            released = Delivery(NO_MESSAGE, 2, False, "")
            released.released = True
            self.note_sent(packet_id, released)
        self.core.counters.mqtt_pubrel_sent += 1
        if packet_id > LAST_OF_SESSION:
            self.older.add(packet_id)
        self.output.add(PUBREL_HEAD + PACKET_IDS[packet_id])

    def on_acknowledgements(self, kind: int, run: bytes) -> None:
        """Those of the session go to its owner."""
        if kind == PUBACK and not (self.older or self.unanswered or has_higher(run)):
            self.port.on_pubacks(self.number, run)
            return
        rest: list[bytes] = []
        for index in range(0, len(run), 4):
            packet_id: int = packet_id_at(run, index, kind)
            if packet_id <= LAST_OF_SESSION or packet_id in self.older:
                self.unanswered.pop(packet_id, None)
                self.port.on_acknowledged(self.number, kind, packet_id)
            else:
                rest.append(run[index : index + 4])
        if rest:
            super().on_acknowledgements(kind, b"".join(rest))

    def note_sent(self, packet_id: int, delivery: Delivery) -> None:
        """It is sent now, and may be sent again."""
        if self.options.retry_interval:
            delivery.sent_at = self.core.clock()
            self.unanswered[packet_id] = delivery

    def retry(self, now: float) -> None:
        super().retry(now)
        if self.output.blocked:
            return
        oldest = now - self.options.retry_interval
        late = [each for each in self.unanswered.items() if each[1].sent_at <= oldest]
        for packet_id, delivery in late:
            if delivery.released:
                self.send_pubrel(packet_id)
            else:
                del self.unanswered[packet_id]  # unless it is sent
                self.send_from_slot(packet_id, delivery.message, delivery.qos, True)

    # Connections come and go

    def session_name(self) -> str:
        return "of " + self.client_id

    def go_online(self, output: Output) -> None:
        super().go_online(output)
        self.port.on_online(self.number)

    def leave_output(self) -> None:
        super().leave_output()
        self.port.on_offline(self.number)


def has_higher(run: bytes) -> bool:
    """Whether some acknowledgements, of four bytes each, are for ids above those of sessions."""
    index: i64 = 2
    size: i64 = len(run)
    while index < size:
        if run[index] >= 128:
            return True
        index += 4
    return False
