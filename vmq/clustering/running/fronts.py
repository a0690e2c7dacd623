"""Connections of this node whose sessions are in slots: between the core's queues and the front's machine."""

from collections.abc import Callable
from random import Random
from typing import Final

from vmq_hooks.verdicts import Refuse

from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.messages.fronts import Attached, SessionLimits, SessionStep
from vmq.clustering.origin.outbox import Publication
from vmq.clustering.running.connected import SlotArrival, SlotClient, queue_of, subscribing
from vmq.clustering.slots import words
from vmq.clustering.slots.flow import Given, SendingRun
from vmq.clustering.slots.queued import Sending
from vmq.clustering.slots.words import ONLY, slot_of
from vmq.core.context import CHANGED, CLAIMED, Core
from vmq.core.hook_sites import Answer, Pending
from vmq.core.output import Output
from vmq.core.ports import FrontPort, Placed
from vmq.core.registry import Registry
from vmq.core.source import Source
from vmq.core.states import CLOSING, FAILED
from vmq.core.subscriber import Subscriber
from vmq.disk.durable import Confirmations
from vmq.mqtt.decoder import packet_id_at
from vmq.mqtt.message import Delivery, Message
from vmq.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL
from vmq.protocol.front_queue import FrontQueue

_STEPS: Final = {PUBACK: words.PUBACK, PUBREC: words.PUBREC, PUBCOMP: words.PUBCOMP}
_TAKEN_OVER: Final = "taken over by a new connection of the client id [MQTT-3.1.4-2]"
_OTHERS: Final = "the session belongs to another user (session.owner)"


class SlotFronts:
    """The connections of one node.

    Args:
        machines: this node's.
        core: the broker's.
        random: draws the numbers of connections, which all nodes have in common.
        soon: has the effects carried out at the end of the turn.
    """

    def __init__(
        self, machines: SessionNode, core: Core, random: Random, soon: Callable[[], None]
    ) -> None:
        self._machines = machines
        self._front = machines.front
        self._core = core
        self._random = random
        self._soon = soon
        #: Where the queues of connections say what comes: here, by way of a port.
        self.packets = FrontPort()
        self._arrivals: dict[int, SlotArrival] = {}
        self._clients: dict[int, SlotClient] = {}
        #: Connections of those with subscriptions that no SUBSCRIBE asked for.
        self._fresh: dict[int, None] = {}
        #: Clients whose session is about to be a connection's, and its number.
        self._adopting: dict[str, tuple[int, SlotArrival]] = {}
        self._refused: set[int] = set()
        self._paused: dict[Output, None] = {}
        #: Those of clients by what they are sent through.
        self._online: dict[Output, SlotClient] = {}

    def count(self) -> int:
        return len(self._clients)

    # Clients come

    def connect(
        self,
        registry: Registry,
        client_id: str,
        clean: bool,
        user: str,
        limits: SessionLimits | None,
        claim: Callable[[], Pending | None],
    ) -> Pending | None:
        """A client has come. Its session's owner lets it have that; then `claim` has its older connection closed.

        `limits`: what a plugin has decided for its session.
        """
        number = self._random.getrandbits(62)
        pending = Pending(lambda: self._give_up(number))
        client_id = registry.scope + client_id
        self._arrivals[number] = SlotArrival(client_id, clean, pending, claim)
        owner = user if self._core.options.sessions_are_users else None
        self._machines.connect(number, client_id, clean, owner, limits)
        self._soon()
        return pending

    def _give_up(self, number: int) -> None:
        """A client has gone that waited."""
        arrival = self._arrivals.pop(number, None)
        if arrival is None:
            return
        if arrival.first is not None:
            arrival.first.then = None
            arrival.first.cancel()
        self._front.disconnect(number)
        self._soon()

    def arrived(self, attached: Attached) -> None:
        """A client's session is there."""
        number = attached.connection
        arrival = self._arrivals.get(number)
        if arrival is None:
            return
        arrival.attached = attached
        arrival.first = first = arrival.claim()
        if first is None:
            self._let_in(number, None)
        else:
            first.then = lambda answer: self._let_in(number, answer)

    def _let_in(self, number: int, answer: Answer) -> None:
        """The client may have it, unless another node has refused."""
        arrival = self._arrivals.pop(number, None)
        if arrival is None:
            return
        if arrival.clean or answer is not None:
            self._front.disconnect(number)
            arrival.pending.finish(answer)
            self._soon()
            return
        assert arrival.attached is not None
        self._adopting[arrival.client_id] = number, arrival
        arrival.pending.finish(Placed(arrival.attached.is_present))
        if self._adopting.pop(arrival.client_id, None) is not None:  # it was refused all the same
            self._front.disconnect(number)
        self._soon()

    def end(self, client_id: str) -> None:
        """Ends a session, by its client id behind the scope: as a clean connection would that leaves at once."""
        number = self._random.getrandbits(62)
        self._arrivals[number] = SlotArrival(client_id, True, Pending(_nothing), lambda: None)
        self._machines.connect(number, client_id, True)
        self._soon()

    def refused(self, number: int) -> None:
        """The session is another user's; `closed` follows."""
        self._refused.add(number)

    def closed(self, number: int) -> None:
        """A newer connection has the session."""
        is_others = number in self._refused
        self._refused.discard(number)
        reason = _OTHERS if is_others else _TAKEN_OVER
        self._close(number, Refuse(reason, bad_credentials=is_others))

    def cut_off(self, number: int) -> None:
        """What is its own cannot be handed to a client: it is to begin anew."""
        self._front.disconnect(number)
        self._close(number, Refuse("internal error", unavailable=True))

    def _close(self, number: int, answer: Refuse) -> None:
        arrival = self._arrivals.pop(number, None)
        if arrival is not None:
            if arrival.first is not None:
                arrival.first.then = None
                arrival.first.cancel()
            arrival.pending.finish(answer)
        client = self._clients.get(number)
        if client is not None:
            client.output.finish(answer.reason, FAILED if answer.unavailable else CLOSING)

    def client_of(self, number: int) -> str:
        """The client id of a connection, behind the scope of its mountpoint; "": the client has gone."""
        client = self._clients.get(number) or self._arrivals.get(number)
        return "" if client is None else client.client_id

    def has(self, subscriber: Subscriber) -> bool:
        return isinstance(subscriber.queue, FrontQueue)

    def on_subscriber(
        self, event: int, registry: Registry, subscriber: Subscriber, topic_filter: str
    ) -> None:
        """A session of the registry is claimed, or changed."""
        if event == CLAIMED:
            adopted = self._adopting.pop(registry.scope + subscriber.client_id, None)
            if adopted is not None:
                self._adopt(registry, subscriber, *adopted)
        elif event == CHANGED and topic_filter:
            queue = subscriber.queue
            client = self._clients.get(queue.number) if isinstance(queue, FrontQueue) else None
            if client is not None:
                self._changed(client, subscriber, topic_filter)

    def _adopt(
        self, registry: Registry, subscriber: Subscriber, number: int, arrival: SlotArrival
    ) -> None:
        before = subscriber.queue
        queue = FrontQueue(subscriber.client_id, self._core, registry.wake, number, self.packets)
        queue.mountpoint, queue.username = before.mountpoint, before.username
        subscriber.queue = queue
        assert subscriber.output is not None and arrival.attached is not None
        output, client_id = subscriber.output, arrival.client_id
        self._clients[number] = SlotClient(queue, output, client_id, arrival.early)
        for each in arrival.attached.received:
            queue.earlier[each.packet] = each.digest if each.is_there else None
        for topic_filter, qos in arrival.attached.filters:
            asked = arrival.attached.asked.get(topic_filter, "")
            registry.add_subscription(subscriber, topic_filter, qos, asked)

    def _changed(self, client: SlotClient, subscriber: Subscriber, topic_filter: str) -> None:
        present = subscriber.find(topic_filter)
        if present is not None:
            client.fresh[topic_filter] = present.qos, subscriber.asked_for(topic_filter)
            self._fresh[client.queue.number] = None
        else:
            client.fresh.pop(topic_filter, None)
            ticket = client.ticket()
            if subscriber.output is not None:
                client.unsubscribing[ticket] = wait = subscriber.output.confirmations()
                wait.expect()
            step = SessionStep(words.UNSUBSCRIBE, ticket, filters=[(topic_filter, 0)])
            self._front.step(client.queue.number, step)
        self._soon()

    def subscribe(self, subscriber: Subscriber, filters: list[str]) -> Pending | None:
        """A SUBACK waits until the session has the subscriptions, and the nodes in reach their routes."""
        queue = subscriber.queue
        assert isinstance(queue, FrontQueue)
        client = self._clients.get(queue.number)
        if client is None:
            return None
        ticket = client.ticket()
        client.subscribing[ticket] = pending = Pending(lambda: client.subscribing.pop(ticket, None))
        granted: dict[str, tuple[int, str]] = {}
        for each in filters:
            client.fresh.pop(each, None)
            found = subscriber.find(each)
            if found is not None:
                granted[each] = found.qos, subscriber.asked_for(each)
        self._front.step(queue.number, subscribing(ticket, granted))
        self._soon()
        return pending

    def has_fresh(self) -> bool:
        """Whether there are any to be told."""
        return bool(self._fresh)

    def tell_fresh(self) -> None:
        """Subscriptions that no SUBSCRIBE asked for, as those of plugins."""
        changed, self._fresh = self._fresh, {}
        for number in changed:
            client = self._clients.get(number)
            if client is not None and client.fresh:
                fresh, client.fresh = client.fresh, {}
                self._front.step(number, subscribing(client.ticket(), fresh))

    def on_online(self, number: int) -> None:
        client = self._clients.get(number)
        if client is not None and client.early is not None:
            self._online[client.output] = client
            early, client.early = client.early, None
            for each in early:
                self.step(number, each)

    def on_offline(self, number: int) -> None:
        client = self._clients.pop(number, None)
        if client is not None:
            self._online.pop(client.output, None)
            self._front.disconnect(number)
            self._soon()

    # Messages come

    def targets(self, scope: str, topic: str) -> tuple[list[tuple[int, str]], list[str]]:
        """The slots that want a topic of a mountpoint, and the share groups of it that have members in slots."""
        plain, groups = self._machines.routes.find(topic, scope)
        return [(slot, scope) for slot in plain], [each[len(scope) :] for each in groups]

    def offer(self, slots: list[tuple[int, str]], message: Message, source: Source) -> None:
        """Has slots get a message; what its publisher is answered waits until they have it safe."""
        publisher = source.publisher()
        queue = queue_of(source)
        wait = None
        if publisher is not None:
            is_arriving = queue is not None and queue.arriving > 0
            if message.qos or is_arriving:
                wait = publisher.confirmations()
                if message.qos == 1 and len(slots) == 1 and not is_arriving:
                    if self._joins(queue, slots[0], message, wait):
                        return
                wait.expect()
            if self._machines.origin.is_full() and publisher not in self._paused:
                self._paused[publisher] = None
                publisher.pause()
        if queue is not None and queue.arriving and queue.number in self._clients:
            packet, queue.arriving = queue.arriving, 0
            self._clients[queue.number].publishing[packet] = [] if wait is None else [wait.confirm]
            again, is_own, rows, queue.rows = queue.arrives_again, queue.bridge, queue.rows, []
            given = message.topic, message.payload, again, slots, message.retain, is_own, rows
            self._front.publish(queue.number, packet, 2, *given)
        else:
            self._publish(queue, slots, message, wait)
        self._soon()

    def _joins(
        self, queue: FrontQueue | None, slot: tuple[int, str], message: Message, wait: Confirmations
    ) -> bool:
        """Whether a message is one with the last, which has the same answer."""
        but = self._but(queue)
        topic, payload, retain = message.topic, message.payload, message.retain
        return self._machines.origin.grow(slot, topic, payload, retain, but, wait)

    def _but(self, queue: FrontQueue | None) -> str:
        """The bridge that does not get back what it sends by a queue; "": it is none's."""
        if queue is None or not queue.bridge:
            return ""
        client = self._clients.get(queue.number)
        return "" if client is None else client.client_id

    def _publish(
        self,
        queue: FrontQueue | None,
        slots: list[tuple[int, str]],
        message: Message,
        wait: Confirmations | None,
    ) -> None:
        """A message that no packet id in a slot stands for."""
        origin = self._machines.origin
        then = _nothing if wait is None else wait.confirm
        addresses = origin.reserve(slots)
        # What nobody waits for, as a will, its client does not send again from elsewhere.
        number = 0 if queue is None or wait is None else queue.number
        but = self._but(queue)
        topic, payload, retain = message.topic, message.payload, message.retain
        publication = Publication(topic, payload, message.qos, number, then, retain, but)
        origin.publish(addresses, publication, wait if message.qos == 1 else None)

    def keep(self, number: int, message: Message, qos: int, retain: bool) -> None:
        """A message joins the queue of one client alone."""
        client = self._clients.get(number)
        if client is None:
            return
        client_id, origin = client.client_id, self._machines.origin
        slot = slot_of(client_id, self._machines.slots.slots)
        addresses = origin.reserve([(slot, ONLY + client_id)])
        publication = Publication(message.topic, message.payload, qos, 0, _nothing, retain)
        origin.publish(addresses, publication)
        self._soon()

    def output_of(self, number: int) -> Output | None:
        client = self._clients.get(number)
        return None if client is None else client.queue.output

    def acknowledged(self, number: int, packet_id: int) -> None:
        """All slots have a QoS 2 message of a client."""
        client = self._clients.get(number)
        if client is not None:
            for each in client.publishing.pop(packet_id, ()):
                each()

    def wait_for_all(self, output: Output) -> None:
        """The answer to a message sent again waits for what the first one waits for."""
        client = self._online.get(output)
        if client is None or not client.publishing:
            return
        wait = output.confirmations()
        wait.expect()
        last = next(reversed(client.publishing.values()))
        last.append(wait.confirm)  # all before it are safe before

    def resume(self) -> None:
        """Publishers read on if there is room."""
        if self._paused and not self._machines.origin.is_half_full():
            paused, self._paused = self._paused, {}
            for each in paused:
                each.resume()

    # Packets

    def is_unreleased(self, number: int, packet_id: int) -> bool:
        connection = self._front.connections.get(number)
        return connection is not None and connection.is_unreleased(packet_id)

    def on_acknowledged(self, number: int, kind: int, packet_id: int) -> None:
        connection, client = self._front.connections.get(number), self._clients.get(number)
        if connection is None or client is None:
            return
        if kind == PUBREC and packet_id not in connection.table:
            client.queue.send_pubrel(packet_id)  # also for an id that is unknown [MQTT-4.3.3-1]
            return
        client.tell_acked(self._core.hooks, kind, packet_id)
        self._front.step(number, SessionStep(_STEPS[kind], packet_id))
        self._soon()

    def on_pubacks(self, number: int, run: bytes) -> None:
        """PUBACK packets of the session, of four bytes each."""
        client = self._clients.get(number)
        if client is None:
            return
        if client.unacknowledged:
            hooks = self._core.hooks
            for index in range(0, len(run), 4):
                client.tell_acked(hooks, PUBACK, run[index + 2] << 8 | run[index + 3])
        self._front.acknowledge(number, run)
        self._soon()

    def on_pubrels(self, number: int, run: bytes, output: Output) -> None:
        client = self._clients.get(number)
        if client is None:
            return
        wait = output.confirmations()
        for index in range(0, len(run), 4):
            wait.expect()
            self.release(number, packet_id_at(run, index, PUBREL), wait.confirm)

    def release(self, number: int, packet_id: int, then: Callable[[], None]) -> None:
        """A packet id of a client may mean another message from now on."""
        client = self._clients.get(number)
        if client is None:
            return
        client.releasing.pop(packet_id, _nothing)()
        client.releasing[packet_id] = then
        self._front.step(number, SessionStep(words.PUBREL, packet_id))
        self._soon()

    def step(self, number: int, step: Given) -> None:
        """What the owner has for a client."""
        client = self._clients.get(number)
        if client is None:
            arrival = self._arrivals.get(number)
            if arrival is not None:
                arrival.early.append(step)
        elif client.early is not None:
            client.early.append(step)
        elif isinstance(step, SendingRun):
            self._send_run(client, number, step)
        elif isinstance(step, Sending):
            message, qos = step.message, step.sent.qos
            retain = message.retain and (client.queue.bridge or message.group.startswith(ONLY))
            sent = Message(message.topic, message.payload, qos, retain)
            self._send(client, step.packet, sent, step.is_again)
        elif step.kind == words.SEND:
            _, _, group = step.addresses[0]
            # A bridge gets RETAIN as it was published, others of what is for them alone.
            retain = step.retain and (client.queue.bridge or group.startswith(ONLY))
            sent = Message(step.topic, step.payload, step.qos, retain)
            self._send(client, step.packet, sent, step.is_again)
        elif step.kind == words.SEND_PUBREL:
            if step.packet in client.withheld:
                client.withheld.discard(step.packet)
                self._front.step(number, SessionStep(words.PUBCOMP, step.packet))
                self._soon()
            else:
                client.queue.send_pubrel(step.packet)
        elif step.kind == words.SEND_PUBCOMP:
            client.releasing.pop(step.packet, _nothing)()
        elif step.kind == words.SUBSCRIBED:
            pending = client.subscribing.pop(step.packet, None)
            if pending is not None:
                pending.finish(None)
        elif step.kind == words.UNSUBSCRIBED:
            wait = client.unsubscribing.pop(step.packet, None)
            if wait is not None:
                wait.confirm()

    def _send_run(self, client: SlotClient, number: int, sending: SendingRun) -> None:
        run, queue = sending.run, client.queue
        if self._core.hooks.on_acked is None and not (run.retain and queue.bridge):
            if queue.send_run_from_slot(sending.packet, run.topic, sending.payloads()):
                return
        for each in sending.each():
            self.step(number, each)

    def _send(self, client: SlotClient, packet: int, message: Message, is_again: bool) -> None:
        qos = message.qos
        if client.queue.send_from_slot(packet, message, qos, is_again):
            if self._core.hooks.on_acked is not None:
                client.unacknowledged[packet] = Delivery(message, qos, message.retain, "")
            return
        kind = words.PUBACK
        if qos == 2:
            kind = words.PUBREC
            client.withheld.add(packet)
        self._front.step(client.queue.number, SessionStep(kind, packet))
        self._soon()


def _nothing() -> None:
    pass
