"""Durable sessions that the broker's store has, of before they were in slots, come into these at the start.

What the store has of them is written as states of slots, in one write: as what this node has of slots that others own,
whoever that will be. Then it goes from the store. Nobody is served before that is done, so a broker that is killed in
between goes on with it at its next start. A store that was a node's has more: copies of others' sessions, and messages
that wait for other nodes. Owners of slots take all of it in as they do forks.
"""

import logging
import struct
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Final

from vmq.clustering.delivery.outbox_storage import (
    TAKEN,
    prefix_of,
    stored_lanes,
    stored_parcels,
)
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.records import Record
from vmq.clustering.messages.codec import decode_parcel
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.running.disk import NOTHING_IMPORTED, SlotDisk
from vmq.clustering.running.importing import SlotImport, StoredQueue
from vmq.clustering.running.old_records import (
    ABOUT_COPIES,
    COPY,
    KEPT,
    CopyHeader,
    decode_copy,
    decode_hints,
)
from vmq.clustering.running.service import SlotService
from vmq.clustering.slots.copies import SlotCopy
from vmq.clustering.slots.machine import SlotMachine
from vmq.clustering.slots.words import split_scope
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.core.subscriber import OURS, Subscriber
from vmq.mqtt.topics import matches
from vmq.persistence.group_commit import Committer
from vmq.store.entries import scope_of
from vmq.store.lines import scan, scan_line
from vmq.store.store import Store, StoreError
from vmq_cluster.errors import ClusterError

log = logging.getLogger("vmq.cluster")

#: How far it is: the states are written; the store has none of it any more.
_TAKEN: Final = b"1"
_DONE: Final = b"2"

#: A client behind the scope of its mountpoint, with what the directory says of its session.
_Told = tuple[str, Record]


class Migration:
    """What one node's store has.

    Args:
        name: the node's.
        disk: of its slots.
        machine: has these, and runs not yet.
        core: the broker's.
        registries: the topic trees, with the sessions of the store.
        directory: says which node has which session.
        say_routes: told of the filters that clients of a slot want.
        has_copies: other nodes have copies of sessions.
    """

    def __init__(
        self,
        name: str,
        disk: SlotDisk,
        machine: SlotMachine,
        core: Core,
        registries: Mapping[str, Registry],
        directory: Directory,
        say_routes: Callable[[int, set[str]], None],
        has_copies: bool,
    ) -> None:
        assert core.store is not None, "a node has a store"
        self._name = name
        self._disk = disk
        self._machine = machine
        self._core = core
        self._store: Store = core.store
        self._registries = registries
        self._directory = directory
        self._say_routes = say_routes
        self._has_copies = has_copies

    def run(self) -> None:
        """Has all of it in slots, and has it end in the store with the commits that follow.

        Raises:
            StoreError: something of it cannot be read.
            StorageError: it cannot be written.
        """
        told = list(self._told())
        own = list(self._own())
        if not self._disk.imported() or (own and self._disk.imported() != _TAKEN):
            self._take(own, told)
        for registry, subscriber in own:
            registry.end_session(subscriber, is_moved=True)
        self._drop_of_others()
        if self._disk.imported() == _TAKEN:
            for slot, copy in self._machine.copies.items():
                self._say_routes(
                    slot, copy.state(self._machine.here.effects, is_cold=True).routes()
                )
        for client, record in told:
            if record.node == self._name:
                self._directory.forget(*_split(client))
        self._directory.flush()

    def finish(self) -> None:
        """The store has none of it any more, on its disk."""
        if self._disk.imported() == _TAKEN:
            self._disk.import_all(self._machine.here.effects, _DONE)

    def _told(self) -> Iterator[_Told]:
        """Durable sessions of nodes, by the directory."""
        for mountpoint, client_id, record in self._directory.records():
            if not (record.clean or record.is_in_slot):
                yield scope_of(mountpoint) + client_id, record

    def _own(self) -> Iterator[tuple[Registry, Subscriber]]:
        """Those of this node, but for plugins' own, which are not of clients."""
        for registry in list(self._registries.values()):
            for subscriber in list(registry.subscribers.values()):
                if subscriber.queue.durable and subscriber.owner != OURS:
                    yield registry, subscriber

    def _take(self, own: list[tuple[Registry, Subscriber]], told: list[_Told]) -> None:
        slots = self._machine.slots
        found = SlotImport(slots, int(self._core.wall_clock() * 1000))
        clients = set()
        for registry, subscriber in own:
            clients.add(self._take_session(found, registry, subscriber))
        if not self._disk.imported():
            records = dict(told)
            self._take_copies(found, records)
            for client, record in told:
                is_own = record.node == self._name
                if client not in clients and (is_own or not self._has_copies):
                    empty = StoredQueue(record.node, b"", client)
                    found.session(
                        client, record.user, 0, record.subscriptions, empty, is_own=is_own
                    )
            found.taken(self._places_taken())
            self._take_outboxes(found, told)
            self._take_hints(found)
        effects = self._machine.here.effects
        for slot, state in found.states.items():
            copy = self._machine.copies.setdefault(slot, SlotCopy(slot))
            copy.join(effects, self._machine.here.incarnation, self._machine.view(slot), state)
        self._disk.import_all(effects, _TAKEN if found.states else NOTHING_IMPORTED)
        if found.sessions or found.messages:
            log.info("sessions in slots sessions=%d messages=%d", found.sessions, found.messages)

    # What the store has

    def _take_session(self, found: SlotImport, registry: Registry, subscriber: Subscriber) -> str:
        client = registry.scope + subscriber.client_id
        session = subscriber.queue.session
        stored = StoredQueue(self._name, session, client)
        self._read(stored, session)
        stored.received = subscriber.known_ids(self._core)
        left = registry.offline.get(subscriber.client_id) or registry.now_ms()
        filters = {each: granted.qos for each, granted in subscriber.subscriptions.items()}
        stored.asked = subscriber.asked or {}
        found.session(client, subscriber.owner or "", left, filters, stored, is_own=True)
        return client

    def _read(self, stored: StoredQueue, session: bytes) -> None:
        """The messages of a session or a copy, which are committed."""
        for kind, line in stored.lines.items():
            for key, value in scan_line(self._store.db, kind.encode() + session):
                raw = value.partition(b"\0")[2] if kind == "h" else value
                delivery = self._store.read_entry(raw)
                if delivery is not None:
                    if delivery.since:  # slots go by the wall clock as it is
                        delivery.since += self._store.clock_set
                    line.append((int.from_bytes(key[9:], "big"), delivery))

    def _take_copies(self, found: SlotImport, records: dict[str, Record]) -> None:
        """The best copy of each session that belongs to whom the copy says, as far as it is known."""
        best: dict[str, tuple[tuple[bool, int], bytes, CopyHeader]] = {}
        for key, value in scan(self._store.db, COPY):
            head = decode_copy(value)
            record = records.get(head.scoped_id)
            if not head.complete or record is None or record.node != head.owner:
                continue
            if head.owner != self._name:
                rank = head.frozen_at is None, head.life
                known = best.get(head.scoped_id)
                if known is None or known[0] < rank:
                    best[head.scoped_id] = rank, key[1:], head
        for client, (_, number, head) in best.items():
            stored = StoredQueue(head.owner, head.session, client)
            self._read(stored, number)
            filters = {
                key[9:].decode(): value[0]
                for key, value in scan_line(self._store.db, b"u" + number)
            }
            left = head.offline_at or int(self._core.wall_clock() * 1000)
            found.session(client, records[client].user, left, filters, stored, is_own=False)

    def _places_taken(self) -> list[tuple[int, int, int]]:
        """The last places in outboxes of others that this node has taken, of each store of theirs."""
        found = []
        for _, value in scan(self._store.db, TAKEN):
            for begin in range(0, min(len(value), 48), 24):
                store, life, number = struct.unpack_from(">QQQ", value, begin)
                if store:
                    found.append((store, life, number))
        return found

    def _take_outboxes(self, found: SlotImport, told: list[_Told]) -> None:
        """What waits for other nodes, which send it to nobody whose session is in a slot by then."""
        by_node: dict[str, list[_Told]] = defaultdict(list)
        for client, record in told:
            by_node[record.node].append((client, record))
        for peer, last, _, _ in list(stored_lanes(self._store)):
            wanted = _WantedThere(by_node[peer])
            for _, raw in stored_parcels(self._store, prefix_of(peer), last):
                parcel, _ = decode_parcel(raw)
                place = parcel.store, parcel.life, parcel.number
                for index, message in enumerate(parcel.messages):
                    if isinstance(message, RemotePublish) and message.qos:
                        for client, qos in wanted.of(message):
                            found.publish(place, index, message, client, qos)

    def _take_hints(self, found: SlotImport) -> None:
        """What was left here of what waits at another node for a third."""
        for key, value in scan(self._store.db, KEPT):
            store = key[key.index(b"\0") + 1 :][:8]
            place = tuple(int.from_bytes(each, "big") for each in (store, key[-16:-8], key[-8:]))
            for index, hint in enumerate(decode_hints(value).messages):
                for client in hint.clients:
                    publish = hint.publish
                    found.publish(
                        (place[0], place[1], place[2]), index, publish, client, publish.qos
                    )

    def _drop_of_others(self) -> None:
        """Copies and what was left here go, at once: nobody looks after them any more."""
        db = self._store.db
        copies, *others = [
            [key for key, _ in scan(db, kind)] for kind in (COPY, KEPT, *ABOUT_COPIES)
        ]
        if not copies and not any(others):
            return
        with db.write_batch(sync=self._store.sync) as batch:
            for key in chain(copies, *others):
                batch.delete(key)
            for key in copies:
                batch.put(b"g" + key[1:], bytes(16))
        registry = next(iter(self._registries.values()), None)
        for key in copies:
            if registry is not None:
                registry.purge(key[1:])


def migrate(
    slots: SlotService, core: Core, registries: Mapping[str, Registry], directory: Directory
) -> Migration:
    """Has slots take what the broker's store has of sessions.

    Raises:
        ClusterError: it cannot be read or written.
    """
    core.sessions = directory
    machine, has_copies = slots.machines.slots, slots.here.replicas > 1
    migration = Migration(
        slots.name, slots.disk, machine, core, registries, directory, slots.say_routes, has_copies
    )
    try:
        migration.run()
    except StoreError as error:
        raise ClusterError(f"sessions cannot come into slots: {error}") from None
    return migration


async def end_migration(migration: Migration | None, committer: Committer) -> None:
    """No client may be let in before what slots took is out of the broker's store."""
    if migration is not None:
        await committer.finish_all()
        migration.finish()


class _WantedThere:
    """Which sessions of one node get a message, by topic."""

    def __init__(self, told: list[_Told]) -> None:
        self._told = told
        self._found: dict[tuple[str, bytes], list[tuple[str, int]]] = {}

    def of(self, sent: RemotePublish) -> list[tuple[str, int]]:
        """The clients with the QoS for each; of a share group's members the first."""
        scope = scope_of(sent.mountpoint)
        if sent.group:
            members = self._members(scope, sent.group)
            return [(client, min(qos, sent.qos)) for client, qos in members[:1] if qos]
        key = scope, sent.topic
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._find(scope, sent.topic.decode())
        return [(client, min(qos, sent.qos)) for client, qos in found]

    def _members(self, scope: str, group: str) -> list[tuple[str, int]]:
        return [
            (client, record.subscriptions[group])
            for client, record in self._told
            if group in record.subscriptions and _scope_in(client) == scope
        ]

    def _find(self, scope: str, topic: str) -> list[tuple[str, int]]:
        found = []
        for client, record in self._told:
            if _scope_in(client) == scope:
                granted = [
                    qos
                    for each, qos in record.subscriptions.items()
                    if not each.startswith("$share/") and matches(each, topic)
                ]
                if any(granted):
                    found.append((client, max(granted)))
        return found


def _scope_in(client: str) -> str:
    return split_scope(client)[0]


def _split(client: str) -> tuple[str, str]:
    """Mountpoint and client id."""
    scope, client_id = split_scope(client)
    return scope[1:-1], client_id
