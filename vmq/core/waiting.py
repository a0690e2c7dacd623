"""What waits for one subscriber, in memory and in the store, and whether more may wait.

The queue of a durable session lies in the store, connected or not: `pending` is the window of it that is in memory as
well. That of a clean session is in memory alone. What comes and goes is the business of `vmq.core.queue`.
"""

from collections import deque
from typing import Final

from vmq_hooks.types import Message as SeenMessage

from vmq.core.context import Core
from vmq.core.inflight import Sender
from vmq.core.retained_burst import Bursts
from vmq.mqtt.message import Delivery, Transient
from vmq.store.store import StoreError

#: How many messages of a durable session wait in memory as well, and how many bytes they may have, if they are more
#: than one; the rest is loaded when needed.
PENDING_IN_MEMORY: Final = 1000
PENDING_BYTES: Final = 1 << 20

#: How many of the oldest messages are dropped for one that arrives, at most.
DROPS_AT_ONCE: Final = 100

#: The reasons of on_message_drop.
QUEUE_FULL: Final = "queue_full"
STORE_FULL: Final = "store_full"
MEMORY_FULL: Final = "memory_full"
EXPIRED: Final = "expired"
TOO_LARGE: Final = "max_packet_size_exceeded"
NOT_SUBSCRIBED: Final = "not_subscribed"
WITHHELD: Final = "withheld"


class Waiting(Sender):
    """The waiting lines of one subscriber, in the order of their sending; see `vmq.core.queue`."""

    def __init__(self, client_id: str, core: Core, session: bytes) -> None:
        super().__init__(client_id, core, session)
        self.online = False
        self.burst: Bursts | None = None
        self.quick: deque[Delivery] | None = None
        self.pending: deque[Delivery] | None = None
        #: The sizes of what is in `quick` and in `pending`.
        self.quick_bytes: int = 0
        self.pending_bytes: int = 0
        self.backlog: int = 0
        self.first: int = 0
        self.last: int = 0
        #: Since when the message at which place of the backlog waits, as it was seen last.
        self.seen_first: int = 0
        self.seen_since: int = 0
        self.dropped: int = 0
        #: What is loaded from the store may be for a subscription that was taken away.
        self.checks = False
        #: In this broker's life one was.
        self.revoked = False

    # What is there

    def waiting(self) -> int:
        """Messages that wait to be sent for the first time, retained bursts apart."""
        count = self.backlog
        if self.pending is not None:
            count += len(self.pending)
        if self.quick is not None:
            count += len(self.quick)
        return count

    def has_waiting(self) -> bool:
        """Whether a QoS 1 or 2 message has to queue up behind others."""
        return bool(self.pending) or self.backlog > 0 or self.burst is not None

    def is_idle(self) -> bool:
        """Whether what comes now is sent at once, at any QoS, to a client that is there."""
        return not self.output.blocked and not self.has_waiting() and self.window_open()

    def count_memory(self) -> None:
        """What waits in memory has changed otherwise than message by message."""
        self.core.waiting_bytes -= self.droppable_bytes()
        self.pending_bytes = size_of(self.pending)
        self.quick_bytes = size_of(self.quick)
        self.core.waiting_bytes += self.droppable_bytes()

    def count_quick(self, change: int) -> None:
        """`quick` has so many bytes more."""
        self.quick_bytes += change
        self.core.waiting_bytes += change

    def count_pending(self, change: int) -> None:
        """`pending` has so many bytes more."""
        self.pending_bytes += change
        if not self.durable:
            self.core.waiting_bytes += change

    # Whether more may wait

    def count_limit(self) -> int:
        """How many messages may wait now; -1: any number."""
        options = self.options
        limit = options.max_offline_messages
        if self.online:
            # While it still drains what it collected offline, the larger limit holds.
            online = options.max_online_messages
            if self.backlog == 0 or online < 0 or (limit >= 0 and online > limit):
                limit = online
        return limit

    def byte_limit(self) -> int:
        """How many bytes may wait at QoS 1 and 2; -1: any number."""
        return self.options.max_bytes if self.durable else self.options.max_memory_bytes

    def waiting_bytes(self) -> int:
        """What counts for `byte_limit`: on disk for a durable session, with what is in flight; else in memory."""
        store = self.core.store
        if self.durable and store is not None:
            return store.sizes.of(self.session)
        return self.pending_bytes + self.quick_bytes

    def is_full(self, size: int) -> bool:
        """Whether a QoS 1 or 2 message of this size may not wait."""
        limit = self.count_limit()
        return 0 <= limit <= self.waiting() or self.lacks_bytes(size)

    def has_room(self, qos: int, size: int) -> bool:
        """Whether a message of this QoS and size may wait, without another being dropped for it."""
        return not (self.is_full(size) if qos else self.is_quick_full(size))

    def lacks_bytes(self, size: int) -> bool:
        """Whether so many bytes more would be too many at QoS 1 and 2, whatever their number."""
        limit = self.byte_limit()
        return limit >= 0 and self.waiting_bytes() + size > limit

    def is_quick_full(self, size: int) -> bool:
        """Whether a QoS 0 message of this size may not wait."""
        limit = self.options.max_online_messages
        return 0 <= limit <= self.waiting() or self.lacks_memory(size)

    def lacks_memory(self, size: int) -> bool:
        """Whether so many bytes more would be too many in memory, whatever their number."""
        limit = self.options.max_memory_bytes
        return limit >= 0 and self.pending_bytes + self.quick_bytes + size > limit

    def is_half_empty(self) -> bool:
        """Whether half of what may wait for a connected client has room."""
        options = self.options
        limit = options.max_online_messages
        if limit >= 0 and self.waiting() > limit // 2:
            return False
        limit = options.max_memory_bytes
        if limit >= 0 and self.pending_bytes + self.quick_bytes > limit // 2:
            return False
        limit = self.byte_limit()
        return limit < 0 or self.waiting_bytes() <= limit // 2

    # What goes unsent

    def make_quick_room(self, size: int) -> bool:
        """Drops the oldest QoS 0 messages for one; False if they are none, or not enough. One for one as `drop_for`."""
        if 0 <= self.options.max_memory_bytes < size:
            return False
        for _ in range(DROPS_AT_ONCE):
            quick = self.quick
            if not quick:
                return False
            self.drop_quick(quick, QUEUE_FULL)
            if not self.lacks_memory(size):
                break
        return True

    def drop_quick(self, quick: deque[Delivery], reason: str) -> None:
        """Drops the oldest QoS 0 message that waits."""
        oldest = quick.popleft()
        self.count_quick(-oldest.message.length())
        self.drop(oldest, reason)

    def droppable_bytes(self) -> int:
        """What waits in memory alone."""
        return self.quick_bytes if self.durable else self.quick_bytes + self.pending_bytes

    def drop_from_memory(self, reason: str) -> bool:
        """Drops the oldest message that waits in memory alone, of QoS 0 first; False if there is none."""
        quick = self.quick
        if quick:
            self.drop_quick(quick, reason)
            return True
        return not self.durable and self.drop_oldest(reason)

    def drop_oldest(self, reason: str) -> bool:
        """Drops the message that waits longest; False if there is none of QoS 1 or 2."""
        pending = self.pending
        stored_first = self.options.lifo and self.backlog > 0
        if pending and not stored_first:
            self.drop_pending(pending, reason)
            return True
        store = self.core.store
        while self.backlog > 0:
            assert store is not None
            try:
                found = store.load_waiting(self.session, self.first)
            except StoreError:
                return False  # what cannot be read stays, and is no publisher's fault
            self.step_backlog(True, found is not None)
            if found is not None:
                store.remove_waiting(self.session, found)
                self.drop(found, reason)
                return True
        return False

    def drop_for(self, size: int) -> bool:
        """Drops what waits longest at QoS 1 and 2 for one message; False if there is none, or not enough.

        One goes for one, however many wait: a queue may be beyond its limit by what was retained, or by what it
        collected while a larger limit held. As many go as their bytes need.
        """
        for _ in range(DROPS_AT_ONCE):
            if not self.drop_oldest(QUEUE_FULL):
                return False
            if not self.lacks_bytes(size):
                break
        return True

    def drop_pending(self, pending: deque[Delivery], reason: str) -> None:
        """Drops the first QoS 1 or 2 message that waits in memory, and in the store."""
        store = self.core.store
        oldest = pending.popleft()
        self.count_pending(-oldest.message.length())
        if oldest.seq and store is not None:
            store.remove_waiting(self.session, oldest)
        self.drop(oldest, reason)

    def too_old(self) -> int:
        """What waits since before this time, by `Core.waits_now`, is too old; 0: nothing is."""
        age = self.options.max_age
        return max(0, self.core.waits_now() - int(age * 1000)) if age > 0 else 0

    def drop_expired(self, limit: int) -> bool:
        """Drops up to so many messages that are too old; whether there may be more."""
        oldest = self.too_old()
        left = limit if oldest else 0
        while left > 0:
            if not self.drop_expired_here(oldest) and not self.drop_expired_there(oldest):
                return False
            left -= 1
        return oldest > 0

    def drop_expired_here(self, oldest: int) -> bool:
        """Drops a message in memory that waits since before `oldest`; False if there is none."""
        quick = self.quick
        if quick and 0 < quick[0].since < oldest:
            self.drop_quick(quick, EXPIRED)
            return True
        pending = self.pending
        if pending and 0 < pending[0].since < oldest:
            self.drop_pending(pending, EXPIRED)
            return True
        return False

    def drop_expired_there(self, oldest: int) -> bool:
        """Drops the oldest message of the backlog if it has expired; whether it did."""
        store = self.core.store
        while self.backlog > 0 and store is not None:
            if self.first == self.seen_first and self.seen_since >= oldest:
                return False
            found = store.load_waiting(self.session, self.first)
            is_old = found is not None and 0 < found.since < oldest
            if found is not None and not is_old:
                self.seen_first = self.first
                self.seen_since = found.since
                return False
            self.step_backlog(True, is_old)
            if found is not None:
                store.remove_waiting(self.session, found)
                self.drop(found, EXPIRED)
                return True
        return False

    def drop(self, delivery: Delivery, reason: str) -> None:
        """A message is lost to this subscriber by policy: counted, and told to plugins."""
        self.dropped += 1
        core = self.core
        core.counters.queue_message_drop += 1
        if reason == EXPIRED:
            core.counters.queue_message_expired += 1
        core.losses.add(self.mountpoint, self.client_id, reason, len(delivery.message.payload))
        hook = self.core.hooks.on_message_drop
        if hook is not None:
            message = delivery.message
            qos = delivery.qos
            retain = delivery.retain
            self.core.tell(
                "on_message_drop",
                hook,
                self.subscriber_id(),
                lambda: SeenMessage(message.topic.decode(), message.payload, qos, retain),
                reason,
            )

    def tell_offline(self, delivery: Delivery) -> None:
        hook = self.core.hooks.on_offline_message
        if hook is not None:
            message = delivery.message
            self.core.tell(
                "on_offline_message",
                hook,
                self.subscriber_id(),
                SeenMessage(message.topic.decode(), message.payload, delivery.qos, delivery.retain),
            )

    # Memory and store

    def bound_pending(self, pending: deque[Delivery]) -> None:
        """What of a stored queue is more than memory may hold is in the store alone from now on."""
        while len(pending) > PENDING_IN_MEMORY or (
            self.pending_bytes > PENDING_BYTES and len(pending) > 1
        ):
            # Newest first: the oldest in memory is the next one to leave it. In the order of
            # arrival it is the newest, which joins the end of the stored ones.
            delivery = pending.popleft() if self.options.lifo else pending.pop()
            self.count_pending(-delivery.message.length())
            self.leave_to_store_alone(delivery)

    def leave_to_store_alone(self, delivery: Delivery) -> None:
        """A delivery that waits is no longer in memory."""
        store = self.core.store
        if not delivery.key and store is not None:
            store.settle()
        self.leave_to_store(delivery.seq)

    def leave_to_store(self, seq: int) -> None:
        """A stored delivery is no longer in memory."""
        if self.backlog == 0:
            self.first = seq
            self.last = seq
        else:
            self.first = min(self.first, seq)
            self.last = max(self.last, seq)
        self.backlog += 1

    def step_backlog(self, from_first: bool, found: bool) -> None:
        """One place of the backlog is dealt with, whether a message was `found` there or not.

        A place is empty when its message went to another member of a share group. The count is
        exact until a restart, and then at least what is there, until the end is reached.
        """
        if from_first:
            self.first += 1
        else:
            self.last -= 1
        if found:
            self.backlog -= 1
        if self.first > self.last or self.backlog == 0:
            self.backlog = 0
            self.first = 0
            self.last = 0

    def load_pending(self, room: int) -> None:
        """Takes the next of the backlog into memory, so many places of it at most."""
        store = self.core.store
        if store is None or self.backlog == 0:
            return
        pending = self.pending
        if pending is None:
            self.pending = pending = deque()
        lifo = self.options.lifo
        while self.backlog > 0 and room > 0 and self.pending_bytes < PENDING_BYTES:
            if lifo:
                run = [store.load_waiting(self.session, self.last)]
            else:
                last = min(self.last, self.first + room - 1)
                most = PENDING_BYTES - self.pending_bytes
                run = store.load_run(self.session, self.first, last, most)
            for found in run:
                self.step_backlog(not lifo, found is not None)
                room -= 1
                if found is None or (self.checks and not self.keeps(found)):
                    continue
                self.count_pending(found.message.length())
                if lifo:
                    pending.appendleft(found)
                else:
                    pending.append(found)

    # What nobody asks for any more

    def only_wanted(self, waiting: deque[Delivery] | None) -> deque[Delivery] | None:
        """What stays of a waiting line."""
        if not waiting:
            return waiting
        stays: deque[Delivery] = deque()
        for delivery in waiting:
            if self.keeps(delivery):
                stays.append(delivery)
        return stays

    def keeps(self, delivery: Delivery) -> bool:
        """Whether a delivery that waits is wanted; else it leaves the queue."""
        if self.is_wanted(delivery):
            return True
        store = self.core.store
        if delivery.seq and store is not None:
            store.remove_waiting(self.session, delivery)
        self.pass_on(delivery)
        return False

    def is_wanted(self, delivery: Delivery) -> bool:
        """Whether one of the session's present subscriptions matches."""
        registry = self.core.registries.find(self.mountpoint)
        if registry is None or isinstance(delivery, Transient):
            return True
        wanted: bool = registry.wants(self, delivery.message.topic, delivery.group)
        return wanted

    def pass_on(self, delivery: Delivery) -> None:
        """What is not wanted here another member of the share group gets, if one chose this queue."""
        registry = self.core.registries.find(self.mountpoint) if delivery.group else None
        if registry is not None:
            registry.redeliver(delivery)
        else:
            self.drop(delivery, NOT_SUBSCRIBED)


def size_of(waiting: deque[Delivery] | None) -> int:
    """What the messages of a waiting line have together."""
    size = 0
    if waiting:
        for delivery in waiting:
            size += delivery.message.length()
    return size
