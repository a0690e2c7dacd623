"""What waits at other nodes for nodes that are down, kept here in case that those others are lost: who keeps it.

It is of use only when its origin is gone for good: it is no member any more, or says that it has another store. Then
the first of those who keep it and are up gives each message to the sessions that it was for, wherever these are by now,
and tells the others. As long as the origin may come back, everything is as its own store says.
"""

import logging
from collections.abc import Callable, Collection
from typing import Final

import msgspec
from msgspec import Struct

from vmq.clustering.moves import RETAIN, Batch, Entry
from vmq.clustering.publishes import Publish
from vmq.clustering.replica_messages import Deposit, Given, Kept, Settled
from vmq.store import Store, StoreError, scan

log = logging.getLogger("vmq.cluster")

#: Before the origin, the number of its store, and who what is kept was for; behind that stands the place.
KEPT: Final = b"d"
_END: Final = b"\0"

#: Messages that are given between two commits.
_STEP: Final = 200


class Record(Struct, array_like=True, frozen=True):
    """What is stored of a parcel."""

    messages: list[Kept]
    keepers: list[str]


_ENCODER: Final = msgspec.msgpack.Encoder()
_RECORDS: Final = msgspec.msgpack.Decoder(Record)

#: An origin and its store.
Source = tuple[str, int]


class Safekeeping:
    """All that this node keeps.

    Args:
        name: this node's.
        store: the broker's.
        give: gives a session messages, wherever it is.
        share: gives a message of a node for a share group to a member of that.
        send: sends reliably.

    Raises:
        StoreError: the store is damaged.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        give: Callable[[Batch], None],
        share: Callable[[str, Publish], None],
        send: Callable[[str, Given], object],
    ) -> None:
        self._name = name
        self._store = store
        self._give = give
        self._share = share
        self._send = send
        #: What is here, in the order of its coming, by origin and by who it was for.
        self._kept: dict[Source, dict[str, dict[bytes, None]]] = {}
        #: Stores that are known to be lost, and who kept what was given of them.
        self._lost: set[Source] = set()
        self._given: dict[Source, set[str]] = {}
        #: Messages that were given since the start, counted for each session.
        self.given = 0
        for key, value in scan(store.db, KEPT):
            source, owner = _decode_key(key)
            try:
                _RECORDS.decode(value)
            except ValueError:
                raise StoreError(
                    f"key {key[:40]!r} is nothing that another node left here"
                ) from None
            self._kept.setdefault(source, {}).setdefault(owner, {})[key] = None

    def __len__(self) -> int:
        return sum(len(keys) for owners in self._kept.values() for keys in owners.values())

    # --- what origins say

    def on_deposit(self, origin: str, message: Deposit) -> None:
        source = (origin, message.store)
        self._lose_others(source)
        key = _encode_key(source, message.owner, message.life, message.number)
        self._kept.setdefault(source, {}).setdefault(message.owner, {})[key] = None
        self._store.put(key, _ENCODER.encode(Record(message.messages, message.keepers)))

    def on_settled(self, origin: str, message: Settled) -> None:
        source = (origin, message.store)
        self._lose_others(source)
        left = {each.owner: (each.life, each.number) for each in message.left}
        for owner, keys in self._kept.get(source, {}).items():
            first = b""
            if owner in left:
                first = _encode_key(source, owner, *left[owner])
            for key in [key for key in keys if not first or key < first]:
                del keys[key]
                self._store.delete(key)
        self._forget_empty(source)

    def on_given(self, peer: str, message: Given) -> None:
        """Somebody who keeps the same has given it."""
        source = (message.origin, message.store)
        for keys in self._kept.get(source, {}).values():
            for key in list(keys):
                if peer in self._read(key).keepers:
                    del keys[key]
                    self._store.delete(key)
        self._forget_empty(source)

    def _lose_others(self, source: Source) -> None:
        """An origin has this store: if it had others, they are lost."""
        for other in self._kept:
            if other[0] == source[0] and other[1] != source[1]:
                self._lost.add(other)

    def _forget_empty(self, source: Source) -> None:
        owners = self._kept.get(source)
        if owners is not None and not any(owners.values()):
            del self._kept[source]
            self._lost.discard(source)

    # --- origins that are gone

    def step(self, members: Collection[str], up: Collection[str]) -> bool:
        """Gives some of what is left of origins that are gone; returns whether there is more.

        Args:
            members: the nodes of the cluster; none if it is this one that is out.
            up: those that can be reached.
        """
        if not members:
            return False
        for source in list(self._kept):
            if source in self._lost or source[0] not in members:
                self._lost.add(source)
                if self._give_some(source, up):
                    return True
        return False

    def _give_some(self, source: Source, up: Collection[str]) -> bool:
        """Gives a step of what an origin left, where nobody is before this node to do it."""
        count = 0
        for keys in self._kept[source].values():
            for key in list(keys):
                record = self._read(key)
                if count >= _STEP:
                    return True
                if not self._is_first(record.keepers, up):
                    continue
                self._given.setdefault(source, set()).update(record.keepers)
                for each in record.messages:
                    self._give_each(source[0], each)
                    count += max(len(each.clients), 1)
                del keys[key]
                self._store.delete(key)
        told = self._given.pop(source, set())
        if told:
            log.warning(
                "what had waited at node=%s, which is lost, has gone on from here", source[0]
            )
        for peer in sorted(told - {self._name}):
            self._send(peer, Given(*source))
        self._forget_empty(source)
        return False

    def _is_first(self, keepers: list[str], up: Collection[str]) -> bool:
        """Whether it is for this node to give what these keep."""
        for each in keepers:
            if each == self._name:
                return True
            if each in up:
                return False
        return True

    def _give_each(self, origin: str, kept: Kept) -> None:
        publish = kept.publish
        if publish.group:
            self._share(origin, publish)
            self.given += 1
            return
        flags = publish.qos | (RETAIN if publish.retain else 0)
        entry = Entry(publish.topic, publish.payload, flags)
        for client_id in kept.clients:
            self._give(Batch(publish.mountpoint, client_id, [entry]))
            self.given += 1

    def _read(self, key: bytes) -> Record:
        raw = self._store.get(key)
        return Record([], [self._name]) if raw is None else _RECORDS.decode(raw)


def _encode_key(source: Source, owner: str, life: int, number: int) -> bytes:
    name = source[0].encode() + _END + source[1].to_bytes(8, "big")
    return KEPT + name + owner.encode() + _END + life.to_bytes(8, "big") + number.to_bytes(8, "big")


def _decode_key(key: bytes) -> tuple[Source, str]:
    """The origin, and who it was for.

    Raises:
        StoreError: it is no such key.
    """
    origin, _, rest = key[1:].partition(_END)
    owner = rest[8:-17]
    if not origin or not owner or rest[-17:-16] != _END:
        raise StoreError(f"key {key[:40]!r} is nothing that another node left here")
    return (origin.decode(), int.from_bytes(rest[:8], "big")), owner.decode()
