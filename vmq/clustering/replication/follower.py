"""Copies of other nodes' durable sessions: the side of who keeps them (`replication.leader` is the owner's).

A copy is stored as a session of this broker is, under a number of its own, but for its `s` record: instead there is a
`k` record that says whose it is. So a copy becomes a session by one record, however long its queue is, and is deleted
in steps as an ended session is.

Of a session there may be two copies: one that gets no changes any more (frozen: changes were missed, or it is of an
earlier life of the owner's store), and the one that is to replace it and is not complete yet. Or the frozen one gets
changes again, is compared with the owner's session (`vmq.clustering.replication.anti_entropy`) and corrected where it
differs. Until it is whole it counts as what it was: it has all of that but what the client has taken since.
"""

import logging
from collections.abc import Callable, Iterator
from typing import Final

from vmq.clustering.messages.records import ENTRIES, SINCE, WAITING
from vmq.clustering.messages.replication import (
    MAX_NAMES,
    BeginCopy,
    Changes,
    ConfirmChanges,
    CopyDiffers,
    FollowerPosition,
    GreetFollower,
    KeepOnly,
    MissingChanges,
    OfferCopy,
    ReplicaMessage,
    StillComparing,
    UnknownCopies,
)
from vmq.clustering.replication.anti_entropy import CopyComparisons, keys_in, place_of
from vmq.clustering.replication.headers import CopyHeader, decode_head, decode_lives, encode_stored
from vmq.mqtt.message import Message as Published
from vmq.store.entries import FLAG_REF, decode_message
from vmq.store.lines import scan
from vmq.store.store import Store

log = logging.getLogger("vmq.cluster")

#: A copy's number -> `CopyHeader`.
COPY: Final = b"k"
#: A node's name -> how far its changes are stored, by life.
HOW_FAR: Final = b"e"

#: Lives of one owner that are remembered; copies of earlier ones count as the oldest.
_MAX_LIVES: Final = 8


class SessionCopy:
    """One copy: its number here, and the highest place of its queue."""

    __slots__ = ("head", "highest", "number")

    def __init__(self, number: bytes, head: CopyHeader) -> None:
        self.number = number
        self.head = head
        #: The highest place that waited; of a copy from before this broker's start nobody knows (all ones).
        self.highest = b""


class LeaderState:
    """One other node as an owner: what it sent and this node has taken."""

    def __init__(self, lives: list[tuple[int, int, int]]) -> None:
        #: The last number taken in each of its lives, and its commit there, the newest at the end.
        self.lives = lives
        #: Copies that get changes, by the number of the session there.
        self.copies: dict[bytes, SessionCopy] = {}
        self.frozen: dict[bytes, SessionCopy] = {}
        #: Sessions of which changes came though there is no copy.
        self.unknown: set[bytes] = set()
        #: The last number of which it was told that it is stored, and what waits for the store.
        self.told = 0
        self.untold: list[tuple[int, int]] = []

    @property
    def life(self) -> int:
        return self.lives[-1][0] if self.lives else 0

    @property
    def number(self) -> int:
        return self.lives[-1][1] if self.lives else 0

    def commit_in(self, life: int) -> int:
        """The last commit of a life of which something is here."""
        return next((at for known, _, at in self.lives if known == life), 0)


class Follower:
    """What this node keeps for others.

    Args:
        store: the broker's.
        send: sends at most once.
        purge: told of numbers whose records are to be deleted.
    """

    def __init__(
        self,
        store: Store,
        send: Callable[[str, ReplicaMessage], bool],
        purge: Callable[[bytes], None],
    ) -> None:
        """Reads what is stored.

        Raises:
            StoreError: the store is damaged.
        """
        self._store = store
        self._send = send
        self._purge = purge
        self._origins: dict[str, LeaderState] = {}
        self._comparisons = CopyComparisons(store, self._tell_difference)
        self._committed = 0
        #: All copies by client.
        self._by_client: dict[str, list[SessionCopy]] = {}
        self._load()

    # --- what is stored

    def _load(self) -> None:
        for key, value in scan(self._store.db, HOW_FAR):
            self._origins[key[1:].decode()] = LeaderState(decode_lives(value))
        for key, value in scan(self._store.db, COPY):
            copy = SessionCopy(key[1:], decode_head(value))
            copy.highest = b"\xff" * 8
            self._enlist(copy)
            self._store.next_session = max(
                self._store.next_session, int.from_bytes(copy.number, "big") + 1
            )

    def _enlist(self, copy: SessionCopy) -> None:
        head = copy.head
        origin = self._origins.setdefault(head.owner, LeaderState([]))
        group = origin.copies if self._is_current(origin, head) else origin.frozen
        other = group.get(head.session)
        if other is not None and other.head.complete:
            copy, other = other, copy  # this one was being fetched
        group[head.session] = copy
        if other is not None:
            self.drop(other)
        self._by_client.setdefault(head.scoped_id, []).append(copy)

    def _is_current(self, origin: LeaderState, head: CopyHeader) -> bool:
        return head.frozen_at is None and head.life == origin.life

    def _write(self, copy: SessionCopy) -> None:
        self._store.put(COPY + copy.number, encode_stored(copy.head))

    def create(self, head: CopyHeader) -> SessionCopy:
        """A new copy, empty."""
        store = self._store
        number = store.next_session.to_bytes(8, "big")
        store.next_session += 1
        copy = SessionCopy(number, head)
        self._write(copy)
        store.end_lines(number)
        self._origins.setdefault(head.owner, LeaderState([]))
        self._by_client.setdefault(head.scoped_id, []).append(copy)
        return copy

    def take(self, copy: SessionCopy) -> None:
        """A copy gets no changes and is offered to nobody any more; after a restart it is one again."""
        head = copy.head
        same = self._by_client.get(head.scoped_id, [])
        if copy in same:
            same.remove(copy)
            if not same:
                del self._by_client[head.scoped_id]
        origin = self._origins.get(head.owner)
        if origin is not None:
            for group in (origin.copies, origin.frozen):
                if group.get(head.session) is copy:
                    del group[head.session]
                    if group is origin.copies:
                        self._comparisons.end(head.owner, head.session)

    def finish(self, copy: SessionCopy) -> None:
        """A copy that was fetched is whole."""
        copy.head.complete = True
        self._write(copy)

    def drop(self, copy: SessionCopy) -> None:
        """Deletes a copy."""
        self.take(copy)
        self._store.delete(COPY + copy.number)
        self._store.leave_to_purge(copy.number)
        self._purge(copy.number)

    # --- changes

    def on_greet(self, owner: str, message: GreetFollower) -> None:
        """An owner asks how far its copies are."""
        origin = self._origins.setdefault(owner, LeaderState([]))
        self._send(owner, FollowerPosition(origin.life, self._stored_number(origin)))

    def _stored_number(self, origin: LeaderState) -> int:
        """The last number of the present life that is committed."""
        return origin.told if origin.untold else origin.number

    def on_changes(self, owner: str, message: Changes) -> None:
        """Takes changes in their order: what came before is confirmed once more, what is missing is asked for."""
        origin = self._origins.setdefault(owner, LeaderState([]))
        if message.life < origin.life:
            return
        if message.life > origin.life:
            if not message.reset:
                return  # its first message was lost, and comes again
            self._begin_life(origin, message.life)
        number = origin.number
        if message.number <= number:
            if not origin.untold:
                self._send(owner, ConfirmChanges(origin.life, number))
            return
        if message.number != number + 1 and not message.reset:
            self._send(owner, MissingChanges(origin.life, number + 1))
            return
        self._take(owner, origin, message)
        origin.lives[-1] = (message.life, message.number, message.at)
        self._store.put(HOW_FAR + owner.encode(), encode_stored(origin.lives))
        origin.untold.append((self._store.number, message.number))

    def _begin_life(self, origin: LeaderState, life: int) -> None:
        """The owner has started again: what is here of before stays until it is replaced."""
        origin.untold.clear()
        origin.told = 0
        for session, copy in list(origin.copies.items()):
            if session in origin.frozen:
                self.drop(copy)  # it was to replace that one
            else:
                origin.frozen[session] = copy
        origin.copies = {}
        origin.lives = [*origin.lives[1 - _MAX_LIVES :], (life, 0, 0)]

    def _take(self, owner: str, origin: LeaderState, message: Changes) -> None:
        for session in message.frozen:
            copy = origin.copies.pop(session, None)
            if copy is not None:
                self._freeze(origin, copy)
        for session in message.ended:
            for group in (origin.copies, origin.frozen):
                ended = group.get(session)
                if ended is not None:
                    self.drop(ended)
        for begin in message.begun:
            self._begin(owner, origin, begin)
        for part in message.ranges:
            self._keep_only(origin, part)
        if message.changes:
            messages = messages_of(message.bodies)
            for key, value in message.changes:
                copy = origin.copies.get(key[1:9])
                if copy is not None:
                    self.change(copy, key, value, message.again, messages)
                elif key[1:9] not in origin.frozen:
                    origin.unknown.add(key[1:9])
        for each in message.sums:
            if not self._comparisons.add(owner, each):
                origin.unknown.add(each.session)
        for session in message.complete:
            copy = origin.copies.get(session)
            if copy is not None:
                self._complete(origin, copy)
        if message.swept:
            for copy in list(origin.frozen.values()):
                if copy.head.life < message.life:
                    self.drop(copy)
        if origin.unknown:
            self._send(owner, UnknownCopies(message.life, sorted(origin.unknown)[:MAX_NAMES]))
            origin.unknown.clear()

    def _freeze(self, origin: LeaderState, copy: SessionCopy) -> None:
        head = copy.head
        self._comparisons.end(head.owner, head.session)
        if head.session in origin.frozen:
            self.drop(copy)  # it was to replace that one
            return
        if head.frozen_at is None:
            head.frozen_at = origin.commit_in(head.life)
        origin.frozen[head.session] = copy
        self._write(copy)

    def _begin(self, owner: str, origin: LeaderState, begin: BeginCopy) -> None:
        session = begin.session
        before = origin.copies.pop(session, None)
        if before is not None:
            self._freeze(origin, before)
        copy = origin.frozen.pop(session, None) if begin.compares else None
        if copy is None:
            head = CopyHeader(owner, session, begin.scoped_id, origin.life, begin.offline_at)
            copy = self.create(head)
        else:
            copy.head.frozen_at = self.at(copy)
            copy.head.offline_at = begin.offline_at
        origin.copies[session] = copy
        if begin.compares:
            self._comparisons.begin(owner, session, copy.number)

    def _complete(self, origin: LeaderState, copy: SessionCopy) -> None:
        head = copy.head
        self._comparisons.end(head.owner, head.session)
        if not head.complete or head.frozen_at is not None:
            head.life, head.frozen_at = origin.life, None
            self.finish(copy)
        before = origin.frozen.get(head.session)
        if before is not None:
            self.drop(before)

    # --- comparing

    def on_still_comparing(self, owner: str, message: StillComparing) -> None:
        """An owner has not heard in what copies differ."""
        origin = self._origins.get(owner)
        if origin is None or message.life != origin.life:
            return
        unknown = [each for each in message.sessions if not self._comparisons.repeat(owner, each)]
        if unknown:
            self._send(owner, UnknownCopies(message.life, unknown))

    def _tell_difference(
        self, owner: str, session: bytes, ranges: list[tuple[bytes, bytes]]
    ) -> None:
        self._send(owner, CopyDiffers(self._origins[owner].life, session, ranges))

    def compare(self) -> bool:
        """Compares some of the copies that are to be; returns whether there are more for now."""
        return self._comparisons.step(self._committed)

    @property
    def has_work(self) -> bool:
        """Whether there are copies to be compared."""
        return self._comparisons.has_work

    def _keep_only(self, origin: LeaderState, part: KeepOnly) -> None:
        """Deletes what the owner does not have in a range."""
        copy = origin.copies.get(part.session)
        if copy is None:
            return
        keep = set(part.keep)
        for key in keys_in(self._store, copy.number, part.behind, part.end):
            if place_of(key) not in keep:
                if key[0] in ENTRIES:
                    self._let_go(key)
                self._store.delete(key)

    # --- records

    def change(
        self,
        copy: SessionCopy,
        key: bytes,
        value: bytes | None,
        again: bool,
        messages: list[Published],
    ) -> None:
        """Takes one record of a copy."""
        store = self._store
        kind = key[0]
        here = key[:1] + copy.number + key[9:]
        if kind == WAITING and value is not None and not value[0] & FLAG_REF and not again:
            place = key[9:]
            if place > copy.highest:  # as most are
                copy.highest = place
                store.put(here, value)
                store.count_raw(copy.number, value, True)
                return
        if kind == SINCE:
            copy.head.offline_at = int.from_bytes(value or b"", "big")
            self._write(copy)
        elif kind not in ENTRIES:
            if value is None:
                store.delete(here)
            else:
                store.put(here, value)
        elif value is None:
            self._let_go(here)
            store.delete(here)
        else:
            # A place of what waits may be taken again; then nobody says that it was free.
            if again or (kind == WAITING and key[9:] <= copy.highest):
                self._let_go(here)
            if kind == WAITING and key[9:] > copy.highest:
                copy.highest = key[9:]
            if value[0] & FLAG_REF:
                message = messages[int.from_bytes(value[3:11], "big")]
                value = value[:3] + store.hold(message).to_bytes(8, "big") + value[11:]
            store.put(here, value)
            store.count_raw(copy.number, value, True)

    def _let_go(self, here: bytes) -> None:
        raw = self._store.get(here)
        if raw is not None:
            self._store.count_raw(here[1:9], raw, False)

    def stored(self, number: int) -> None:
        """This store has committed: owners are told what of theirs is in it."""
        self._committed = number
        for owner, origin in self._origins.items():
            if not origin.untold or origin.untold[0][0] > number:
                continue
            while origin.untold and origin.untold[0][0] <= number:
                origin.told = origin.untold.pop(0)[1]
            self._send(owner, ConfirmChanges(origin.life, origin.told))

    # --- what is there

    def offer(self, scoped_id: str, owner: str = "") -> OfferCopy | None:
        """The best copy of a client's session at `owner`; lives of different owners say nothing of each other."""
        best: OfferCopy | None = None
        for copy in self._by_client.get(scoped_id, ()):
            head = copy.head
            if owner not in ("", head.owner):
                continue
            at = self.at(copy)
            offer = OfferCopy(head.owner, head.session, head.complete, head.life, at, copy.number)
            if best is None or rank(offer) > rank(best):
                best = offer
        return best

    def at(self, copy: SessionCopy) -> int:
        """The commit of the owner's, in the life of its copy, as of which a copy is."""
        head = copy.head
        if head.frozen_at is not None:
            return head.frozen_at
        return self._origins[head.owner].commit_in(head.life)

    def find(self, number: bytes, scoped_id: str = "") -> SessionCopy | None:
        """The copy with a number here."""
        groups = [self._by_client.get(scoped_id, [])] if scoped_id else self._by_client.values()
        for group in groups:
            for copy in group:
                if copy.number == number:
                    return copy
        return None

    def of(self, owner: str) -> list[str]:
        """The clients of whose sessions there are copies from an owner."""
        origin = self._origins.get(owner)
        if origin is None:
            return []
        both = (*origin.copies.values(), *origin.frozen.values())
        return sorted({copy.head.scoped_id for copy in both})

    def owners(self) -> set[str]:
        """The nodes of whose sessions there are copies."""
        return {owner for owner, origin in self._origins.items() if origin.copies or origin.frozen}

    def has(self, copy: SessionCopy) -> bool:
        """Whether it is still one: neither deleted nor taken."""
        return copy in self._by_client.get(copy.head.scoped_id, ())

    def of_client(self, scoped_id: str) -> list[SessionCopy]:
        """All copies of a client's session."""
        return list(self._by_client.get(scoped_id, ()))

    def __iter__(self) -> Iterator[SessionCopy]:
        for group in list(self._by_client.values()):
            yield from list(group)

    def __len__(self) -> int:
        return sum(len(group) for group in self._by_client.values())


def messages_of(bodies: list[bytes]) -> list[Published]:
    """The messages that entries name; each is stored once, when the first entry holds it."""
    return [decode_message(body, 0, 1) for body in bodies]


def rank(offer: OfferCopy) -> tuple[bool, int, int]:
    """The order of the copies of one owner's session: whole ones first, then the newest."""
    return (offer.complete, offer.life, offer.at)
