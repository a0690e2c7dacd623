"""Durable sessions that the broker's store has, of before they were in slots, come into these at the start.

What the store has of them is written as states of slots, in one write: as what this node has of slots that others own,
whoever that will be. Then it goes from the store. Nobody is served before that is done, so a broker that is killed in
between goes on with it at its next start. Owners of slots take it in as they do forks.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from vmq.clustering.running.disk import NOTHING_IMPORTED, SlotDisk
from vmq.clustering.running.importing import SlotImport, StoredQueue
from vmq.clustering.slots.copies import SlotCopy
from vmq.clustering.slots.machine import SlotMachine
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.core.subscriber import OURS, Subscriber
from vmq.store.lines import scan_line
from vmq.store.store import Store

log = logging.getLogger("vmq.cluster")

#: How far it is: the states are written; the store has none of it any more.
_TAKEN: Final = b"1"
_DONE: Final = b"2"


class Migration:
    """What one node's store has.

    Args:
        name: the node's.
        disk: of its slots.
        machine: has these, and runs not yet.
        core: the broker's.
        registries: the topic trees, with the sessions of the store.
        say_routes: told of the filters that clients of a slot want.
    """

    def __init__(
        self,
        name: str,
        disk: SlotDisk,
        machine: SlotMachine,
        core: Core,
        registries: Mapping[str, Registry],
        say_routes: Callable[[int, set[str]], None],
    ) -> None:
        assert core.store is not None, "a node has a store"
        self._name = name
        self._disk = disk
        self._machine = machine
        self._core = core
        self._store: Store = core.store
        self._registries = registries
        self._say_routes = say_routes

    def run(self) -> None:
        """Has all of it in slots, and has it end in the store with the commits that follow.

        Raises:
            StoreError: something of it cannot be read.
            StorageError: it cannot be written.
        """
        own = list(self._own())
        if not self._disk.imported() or (own and self._disk.imported() != _TAKEN):
            self._take(own)
        for registry, subscriber in own:
            registry.end_session(subscriber)
        if self._disk.imported() == _TAKEN:
            for slot, copy in self._machine.copies.items():
                self._say_routes(slot, copy.cold_state(self._machine.here.effects).routes())

    def finish(self) -> None:
        """The store has none of it any more, on its disk."""
        if self._disk.imported() == _TAKEN:
            self._disk.import_all(self._machine.here.effects, _DONE)

    def _own(self) -> Iterator[tuple[Registry, Subscriber]]:
        """Those of this node, but for plugins' own, which are not of clients."""
        for registry in list(self._registries.values()):
            for subscriber in list(registry.subscribers.values()):
                if subscriber.queue.durable and subscriber.owner != OURS:
                    yield registry, subscriber

    def _take(self, own: list[tuple[Registry, Subscriber]]) -> None:
        slots = self._machine.slots
        found = SlotImport(slots, int(self._core.wall_clock() * 1000))
        for registry, subscriber in own:
            self._take_session(found, registry, subscriber)
        effects = self._machine.here.effects
        for slot, state in found.states.items():
            copy = self._machine.copies.setdefault(slot, SlotCopy(slot))
            copy.join(effects, self._machine.here.incarnation, self._machine.view(slot), state)
        self._disk.import_all(effects, _TAKEN if found.states else NOTHING_IMPORTED)
        if found.sessions or found.messages:
            log.info("sessions in slots sessions=%d messages=%d", found.sessions, found.messages)

    # What the store has

    def _take_session(self, found: SlotImport, registry: Registry, subscriber: Subscriber) -> None:
        client = registry.scope + subscriber.client_id
        session = subscriber.queue.session
        stored = StoredQueue(self._name, session, client)
        self._read(stored, session)
        stored.received = subscriber.known_ids(self._core)
        left = registry.offline.get(subscriber.client_id) or registry.now_ms()
        filters = {each: granted.qos for each, granted in subscriber.subscriptions.items()}
        found.session(client, subscriber.owner or "", left, filters, stored)

    def _read(self, stored: StoredQueue, session: bytes) -> None:
        """The messages of a session, which are committed."""
        for kind, line in stored.lines.items():
            for key, value in scan_line(self._store.db, kind.encode() + session):
                raw = value.partition(b"\0")[2] if kind == "h" else value
                delivery = self._store.read_entry(raw)
                if delivery is not None:
                    line.append((int.from_bytes(key[9:], "big"), delivery))
