"""The replicated metadata: a map with prefixes that every node has in full, and that all may write at any time.

A write is at once in this node's map and on its way to all others (`vmq_cluster.plumtree`); what gets lost comes
with the next exchange (`vmq_cluster.metadata.exchange`). What a key holds, and what becomes of writes that did not know
each other, is told in `vmq_cluster.metadata.entries`; what dots and clocks are for, in `vmq_cluster.clocks`. Only
clocks are in memory: how many keys there are matters to the disk alone.
"""

from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from vmq_cluster.clocks import FAR_AHEAD, Dot, HybridClock, NodeClock
from vmq_cluster.effects import Changed, Outbox
from vmq_cluster.errors import ClusterError, MalformedError
from vmq_cluster.identity import Identity
from vmq_cluster.messages import MAX_VALUE, WireEntry
from vmq_cluster.metadata import entries
from vmq_cluster.metadata.entries import Entry, Merge
from vmq_cluster.metadata.records import (
    CLOCK,
    DELETED,
    DOT,
    ENTRY,
    HORIZON,
    dot_key,
    dot_of,
    end_of_dots,
    full_key,
    keys_of,
    load_clock,
    save_clock,
    split_key,
)
from vmq_cluster.plumtree import Plumtree
from vmq_cluster.storage import Transaction, after_prefix

#: The stream of plumtree that metadata is broadcast in.
STREAM: Final = 0

_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(WireEntry)
_NOTHING: Final = NodeClock()


class Metadata:
    """The map of one node; also the stream of its broadcasts."""

    def __init__(
        self, identity: Identity, transaction: Transaction, time: HybridClock, outbox: Outbox
    ) -> None:
        self._identity = identity
        self._transaction = transaction
        self._time = time
        self._outbox = outbox
        self._merges: dict[str, Merge] = {}
        self._watched: set[str] = set()
        self._plumtree: Plumtree | None = None
        #: Every dot that this node has seen. Honest: see `vmq_cluster.clocks`.
        self.clock = load_clock(transaction, CLOCK)
        #: Every deletion that this node has forgotten lies within: see `vmq_cluster.metadata.collector`.
        self.horizon = load_clock(transaction, HORIZON)
        self._changed_clock: set[int] = set()
        self._changed_horizon: set[int] = set()
        #: Whether this node has seen anything since the collector last looked.
        self.has_news = True
        #: No record of a deletion has a lower dot.
        self.first_deletion: Dot = (0, 0)
        #: Incarnations whose dots have an end in the storage.
        self._ended: set[int] = set()
        #: The highest counter of this incarnation that others have met; above this node's own: it forgot writes.
        self.outrun = 0
        if identity.was_ahead:
            self._mend_times()

    def use(self, plumtree: Plumtree) -> None:
        """What carries this node's writes to the others."""
        self._plumtree = plumtree

    # --- what a node's user does

    def get(self, prefix: str, key: bytes) -> bytes | None:
        """The value of a key, if it has one."""
        entry = self._load(full_key(prefix, key))
        return None if entry is None else entry.value(self._merges.get(prefix))

    def items(
        self, prefix: str, begin: bytes = b"", after: bytes | None = None
    ) -> Iterator[tuple[bytes, bytes]]:
        """All keys of a prefix that begin so, with their values, in order. Nothing is written meanwhile.

        Those behind a key `after` only, for who goes on later.
        """
        merge = self._merges.get(prefix)
        first, end = keys_of(prefix, begin)
        if after is not None:
            first = max(first, keys_of(prefix, after)[0] + b"\0")
        for key, raw in self._transaction.scan(first, end):
            value = entries.decode(raw).value(merge)
            if value is not None:
                yield split_key(key[1:])[1], value

    def dots(self, prefix: str, keys: Iterable[bytes]) -> Iterator[Dot]:
        """The dots of what keys hold: whoever has seen them knows these values, or later ones."""
        for key in keys:
            entry = self._load(full_key(prefix, key))
            if entry is not None:
                yield from entry.dots()

    def own_dots(self) -> NodeClock:
        """The dots of what this incarnation has written."""
        own = self._identity.incarnation
        runs = self.clock.runs.get(own)
        return NodeClock({own: list(runs)} if runs else {})

    def put(self, prefix: str, key: bytes, value: bytes) -> None:
        """Writes a value.

        Raises:
            ClusterError: the prefix, the key or the value is too long.
        """
        if len(value) > MAX_VALUE:
            raise ClusterError(f"a value of {len(value)} bytes; the limit is {MAX_VALUE}")
        self._write(full_key(prefix, key), value)

    def delete(self, prefix: str, key: bytes) -> bool:
        """Deletes a key; returns whether it had a value."""
        name = full_key(prefix, key)
        entry = self._load(name)
        if entry is None or entry.is_deleted:
            return False
        self._write(name, None)
        return True

    def merge_with(self, prefix: str, merge: Merge) -> None:
        """Values under this prefix that were written at the same time are merged by a function.

        It must be set on all nodes and before the first read; without it the value of the higher time is true.
        """
        self._merges[prefix] = merge

    def watch(self, prefix: str) -> None:
        """From now on changes under a prefix are told by `Changed`."""
        self._watched.add(prefix)

    def _write(self, key: bytes, value: bytes | None) -> None:
        if self._time.ahead(self._time.last) > FAR_AHEAD:
            self._mend_times()
        old = self._load(key)
        if old is not None:
            for _, _, time, _ in old.siblings:
                self._time.observe(time)
            # They may have come in an exchange that has not ended; that they are known is true from now on.
            for seen in old.dots():
                self._see(seen)
        incarnation = self._identity.incarnation
        dot = (incarnation, self.clock.last(incarnation) + 1)
        self._see(dot)
        new = entries.overwrite(old, dot, self._time.next(), value)
        self._store(key, old, new, local=True)
        assert self._plumtree is not None
        message = WireEntry(key, new.siblings, new.context)
        self._plumtree.broadcast((STREAM, *dot), _ENCODER.encode(message))

    # --- a stream of plumtree

    def is_seen(self, origin: int, number: int) -> bool:
        return (origin, number) in self.clock

    def deliver(self, origin: int, number: int, payload: bytes) -> bool:
        try:
            message = _DECODER.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise MalformedError(f"a broadcast that holds no entry: {error}") from None
        entry = entries.checked(message.siblings, message.context)
        if entry.context.get(origin, 0) < number:
            raise MalformedError("a broadcast whose dot is not in its entry")
        fresh = self.apply(message.key, entry, _NOTHING)
        for dot in entry.dots():
            self._see(dot)
        for dot in entry.context.items():
            self._see(dot)
        self._see((origin, number))
        return fresh

    def payload(self, origin: int, number: int) -> bytes | None:
        key = self._transaction.get(dot_key(DOT, (origin, number)))
        entry = self._load(key) if key is not None else None
        if key is None or entry is None:
            return None
        return _ENCODER.encode(WireEntry(key, entry.siblings, entry.context))

    # --- what exchanges and the collector do

    def apply(self, key: bytes, entry: Entry, covered: NodeClock) -> bool:
        """Takes in what another node holds under a key; returns whether that changed anything.

        The dots do not count as seen by this: a broadcast sees to that itself, an exchange at its end.
        """
        own = entry.context.get(self._identity.incarnation, 0)
        if own > self.clock.last(self._identity.incarnation):
            self.outrun = max(self.outrun, own)
        for _, _, time, _ in entry.siblings:
            if self._time.ahead(time) > FAR_AHEAD:
                raise MalformedError("an entry from the far future")
            self._time.observe(time)
        old = self._load(key)
        new = entries.join(old, entry, self.clock, covered)
        if not new.siblings and old is None:
            return False
        if old is not None and new.siblings == old.siblings and new.context == old.context:
            return False
        self._store(key, old, new, local=False)
        return old is None or new.siblings != old.siblings

    def see_all(self, clock: NodeClock) -> None:
        """This node has everything that is in a clock."""
        incarnation = self._identity.incarnation
        if clock.last(incarnation) > self.clock.last(incarnation):
            self.outrun = max(self.outrun, clock.last(incarnation))
        self._changed_clock.update(self.clock.merge(clock))
        self.has_news = True

    def load(self, key: bytes) -> Entry | None:
        return self._load(key)

    def index(self, kind: bytes, first: Dot, end: bytes) -> Iterator[tuple[Dot, bytes]]:
        """Dots and their keys, from a dot to before a key of the storage."""
        for key, name in self._transaction.scan(dot_key(kind, first), end):
            yield dot_of(key), name

    def entries_after(self, key: bytes) -> Iterator[tuple[bytes, Entry]]:
        """Everything that this node holds under keys after one, in order."""
        for found, raw in self._transaction.scan(ENTRY + key + b"\0", after_prefix(ENTRY)):
            yield found[1:], entries.decode(raw)

    def replace(self, key: bytes, old: Entry, new: Entry) -> None:
        """Drops deletions that nobody needs to hear of any more."""
        self._store(key, old, new, local=False)

    def widen_horizon(self, stable: NodeClock) -> None:
        """What was forgotten lies within these dots as well."""
        self._changed_horizon.update(self.horizon.merge(stable))

    def save(self) -> None:
        """Puts the clocks into the transaction that holds what they cover."""
        if self._changed_clock:
            save_clock(self._transaction, CLOCK, self.clock, self._changed_clock)
            self._changed_clock.clear()
        if self._changed_horizon:
            save_clock(self._transaction, HORIZON, self.horizon, self._changed_horizon)
            self._changed_horizon.clear()

    # --- how it is done

    def _mend_times(self) -> None:
        """The clock was far ahead and is right: what was written meanwhile, which no other node takes, is of now."""
        self._time.last = 0
        now = self._time.next()
        for name, raw in list(self._transaction.scan(ENTRY, after_prefix(ENTRY))):
            entry = entries.decode(raw)
            if any(self._time.ahead(time) > FAR_AHEAD for _, _, time, _ in entry.siblings):
                mended = [(*each[:2], min(each[2], now), each[3]) for each in entry.siblings]
                self._transaction.put(name, entries.encode(Entry(mended, entry.context)))

    def _see(self, dot: Dot) -> None:
        if self.clock.add(dot):
            self._changed_clock.add(dot[0])
            self.has_news = True

    def _load(self, key: bytes) -> Entry | None:
        raw = self._transaction.get(ENTRY + key)
        return None if raw is None else entries.decode(raw)

    def _store(self, key: bytes, old: Entry | None, new: Entry, local: bool) -> None:
        """Writes an entry and the index of its dots; one without siblings is no entry."""
        transaction = self._transaction
        before = {} if old is None else {each[:2]: each[3] is None for each in old.siblings}
        after = {each[:2]: each[3] is None for each in new.siblings}
        for dot, deleted in before.items():
            if dot not in after:
                transaction.delete(dot_key(DOT, dot))
                if deleted:
                    transaction.delete(dot_key(DELETED, dot))
        for dot, deleted in after.items():
            if dot not in before:
                transaction.put(dot_key(DOT, dot), key)
                if dot[0] not in self._ended:
                    self._ended.add(dot[0])
                    transaction.put(end_of_dots(dot[0]), b"")
                if deleted:
                    transaction.put(dot_key(DELETED, dot), key)
                    self.first_deletion = min(self.first_deletion, dot)
        if new.siblings:
            transaction.put(ENTRY + key, entries.encode(new))
        else:
            transaction.delete(ENTRY + key)
        if self._watched:
            self._tell(key, old, new, local)

    def _tell(self, key: bytes, old: Entry | None, new: Entry, local: bool) -> None:
        prefix, name = split_key(key)
        if prefix not in self._watched:
            return
        merge = self._merges.get(prefix)
        before = None if old is None else old.value(merge)
        value = new.value(merge)
        if before != value:
            self._outbox.emit(Changed(prefix, name, value, before, local))
