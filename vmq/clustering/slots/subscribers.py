"""Who in a slot gets a message: its subscriptions.

A subscription is a record of its slot; SUBACK waits until it is safe and the nodes in reach have the route.
"""

from collections.abc import Callable
from typing import Final

from vmq.clustering.messages.fronts import OfferTaken, SessionStep
from vmq.clustering.slots.attachment import Attachment
from vmq.clustering.slots.limits import QueueLimits
from vmq.clustering.slots.owned import OwnedSlot
from vmq.clustering.slots.queued import StoredMessage
from vmq.clustering.slots.sharing import ShareGroups
from vmq.clustering.slots.words import (
    GROUP,
    NO_LINEAGE,
    ONLY,
    UNCLAIMED,
    Dot,
    split_scope,
)
from vmq.mqtt.special import is_served
from vmq_cluster.errors import StorageError

#: Why a client lost a message, as plugins are told.
QUEUE_FULL: Final = "queue_full"
EXPIRED: Final = "expired"
#: Milliseconds that a publisher waits for a client that is slow (`vmq.core.queue.LONGEST_PAUSE`).
LONGEST: Final = 5_000


class HeldOffers:
    """Messages that full queues took, of which the origins are not told until there is room: `queue.overflow`.

    So their publishers wait for their acknowledgements, and nobody else's do.
    """

    def __init__(self, owned: OwnedSlot) -> None:
        self._owned = owned
        self._here = owned.here
        #: By client whose queue is full: since when, and what was offered by which store.
        self._held: dict[str, tuple[int, list[tuple[int, Dot]]]] = {}

    def hold(self, client: str, store: int, dot: Dot) -> None:
        """A message waits for room in this client's queue, where it is."""
        found = self._held.get(client)
        if found is None:
            found = self._held[client] = self._here.reach.running, []
        found[1].append((store, dot))

    def has(self, client: str) -> bool:
        return client in self._held

    def are_any(self) -> bool:
        return bool(self._held)

    def release(self, client: str) -> None:
        """There is room, or the client is gone: origins are told what is safe."""
        found = self._held.pop(client, None)
        if found is None:
            return
        by_store: dict[int, list[Dot]] = {}
        for store, dot in found[1]:
            by_store.setdefault(store, []).append(dot)
        self._owned.when_safe(lambda: self._tell(by_store))

    def _tell(self, by_store: dict[int, list[Dot]]) -> None:
        slot, lineage = self._owned.slot, self._owned.view.lineage
        for store, dots in by_store.items():
            self._here.send(store, OfferTaken(slot, lineage, dots, False, self._here.clock))

    def look(self) -> None:
        """Time has passed: nobody waits for ever."""
        for client, (since, _) in list(self._held.items()):
            if self._here.reach.running - since >= LONGEST:
                self.release(client)


class Subscribers:
    """The subscriptions of one slot, for its owner.

    Args:
        serving: the attachments.
        left: clients of whom it is known that they have none.
        to_deliver: those whose queues have more.
    """

    def __init__(
        self,
        owned: OwnedSlot,
        serving: dict[str, Attachment],
        left: dict[str, int],
        to_deliver: dict[str, None],
    ) -> None:
        self._owned = owned
        self._serving = serving
        self._left = left
        self._to_deliver = to_deliver
        self._here = owned.here
        self._state = owned.state
        #: SUBACKs that wait for routes: ticket -> what follows.
        self._announced: dict[int, Callable[[], None]] = {}
        self._tickets = 0
        #: A client whose full queue took the last message: its publisher is to wait.
        self._full = ""
        self.groups = ShareGroups(owned, serving, to_deliver, self.is_full)

    # Subscriptions

    def subscribe(
        self, client: str, step: SessionStep, request: int, then: Callable[[], None]
    ) -> None:
        has_forks = not self._owned.has_all_forks()
        for topic_filter, qos in step.filters:
            now, asked = self._here.time(), step.asked.get(topic_filter, "")
            self._state.subscribe(client, topic_filter, qos, now, request, has_forks, asked)
            self.groups.joined(client, topic_filter, qos)
        routed = [each for each, qos in step.filters if qos and not is_served(each)]
        self._announce(client, routed, [], then)

    def unsubscribe(self, client: str, filters: list[str], then: Callable[[], None]) -> None:
        register = self._state.registers[client]
        for topic_filter in filters:
            if topic_filter in register.granted():
                self._state.subscribe(client, topic_filter, -1, self._here.time())
                self.groups.left(client, topic_filter)
        self._announce(client, [], filters, then)

    def end(self, client: str, last: int = 0) -> None:
        """A session ends; `last`: its last connection, if its client has another by now."""
        filters = list(self._state.registers[client].granted())
        held = {dot: self._state.messages[dot] for dot in self._state.shared.get(client, ())}
        self._state.end_session(client, self._here.time(), last)
        self.groups.ended(client, held, filters)
        self._announce(client, [], filters, lambda: None)

    def _is_wanted(self, scope: str, topic_filter: str) -> bool:
        return any(
            each.subscriptions.get(topic_filter, (0, -1))[1] > 0
            for client, each in self._state.registers.items()
            if split_scope(client)[0] == scope
        )

    def _announce(
        self, client: str, begun: list[str], ended: list[str], then: Callable[[], None]
    ) -> None:
        """Tells of a client's filters that begin, and that end unless others have them."""
        scope = split_scope(client)[0]
        begun = [scope + each for each in begun]
        ended = [scope + each for each in ended if not self._is_wanted(scope, each)]
        self._tickets += 1
        ticket = self._tickets
        self._announced[ticket] = lambda: self._owned.when_safe(then)
        self._here.effects.routes.append((self._owned.slot, ticket, begun, ended))

    def announced(self, ticket: int) -> None:
        """The nodes in reach have the routes."""
        then = self._announced.pop(ticket, None)
        if then is not None:
            then()

    # Messages

    def take_full(self) -> str:
        """A client whose full queue took a message since somebody asked; "": none."""
        found, self._full = self._full, ""
        return found

    def take(
        self, dot: Dot, topic: bytes, payload: bytes, qos: int, group: str, retain: bool, but: str
    ) -> None:
        """Puts a message that was not seen into queues; see `OfferedMessage`."""
        state = self._state
        stamp = state.stamp(self._here.time())
        self._here.heard_of(stamp)
        message = StoredMessage(stamp, topic, payload, qos, group, 0, retain)
        if message.group:
            if group.startswith(ONLY):
                self._take_for(group[len(ONLY) :], dot, message)
            else:
                self._share(dot, message)
            return
        for client, granted in state.wanted_of(topic, message.scope):
            register = state.registers[client]
            its = self._here.limits.of(register.limits).qos(granted, qos)
            is_new = its > 0 and not (register.ahead.runs and dot in register.ahead)
            if is_new and client != but and self._makes_room(client, message, its):
                self._put(client, dot, its, message)
        if state.lacks != NO_LINEAGE:
            state.put(UNCLAIMED, dot, qos, message)

    def _take_for(self, client: str, dot: Dot, message: StoredMessage) -> None:
        """A message for one client, whatever it subscribes to; its limits are the sender's business."""
        register = self._state.registers.get(client)
        if register is not None and register.session and dot not in register.ahead:
            self._put(client, dot, message.qos, message)

    def _share(self, dot: Dot, message: StoredMessage) -> None:
        """A message for one member of a share group."""
        if self.groups.has_had(dot, message.group):
            return
        client, qos = self.groups.choose(dot, message)
        if client.startswith(GROUP) or self._makes_room(client, message, qos):
            self._put(client, dot, qos, message)

    def _put(self, client: str, dot: Dot, qos: int, message: StoredMessage) -> None:
        """A message joins a client's queue, which was not there before."""
        self._state.put(client, dot, qos, message)
        self._to_deliver[client] = None
        if self._here.tells_kept and client in self._left:
            self._here.effects.kept.append((client, message, qos))

    def _makes_room(self, client: str, message: StoredMessage, qos: int) -> bool:
        """Whether a message may wait for a client; the limits may have the oldest go for it, or several."""
        limits, size = self._limits(client), message.size()
        if not self.is_full(client, size):
            return True
        if limits.pauses and client in self._serving:
            self._full = client
            return True
        is_hopeless = self._most(client, limits) == 0 or 0 <= limits.bytes < size
        while limits.drops_oldest and not is_hopeless:
            oldest = self._oldest(client)
            if oldest is None:
                break
            self._lose(client, oldest, QUEUE_FULL)
            if not self._lacks_bytes(client, size, limits):
                return True
        self._here.effects.dropped.append((client, QUEUE_FULL, message, qos))
        return False

    def _limits(self, client: str) -> QueueLimits:
        register = self._state.registers.get(client)
        return self._here.limits.of(None if register is None else register.limits)

    def _most(self, client: str, limits: QueueLimits) -> int:
        return limits.online if client in self._serving else limits.offline

    def is_full(self, client: str, size: int = 1) -> bool:
        """Whether a client's queue has no room for a message of so many bytes."""
        limits = self._limits(client)
        most, state = self._most(client, limits), self._state
        if most >= 0:
            waiting = state.waiting(client) - len(state.registers[client].window)
            if most <= waiting:
                return True
        return self._lacks_bytes(client, size, limits)

    def _lacks_bytes(self, client: str, size: int, limits: QueueLimits) -> bool:
        """Whether so many bytes more would be too many for a client, whatever their number."""
        return 0 <= limits.bytes < self._state.size_of(client) + size

    def _oldest(self, client: str) -> Dot | None:
        """What waits longest for a client and is not under way to it."""
        state = self._state
        under_way = {sent.dot for sent in state.registers[client].window.values()}
        while True:
            queue = state.queues.get(client, {})
            found = next((dot for dot in queue if dot not in under_way), None)
            if found is not None or not self._reads(client, len(queue) + 1):
                return found

    def _reads(self, client: str, most: int) -> bool:
        """Whether more of a queue is in memory now; what the disk does not give is neither dropped nor expires."""
        try:
            return self._state.load(client, most)
        except StorageError:  # told when its client is about to get it
            return False

    def _lose(self, client: str, dot: Dot, reason: str) -> None:
        lost, qos = self._state.messages[dot], self._state.queues[client][dot]
        self._state.done(client, dot)
        self._here.effects.dropped.append((client, reason, lost, qos))

    def purge(self, client: str, reason: str) -> int:
        """Drops what waits for a client; how much that was. What is under way to it stays."""
        count = 0
        while (dot := self._oldest(client)) is not None:
            self._lose(client, dot, reason)
            count += 1
        return count

    def expire(self) -> None:
        """What has waited too long goes."""
        age = self._here.limits.all.age
        if not age:
            return
        state, oldest = self._state, self._here.agreed() - age
        for client in [each for each in (*state.queues, *state.cold) if each in state.registers]:
            while True:
                first = self._oldest(client)
                if first is None or state.messages[first].stamp >= oldest:
                    break
                self._lose(client, first, EXPIRED)
        for group, message, qos in self.groups.expire(oldest):
            self._here.effects.dropped.append((group, EXPIRED, message, qos))
