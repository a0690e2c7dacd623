"""Sessions that a broker had by itself, as states of slots: what its store had of them before they were in slots.

Each message gets a dot that is made alike as often as it is made: by the number of its session and the place in its
queue. So what was killed in the middle joins as forks do (`vmq.clustering.slots.merge`): the store says of all places
of its queues that it has seen them, and which are not done.
"""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from vmq.clustering.slots.flow import PACKETS
from vmq.clustering.slots.merge import MIGRATED
from vmq.clustering.slots.queued import StoredMessage
from vmq.clustering.slots.register import ClientRegister, ReceivedId, SentMessage
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import BOOT_BITS, STORE_BITS, Dot, slot_of, split_scope
from vmq.mqtt.message import Delivery

#: Places of a queue.
_ALL_PLACES: Final = 1 << 45


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
    ) -> None:
        """A session; `left`: since when its client is away."""
        state = self._state_of(client)
        self.sessions += 1
        state.registers[client] = register = ClientRegister()
        register.attached_at = left
        register.session, register.user, register.left = 1, user, left or self._now
        owner, _, name = stored.names
        point = (0, MIGRATED | _origin(owner, name))
        request = _number(62, owner, name)
        for topic_filter, qos in subscriptions.items():
            register.subscriptions[topic_filter] = 1, qos
            register.born[topic_filter] = ((point, 1, False, request),)
        for packet in stored.received:
            register.received[packet] = ReceivedId((), b"")
        self._queue(state, client, register, stored)

    def _queue(
        self, state: SlotState, client: str, register: ClientRegister, stored: StoredQueue
    ) -> None:
        """What was sent is before what waits."""
        scope, _ = split_scope(client)
        last = 0
        for kind, line in stored.lines.items():
            origin = _origin(kind, *stored.names)
            state.context.runs[origin] = [1, _ALL_PLACES]
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
