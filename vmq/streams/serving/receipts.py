"""QoS 2 into streams once, though the commits of streams and of the store are two.

The store's commit has that a packet id was received and what sessions got, the streams' has the rows. PUBREC waits for
both. A broker that dies before it leaves a client that sends its message again, and has to know what the streams have
of it: all, a part, or nothing. So each such message of a durable session gets a **receipt**, a number of this life of
the broker, and three rules hold:

- Rows with receipts are written when the store has the receipts (`Receipts.when_known`), with the partitions that they
  are for: never is a row in a stream whose packet id the store does not know. While the store fails nobody waits for
  it: no new receipts are given then.
- A partition has its rows in the order of their receipts, and names the last one in the metadata of its batches
  (`vmq.streams.log.frame`). What a crash takes is the end of a partition. So a row is there if its receipt is not above
  the last.
- The next broker decides at its start, before it gives receipts of its own (`Receipts.recover`): of each message that
  the streams had not confirmed it notes in the store which of them lack it. Only these get it when it comes again.

As Kafka's brokers know a producer's batches again by its id and sequence numbers (KIP-98).
"""

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import msgspec
import plyvel

from vmq.core.ports import ReceiptsPort
from vmq.persistence.group_commit import Committer
from vmq.store.lines import is_end, scan
from vmq.store.store import Store, StoreError
from vmq.streams.catalog import Stream
from vmq.streams.log.commits import Commits
from vmq.streams.log.errors import StreamError

log = logging.getLogger("vmq.streams")

#: Receipts in the store; alone: they are kept. What streams lack.
RECEIPTS: Final = b"y"
LACKING: Final = b"z"
_RECEIVED: Final = b"x"

#: Seconds after which receipts that the streams confirmed are deleted, if no commit of the store comes sooner.
TIDY_AFTER: Final = 1.0

#: Hexadecimal digits in front of a receipt, which tell one life of the broker from the others.
_LIFE: Final = 16


class Receipt(msgspec.Struct, array_like=True):
    """One message: session and packet id, its receipt, and the streams and partitions that it went to."""

    received: bytes
    receipt: str
    places: list[tuple[str, int]]


_DECODER: Final = msgspec.msgpack.Decoder(list[Receipt])


class Receipts(ReceiptsPort):
    """The receipts of one broker, in its event loop. `Core.receipts` is it.

    Args:
        store: has the packet ids.
        committer: commits them.
        commits: those of the streams.
    """

    def __init__(self, store: Store, committer: Committer, commits: Commits) -> None:
        super().__init__()
        self.gives = True
        self.store = store
        self.committer = committer
        self.commits = commits
        self.taking = commits.taking
        self.life = secrets.token_hex(_LIFE // 2)
        self.last = 0
        #: By session and packet id, the streams that lack the message; None: all may.
        self.lacking: dict[bytes, frozenset[str] | None] = {}
        #: Messages of this life that wait for a partition's next owner: a crash would take them.
        self.held: set[bytes] = set()
        self.received = b""
        #: Receipts for the store's next commit, and the streams' commit that has the last of them.
        self.gathered: list[Receipt] = []
        self.barrier = 0
        #: The store's commit that has the last receipts that it was given.
        self.stored_by = 0
        #: Records in the store that the streams have not confirmed, with their commits; those that they have.
        self.unconfirmed: deque[tuple[int, bytes]] = deque()
        self.confirmed: list[bytes] = []
        self.tidying: asyncio.TimerHandle | None = None
        #: Writes a commit of the streams once the store has done this one.
        self.waiting: tuple[int, Callable[[], None]] | None = None
        committer.before.append(self.write)
        committer.after.append(self.go_on)
        commits.when_known = self.when_known

    # What clients publish

    def lacks(self, session: bytes, packet_id: int) -> bool:
        """Whether a stream lacks a message that sessions have."""
        return bool(self.lacking) and received_key(session, packet_id) in self.lacking

    def begin(self, session: bytes, packet_id: int, came_before: bool) -> frozenset[str] | None:
        """A message is handed to the streams next; which ones lack it, None: it is new to all."""
        self.received = received_key(session, packet_id)
        self.last += 1
        self.taking.receipt = f"{self.life}{self.last:020}"
        return self.lacking.get(self.received) if came_before else None

    def cancel(self) -> None:
        """A stream did not take it. Those that did write it once the store has done a commit, which this asks for."""
        self.end()
        self.write()

    def end(self) -> None:
        """The streams have taken it."""
        taking = self.taking
        if taking.places:
            self.gathered.append(Receipt(self.received, taking.receipt, taking.places))
            self.barrier = self.commits.number
            taking.places = []
        if taking.held:
            self.store.put(LACKING + self.received, names_as_bytes(frozenset(taking.held)))
            self.held.add(self.received)
            taking.held = []
        taking.receipt = ""

    def forget(self, session: bytes, packet_id: int) -> None:
        """The streams have been given what they lacked, or the client has released the packet id."""
        if self.lacking or self.held:
            received = received_key(session, packet_id)
            if received in self.lacking or received in self.held:
                self.lacking.pop(received, None)
                self.held.discard(received)
                self.store.delete(LACKING + received)

    # Commits

    def write(self) -> None:
        """Has the store's next commit take what gathered."""
        store = self.store
        for key in self.confirmed:
            store.delete(key)
        self.confirmed.clear()
        if self.gathered:
            number = int(self.gathered[0].receipt[_LIFE:])
            key = RECEIPTS + bytes.fromhex(self.life) + number.to_bytes(8, "big")
            store.put(key, msgspec.msgpack.encode(self.gathered))
            self.unconfirmed.append((self.barrier, key))
            self.gathered = []
            self.stored_by = store.number

    def when_known(self, submit: Callable[[], None]) -> None:
        """Has a commit of the streams written as soon as the store knows its receipts."""
        pending = self.store.number if self.gathered or self.taking.places else self.stored_by
        if self.is_known(pending):
            submit()
        else:
            self.waiting = (pending, submit)

    def is_known(self, number: int) -> bool:
        """Whether a commit of the store is done, or not worth waiting for."""
        store = self.store
        return number <= self.committer.stored or store.acknowledge_early or store.failing

    def go_on(self) -> None:
        """The store has done a commit, or cannot."""
        if self.waiting is not None and self.is_known(self.waiting[0]):
            submit = self.waiting[1]
            self.waiting = None
            submit()

    def confirm(self, number: int) -> None:
        """The streams have done a commit: a crash leaves no doubt about its messages any more."""
        unconfirmed = self.unconfirmed
        while unconfirmed and unconfirmed[0][0] <= number:
            self.confirmed.append(unconfirmed.popleft()[1])
        if self.confirmed and self.tidying is None:
            # Mostly a PUBREL has the store commit sooner.
            self.tidying = self.commits.loop.call_later(TIDY_AFTER, self.tidy)

    def tidy(self) -> None:
        """Deletes what was confirmed, if nothing else had the store commit."""
        self.tidying = None
        self.write()

    def stop(self) -> None:
        """There are no streams any more."""
        if self.tidying is not None:
            self.tidying.cancel()
        self.committer.before.remove(self.write)
        self.committer.after.remove(self.go_on)

    # The start

    def recover(self, streams: Mapping[str, Stream]) -> None:
        """Finds which streams lack what they had not confirmed when the broker before this one ended."""
        try:
            self.look_up(streams)
        except (plyvel.Error, StoreError, msgspec.MsgspecError) as error:
            log.error("cannot read which messages streams lack: %s", error)

    def look_up(self, streams: Mapping[str, Stream]) -> None:
        """Looks up which streams lack what they had not confirmed.

        Raises:
            plyvel.Error: the store cannot be read.
            StoreError: the same.
            msgspec.MsgspecError: there is something else in it.
        """
        store = self.store
        for key, value in scan(store.db, LACKING):
            if store.get(_RECEIVED + key[1:]) is None:
                store.delete(key)  # its session has ended, or is elsewhere
            else:
                self.lacking[key[1:]] = names_of(value)
        if store.get(RECEIPTS) is None:
            self.doubt_all()
        # Of two messages with one packet id the later counts: the other was released.
        latest: dict[bytes, Receipt] = {}
        for key, value in scan(store.db, RECEIPTS):
            if value:
                store.delete(key)
                latest |= {each.received: each for each in _DECODER.decode(value)}
        last: dict[tuple[str, int], str] = {}
        for each in latest.values():
            self.judge(each, streams, last)
        if store.dirty:
            # Before any row of this life.
            self.stored_by = store.number

    def doubt_all(self) -> None:
        """The broker before this one kept no receipts: the streams may lack whatever was received."""
        for key, _ in scan(self.store.db, _RECEIVED):
            if not is_end(key):
                self.note(key[1:], None)
        self.store.put(RECEIPTS, b"")

    def judge(
        self, each: Receipt, streams: Mapping[str, Stream], last: dict[tuple[str, int], str]
    ) -> None:
        """Notes which streams lack one message. `last` is the last receipt of each partition that was looked at."""
        if self.store.get(_RECEIVED + each.received) is None:
            return  # released: acknowledged before
        lacking = set()
        for place in each.places:
            if place not in last:
                last[place] = last_receipt(place, streams)
            is_there = each.receipt[:_LIFE] == last[place][:_LIFE] and each.receipt <= last[place]
            if not is_there and place[0] in streams:
                lacking.add(place[0])
        if lacking:
            known = self.lacking.get(each.received, frozenset())
            self.note(each.received, None if known is None else known | lacking)

    def note(self, received: bytes, names: frozenset[str] | None) -> None:
        """Notes which streams lack a message, until it comes again or its packet id is released."""
        self.lacking[received] = names
        self.store.put(LACKING + received, names_as_bytes(names))


def received_key(session: bytes, packet_id: int) -> bytes:
    """The store's key of a packet id received, but for its kind."""
    return session + packet_id.to_bytes(2, "big")


def names_as_bytes(names: frozenset[str] | None) -> bytes:
    """Names of streams, which have no NUL, as a value; empty: all."""
    return b"" if names is None else "\0".join(sorted(names)).encode()


def names_of(value: bytes) -> frozenset[str] | None:
    """The names of streams in such a value."""
    return frozenset(value.decode(errors="replace").split("\0")) if value else None


def last_receipt(place: tuple[str, int], streams: Mapping[str, Stream]) -> str:
    """The last receipt in a partition; "" where it is not known: better twice than never."""
    name, number = place
    try:
        return streams[name].partition(number).last_receipt() if name in streams else ""
    except (StreamError, OSError) as error:
        log.warning("partition %d of stream %r cannot be looked into: %s", number, name, error)
        return ""
