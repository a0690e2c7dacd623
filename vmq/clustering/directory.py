"""The directory of sessions: which node has which, and what each subscribes to; the records are in the metadata.

Only the owner of a session writes its record (but for a take-over from a node that is down). What this node writes
counts here at once, for its routes and for whoever asks, and is in the metadata at the end of the pass: however
often a session changed in the pass, it is one write. What other nodes write counts when it comes.

While a write waits, another node's may come under the same key. Then the record stands that `records.merge` would
have chosen: a write that this node has not made yet must not win over one that it has not seen only by being late.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final

from vmq.clustering.records import (
    SUBSCRIBERS,
    Record,
    RecordError,
    decode,
    decode_key,
    encode,
    encode_key,
    merge,
    taken_over,
)
from vmq.core import CHANGED, CLAIMED
from vmq.registry import Registry, Subscriber
from vmq_cluster.effects import Changed
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

#: Told of (mountpoint, client id, record before, record now).
Follower = Callable[[str, str, Record | None, Record | None], None]

#: Under this prefix each node notes that its sessions have records.
_NODES: Final = "vmq.nodes"


class Directory:
    """All sessions of the cluster.

    Args:
        node: which runs.
        follow: told of each change of a record, first of all: the routes.
        now: milliseconds of wall clock time.
        call_soon: calls back at the end of the pass.
    """

    def __init__(
        self,
        node: ClusterNode,
        follow: Follower,
        now: Callable[[], int],
        call_soon: Callable[[Callable[[], None]], object],
    ) -> None:
        self._node = node
        self._call_soon = call_soon
        self._follow = follow
        self._now = now
        self._callbacks: list[Follower] = []
        #: What is to be written, None to delete; it counts already.
        self._pending: dict[bytes, Record | None] = {}
        #: Sessions whose record lacks the latest of their subscriptions.
        self._changed: dict[bytes, tuple[Registry, Subscriber]] = {}
        self._is_flush_due = False
        node.merge_with(SUBSCRIBERS, merge)
        node.watch_steps(SUBSCRIBERS, self._on_changes)

    # --- what is known

    def record(self, mountpoint: str, client_id: str) -> Record | None:
        """The record of a session, if there is one."""
        return self._current(encode_key(mountpoint, client_id))

    def records(self) -> Iterator[tuple[str, str, Record]]:
        """All records of the metadata with mountpoint and client id. Nothing is to be written meanwhile."""
        for key, raw in self._node.items(SUBSCRIBERS):
            record = _read(raw)
            name = _name(key)
            if record is not None and name is not None:
                yield *name, record

    def on_owner(self, callback: Follower) -> None:
        """Calls back when a session has another owner, or none any more, or its owner has it anew.

        Here or elsewhere, after the routes follow it.
        """
        self._callbacks.append(callback)

    @property
    def is_new(self) -> bool:
        """Whether this node never noted that its sessions have records."""
        return self._node.get(_NODES, self._node.name.encode()) is None

    def note(self) -> None:
        """All sessions of this node have their records."""
        self._node.put(_NODES, self._node.name.encode(), b"1")

    # --- what this node's sessions do

    def on_subscriber(self, event: int, registry: Registry, subscriber: Subscriber) -> None:
        """What `Core.on_subscriber` is told."""
        if event == CLAIMED:
            self.claim(registry, subscriber)
        elif event == CHANGED:
            self.changed(registry, subscriber)
        else:
            self.ended(registry, subscriber)

    def claim(self, registry: Registry, subscriber: Subscriber) -> None:
        """This node has the session from now on, whoever had it before."""
        key = _key_of(registry, subscriber)
        before = self._current(key)
        # A record that is to be deleted still counts for the time.
        base = before if before is not None else self._stored(key)
        clean = not subscriber.queue.durable
        name = self._node.name
        filters, online = _state(subscriber)
        after = taken_over(base, name, self._now(), clean, filters, online)
        self._write(key, before, after)

    def changed(self, registry: Registry, subscriber: Subscriber) -> None:
        """Its subscriptions changed, or, for a member of share groups, its client came or went."""
        self._changed[_key_of(registry, subscriber)] = (registry, subscriber)
        self._flush_soon()

    def ended(self, registry: Registry, subscriber: Subscriber) -> None:
        """The session is over: so is its record, if it is still this node's."""
        self.forget(registry.mountpoint, subscriber.client_id)

    def forget(self, mountpoint: str, client_id: str) -> None:
        """Deletes a record of this node."""
        key = encode_key(mountpoint, client_id)
        self._changed.pop(key, None)
        before = self._current(key)
        if before is not None and before.node == self._node.name:
            self._write(key, before, None)

    def drop(self, mountpoint: str, client_id: str) -> None:
        """Deletes the record of a clean session whose node is no member any more."""
        key = encode_key(mountpoint, client_id)
        before = self._current(key)
        if before is not None and before.clean and before.node not in self._node.members:
            self._write(key, before, None)

    def give(self, mountpoint: str, client_id: str, node: str) -> None:
        """Makes another node the owner of a session of this one; nothing if it is another's already."""
        key = encode_key(mountpoint, client_id)
        before = self._current(key)
        if before is None or before.node != self._node.name:
            return
        after = Record(node, before.since + 1, before.clean, before.subscriptions, before.online)
        self._write(key, before, after)

    def flush(self) -> None:
        """Puts everything into the metadata. To be called before the store commits what was done with it."""
        self._is_flush_due = False
        for key in list(self._changed):
            self._settle(key)
        pending, self._pending = self._pending, {}
        if not self._node.is_running:
            return
        for key, record in pending.items():
            if record is None:
                self._node.delete(SUBSCRIBERS, key)
                continue
            raw = encode(record)
            if raw == self._node.get(SUBSCRIBERS, key):
                continue
            try:
                self._node.put(SUBSCRIBERS, key, raw)
            except ClusterError as error:
                log.error("other nodes do not learn of the session %r: %s", _name(key), error)

    # --- what other nodes do

    def _on_changes(self, changes: list[Changed]) -> None:
        """All of a step before anybody is told: who is told may ask for any record, and write it."""
        news = []
        for change in changes:
            if not change.local and (name := _name(change.key)) is not None:
                found = self._take_in(change)
                if found is not None:
                    self._follow(*name, *found)
                    news.append((name, found))
        for name, (before, after) in news:
            self._tell(name, before, after)

    def _take_in(self, change: Changed) -> tuple[Record | None, Record | None] | None:
        """What counted and what counts now; None if this node's own write overrules the change."""
        before, after = _read(change.before), _read(change.value)
        if change.key not in self._pending:
            return before, after
        own = self._pending[change.key]
        if _stands(own, after):
            return None
        del self._pending[change.key]
        return own, after

    # --- how it is done

    def _stored(self, key: bytes) -> Record | None:
        return _read(self._node.get(SUBSCRIBERS, key)) if self._node.is_running else None

    def _current(self, key: bytes) -> Record | None:
        if key in self._changed:
            self._settle(key)
        if key in self._pending:
            return self._pending[key]
        return self._stored(key)

    def _settle(self, key: bytes) -> None:
        """Brings the record of a session that changed up to date."""
        registry, subscriber = self._changed.pop(key)
        before = self._current(key)
        if before is None:
            self.claim(registry, subscriber)
        elif before.node == self._node.name:
            after = Record(before.node, before.since, before.clean, *_state(subscriber))
            self._write(key, before, after)

    def _write(self, key: bytes, before: Record | None, after: Record | None) -> None:
        self._pending[key] = after
        self._flush_soon()
        name = decode_key(key)
        self._follow(*name, before, after)
        self._tell(name, before, after)

    def _tell(self, name: tuple[str, str], before: Record | None, after: Record | None) -> None:
        if _ownership(before) == _ownership(after):
            return
        for callback in self._callbacks:
            try:
                callback(*name, before, after)
            except Exception:
                log.exception("a callback for the owner of %r failed", name)

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._call_soon(self._flush_due)

    def _flush_due(self) -> None:
        if self._is_flush_due:
            self.flush()


def _key_of(registry: Registry, subscriber: Subscriber) -> bytes:
    return encode_key(registry.mountpoint, subscriber.client_id)


def _state(subscriber: Subscriber) -> tuple[dict[str, int], bool]:
    """The subscriptions of a session, and whether it counts as online."""
    filters = {name: each.qos for name, each in subscriber.subscriptions.items()}
    return filters, subscriber.output is not None or not subscriber.is_shared()


def _ownership(record: Record | None) -> tuple[str, int] | None:
    return None if record is None else (record.node, record.since)


def _stands(own: Record | None, other: Record | None) -> bool:
    """Whether what this node is about to write stays true beside what another wrote."""
    if own is None or other is None:
        return other is None
    return (own.since, own.node) >= (other.since, other.node)


def _read(raw: bytes | None) -> Record | None:
    """A record of the metadata; what is none counts as nothing."""
    if raw is None:
        return None
    try:
        return decode(raw)
    except RecordError as error:
        log.warning("%s", error)
        return None


def _name(key: bytes) -> tuple[str, str] | None:
    try:
        return decode_key(key)
    except RecordError as error:
        log.warning("%s", error)
        return None
