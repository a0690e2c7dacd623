"""A broker without a cluster takes back what it has in slots: sessions are in its store again.

So it does if no other node has any of them: with others, sessions would go on in two places that know nothing of each
other. It is done before anybody is served, slot by slot, and the slots go when the store has them all; a broker that
is killed in between begins again, and puts each session in the place of what it had of it.
"""

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from vmq.clustering.messages.slots import SlotView
from vmq.clustering.running.disk import SlotDisk
from vmq.clustering.slots.copies import load_copies
from vmq.clustering.slots.effects import Effects
from vmq.clustering.slots.queued import StoredMessage
from vmq.clustering.slots.register import ClientRegister, ReceivedId
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import (
    GROUP,
    Dot,
    handed_on,
    of_group_queue,
    split_scope,
    store_of,
)
from vmq.mqtt.message import NO_MESSAGE, Delivery
from vmq.store.lines import scan
from vmq.store.opening import stored_sessions
from vmq.store.store import FORMAT, Store
from vmq_cluster.errors import ClusterError, StorageError

log = logging.getLogger("vmq.cluster")

#: What is left of the database when its sessions are in the store.
_OLD: Final = ".taken-back"


def take_back(folder: Path, store: Store) -> None:
    """Has the sessions of a database of slots in a broker's store, and removes it.

    Args:
        folder: the database.
        store: has nothing to commit.

    Raises:
        ClusterError: other nodes have some of them, or they cannot be read.
    """
    old = folder.with_name(folder.name + _OLD)
    shutil.rmtree(old, ignore_errors=True)
    if not folder.exists():
        return
    try:
        disk = SlotDisk(folder, "os")
        try:
            sessions = Return(store, disk).run()
        finally:
            disk.release()
    except StorageError as error:
        raise ClusterError(str(error)) from None
    folder.rename(old)
    shutil.rmtree(old)
    if sessions:
        log.info("sessions are in slots no more sessions=%d", sessions)


class Return:
    """The slots of one node, on their way."""

    def __init__(self, store: Store, disk: SlotDisk) -> None:
        self._store = store
        self._own = disk.own_store()
        self._disk = disk.storage
        self._views, self._copies = load_copies(self._disk)
        stored_sessions(store)  # a new one gets a number that none has
        self._numbers = dict(_sessions(store))
        #: What waits for whoever is a member of a share group, and a member of each.
        self._unclaimed: list[tuple[str, StoredMessage, int]] = []
        self._members: dict[str, tuple[bytes, int]] = {}
        self._next: dict[bytes, int] = {}
        #: Those with clients, or with messages for a share group.
        self._slots: dict[int, SlotState] = {}

    def run(self) -> int:
        """Returns how many sessions there were."""
        count = 0
        self._slots = {
            slot: state for slot, state in self._states() if state.registers or state.queues
        }
        self._check()
        for slot, state in self._slots.items():
            for client, register in state.registers.items():
                if register.session:
                    self._put_session(client, register, state)
                    count += 1
            for queue, dots in state.queues.items():
                if queue.startswith(GROUP):
                    to, group = of_group_queue(queue)
                    self._unclaimed += [
                        (group, state.messages[dot], qos)
                        for dot, qos in dots.items()
                        if not self._has(to, handed_on(slot, dot))
                    ]
            self.commit()
        for group, message, qos in self._unclaimed:
            if group in self._members:
                session, granted = self._members[group]
                self._put_waiting(session, message, min(granted, qos))
        self.commit()
        with self._store.db.write_batch(sync=True) as batch:
            batch.put(b"v", FORMAT)  # what was written before is synced with it
        return count

    def commit(self) -> None:
        """What was put into the store is on its disk."""
        self._store.begin_commit()
        self._store.write()
        self._store.end_commit()

    def _states(self) -> Iterator[tuple[int, SlotState]]:
        for slot, copy in self._copies.items():
            effects = Effects(self._disk)  # what it writes is for nobody
            copy.settle(effects, self._own, self._views.get(slot, SlotView()))
            yield slot, copy.state(effects)

    def _check(self) -> None:
        others = [
            slot
            for slot, copy in self._copies.items()
            if copy.whole is not None
            and (view := self._views.get(slot)) is not None
            and (store_of(view.owner) != self._own or view.followers)
        ]
        if others:
            raise ClusterError(
                f"durable sessions are in slots, and other nodes have {len(others)} of these, too: start with "
                "cluster.listen, and without it when the others have left (`vmq cluster leave`) or were removed "
                "(`vmq cluster remove`); or begin with an empty data directory"
            )

    def _put_session(self, client: str, register: ClientRegister, state: SlotState) -> None:
        store = self._store
        before = self._numbers.pop(client, b"")
        if before:
            store.end_session(client, before)
        session = store.create_session(client, register.user or None)
        left = register.left or state.last
        store.put_session(client, session, left, register.user or None)
        scope, _ = split_scope(client)
        for topic_filter, qos in register.granted().items():
            asked = register.asked.get(topic_filter, "")
            store.put_subscription(session, topic_filter, qos, asked)
            if topic_filter.startswith("$share/"):
                self._members.setdefault(scope + topic_filter, (session, qos))
        for packet, received in register.received.items():
            if self._was_taken(received):
                store.put_received(session, packet)
        self._put_messages(session, register, state.queues.get(client, {}), state)

    def _was_taken(self, received: ReceivedId) -> bool:
        """Whether all slots have a message: else its publisher is to bring it as a new one, twice rather than never."""
        return all(
            self._has(slot, dot) for slot, dot, _ in received.addresses if slot in self._slots
        )

    def _has(self, slot: int, dot: Dot) -> bool:
        """Whether a slot has seen a message."""
        state = self._slots.get(slot)
        return state is not None and dot in state.context

    def _put_messages(
        self,
        session: bytes,
        register: ClientRegister,
        queue: dict[tuple[int, int], int],
        state: SlotState,
    ) -> None:
        sent = set()
        window = sorted(register.window.items(), key=lambda item: item[1].order)
        for order, (packet, each) in enumerate(window, 1):
            message = state.messages.get(each.dot)
            is_done = each.is_received or message is None or each.dot not in queue
            if is_done and each.qos == 1:
                continue
            if is_done or message is None:
                delivery = Delivery(NO_MESSAGE, 2, False, "")
                delivery.released = True
            else:
                delivery = message.delivery(each.qos)
                sent.add(each.dot)
            delivery.packet_id, delivery.order = packet, order
            self._store.put_inflight(session, delivery)
        for dot, qos in queue.items():
            if dot not in sent:
                self._put_waiting(session, state.messages[dot], qos)

    def _put_waiting(self, session: bytes, message: StoredMessage, qos: int) -> None:
        delivery = message.delivery(qos)
        self._next[session] = delivery.seq = self._next.get(session, 0) + 1
        delivery.since = max(1, message.stamp - self._store.clock_set)
        self._store.put_waiting(session, delivery)


def _sessions(store: Store) -> Iterator[tuple[str, bytes]]:
    """The durable sessions that a store has, by client behind the scope of its mountpoint."""
    for key, value in scan(store.db, b"s"):
        yield key[1:].decode(), value[:8]
