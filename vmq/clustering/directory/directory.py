"""The directory of sessions: which node has which, and what each subscribes to; the records are in the metadata.

Only the owner of a session writes its record (but for a take-over from a node that is down). What this node writes
counts here at once, for its routes and for whoever asks, and is in the metadata at the end of the pass: however
often a session changed in the pass, it is one write. What other nodes write counts when it comes.

While a write waits, another node's may come under the same key. Then the record stands that `records.merge` would
have chosen: a write that this node has not made yet must not win over one that it has not seen only by being late.

A session of many subscriptions has its first in its record and the others in pieces
(`vmq.clustering.directory.pieces`), which count for the owner that the record names, while it names them. So a session
changes hands by one write. The pieces hold what the owner says: what another node writes there or deletes, which knew
an older owner, the owner puts right, and it deletes pieces that were made before its own and count no more.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

import msgspec

from vmq.clustering.directory.pieces import PIECE, Filters, Pieces
from vmq.clustering.directory.records import (
    NUMBER,
    SUBSCRIBERS,
    Record,
    RecordError,
    decode,
    decode_key,
    decode_piece,
    encode,
    encode_key,
    encode_piece,
    merge,
    pieces_of,
    taken_over,
)
from vmq.clustering.directory.tally import Census
from vmq.core.context import CHANGED, CLAIMED
from vmq.core.ports import SessionListener
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.protocol.front_queue import FrontQueue
from vmq_cluster.effects import Changed
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

#: Told of (mountpoint, client id, record before, record now).
Follower = Callable[[str, str, Record | None, Record | None], None]

#: By key, what a step has not told yet of what the metadata hold already.
Overlay = dict[bytes, bytes | None]

#: Under this prefix each node notes that its sessions have records.
_NODES: Final = "vmq.nodes"

#: Records that are read at once where others may be written in between.
_PORTION: Final = 100


class Directory(SessionListener):
    """All sessions of the cluster.

    Args:
        node: which runs.
        follow: told of each change of a record or of a piece, each by itself, first of all: the routes.
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
        #: Sessions whose record lacks the latest of their subscriptions, and which those are.
        self._changed: dict[bytes, tuple[Registry, Subscriber, dict[str, None]]] = {}
        #: The pieces of sessions of this node that have several and changed in this life.
        self._pieces: dict[bytes, Pieces] = {}
        #: The keys of pieces that are to be written, by what they begin with.
        self._held: dict[bytes, set[bytes]] = {}
        #: Of a step: by key the records that callbacks know and are to be told of, one however many came.
        self._news: dict[bytes, tuple[Record | None, Record | None]] = {}
        self._is_flush_due = False
        #: What each node has, of what was told or counted by `count_all`.
        self.census = Census()
        node.merge_with(SUBSCRIBERS, merge)
        node.watch_steps(SUBSCRIBERS, self._on_changes)

    # --- what is known

    def record(self, mountpoint: str, client_id: str) -> Record | None:
        """The record of a session, if there is one."""
        key = encode_key(mountpoint, client_id)
        return self._whole(key, self._current(key))

    def records(self) -> Iterator[tuple[str, str, Record]]:
        """All records of the metadata with mountpoint and client id. Nothing is to be written meanwhile."""
        yield from _whole_ones(self._node.items(SUBSCRIBERS))

    def records_while_written(self) -> Iterator[tuple[str, str, Record]]:
        """All records, while others write between two of them: what changes meanwhile may be missing."""
        yield from _whole_ones(self._in_portions())

    def _in_portions(self) -> Iterator[tuple[bytes, bytes]]:
        last: bytes | None = None
        while self._node.is_running:
            portion = list(islice(self._node.items(SUBSCRIBERS, after=last), _PORTION))
            if not portion:
                return
            yield from portion
            last = portion[-1][0]

    def count_all(self) -> Iterator[tuple[str, str, Record]]:
        """All records, which the census has then counted: once, before any changes."""
        for mountpoint, client_id, record in self.records():
            self.census.change(None, record, is_session=True)
            yield mountpoint, client_id, record

    def on_owner(self, callback: Follower) -> None:
        """Calls back when a session has another owner, or none any more, or its owner has it anew.

        Here or elsewhere, after the routes follow it. Of the record before only the first piece may be there.
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

    def on_subscriber(
        self, event: int, registry: Registry, subscriber: Subscriber, topic_filter: str = ""
    ) -> None:
        """What `SessionListener.on_subscriber` is told."""
        if event == CLAIMED:
            self.claim(registry, subscriber)
        elif event == CHANGED:
            self.changed(registry, subscriber, topic_filter)
        else:
            self.ended(registry, subscriber)

    def claim(self, registry: Registry, subscriber: Subscriber) -> None:
        """This node has the session from now on, whoever had it before."""
        key = _key_of(registry, subscriber)
        before = self._current(key)
        # A record that is to be deleted still counts for the time.
        base = before if before is not None else self._stored(key)
        is_clean = not subscriber.queue.durable
        after = taken_over(base, self._node.name, self._now(), is_clean, {})
        if before is not None and before.node == after.node:
            after = msgspec.structs.replace(after, pieces=before.pieces)
        if not is_clean:
            after = msgspec.structs.replace(after, user=subscriber.owner or "")
        if isinstance(subscriber.queue, FrontQueue):
            after = msgspec.structs.replace(after, is_in_slot=True)
        self._renew(key, before, after, subscriber, None)

    def changed(self, registry: Registry, subscriber: Subscriber, topic_filter: str = "") -> None:
        """Its subscription to a filter changed, or, for a member of share groups, its client came or went."""
        key = _key_of(registry, subscriber)
        changed = self._changed.setdefault(key, (registry, subscriber, {}))
        if topic_filter:
            changed[2][topic_filter] = None
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
        """Deletes the record of a session whose node is no member any more."""
        key = encode_key(mountpoint, client_id)
        before = self._current(key)
        if before is not None and before.node not in self._node.members:
            self._write(key, before, None)

    def keys(
        self, registry: Registry, subscriber: Subscriber, filters: Iterable[str]
    ) -> set[bytes]:
        """Under which keys of the metadata it is that a session of this node subscribes to filters."""
        key = _key_of(registry, subscriber)
        head = self._current(key)
        if head is None or head.node != self._node.name:
            return set()
        found = {key}
        if head.pieces:
            pieces = self._pieces_of(key, head)
            numbers = {pieces.place(each) for each in filters}
            found |= {encode_piece(key, head.pieces, each) for each in numbers if each}
        return found

    def flush(self) -> None:
        """Puts everything into the metadata. To be called before the store commits what was done with it."""
        self._is_flush_due = False
        if not self._changed and not self._pending:
            return  # as for most commits
        if not self._node.is_running:
            return  # it may run again
        for key in list(self._changed):
            self._settle(key)
        pending, self._pending = self._pending, {}
        self._held.clear()
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

    def sweep(self) -> None:
        """Deletes pieces that this node may delete and that count no more, as it does at the start."""
        orphans = [
            key
            for key, raw in self._node.items(SUBSCRIBERS)
            if decode_piece(key) is not None
            and (piece := _read(raw)) is not None
            and self._is_orphan(key, piece)
        ]
        for key in orphans:
            self._hold_piece(key, None)

    # --- what other nodes do

    def _on_changes(self, changes: list[Changed]) -> None:
        """All of a step before anybody is told: who is told may ask for any record, and write it."""
        untold: Overlay = {each.key: each.before for each in reversed(changes) if not each.local}
        pieces = []
        for change in changes:
            if change.local:
                continue
            key = change.key
            untold[key] = change.value
            if decode_piece(key) is not None:
                self._on_piece(change, untold)
                pieces.append(key)
            elif _name(key) is not None:
                found = self._take_in(change)
                if found is not None:
                    self._switch(key, *found, untold)
                    self._news[key] = self._news.get(key, found)[0], found[1]
        while self._news:
            key = next(iter(self._news))
            self._tell(key, *self._news.pop(key))
        for key in pieces:
            self._mend(key)

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

    def _on_piece(self, change: Changed, untold: Overlay) -> None:
        """A piece changed: so do the routes, if the session's record names it."""
        found = self._take_in(change)
        place = decode_piece(change.key)
        assert place is not None
        key, pieces, _ = place
        head = self._told(key, untold)
        if found is not None and head is not None and head.pieces == pieces:
            self._follow_piece(
                key, head, *(None if each is None else each.subscriptions for each in found)
            )

    def _mend(self, key: bytes) -> None:
        """A piece that another node wrote or deleted is made what it is to be, if that is this node's to say."""
        place = decode_piece(key)
        assert place is not None
        name, pieces, number = place
        head = self._current(name)
        piece = self._told(key, {})
        if head is None or head.node != self._node.name or head.pieces != pieces:
            if piece is not None and self._is_orphan(key, piece):
                self._hold_piece(key, None)
            return
        filters = self._pieces_of(name, head).pieces.get(number)
        self._write_piece(
            name, head, number, None if piece is None else piece.subscriptions, filters
        )

    def _is_orphan(self, key: bytes, piece: Record) -> bool:
        """Whether a key is that of a piece which counts no more, and which this node may delete.

        That is one that it made, or one of a session of its own from before that was this node's. What was made later
        may belong to a record that has not come yet.
        """
        place = decode_piece(key)
        if place is None:
            return False
        head = self._current(place[0])
        if head is not None and head.pieces == place[1]:
            return False
        own = self._node.name
        if head is not None and head.node == own:
            return (piece.since, piece.node) <= (head.since, own)
        return piece.node == own

    # --- how it is done

    def _stored(self, key: bytes) -> Record | None:
        return _read(self._node.get(SUBSCRIBERS, key)) if self._node.is_running else None

    def _current(self, key: bytes) -> Record | None:
        """The first piece of a session's record."""
        if key in self._changed:
            self._settle(key)
        return self._told(key, {})

    def _told(self, key: bytes, untold: Overlay) -> Record | None:
        """What followers know under a key."""
        if key in self._pending:
            return self._pending[key]
        return _read(untold[key]) if key in untold else self._stored(key)

    def _others(self, key: bytes, head: Record, untold: Overlay) -> dict[int, Filters]:
        """The pieces of a record but the first, as followers know them."""
        if not head.pieces or not self._node.is_running:
            return {}
        begin = pieces_of(key, head.pieces)
        found = {each: _read(raw) for each, raw in self._node.items(SUBSCRIBERS, begin)}
        found.update((each, _read(raw)) for each, raw in untold.items() if each.startswith(begin))
        for each in self._held.get(begin, ()):
            if each in self._pending:
                found[each] = self._pending[each]
        return {
            place[2]: piece.subscriptions
            for each, piece in found.items()
            if piece is not None and (place := decode_piece(each)) is not None
        }

    def _whole(self, key: bytes, head: Record | None) -> Record | None:
        """A record with all its pieces."""
        if head is None or not head.pieces:
            return head
        filters = dict(head.subscriptions)
        for each in self._others(key, head, {}).values():
            filters.update(each)
        return msgspec.structs.replace(head, subscriptions=filters)

    def _pieces_of(self, key: bytes, head: Record) -> Pieces:
        """The pieces of a session of this node."""
        pieces = self._pieces.get(key)
        if pieces is None:
            others = self._others(key, head, {})
            self._pieces[key] = pieces = Pieces({0: head.subscriptions, **others})
        return pieces

    def _settle(self, key: bytes) -> None:
        """Brings the record of a session that changed up to date."""
        registry, subscriber, names = self._changed.pop(key)
        before = self._current(key)
        if before is None:
            self.claim(registry, subscriber)
        elif before.node == self._node.name:
            self._renew(key, before, before, subscriber, names)

    def _renew(
        self,
        key: bytes,
        before: Record | None,
        after: Record,
        subscriber: Subscriber,
        names: Iterable[str] | None,
    ) -> None:
        """Writes what a session of this node subscribes to now; `names` are the filters that changed, None for all."""
        present = subscriber.subscriptions
        if not after.pieces and len(present) <= PIECE:
            filters = {name: each.qos for name, each in present.items()}
            online = subscriber.output is not None or not subscriber.is_shared()
            self._write(key, before, _with(after, filters, online, ""))
            return
        is_kept = before is not None and before.node == after.node
        pieces = self._pieces_of(key, before) if is_kept and before is not None else Pieces({})
        if names is None:
            names = {**dict.fromkeys(pieces.names), **dict.fromkeys(present)}
        changes = {name: present[name].qos if name in present else None for name in names}
        touched = pieces.apply(changes)
        online = subscriber.output is not None or not pieces.shared
        made = after.pieces or f"{after.node}/{after.since}"
        after = _with(after, pieces.pieces[0], online, made)
        self._write(key, before, after)
        self._pieces[key] = pieces
        for number, filters in touched.items():
            if number:
                self._write_piece(key, after, number, filters or None, pieces.pieces.get(number))

    def _write(self, key: bytes, before: Record | None, after: Record | None) -> None:
        """Another record counts from now on; pieces that it does not name are deleted with it."""
        if before == after:
            return
        gone: dict[int, Filters] = {}
        if before is not None and (after is None or after.pieces != before.pieces):
            gone = self._others(key, before, {})
        self._pending[key] = after
        self._flush_soon()
        self._switch(key, before, after, {})
        if before is not None:
            for number in gone:
                self._hold_piece(encode_piece(key, before.pieces, number), None)
        known, _ = self._news.pop(key, (before, after))
        self._tell(key, known, after)

    def _write_piece(
        self, key: bytes, head: Record, number: int, before: Filters | None, after: Filters | None
    ) -> None:
        """A piece of a session of this node is to be another."""
        if before == after:
            return
        piece = None if after is None else head.like(after)
        self._hold_piece(encode_piece(key, head.pieces, number), piece)
        self._follow_piece(key, head, before, after)

    def _hold_piece(self, key: bytes, piece: Record | None) -> None:
        self._pending[key] = piece
        self._held.setdefault(key[:-NUMBER], set()).add(key)
        self._flush_soon()

    def _switch(
        self, key: bytes, before: Record | None, after: Record | None, untold: Overlay
    ) -> None:
        """Followers learn of another record: where it changes what all pieces count for, of these as well."""
        if (
            after is None
            or after.node != self._node.name
            or before is None
            or before.pieces != after.pieces
        ):
            self._pieces.pop(key, None)
        self.census.change(before, after, is_session=True)
        self._follow(
            *decode_key(key),
            before and before.like(before.subscriptions),
            after and after.like(after.subscriptions),
        )
        if _kind(before) == _kind(after):
            return
        for head, is_new in ((before, False), (after, True)):
            if head is not None:
                for filters in self._others(key, head, untold).values():
                    self._follow_piece(
                        key, head, None if is_new else filters, filters if is_new else None
                    )

    def _follow_piece(
        self, key: bytes, head: Record, before: Filters | None, after: Filters | None
    ) -> None:
        old = None if before is None else head.like(before)
        new = None if after is None else head.like(after)
        self.census.change(old, new, is_session=False)
        self._follow(*decode_key(key), old, new)

    def _tell(self, key: bytes, before: Record | None, after: Record | None) -> None:
        if _ownership(before) == _ownership(after) or not self._callbacks:
            return
        name = decode_key(key)
        whole = self._whole(key, after)
        for callback in self._callbacks:
            try:
                callback(*name, before, whole)
            except Exception:
                log.exception("a callback for the owner of %r failed", name)

    def _flush_soon(self) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._call_soon(self._flush_due)

    def _flush_due(self) -> None:
        if self._is_flush_due:
            self.flush()


def _whole_ones(items: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[str, str, Record]]:
    """The sessions that are in keys and values in order, each with all its pieces."""
    name: tuple[str, str] | None = None
    head: Record | None = None
    begin = b""
    for key, raw in items:
        if decode_piece(key) is None:
            if name is not None and head is not None:
                yield *name, head
            name, head = _name(key), _read(raw)
            begin = pieces_of(key, head.pieces) if head is not None and head.pieces else b""
        elif begin and key.startswith(begin) and head is not None:
            piece = _read(raw)
            if piece is not None:
                head.subscriptions.update(piece.subscriptions)
    if name is not None and head is not None:
        yield *name, head


def _key_of(registry: Registry, subscriber: Subscriber) -> bytes:
    return encode_key(registry.mountpoint, subscriber.client_id)


def _with(record: Record, filters: Filters, online: bool, pieces: str) -> Record:
    return msgspec.structs.replace(record, subscriptions=filters, online=online, pieces=pieces)


def _kind(record: Record | None) -> tuple[str, bool, bool, str] | None:
    """What all pieces of a session count for."""
    return None if record is None else (record.node, record.clean, record.online, record.pieces)


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
