"""One subscriber's queue: what waits, and which limits hold. The sending itself is `vmq.core.inflight`'s.

A queue outlives the connection of a durable session. Its parts, in the order of their sending:

- `burst`: retained messages that a new subscription brought; sent as socket and window allow;
- `quick`: QoS 0 messages that wait only because the socket is full;
- `pending`: QoS 1 and 2 messages that wait for the inflight window;
- the backlog: QoS 1 and 2 messages that are in the store only, between `first` and `last`.

The queue of a durable session lies in the store, connected or not: `pending` is the window of it that is in memory
as well. That of a clean session is in memory alone. What may wait is bounded in bytes, there and here.

QoS 0 never waits for the window, so it may overtake QoS 1 and 2; no order is promised between QoS
levels (section 4.6). Within a QoS, order is kept: a message goes out directly only if nothing that
came before it waits.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

from vmq.core.context import Core
from vmq.core.output import Output
from vmq.core.retained_burst import Bursts
from vmq.core.source import Source
from vmq.core.waiting import (
    PENDING_IN_MEMORY,
    QUEUE_FULL,
    TOO_LARGE,
    WITHHELD,
    Waiting,
)
from vmq.mqtt.message import Delivery, Message
from vmq.store.store import StoreError

#: Seconds after which a publisher reads on though the queue that it waits for is still full.
LONGEST_PAUSE: Final = 5.0


class Queue(Waiting):
    """The queue of one subscriber.

    `wake` asks for a call of `drain_step` soon, outside the present pass.
    """

    def __init__(
        self, client_id: str, core: Core, session: bytes, wake: "Callable[[Queue], None]"
    ) -> None:
        """`session` is the number of the durable session in the store, or empty."""
        super().__init__(client_id, core, session)
        #: A QoS 0 message may go straight to the output.
        self.fast = False
        #: The client is another broker's bridge: it gets RETAIN as it was published, and nothing of its own.
        self.bridge = False
        #: Its session is over, and its subscriptions are leaving.
        self.ended = False
        self.wake = wake
        #: Connections that stopped reading until this queue has room again.
        self.paused_publishers: list[Output] | None = None

    def update_fast(self) -> None:
        self.fast = (
            self.online
            and not self.output.blocked
            and not self.quick
            and self.burst is None
            and not self.bridge
            and not self.options.upgrade_outgoing_qos
            and not self.ended
        )

    # Messages come

    def is_for(self, qos: int) -> bool:
        """Whether share groups may choose it for what is of this QoS."""
        return True

    def sent(self, source: Source) -> bool:
        """Whether a message is a bridge's own: it gets none of these back."""
        return self.bridge and self.online and source.output is self.output

    def deliver(self, message: Message, qos: int, retain: bool, group: str, source: Source) -> None:
        """Takes a message that a subscription matched, at its effective QoS."""
        # What a share group chose this queue for goes to nobody else.
        if self.ended and not group:
            return
        if self.bridge:
            if self.sent(source):
                return
            retain = message.retain
        self.core.counters.queue_message_in += 1
        if qos == 0:
            self.deliver_quick(message, retain, group, source)
            return
        delivery = Delivery(message, qos, retain, group)
        if self.is_too_large(message):
            self.drop(delivery, TOO_LARGE)
            return
        if (
            self.online
            and not self.output.blocked
            and not self.has_waiting()
            and self.has_place(message.length())
        ):
            self.send(delivery)
        else:
            self.wait(delivery, 0, source)

    def is_too_large(self, message: Message) -> bool:
        """Whether its PUBLISH with a packet id is too large: one that came without may be, by the id's two bytes."""
        length = 4 + len(message.topic) + len(message.payload)
        return length > self.options.max_outgoing_length

    def end(self) -> None:
        """Its session is over: what its subscriptions match until they have left goes to nobody."""
        self.ended = True
        self.update_fast()

    def deliver_quick(self, message: Message, retain: bool, group: str, source: Source) -> None:
        """QoS 0: sent at once, or kept while the socket is full, or gone."""
        if not self.online:
            return
        if self.output.blocked or self.quick or self.burst is not None:
            delivery = Delivery(message, 0, retain, group)
            size = message.length()
            if self.is_quick_full(size) and not self.pause_publisher(source):
                if not (self.options.drop_oldest and self.make_quick_room(size)):
                    self.drop(delivery, QUEUE_FULL)
                    return
            quick = self.quick
            if quick is None:
                self.quick = quick = deque()
            quick.append(delivery)
            self.count_quick(size)
            if self.options.max_age > 0:
                delivery.since = self.core.waits_now()
            self.fast = False
        else:
            self.send_quick(message, retain)

    def deliver_retained(
        self,
        topic_filter: str,
        messages: list[Message],
        granted: int,
        allowance: int,
        more: bool = False,
    ) -> None:
        """Takes the retained messages that a new subscription brings [MQTT-3.3.1-6].

        Whatever the queue's limits are, `allowance` of them may wait. Those that a durable session
        must not lose go into its stored queue at once, or are dropped by policy above that; the
        rest only holds references until the socket takes them, and ends the connection above that.

        They may come in several calls, of which all but the first say `more`. Called with no
        messages when the subscription ends: what is left of its burst goes.
        """
        burst = self.burst
        if burst is not None and not more:
            burst.drop(topic_filter)
            if burst.unsent == 0:
                self.burst = burst = None
        rest: list[Message] = []
        for message in messages:
            qos = min(message.qos, granted)
            if self.options.upgrade_outgoing_qos:
                qos = granted
            if qos and self.is_too_large(message):
                self.drop(Delivery(message, qos, True, ""), TOO_LARGE)
            elif qos and self.durable:
                delivery = Delivery(message, qos, True, "")
                if (
                    self.has_waiting()
                    or not self.has_place(message.length())
                    or self.output.blocked
                ):
                    self.wait(delivery, allowance, self.core.nobody)
                else:
                    self.send(delivery)
            else:
                rest.append(message)
        if rest:
            if burst is None:
                self.burst = burst = Bursts()
            if burst.unsent + len(rest) > allowance:
                self.core.counters.retain_bursts_refused += 1
                self.output.close("too many retained messages wait unread for its subscriptions")
                return
            burst.add(topic_filter, rest, granted)
            self.fast = False
        self.pump()

    def wait(self, delivery: Delivery, allowance: int, source: Source) -> None:
        """Queues a QoS 1 or 2 delivery, within the limits or while fewer than `allowance` wait."""
        size = delivery.message.length()
        if not self.make_room(size, allowance, source):
            self.drop(delivery, QUEUE_FULL)
            return
        if self.durable:
            delivery.seq = self.next_seq
            self.next_seq += 1
            store = self.core.store
            assert store is not None
            delivery.since = self.core.waits_since(store)
            if self.puts_off(delivery) and self.online and self.backlog == 0:
                store.put_off(self.session, delivery)
            else:
                store.put_waiting(self.session, delivery)
        elif self.options.max_age > 0:
            delivery.since = self.core.waits_now()
        if not self.online:
            self.tell_offline(delivery)
        pending = self.pending
        lifo = self.options.lifo
        if not self.durable or (self.online and (lifo or self.backlog == 0)):
            if pending is None:
                self.pending = pending = deque()
            pending.append(delivery)
            self.count_pending(size)
            if self.durable:
                self.bound_pending(pending)
            return
        self.leave_to_store(delivery.seq)

    def make_room(self, size: int, allowance: int, source: Source) -> bool:
        """Whether one more message may wait; drops the oldest for it if the options say so."""
        if not self.is_full(size) or self.waiting() < allowance or self.pause_publisher(source):
            return True
        limit = self.byte_limit()
        if not self.options.drop_oldest or self.count_limit() == 0 or 0 <= limit < size:
            return False
        return self.drop_for(size)

    def pause_publisher(self, source: Source) -> bool:
        """Whether the full queue of a connected client takes the message and stops its publisher.

        The publisher finishes the bytes of its last read, so the limit is passed by no more than
        one read of each publisher.
        """
        if not self.options.pause_publisher or not self.online:
            return False
        publisher = source.publisher()
        if publisher is None or publisher is self.output:
            return False  # unread, it could not acknowledge what its own queue waits for
        publishers = self.paused_publishers
        if publishers is None:
            self.paused_publishers = publishers = []
            # Two clients that publish to each other would else wait for each other.
            core = self.core
            if core.call_later is not None:
                core.call_later(LONGEST_PAUSE, self.resume_publishers)
        if publisher not in publishers:
            publishers.append(publisher)
            publisher.pause()
        return True

    def resume_publishers(self) -> None:
        """The queue has room again, or its client is gone."""
        publishers = self.paused_publishers
        if publishers is not None:
            self.paused_publishers = None
            for publisher in publishers:
                publisher.resume()

    # Messages go

    def pump(self) -> bool:
        """Sends what waits as far as socket and window allow, at most one step of it.

        True if the rest has to be sent or loaded by a later step, which `wake` was asked for.
        """
        if not self.online:
            return False
        room = self.options.max_msgs_per_drain_step
        too_old = self.too_old()
        while room > 0 and not self.output.blocked:
            if too_old and self.drop_expired_here(too_old):
                pass
            elif self.burst is not None:
                if not self.send_from_burst(self.burst):
                    return False
            elif self.quick:
                delivery = self.quick.popleft()
                self.count_quick(-delivery.message.length())
                self.send_quick(delivery.message, delivery.retain)
            elif not self.window_open():
                break
            elif self.pending:
                pending = self.pending
                lifo = self.options.lifo
                delivery = pending[-1] if lifo else pending[0]
                if not self.has_place(delivery.message.length()):
                    break
                if lifo:
                    pending.pop()
                else:
                    pending.popleft()
                self.count_pending(-delivery.message.length())
                self.send(delivery)
            elif self.backlog:
                self.wake(self)
                return True
            else:
                break
            room -= 1
        self.update_fast()
        if self.paused_publishers and self.is_half_empty():
            self.resume_publishers()
        if room == 0 and (self.quick or self.has_waiting()):
            self.wake(self)
            return True
        return False

    def send_from_burst(self, bursts: Bursts) -> bool:
        """Sends the next retained message; False if the window has no place for it."""
        burst = bursts.first()
        message = burst.messages[burst.position]
        qos = burst.granted
        if message.qos < qos and not self.options.upgrade_outgoing_qos:
            qos = message.qos
        if qos == 0:
            self.send_quick(message, True)
        elif self.has_place(message.length()):
            self.send(Delivery(message, qos, True, ""))
        else:
            return False
        bursts.step(burst)
        if bursts.unsent == 0:
            self.burst = None
        return True

    def drain_step(self) -> bool:
        """Loads a step of the backlog and sends; True if it wants another call."""
        if not self.online:
            return False
        if not self.pending:
            self.load_pending(self.options.max_msgs_per_drain_step)
        return self.pump()

    def withhold(self, delivery: Delivery) -> None:
        self.drop(delivery, WITHHELD)

    def on_window_open(self) -> None:
        if self.has_waiting():
            self.pump()

    # Connections come and go

    def restore(self, first: int, last: int, last_order: int, first_order: int = 1) -> None:
        """Takes over what the store holds of a session from before the broker's start."""
        self.first = first
        self.last = last
        self.backlog = last - first + 1 if first else 0
        self.next_seq = last + 1
        self.next_order = last_order + 1
        self.first_order = first_order
        self.inflight_is_stored = last_order > 0
        self.checks = first > 0  # one may have been taken away before
        self.skip_ids()
        store = self.core.store
        if not first and not last_order and store is not None:
            store.clear_size(self.session)
        self.core.counters.queue_initialized_from_storage += 1

    def stored_from(self) -> tuple[int, int]:
        """The places before which nothing of it waits in the store, and nothing is in flight."""
        first = self.first or self.next_seq
        order = self.first_order if self.inflight_is_stored else self.next_order
        # What waited and was sent just now may have no entry yet.
        for delivery in (*(self.pending or ()), *self.inflight.values()):
            if delivery.seq:
                first = min(first, delivery.seq)
            if delivery.order:
                order = min(order, delivery.order)
        return max(first, 1), max(order, 1)

    def session_name(self) -> str:
        """What durable state beside the queue is kept under that goes with the session; empty: there is none."""
        return self.session.hex() if self.durable else ""

    def go_online(self, output: Output) -> None:
        """A connection takes the queue: repeats what is unacknowledged, then sends what waits."""
        self.load_inflight()
        self.output = output
        self.online = True
        if self.inflight.count:
            for delivery in self.inflight.values():
                self.send_again(delivery)
        self.update_fast()
        self.pump()
        self.core.jobs.on_online(self)
        self.core.readers.on_online(self)

    def go_offline(self) -> None:
        """The connection of a durable session ended: QoS 0 goes, the rest stays."""
        self.leave_output()
        pending = self.pending
        if pending and self.durable:
            for delivery in pending:
                self.leave_to_store_alone(delivery)
            self.pending = None
        store = self.core.store
        if store is not None:
            store.move_sent(self.session, self.inflight.values())
        self.count_memory()

    def leave_output(self) -> None:
        self.core.jobs.on_offline(self)
        self.core.readers.on_offline(self)
        self.online = False
        self.fast = False
        self.output = self.core.outbox.nowhere
        self.quick = None
        self.burst = None
        if not self.durable:
            self.pending = None
        self.count_memory()
        self.resume_publishers()

    def on_unblocked(self) -> None:
        """The socket takes bytes again."""
        self.pump()
        self.core.readers.on_unblocked(self)

    def take_shared(self, groups: set[str]) -> list[Delivery]:
        """Removes and returns what other members of these share groups should get instead.

        That is what was never sent or not acknowledged, as far as it is in memory or next to be
        loaded: looking through a long backlog would keep all others waiting. A QoS 2 message that was sent to a durable
        session stays with it while that lasts: the client may own it already, and comes back for the rest.
        """
        taken: list[Delivery] = []
        store = self.core.store
        for delivery in self.inflight.values():
            if delivery.released or delivery.group not in groups:
                continue
            if delivery.qos == 1 or not self.durable or self.ended:
                self.inflight.remove(delivery)
                if delivery.order and store is not None:
                    store.remove_inflight(self.session, delivery)
                taken.append(delivery)
        try:
            self.load_pending(PENDING_IN_MEMORY - (len(self.pending) if self.pending else 0))
        except StoreError:
            pass  # what cannot be read stays where it is
        self.pending = self.without(groups, self.pending, taken)
        self.quick = self.without(groups, self.quick, taken)
        self.count_inflight()
        self.count_memory()
        return taken

    def without(
        self, groups: set[str], waiting: deque[Delivery] | None, taken: list[Delivery]
    ) -> deque[Delivery] | None:
        """What stays of a waiting line when the share groups' deliveries are taken from it."""
        if not waiting:
            return waiting
        store = self.core.store
        stays: deque[Delivery] = deque()
        for delivery in waiting:
            if delivery.group not in groups:
                stays.append(delivery)
                continue
            if delivery.seq and store is not None:
                store.remove_waiting(self.session, delivery)
            taken.append(delivery)
        return stays

    # Rights that are taken away

    def drop_unwanted(self) -> None:
        """Subscriptions were taken away: what no other one asks for is not delivered.

        What is in memory goes now, what is in the store when its turn comes.
        """
        self.checks = True
        self.revoked = True
        store = self.core.store
        self.load_inflight()
        for delivery in self.inflight.values():
            if delivery.released or self.is_wanted(delivery):
                continue
            self.inflight.remove(delivery)
            if delivery.order and store is not None:
                store.remove_inflight(self.session, delivery)
            self.pass_on(delivery)
        self.pending = self.only_wanted(self.pending)
        self.quick = self.only_wanted(self.quick)
        self.count_inflight()
        self.count_memory()
        self.pump()
