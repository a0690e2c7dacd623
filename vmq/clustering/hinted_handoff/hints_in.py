"""What waits at other nodes for nodes that are down, kept here in case that those others are lost: who keeps it.

It is of use only when its origin is gone for good: it is no member any more, or says that it has another store. Then
the first of those who keep it and are up gives each message to the sessions that it was for, wherever these are by now,
and tells the others. As long as the origin may come back, everything is as its own store says.

The node that it was for may have taken some of it before the origin was lost. It is asked how far that was, and waited
for if it is down; but not for long: better twice than never.
"""

import logging
from collections.abc import Callable, Collection
from typing import Final

import msgspec
from msgspec import Struct

from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.replication import (
    AskTaken,
    HintedPublish,
    HintsHandedOver,
    HintsNeeded,
    IsTaken,
    KeepHints,
)
from vmq.clustering.messages.takeover import RETAIN, SessionBatch, SessionMessage
from vmq.store.lines import scan
from vmq.store.store import Store, StoreError

log = logging.getLogger("vmq.cluster")

#: Before the origin, the number of its store, and who what is kept was for; behind that stands the place.
KEPT: Final = b"d"
_END: Final = b"\0"

#: Messages that are given between two commits.
_STEP: Final = 200


class HintRecord(Struct, array_like=True, frozen=True):
    """What is stored of a batch."""

    messages: list[HintedPublish]
    keepers: list[str]


_ENCODER: Final = msgspec.msgpack.Encoder()
_RECORDS: Final = msgspec.msgpack.Decoder(HintRecord)

#: Seconds after which a node is asked again.
_ASK_AGAIN: Final = 0.5

#: An origin and its store.
Source = tuple[str, int]


class HintsIn:
    """All that this node keeps.

    Args:
        name: this node's.
        store: the broker's.
        give: gives a session messages, wherever it is.
        share: gives a message of a node for a share group to a member of that.
        send: sends reliably.
        ask: sends at most once.
        patience: seconds for which a node that has to be asked is waited for.

    Raises:
        StoreError: the store is damaged.
    """

    def __init__(
        self,
        name: str,
        store: Store,
        give: Callable[[SessionBatch], None],
        share: Callable[[str, RemotePublish], None],
        send: Callable[[str, HintsHandedOver], object],
        ask: Callable[[str, AskTaken], object],
        patience: float,
    ) -> None:
        self._name = name
        self._store = store
        self._give = give
        self._share = share
        self._send = send
        self._ask = ask
        self._patience = patience
        #: What is here, in the order of its coming, by origin and by who it was for.
        self._kept: dict[Source, dict[str, dict[bytes, None]]] = {}
        #: Stores that are known to be lost, each with how long is waited for answers; these; when to ask again; and who
        #: kept what was given of them.
        self._lost: set[Source] = set()
        self._until: dict[Source, float] = {}
        self._taken: dict[tuple[Source, str], tuple[int, int]] = {}
        self._ask_at = 0.0
        #: Origins that may not know what they left here, or have another store.
        self._unsure: set[str] = set()
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
            self._unsure.add(source[0])

    def __len__(self) -> int:
        return sum(len(keys) for owners in self._kept.values() for keys in owners.values())

    # --- what origins say

    def on_deposit(self, origin: str, message: KeepHints) -> None:
        source = (origin, message.store)
        self._lose_others(source)
        key = _encode_key(source, message.owner, message.life, message.number)
        self._kept.setdefault(source, {}).setdefault(message.owner, {})[key] = None
        self._store.put(key, _ENCODER.encode(HintRecord(message.messages, message.keepers)))

    def peer_up(self, peer: str) -> None:
        """A member can be reached, in another life maybe."""
        if any(source[0] == peer for source in self._kept):
            self._unsure.add(peer)

    def doubt(self, store_of: Callable[[str], int]) -> None:
        """Asks origins that have other stores now: one that lost its disk may be back before anybody missed it.

        Args:
            store_of: the name of the store that a node has as far as is known, 0 if it is not.
        """
        for origin, store in self._kept:
            if store_of(origin) not in (0, store) and (origin, store) not in self._lost:
                self._unsure.add(origin)

    def on_settled(self, origin: str, message: HintsNeeded) -> None:
        self._unsure.discard(origin)
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

    def on_given(self, peer: str, message: HintsHandedOver) -> None:
        """Somebody who keeps the same has given it."""
        source = (message.origin, message.store)
        for keys in self._kept.get(source, {}).values():
            for key in list(keys):
                if peer in self._read(key).keepers:
                    del keys[key]
                    self._store.delete(key)
        self._forget_empty(source)

    def on_taken(self, owner: str, message: IsTaken) -> None:
        """How far who it was for came with what an origin sent."""
        source = (message.origin, message.store)
        if source in self._lost:
            self._taken[source, owner] = (message.life, message.number)

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
            self._until.pop(source, None)
            for each in [each for each in self._taken if each[0] == source]:
                del self._taken[each]

    # --- origins that are gone

    def step(self, members: Collection[str], up: Collection[str], now: float) -> bool:
        """Gives some of what is left of origins that are gone; returns whether there is more that can be given now.

        Args:
            members: the nodes of the cluster; none if it is this one that is out.
            up: those that can be reached.
            now: the time in seconds.
        """
        if not members:
            return False
        may_ask = now >= self._ask_at
        if may_ask:
            self._ask_at = now + _ASK_AGAIN
            for source in self._kept:
                if source[0] in self._unsure and source[0] in up and source[0] in members:
                    self._ask(source[0], AskTaken(*source))
        for source, owners in list(self._kept.items()):
            if source not in self._lost and source[0] in members:
                continue
            self._lost.add(source)
            until = self._until.setdefault(source, now + self._patience)
            is_over = True
            for owner in list(owners):
                if owner in members and now < until and (source, owner) not in self._taken:
                    is_over = False
                    if may_ask and owner in up:
                        self._ask(owner, AskTaken(*source))
                elif self._give_some(source, owner, () if now >= until + self._patience else up):
                    return True
                elif owners[owner]:
                    is_over = False
            if is_over:
                self._tell_given(source)
        return False

    def _give_some(self, source: Source, owner: str, up: Collection[str]) -> bool:
        """Gives a step of what waited for a node, where nobody is before this one to do it; whether there is more."""
        count = 0
        keys = self._kept[source][owner]
        first = b""
        if (source, owner) in self._taken:
            life, number = self._taken[source, owner]
            first = _encode_key(source, owner, life, number + 1)
        for key in list(keys):
            if count >= _STEP:
                return True
            record = self._read(key)
            if not self._is_first(record.keepers, up):
                continue
            self._given.setdefault(source, set()).update(record.keepers)
            if key >= first:
                for each in record.messages:
                    self._give_each(source[0], each)
                    count += max(len(each.clients), 1)
            del keys[key]
            self._store.delete(key)
        return False

    def _tell_given(self, source: Source) -> None:
        told = self._given.pop(source, set())
        if told:
            log.warning(
                "what had waited at node=%s, which is lost, has gone on from here", source[0]
            )
        for peer in sorted(told - {self._name}):
            self._send(peer, HintsHandedOver(*source))
        self._forget_empty(source)

    def _is_first(self, keepers: list[str], up: Collection[str]) -> bool:
        """Whether it is for this node to give what these keep."""
        for each in keepers:
            if each == self._name:
                return True
            if each in up:
                return False
        return True

    def _give_each(self, origin: str, kept: HintedPublish) -> None:
        publish = kept.publish
        if publish.group:
            self._share(origin, publish)
            self.given += 1
            return
        flags = publish.qos | (RETAIN if publish.retain else 0)
        entry = SessionMessage(publish.topic, publish.payload, flags)
        for client_id in kept.clients:
            self._give(SessionBatch(publish.mountpoint, client_id, [entry]))
            self.given += 1

    def _read(self, key: bytes) -> HintRecord:
        raw = self._store.get(key)
        return HintRecord([], [self._name]) if raw is None else _RECORDS.decode(raw)


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
