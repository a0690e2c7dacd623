"""Who belongs to the cluster: a replicated set that needs nobody's consent.

For each name there is one record, and of two records for a name the greater one is true: the later store, in it the
later incarnation, then the later status, in that the later version. So all nodes agree once they have heard the same,
in whatever order.

    JOINED -> LEAVING -> LEFT        by itself: it hands over what it has, then it goes
    JOINED -> EXPIRED                by the others: dead for longer than `dead_node_timeout`
    JOINED -> REMOVED                by an operator

No incarnation comes back from the last three. A node that learns that it expired goes on under a new incarnation at
once, for nobody wanted it away; one that was removed stays out until it is told to join, also in a new life that has
begun before it hears of that. What was deleted since does not return with it: see `vmq_cluster.metadata.exchange`.

A node of which others know a later store by its name has **lost** that, unless it is new itself, as after its disk was
wiped: then it counts its store above the other's. Else it keeps the other's record in the place of its own, belongs to
no cluster, and cannot join under this name.

A node knows so many names at most. For those that come it forgets who has been out for longest.

Changes are pushed to everybody by the node that makes them; heartbeats carry a digest of all records, and nodes
whose digests differ send each other all they know.
"""

from enum import IntEnum
from hashlib import blake2b
from typing import Final

import msgspec

from vmq_cluster.clocks import FAR_AHEAD, MAX_NUMBER
from vmq_cluster.effects import Excluded, MembersChanged, NameTaken, Outbox
from vmq_cluster.errors import ClusterError, MalformedError, StorageError
from vmq_cluster.identity import RANDOM_BITS, Identity
from vmq_cluster.messages import MAX_MEMBERS, MemberRecord, Members
from vmq_cluster.storage import Transaction, after_prefix

_PREFIX: Final = b"m"


class Status(IntEnum):
    """Where an incarnation of a member stands; it only ever goes up."""

    JOINED = 0
    LEAVING = 1
    EXPIRED = 2
    LEFT = 3
    REMOVED = 4


def rank(record: MemberRecord) -> tuple[int, int, int, str]:
    """Of two records for one name and store, the one of higher rank is true."""
    return (record.incarnation, record.status, record.version, record.address)


def is_later(one: MemberRecord, other: MemberRecord) -> bool:
    """Whether of two records for one name the first is true: a later store has the name."""
    if one.store != other.store and one.store and other.store:
        return one.store > other.store
    return (rank(one), one.store) > (rank(other), other.store)


def is_active(record: MemberRecord) -> bool:
    """Whether it belongs to the cluster."""
    return record.status <= Status.LEAVING


class Membership:
    """The members that this node knows, itself included."""

    def __init__(self, identity: Identity, transaction: Transaction, outbox: Outbox) -> None:
        self._identity = identity
        self._transaction = transaction
        self._outbox = outbox
        self._records: dict[str, MemberRecord] = {}
        self._digest: int | None = None
        #: Where this node is in this life; its record says so only while it belongs.
        self._address = ""
        #: Names of the other members, sorted.
        self.others: list[str] = []
        #: Those of them that are about to leave; a new list whenever members change.
        self.leaving: list[str] = []
        self._load()

    def start(self, address: str) -> None:
        """Says where this node can be reached; emits `Excluded` if it no longer belongs."""
        self._address = address
        own = self._records.get(self._identity.name)
        if own is not None and own.store > self._identity.store:
            self._changed()
            self._outbox.emit(NameTaken(own.address, is_lost=True))
            return
        if own is None or own.incarnation < self._identity.incarnation:
            # A life that begins after the node was taken out is out as well, until it is told to join.
            status = Status.JOINED if own is None or is_active(own) else own.status
            fresh = msgspec.structs.replace(self._own(0, address), status=status)
            self._records[self._identity.name] = fresh
        elif own.incarnation > self._identity.incarnation:
            raise StorageError("the records of members know a later life of this node than it has")
        elif own.status == Status.LEAVING or (
            is_active(own) and (own.address, own.store) != (address, self._identity.store)
        ):
            # A leave that did not come to its end is called off by a start; LEAVING needs a new life for that.
            if own.status == Status.LEAVING:
                self._identity.renew(0, own.incarnation)
            self._records[self._identity.name] = self._own(own.version + 1, address)
        self._changed()
        if not self.belongs:
            self._outbox.emit(Excluded("an earlier decision"))

    @property
    def own(self) -> MemberRecord:
        """This node's record."""
        return self._records[self._identity.name]

    @property
    def address(self) -> str:
        """Where this node can be reached."""
        return self._address

    def addresses(self) -> dict[str, str]:
        """Names and addresses of the members, this one's included, sorted by name."""
        found = {name: self._records[name].address for name in self.others}
        return dict(sorted({**found, self._identity.name: self._address}.items()))

    @property
    def belongs(self) -> bool:
        """Whether this node is a member; else it keeps to itself."""
        return is_active(self.own) and not self.has_lost_name

    @property
    def has_lost_name(self) -> bool:
        """Whether another node has this one's name for good; `own` is that one's record then."""
        return self.own.store > self._identity.store

    @property
    def is_new(self) -> bool:
        """Whether this node has never had others."""
        return not self._identity.cluster and len(self._records) == 1

    @property
    def records(self) -> list[MemberRecord]:
        """All that is known, past members included."""
        return sorted(self._records.values(), key=lambda record: record.name)

    @property
    def digest(self) -> int:
        """A number that nodes share when they know the same."""
        if self._digest is None:
            raw = msgspec.msgpack.encode(self.records)
            self._digest = _digest(raw)
        return self._digest

    def record(self, name: str) -> MemberRecord | None:
        return self._records.get(name)

    def incarnation(self, name: str) -> int:
        """That of an active member; 0: it is none."""
        record = self._records.get(name)
        return record.incarnation if record is not None and is_active(record) else 0

    @property
    def expired(self) -> list[str]:
        """The addresses of nodes that were taken for dead."""
        expired = [each.address for each in self.records if each.status == Status.EXPIRED]
        return list(dict.fromkeys(expired))

    def message(self, asks: bool, ticket: int = 0) -> Members:
        return Members(self.records, asks, ticket)

    def is_excluded(self, name: str) -> bool:
        """Whether the last that is known of a name is that it does not belong."""
        record = self._records.get(name)
        return record is not None and not is_active(record)

    # --- changes made here

    def rejoin(self, wall: int, above: int) -> None:
        """This node belongs to the cluster again, or still, under a new incarnation.

        Raises:
            ClusterError: another node has its name for good.
        """
        if self.has_lost_name:
            raise ClusterError(
                f"the node at {self.own.address} has the name {self.own.name!r} by now: this one can join under "
                "another name, with an empty data directory"
            )
        self._identity.renew(wall, max(above, self.own.incarnation))
        self._set(self._own(0, self._address))

    def leave(self, status: Status) -> None:
        """This node is LEAVING, or has LEFT."""
        own = self.own
        if own.status < status:
            self._set(msgspec.structs.replace(own, status=status))

    def exclude(self, name: str, status: Status) -> None:
        """Another member is EXPIRED, or REMOVED, also after it expired.

        Raises:
            ClusterError: it is no other member.
        """
        record = self._records.get(name)
        if record is None or record.status > Status.EXPIRED or name == self._identity.name:
            raise ClusterError(f"{name!r} is no other member of the cluster")
        self._set(msgspec.structs.replace(record, status=status))

    # --- changes heard of

    def merge(self, records: list[MemberRecord], by: str, wall: int) -> bool:
        """Takes over what is newer than what is known here; returns whether anything was.

        Raises:
            MalformedError: an incarnation from the far future, above which there may soon be no other.
        """
        limit = (wall + FAR_AHEAD) << RANDOM_BITS
        if any(max(record.incarnation, record.store) > limit for record in records):
            raise MalformedError("a member from the far future")
        changed = False
        me = self._identity.name
        # Its own first: after the others it would not be new any more.
        for record in sorted(records, key=lambda each: each.name != me):
            if record.name == me:
                changed |= self._heard_of_itself(record, by, wall)
                continue
            known = self._records.get(record.name)
            if known is None and not self._has_room(record):
                continue
            if known is None or is_later(record, known):
                store = 0 if known is None else known.store  # an older version does not tell it
                later = msgspec.structs.replace(record, store=record.store or store)
                self._records[record.name] = later
                self._store(later)
                changed = True
        if changed:
            self._changed()
        return changed

    def _has_room(self, record: MemberRecord) -> bool:
        """Whether another name finds room, for which the oldest that is out is forgotten, on all nodes the same."""
        if len(self._records) < MAX_MEMBERS:
            return True
        out = [each for each in self._records.values() if not is_active(each)]
        out = [each for each in [*out, record] if each.name != self._identity.name]
        oldest = min(
            out, key=lambda each: (is_active(each), each.status == Status.EXPIRED, rank(each))
        )
        if oldest is record:
            return False
        del self._records[oldest.name]
        self._transaction.delete(_PREFIX + oldest.name.encode())
        return True

    def _heard_of_itself(self, record: MemberRecord, by: str, wall: int) -> bool:
        own = self.own
        if self._was_taken_out(record):
            # The life that began since does not know: it is out as well, until it is told to join.
            self._identity.met()
            self._set(msgspec.structs.replace(own, status=record.status))
            self._outbox.emit(Excluded(by))
            return True
        if record.incarnation == own.incarnation and is_active(record):
            self._identity.met()
        if not is_later(record, own):
            return False
        if record.store > self._identity.store:
            return self._heard_of_later_store(record, wall)
        if self.has_lost_name:
            return False
        if record.incarnation == own.incarnation and record.status in (Status.LEFT, Status.REMOVED):
            was_active = is_active(own)
            self._records[own.name] = record
            self._store(record)
            if was_active:
                self._outbox.emit(Excluded(by))
            return True
        if record.address != self._address:
            self._outbox.emit(NameTaken(record.address))
        # It expired, or there is word of a life that this node does not remember: it starts a new one. If it was
        # out, it stays out in the new life as well.
        self._identity.renew(wall, record.incarnation)
        status = own.status if not is_active(own) else Status.JOINED
        fresh = msgspec.structs.replace(self._own(0, self._address), status=status)
        self._records[own.name] = fresh
        self._store(fresh)
        return True

    def _was_taken_out(self, record: MemberRecord) -> bool:
        """Whether a record says that this node was taken out in a life before this one, which has met nobody yet."""
        former, own = self._identity.former, self.own
        is_ours = record.store in (0, self._identity.store) and is_active(own)
        is_former = 0 < former <= record.incarnation < own.incarnation
        return is_ours and is_former and record.status in (Status.LEFT, Status.REMOVED)

    def _heard_of_later_store(self, record: MemberRecord, wall: int) -> bool:
        if self.is_new:
            self._identity.succeed(record.store)
            self._identity.renew(wall, max(record.incarnation, self.own.incarnation))
            self._set(self._own(0, self._address))
            return True
        had_lost = self.has_lost_name
        self._set(record)
        if not had_lost:
            self._outbox.emit(NameTaken(record.address, is_lost=True))
        return True

    # --- bookkeeping

    def _own(self, version: int, address: str) -> MemberRecord:
        identity = self._identity
        status = Status.JOINED
        return MemberRecord(
            identity.name, identity.incarnation, status, version, address, identity.store
        )

    def _set(self, record: MemberRecord) -> None:
        self._records[record.name] = record
        self._changed()
        self._store(record)

    def _changed(self) -> None:
        self._digest = None
        self._store(self.own)
        self.others = sorted(
            name
            for name, record in self._records.items()
            if is_active(record) and name != self._identity.name and self.belongs
        )
        self.leaving = [
            each for each in self.others if self._records[each].status == Status.LEAVING
        ]
        addresses = {name: self._records[name].address for name in self.others}
        self._outbox.emit(MembersChanged(addresses | {self.own.name: self._address}))

    def _store(self, record: MemberRecord) -> None:
        self._transaction.put(_PREFIX + record.name.encode(), msgspec.msgpack.encode(record))
        self._transaction.sync()

    def _load(self) -> None:
        for key, raw in self._transaction.scan(_PREFIX, after_prefix(_PREFIX)):
            try:
                record = msgspec.msgpack.decode(raw, type=MemberRecord)
            except msgspec.DecodeError as error:
                raise StorageError(
                    f"the record of member {key[1:]!r} is damaged: {error}"
                ) from None
            if max(record.incarnation, record.store) <= self._identity.highest:
                self._records[record.name] = record


def _digest(raw: bytes) -> int:
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big") & MAX_NUMBER
