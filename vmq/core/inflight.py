"""The sending side of one subscriber: packet ids, the inflight window, acknowledgements, repeats.

What is sent at QoS 1 or 2 is in flight until its exchange ends (sections 4.3.2 and 4.3.3). What has to
wait before it is sent is the business of `vmq.core.queue`.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from mypy_extensions import i32, i64
from vmq_hooks.types import Message as SeenMessage
from vmq_hooks.types import SubscriberId
from vmq_hooks.verdicts import Refuse

from vmq.core.context import Core, CoreOptions
from vmq.core.output import Output
from vmq.core.source import Source
from vmq.core.states import ANSWERS, AWAITING_PUBCOMP, BREAKS, DONE, RELEASE
from vmq.core.window import LAST_ID, InflightWindow, PacketRun, PacketRuns
from vmq.mqtt.decoder import packet_id_at
from vmq.mqtt.encoder import PACKET_IDS, PUBREL_HEAD, answers, publish
from vmq.mqtt.message import NO_MESSAGE, Delivery, Message, Transient
from vmq.mqtt.packets import PACKET_NAMES, PUBACK, PUBREC, ProtocolError

log = logging.getLogger("vmq.session")

#: So many packet ids may be those of what is no session state: the rest is left to messages.
MOST_TRANSIENT: Final = 60_000


class Sender:
    """Sends to one subscriber, whose session may outlive its connections.

    `session` is the number of its durable session in the store, or empty.
    """

    def __init__(self, client_id: str, core: Core, session: bytes) -> None:
        self.client_id = client_id
        self.core = core
        self.session = session
        #: The broker's options, or what a plugin made of them for this session.
        self.options: CoreOptions = core.options
        #: What plugins are told of the subscriber besides its client id.
        self.mountpoint = ""
        self.username: str | None = None
        self.output: Output = core.outbox.nowhere
        #: What is sent and not acknowledged.
        self.inflight = InflightWindow()
        #: Bytes of the messages among these together, and of what is no session state: each has limits of its own.
        self.inflight_bytes: i64 = 0
        self.transient_bytes: i64 = 0
        #: The place of the next delivery that is sent; see `Store.put_inflight`.
        self.next_order: int = 1
        #: The place of the next delivery that waits; see `Store.put_waiting`.
        self.next_seq: int = 1
        #: No place before this one is used again.
        self.least_seq: int = 1
        #: What is in flight from before the broker's start begins at this place, and whether it is not loaded yet.
        self.first_order: int = 1
        # Attributes of a byte stand side by side, here and in the classes below: apart, each takes a word.
        self.inflight_is_stored = False
        self.durable = len(session) > 0 and core.store is not None
        #: Readers of streams send to it: they are told when something was acknowledged.
        self.has_readers = False

    def window_open(self) -> bool:
        """Whether one more message may be in flight: what is no session state takes packet ids only."""
        limit: i64 = self.options.max_inflight_messages
        inflight = self.inflight
        return inflight.total() < LAST_ID and (limit == 0 or inflight.messages() < limit)

    def has_place(self, length: i64) -> bool:
        """Whether the window has a place for a message of so many bytes; an empty one has it for any."""
        if not self.window_open():
            return False
        limit: i64 = self.options.max_inflight_bytes
        if limit < 0 or self.inflight_bytes + length <= limit:
            return True
        return self.inflight.messages() == 0

    def puts_off(self, delivery: Delivery) -> bool:
        """Whether a delivery to a client that is there may be sent before it has an entry, and get none if it is done.

        Nobody waits for that but its publisher, who sends it again after a crash: then it comes twice, as QoS 1 may.
        What has an entry is not sent before that says so: it would come again without DUP, under another packet id.
        """
        return delivery.qos == 1 and not delivery.key and not self.options.lifo

    def count_inflight(self) -> None:
        """Others have changed what is in flight."""
        self.inflight_bytes = 0
        for delivery in self.inflight.values():
            if not (delivery.released or isinstance(delivery, Transient)):
                self.inflight_bytes += delivery.message.length()

    def came_before(self, packet_id: int, message: Message, is_again: bool) -> bool:
        """Whether a message at QoS 2 came on an earlier connection of the client, and all had it who are in no slot."""
        return False

    def reserve_rows(self, taps: list[Any], message: Message) -> frozenset[str] | None:
        """Has streams wait for a QoS 2 message until the session knows the dots under which they take it once.

        Returns the names of those that take it at once; None: all do.
        """
        return None

    def on_received(self, packet_id: int, is_again: bool) -> None:
        """A message at QoS 2 has come of the client of a session that is not stored here."""

    def on_routed(self, message: Message, source: Source) -> None:
        """It has gone wherever it is wanted."""

    def earlier_ids(self) -> list[int]:
        """The packet ids of QoS 2 messages that came on earlier connections of the client, if it has others."""
        return []

    def release_earlier(self, packet_id: int) -> bool:
        """The client has released a packet id; whether an earlier connection of it had brought that."""
        return False

    def on_pubrels(self, run: bytes, output: Output) -> None:
        """The client has sent PUBREL packets of four bytes each, whose answers go to this output."""

    def on_window_open(self) -> None:
        """An exchange ended: what waits may have its place."""

    # Messages go

    def withhold(self, delivery: Delivery) -> None:
        """A plugin keeps a message back, for good; it is not in flight."""

    def send_quick(self, message: Message, retain: bool) -> None:
        if self.core.hooks.on_deliver is not None:
            rewritten = self.rewrite(message, 0, retain)
            if rewritten is None:
                self.withhold(Delivery(message, 0, retain, ""))
                return
            message = rewritten
        if retain:
            frame = publish(message.topic, message.payload, 0, 0, True, False)
        else:
            frame = message.frame()
        self.core.counters.mqtt_publish_sent += 1
        self.output.add(frame)

    def send(self, delivery: Delivery) -> None:
        """Sends a QoS 1 or 2 delivery for the first time [MQTT-4.3.2-1] [MQTT-4.3.3-1]."""
        core = self.core
        message = delivery.message
        if core.hooks.on_deliver is not None:
            rewritten = self.rewrite(message, delivery.qos, delivery.retain)
            if rewritten is None:
                if delivery.seq and core.store is not None:
                    core.store.remove_waiting(self.session, delivery)
                self.withhold(delivery)
                return
            message = rewritten
        self.inflight.send(delivery)
        packet_id: i64 = delivery.packet_id
        self.inflight_bytes += delivery.message.length()
        output = self.output
        if self.durable:
            store = self.core.store
            assert store is not None
            seq = delivery.seq
            if self.options.lifo and seq == self.next_seq - 1 and seq >= self.least_seq:
                # The last place is free again: so newest-first sending leaves no empty places. Else none is used
                # again while this broker runs, so that a place tells which of two messages came later.
                self.next_seq = seq
            delivery.order = self.next_order
            self.next_order += 1
            if self.puts_off(delivery):
                store.put_off(self.session, delivery)
            else:
                if self.options.lifo:
                    store.put_inflight(self.session, delivery)
                elif store.put_sent(self.session, delivery) and seq >= self.least_seq:
                    self.least_seq = seq + 1
                output.deliver_after(output.outbox.stored, store.barrier())
        if self.options.retry_interval:
            delivery.sent_at = core.clock()
        core.counters.mqtt_publish_sent += 1
        pieces = output.gather()
        if delivery.retain:
            pieces.append(
                publish(message.topic, message.payload, delivery.qos, packet_id, True, False)
            )
        else:
            pieces.append(message.head(delivery.qos))
            pieces.append(PACKET_IDS[packet_id])
            pieces.append(message.payload)

    def send_transient(self, delivery: Transient) -> None:
        """Sends what is no session state, whatever the window's limits are: its sender has limits of its own."""
        self.enter_window(delivery)
        message = delivery.message
        output = self.output
        if delivery.retain:
            output.add(publish(message.topic, message.payload, 1, delivery.packet_id, True, False))
            return
        pieces = output.gather()
        pieces.append(message.head(1))
        pieces.append(PACKET_IDS[delivery.packet_id])
        pieces.append(message.payload)

    def enter_window(self, delivery: Transient) -> None:
        """It goes out, by whoever calls: it has a packet id from now on."""
        self.inflight.send(delivery)
        self.inflight.transients += 1
        self.transient_bytes += delivery.length()
        self.core.counters.mqtt_publish_sent += 1

    def leave_window(self, delivery: Transient) -> None:
        """It is in flight no more."""
        self.inflight.transients -= 1
        self.transient_bytes -= delivery.length()

    def least_id(self) -> int:
        """The least packet id of what is no session state."""
        return 1

    def most_transient(self) -> int:
        """Of what is no session state nothing more is to go out while so much is in flight: its sender sees to that."""
        return MOST_TRANSIENT + 1 - self.least_id()

    def is_free(self, first: int, count: int) -> bool:
        """Whether packet ids may be those of a run."""
        return self.inflight.is_free(first, count)

    def send_run(self, run: PacketRun) -> None:
        """It goes out, by whoever calls, under packet ids that are free."""
        self.inflight.send_run(run)
        self.transient_bytes += run.size()
        self.core.counters.mqtt_publish_sent += int(run.left)

    def take_back_run(self, run: PacketRun) -> None:
        """What is left of it is in flight no more, and was not acknowledged."""
        runs = self.inflight.runs
        assert runs is not None
        runs.remove(run)
        self.transient_bytes -= run.size()

    def take_back(self, delivery: Transient) -> None:
        """It is in flight no more, and was not acknowledged."""
        if self.inflight.get(delivery.packet_id) is delivery:
            self.inflight.remove(delivery)
            self.leave_window(delivery)

    def send_again(self, delivery: Delivery) -> None:
        """Repeats what is unacknowledged: PUBREL, or PUBLISH with DUP [MQTT-4.4.0-1].

        A message that a plugin keeps back now is in flight no more.
        """
        core = self.core
        if self.options.retry_interval:
            delivery.sent_at = core.clock()
        if delivery.released:
            core.counters.mqtt_pubrel_sent += 1
            self.output.add(PUBREL_HEAD + PACKET_IDS[delivery.packet_id])
            return
        message = delivery.message
        if core.hooks.on_deliver is not None:
            rewritten = self.rewrite(message, delivery.qos, delivery.retain)
            if rewritten is None:
                self.inflight.remove(delivery)
                self.forget(delivery)
                self.withhold(delivery)
                return
            message = rewritten
        core.counters.mqtt_publish_sent += 1
        self.output.add(
            publish(
                message.topic,
                message.payload,
                delivery.qos,
                delivery.packet_id,
                delivery.retain,
                True,
            )
        )

    # Acknowledgements

    def on_acknowledgements(self, kind: int, run: bytes) -> None:
        """PUBACK, PUBREC or PUBCOMP packets of four bytes each: each does what the table says, then what waits goes on.

        Raises:
            ProtocolError: a message in flight is acknowledged with another packet than that which is due.
        """
        inflight = self.inflight
        runs = inflight.runs
        told = self.core.hooks.on_acked
        size: i64 = len(run)
        index: i64 = 0
        while index < size:
            if runs is not None and kind == PUBACK:
                count = self.on_run(runs, run, index)
                if count:
                    index += count << 2
                    continue
            packet_id = packet_id_at(run, index, kind)
            index += 4
            delivery = inflight.get(packet_id)
            if delivery is None:
                self.count_unknown(kind, packet_id)
                continue
            state: int = AWAITING_PUBCOMP if delivery.released else delivery.qos
            action: int = ANSWERS[kind << 2 | state]
            if action == DONE:
                inflight.remove(delivery)
                if told is not None and not delivery.released:
                    self.tell_acked(told, delivery)
                self.forget(delivery)
            elif action == RELEASE:
                if told is not None:
                    self.tell_acked(told, delivery)
                self.release(delivery)
            elif action == BREAKS:
                self.answer(kind, run[: index - 4])
                raise wrong_kind(kind, delivery)
        self.answer(kind, run)
        if self.has_readers:
            self.core.readers.on_settled(self)
        if kind != PUBREC:
            self.on_window_open()

    def on_run(self, runs: PacketRuns, data: bytes, index: i64) -> i64:
        """How many packets from here on acknowledge what was sent first of runs, in that order: they are dealt with."""
        count = runs.acknowledged(data, index)
        if count:
            first = runs.line[0]
            self.transient_bytes -= first.size()
            runs.advance(count)
            self.transient_bytes += first.size()
        return count

    def answer(self, kind: int, run: bytes) -> None:
        """PUBREL for each PUBREC, also for an id that is unknown [MQTT-4.3.3-1]."""
        if kind == PUBREC and run:
            self.core.counters.mqtt_pubrel_sent += len(run) >> 2
            self.output.add(answers(run, PUBREL_HEAD))

    def release(self, delivery: Delivery) -> None:
        """The subscriber has it at QoS 2: of the message no more is needed than its identifier."""
        # The last from now on, so that PUBRELs are repeated in the order of their PUBRECs [MQTT-4.6.0-4].
        self.inflight.to_end(delivery)
        self.inflight_bytes -= delivery.message.length()
        store = self.core.store
        if delivery.order and store is not None:
            order = self.next_order
            self.next_order = order + 1
            store.put_released(self.session, delivery, order)
            self.output.deliver_after(self.output.outbox.stored, store.barrier())
        delivery.released = True
        delivery.message = NO_MESSAGE

    def count_unknown(self, kind: int, packet_id: i64) -> None:
        """No message in flight has the identifier that is acknowledged."""
        counters = self.core.counters
        if kind == PUBACK:
            counters.mqtt_puback_invalid_error += 1
        elif kind == PUBREC:
            counters.mqtt_pubrec_invalid_error += 1
        else:
            counters.mqtt_pubcomp_invalid_error += 1
        self.tell_unknown(PACKET_NAMES[kind], packet_id)

    def tell_unknown(self, packet: str, packet_id: i64) -> None:
        if log.isEnabledFor(logging.DEBUG):
            text = "%s of an unknown packet id client=%s packet_id=%d"
            log.debug(text, packet, self.client_id, packet_id)

    def forget(self, delivery: Delivery) -> None:
        """A delivery is in flight no more; it has left `inflight`."""
        if isinstance(delivery, Transient):
            self.leave_window(delivery)
            if not delivery.settle():
                self.core.jobs.on_acknowledged(self, delivery.token)
            return
        if not delivery.released:
            self.inflight_bytes -= delivery.message.length()
        store = self.core.store
        if delivery.order and store is not None:
            store.remove_inflight(self.session, delivery)

    # Connections come and go

    def load_inflight(self) -> None:
        """Loads the unacknowledged deliveries of before the broker's start, once."""
        store = self.core.store
        if not self.inflight_is_stored or store is None:
            return
        self.inflight_is_stored = False
        for delivery in store.load_inflight(self.session, self.first_order):
            self.inflight.put(delivery)
            self.inflight.last_packet_id = i32(delivery.packet_id)
        self.skip_ids()
        self.count_inflight()

    def skip_ids(self) -> None:
        """Packet ids go on somewhere else after the broker's start: the last may have been used and not stored.

        A client may acknowledge late, on a new connection: what it has must not be taken for another message.
        """
        last: int = self.inflight.last_packet_id
        self.inflight.last_packet_id = (last + self.core.choose(LAST_ID)) % LAST_ID

    def retry(self, now: float) -> None:
        """Repeats what was sent `retry_interval` ago or longer and is not acknowledged."""
        if self.output.blocked:
            return
        oldest = now - self.options.retry_interval
        for delivery in self.inflight.values():
            if delivery.sent_at <= oldest and not isinstance(delivery, Transient):
                self.send_again(delivery)
        self.on_window_open()

    # Hooks

    def tell_acked(
        self, told: Callable[[str | None, SubscriberId, SeenMessage], None], delivery: Delivery
    ) -> None:
        """The client has a message: plugins may know. What jobs send is theirs to tell."""
        if isinstance(delivery, Transient):
            return
        message = delivery.message
        seen = SeenMessage(message.topic.decode(), message.payload, delivery.qos, delivery.retain)
        try:
            told(self.username, self.subscriber_id(), seen)
        except Exception as error:  # noqa: BLE001 - contained, whatever it is
            self.core.hook_failed("on_acked", error)

    def rewrite(self, message: Message, qos: int, retain: bool) -> Message | None:
        """What on_deliver makes of a message; the queue keeps the original. None: it is kept back."""
        hook = self.core.hooks.on_deliver
        if hook is None:
            return message
        seen = SeenMessage(message.topic.decode(), message.payload, qos, retain)
        try:
            changes = hook(self.username, self.subscriber_id(), seen)
        except Exception as error:  # noqa: BLE001 - contained, whatever it is
            self.core.hook_failed("on_deliver", error)
            return message
        if changes is None:
            return message
        if isinstance(changes, Refuse):
            return None
        topic = message.topic if changes.topic is None else changes.topic.encode()
        payload = message.payload if changes.payload is None else changes.payload
        return Message(topic, payload, message.qos, message.retain)

    def subscriber_id(self) -> SubscriberId:
        """Who this is to plugins."""
        return SubscriberId(self.client_id, self.mountpoint)


def wrong_kind(kind: int, delivery: Delivery) -> ProtocolError:
    """What ends a connection that acknowledges a message with another packet than that which is due."""
    due = "PUBCOMP" if delivery.released else "PUBACK" if delivery.qos == 1 else "PUBREC"
    text = f"{PACKET_NAMES[kind]} for packet id {delivery.packet_id} of QoS {delivery.qos}, of which {due} is due"
    return ProtocolError(text, "MQTT-4.8.0-1")
