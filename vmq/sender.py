"""The sending side of one subscriber: packet ids, the inflight window, acknowledgements, repeats.

What is sent at QoS 1 or 2 is in flight until its exchange ends (sections 4.3.2 and 4.3.3). What has to
wait before it is sent is the business of `vmq.queue`.
"""

from vmq_hooks.types import Message as SeenMessage
from vmq_hooks.types import SubscriberId

from vmq.core import Core, Options
from vmq.message import Delivery, Message
from vmq.mqtt.encoder import PACKET_IDS, PUBREL_HEAD, publish
from vmq.output import Output


class Sender:
    """Sends to one subscriber, whose session may outlive its connections.

    `session` is the number of its durable session in the store, or empty.
    """

    def __init__(self, client_id: str, core: Core, session: bytes) -> None:
        self.client_id = client_id
        self.core = core
        self.session = session
        #: The broker's options, or what a plugin made of them for this session.
        self.options: Options = core.options
        #: What plugins are told of the subscriber besides its client id.
        self.mountpoint = ""
        self.username: str | None = None
        self.durable = len(session) > 0 and core.store is not None
        self.offline_output = Output(core.outbox)
        self.output: Output = self.offline_output
        #: What is sent and not acknowledged, by packet id, in the order of sending.
        self.inflight: dict[int, Delivery] = {}
        self.last_packet_id: int = 0
        #: The place of the next delivery that is sent; see `Store.put_inflight`.
        self.next_order: int = 1
        #: The place of the next delivery that waits; see `Store.put_waiting`.
        self.next_seq: int = 1
        #: No place before this one is used again.
        self.least_seq: int = 1
        self.inflight_is_stored = False

    def window_open(self) -> bool:
        limit = self.options.max_inflight_messages
        count = len(self.inflight)
        return count < limit if limit else count < 65535

    def on_window_open(self) -> None:
        """An exchange ended: what waits may have its place."""

    # Messages go

    def send_quick(self, message: Message, retain: bool) -> None:
        if self.core.hooks.on_deliver is not None:
            message = self.rewrite(message, 0, retain)
        if retain:
            frame = publish(message.topic, message.payload, 0, 0, True, False)
        else:
            frame = message.frame()
        self.core.counters.mqtt_publish_sent += 1
        self.output.add(frame)

    def send(self, delivery: Delivery) -> None:
        """Sends a QoS 1 or 2 delivery for the first time [MQTT-4.3.2-1] [MQTT-4.3.3-1]."""
        inflight = self.inflight
        packet_id = self.last_packet_id
        while True:
            packet_id = 1 if packet_id >= 65535 else packet_id + 1
            if packet_id not in inflight:
                break
        self.last_packet_id = packet_id
        delivery.packet_id = packet_id
        inflight[packet_id] = delivery
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
            store.put_inflight(self.session, delivery)
            output.barrier = store.barrier()
        core = self.core
        if self.options.retry_interval:
            delivery.sent_at = core.clock()
        core.counters.mqtt_publish_sent += 1
        message = delivery.message
        if core.hooks.on_deliver is not None:
            message = self.rewrite(message, delivery.qos, delivery.retain)
        pieces = output.pieces
        if delivery.retain:
            pieces.append(
                publish(message.topic, message.payload, delivery.qos, packet_id, True, False)
            )
        else:
            pieces.append(message.head(delivery.qos))
            pieces.append(PACKET_IDS[packet_id])
            pieces.append(message.payload)
        output.touch()

    def send_again(self, delivery: Delivery) -> None:
        """Repeats what is unacknowledged: PUBREL, or PUBLISH with DUP [MQTT-4.4.0-1]."""
        core = self.core
        if self.options.retry_interval:
            delivery.sent_at = core.clock()
        if delivery.released:
            core.counters.mqtt_pubrel_sent += 1
            self.output.add(PUBREL_HEAD + PACKET_IDS[delivery.packet_id])
            return
        message = delivery.message
        if core.hooks.on_deliver is not None:
            message = self.rewrite(message, delivery.qos, delivery.retain)
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

    def on_puback(self, packet_id: int) -> None:
        """QoS 1 is done; an unknown id is ignored."""
        delivery = self.inflight.get(packet_id)
        if delivery is None or delivery.qos != 1:
            return
        del self.inflight[packet_id]
        self.finish(delivery)

    def on_pubrec(self, packet_id: int) -> None:
        """QoS 2: answers PUBREL, also for an id that is unknown [MQTT-4.3.3-1]."""
        delivery = self.inflight.get(packet_id)
        if delivery is not None and delivery.qos == 2 and not delivery.released:
            # At the end of the dict, so that PUBRELs are repeated in the order of their PUBRECs
            # [MQTT-4.6.0-4].
            del self.inflight[packet_id]
            self.inflight[packet_id] = delivery
            store = self.core.store
            if delivery.order and store is not None:
                order = self.next_order
                self.next_order = order + 1
                store.put_released(self.session, delivery, order)
                self.output.barrier = store.barrier()
            delivery.released = True
        output = self.output
        self.core.counters.mqtt_pubrel_sent += 1
        output.pieces.append(PUBREL_HEAD)
        output.pieces.append(PACKET_IDS[packet_id])
        output.touch()

    def on_pubcomp(self, packet_id: int) -> None:
        """QoS 2 is done; an unknown id is ignored."""
        delivery = self.inflight.get(packet_id)
        if delivery is None or not delivery.released:
            return
        del self.inflight[packet_id]
        self.finish(delivery)

    def finish(self, delivery: Delivery) -> None:
        store = self.core.store
        if delivery.order and store is not None:
            store.remove_inflight(self.session, delivery)
        self.on_window_open()

    # Connections come and go

    def load_inflight(self) -> None:
        """Loads the unacknowledged deliveries of before the broker's start, once."""
        store = self.core.store
        if not self.inflight_is_stored or store is None:
            return
        self.inflight_is_stored = False
        for delivery in store.load_inflight(self.session):
            self.inflight[delivery.packet_id] = delivery
            self.last_packet_id = delivery.packet_id

    def retry(self, now: float) -> None:
        """Repeats what was sent `retry_interval` ago or longer and is not acknowledged."""
        if self.output.blocked:
            return
        oldest = now - self.options.retry_interval
        for delivery in list(self.inflight.values()):
            if delivery.sent_at <= oldest:
                self.send_again(delivery)

    # Hooks

    def rewrite(self, message: Message, qos: int, retain: bool) -> Message:
        """What on_deliver makes of a message; the queue keeps the original."""
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
        topic = message.topic if changes.topic is None else changes.topic.encode()
        payload = message.payload if changes.payload is None else changes.payload
        return Message(topic, payload, message.qos, message.retain)

    def subscriber_id(self) -> SubscriberId:
        """Who this is to plugins."""
        # The queue of a session that is on its way to another node has a NUL in front: see `Registry.detach`.
        return SubscriberId(self.client_id.lstrip("\0"), self.mountpoint)
