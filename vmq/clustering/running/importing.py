"""Sessions that nodes had, as states of slots: what a store had of them before they were in slots.

Each message gets a dot that every store makes alike of the same one: of a session, by its number at its owner and the
place in its queue, whether the owner's store tells of it or a copy; of what waits for another node, by the place in the
outbox. So what several stores have of a session joins as forks do (`vmq.clustering.slots.merge`), whoever comes first:
the owner says of all places of its queues that it has seen them, and which are not done.
"""

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from typing import Final

from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.slots.flow import PACKETS
from vmq.clustering.slots.merge import MIGRATED
from vmq.clustering.slots.queued import StoredMessage
from vmq.clustering.slots.register import ClientRegister, ReceivedId, SentMessage
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import BOOT_BITS, STORE_BITS, Dot, slot_of, split_scope
from vmq.mqtt.message import Delivery
from vmq.store.entries import scope_of

#: Places of a queue; a batch of an outbox has so many for its messages.
_ALL_PLACES: Final = 1 << 45
_BATCH_BITS: Final = 17


def _number(bits: int, *names: object) -> int:
    """A number that every node makes alike of the same names."""
    raw = blake2b(repr(names).encode(), digest_size=8).digest()
    return int.from_bytes(raw, "big") % ((1 << bits) - 1) + 1


def _origin(*names: object) -> int:
    return _number(BOOT_BITS + STORE_BITS, *names)


class StoredQueue:
    """What a store has of one session's messages, each kind in its order.

    Args:
        owner: the node whose session it is.
        session: its number there.
        client: its id, behind the scope of its mountpoint.
    """

    def __init__(self, owner: str, session: bytes, client: str) -> None:
        self.names = owner, session, client
        #: Kind of line -> places with their messages.
        self.lines: dict[str, list[tuple[int, Delivery]]] = {"i": [], "q": [], "h": []}
        self.received: list[int] = []
        #: Of filters that a plugin has put in place of what the client asked for: what that was.
        self.asked: dict[str, str] = {}


class SlotImport:
    """The states of slots of one store, as they gather.

    Args:
        slots: how many the cluster has.
        now: milliseconds of wall clock time.
    """

    def __init__(self, slots: int, now: int) -> None:
        self._slots = slots
        self._now = now
        self.states: dict[int, SlotState] = {}
        self.sessions = 0
        self.messages = 0

    def _state_of(self, client: str) -> SlotState:
        return self.states.setdefault(slot_of(client, self._slots), SlotState())

    def session(
        self,
        client: str,
        user: str,
        left: int,
        subscriptions: Mapping[str, int],
        stored: StoredQueue,
        *,
        is_own: bool,
    ) -> None:
        """A session; `left`: since when its client is away. If it is a copy, its owner knows better."""
        state = self._state_of(client)
        self.sessions += 1
        state.registers[client] = register = ClientRegister()
        register.attached_at = left if is_own else 1
        register.session, register.user, register.left = 1, user, left or self._now
        owner, _, name = stored.names
        point = (0, MIGRATED | _origin(owner, name))
        request = _number(62, owner, name)
        for topic_filter, qos in subscriptions.items():
            register.subscriptions[topic_filter] = 1, qos
            register.born[topic_filter] = ((point, 1, False, request),)
        register.asked = dict(stored.asked)
        for packet in stored.received:
            register.received[packet] = ReceivedId((), b"")
        self._queue(state, client, register, stored)
        if is_own:
            for kind in stored.lines:
                state.context.runs[_origin(kind, *stored.names)] = [1, _ALL_PLACES]

    def _queue(
        self, state: SlotState, client: str, register: ClientRegister, stored: StoredQueue
    ) -> None:
        """What was sent is before what waits."""
        scope, _ = split_scope(client)
        last = 0
        for kind, line in stored.lines.items():
            origin = _origin(kind, *stored.names)
            end = 1 + max((place for place, _ in line), default=0)
            if end > 1:
                state.context.runs[origin] = [1, end]
            for place, delivery in line:
                since = delivery.since or (register.left if kind != "i" else 0)
                last = max(last + 1, since)
                self._put(state, client, (origin, place), delivery, last, scope)
                if kind == "i":
                    self._sent(register, (origin, place), delivery, last)
        register.last_packet = max(
            (each for each in register.window if each <= PACKETS), default=register.last_packet
        )
        state.last = max(state.last, last)

    def _put(
        self, state: SlotState, client: str, dot: Dot, delivery: Delivery, stamp: int, scope: str
    ) -> None:
        if delivery.released:
            return
        message, qos = delivery.message, delivery.qos
        address = scope + delivery.group
        kept = StoredMessage(
            stamp, message.topic, message.payload, qos, address, retain=delivery.retain
        )
        state.put(client, dot, qos, kept)
        self.messages += 1

    def _sent(self, register: ClientRegister, dot: Dot, delivery: Delivery, order: int) -> None:
        """It is under way; at QoS 1 under another packet id if sessions in slots have no such."""
        packet = delivery.packet_id
        if packet <= PACKETS or delivery.qos == 2 or delivery.released:
            register.window[packet] = SentMessage(dot, delivery.released, delivery.qos, order)

    def publish(
        self, place: tuple[int, int, int], index: int, sent: RemotePublish, client: str, qos: int
    ) -> None:
        """What waits in an outbox, or was left here by one, for one session elsewhere."""
        store, life, number = place
        state = self._state_of(client)
        dot = _origin("o", store, life), number << _BATCH_BITS | index
        state.last = stamp = max(self._now, state.last + 1)
        address = scope_of(sent.mountpoint) + sent.group
        kept = StoredMessage(stamp, sent.topic, sent.payload, qos, address, retain=sent.retain)
        state.context.add(dot)
        state.put(client, dot, qos, kept)
        self.messages += 1

    def taken(self, places: Iterable[tuple[int, int, int]]) -> None:
        """This node has taken what was in outboxes for it, up to these places of their stores."""
        runs = {
            _origin("o", store, life): [1, (number + 1) << _BATCH_BITS]
            for store, life, number in places
        }
        for state in self.states.values():
            state.context.runs.update(runs)
