"""Anti-entropy: a node asks another for what it lacks, until it lacks nothing.

The one who lacks asks, and keeps all the state; the one who is asked answers each request by itself, so a lost
message is made up for by asking again. A request carries the asker's clock, the answer a batch of entries and where
to go on.

**By difference**, the rule: the dots that are in the answerer's clock and not in the asker's, each of which leads
to its key. The cost is that of the difference; where there is none, that of two clocks. A **round** goes once over
all such dots. Meanwhile more is written, and an entry that was yet to come may be overwritten by one whose turn is
over, so a round that took several batches is followed by another, over what is new since its beginning. A round of
one batch shows the answerer's map at one moment: after it the asker has everything, and only then adds the
answerer's clock to its own. Until then it has entries that it does not claim to have, which hurts nobody.

**In full**, where the asker's clock lacks dots of the answerer's horizon: deletions may have been forgotten of
which the asker never heard. The answerer then goes through its map in the order of keys, and what the asker has
there beyond that, though its dot is in the answerer's clock, was deleted. What is not in that clock is news and
stays. So a node that comes back after years, or a whole cluster that joins another, brings what it wrote and none
of what was deleted since. The asker takes over the horizon, for it cannot tell others of these deletions either,
except in full. An empty node gets everything, in batches, from one node, while all serve.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from vmq_cluster.clocks import Dot, NodeClock
from vmq_cluster.effects import Outbox
from vmq_cluster.errors import MalformedError
from vmq_cluster.identity import Identity
from vmq_cluster.membership import Membership
from vmq_cluster.messages import MAX_ENTRIES, SyncBatch, SyncRequest, WireEntry
from vmq_cluster.metadata import entries
from vmq_cluster.metadata.collector import Collector
from vmq_cluster.metadata.entries import Entry
from vmq_cluster.metadata.metadata import Metadata
from vmq_cluster.metadata.records import DOT, dot_key
from vmq_cluster.options import Options

if TYPE_CHECKING:
    from random import Random

#: What an entry counts besides its key and its values.
_ENTRY_BYTES: Final = 64
_NOTHING: Final = NodeClock()
#: So many new peers at most are asked out of their turn.
ASKED_AT_ONCE: Final = 4


@dataclass(slots=True)
class Pull:
    """An exchange that this node asks for."""

    peer: str
    incarnation: int
    full: bool = False
    cursor: bytes = b""
    until: bytes = b""
    #: What the answerer had at the beginning of this round, and of those before it.
    begun: NodeClock = field(default_factory=NodeClock)
    promised: NodeClock = field(default_factory=NodeClock)
    #: What the answerer has forgotten lies within this, if it gave everything in full.
    horizon: NodeClock = field(default_factory=NodeClock)
    batches: int = 0
    #: Times that it began from nothing.
    starts: int = 0
    request: int = 0
    #: What the last request said that this node has.
    told: NodeClock = field(default_factory=NodeClock)
    attempts: int = 0
    deadline: float = 0.0


@dataclass(slots=True)
class Counters:
    """What happened since the start."""

    exchanges: int = 0
    full_exchanges: int = 0
    given_up: int = 0
    entries_sent: int = 0
    entries_received: int = 0


class Exchange:
    """The exchanges of one node: one at a time that it asks for, any number that it answers."""

    def __init__(
        self,
        identity: Identity,
        membership: Membership,
        metadata: Metadata,
        collector: Collector,
        options: Options,
        random: "Random",
        outbox: Outbox,
    ) -> None:
        self._identity = identity
        self._membership = membership
        self._metadata = metadata
        self._collector = collector
        self._options = options
        self._random = random
        self._outbox = outbox
        self.counters = Counters()
        self._pull: Pull | None = None
        self._requests = 0
        self._up: set[str] = set()
        #: Peers of which this node had everything once since they can be reached.
        self.complete: set[str] = set()
        #: When to ask whom, besides the regular turns.
        self._due: dict[str, float] = {}
        #: Peers that wait to be asked, for a request says what this node has, and shall not wait for their turn.
        self._hurried: set[str] = set()
        self._turns: list[str] = []
        self._next_turn = 0.0

    @property
    def is_pulling(self) -> bool:
        """Whether an exchange is under way."""
        return self._pull is not None

    @property
    def pulling_from(self) -> str:
        """Who is asked at present; nobody: an empty name."""
        return "" if self._pull is None else self._pull.peer

    def set_peers(self, up: Iterable[str], now: float) -> None:
        """These peers can be reached now: new ones are asked at once, some of them if they are many."""
        before, self._up = self._up, set(up)
        self.complete &= self._up
        self._hurried &= self._up
        self._ask_soon(self._up - before, now)
        for peer in sorted(before - self._up):
            self._due.pop(peer, None)
            if self._pull is not None and self._pull.peer == peer:
                self._give_up(now)

    def hurry(self, peers: Iterable[str], now: float) -> None:
        """These peers leave: they are asked now, and again until this node has told them that it has all they have."""
        before, self._hurried = self._hurried, self._up.intersection(peers)
        for peer in sorted(self._hurried - before):
            self._due[peer] = now

    def catch_up(self, now: float) -> None:
        """This node was away, and they were told nothing of that: they are asked as if they were new."""
        self._ask_soon(self._up - self._due.keys(), now)

    def _ask_soon(self, peers: Iterable[str], now: float) -> None:
        for peer in sorted(peers):
            if len(self._due) < ASKED_AT_ONCE:
                self._due[peer] = now

    def tick(self, now: float) -> None:
        """Repeats a request that was not answered; begins an exchange that is due."""
        pull = self._pull
        if pull is not None:
            if now < pull.deadline:
                return
            pull.attempts += 1
            if pull.attempts < self._options.sync_attempts:
                self._ask(pull, now)
                return
            self._give_up(now)
        peer = self._next_peer(now)
        incarnation = self._membership.incarnation(peer) if peer else 0
        if incarnation:
            self.counters.exchanges += 1
            self._pull = Pull(peer, incarnation)
            self._ask(self._pull, now)

    # --- the one who asks

    def on_batch(self, peer: str, message: SyncBatch, now: float) -> None:
        """A part of what this node lacks."""
        pull = self._pull
        if pull is None or pull.peer != peer or pull.request != message.id:
            return
        if message.incarnation != pull.incarnation:
            self._give_up(now)
            return
        if message.clock:
            pull.begun = NodeClock.checked(message.clock)
            self._collector.report(pull.incarnation, pull.begun.copy())
        if message.horizon:
            pull.horizon = NodeClock.checked(message.horizon)
        if message.full and not pull.full:
            self._start_in_full(pull, now)
            return
        self._apply(pull, message)
        pull.batches += 1
        pull.attempts = 0
        if message.cursor is not None:
            if message.cursor <= pull.cursor:
                raise MalformedError("an exchange that does not go on")
            pull.cursor = message.cursor
        elif pull.batches == 1 and not pull.full:
            self._finish(pull, now)
            return
        else:
            pull.promised.merge(pull.begun)
            pull.full, pull.cursor, pull.batches = False, b"", 0
        self._ask(pull, now)

    def _finish(self, pull: Pull, now: float) -> None:
        self._metadata.see_all(pull.promised)
        self._metadata.see_all(pull.begun)
        self._metadata.widen_horizon(pull.horizon)
        self.complete.add(pull.peer)
        self._pull = None
        if pull.peer in self._hurried:
            # The peer goes when it has heard of all this, and may still write a little while it waits.
            has_told = pull.told.dominates(pull.begun)
            self._due[pull.peer] = now + (self._options.sync_interval / 10 if has_told else 0.0)

    def _start_in_full(self, pull: Pull, now: float) -> None:
        pull.starts += 1
        if pull.starts > self._options.sync_attempts:
            self._give_up(now)
            return
        self.counters.full_exchanges += 1
        pull.full, pull.cursor, pull.batches = True, b"", 0
        pull.promised = NodeClock()
        self._ask(pull, now)

    def _ask(self, pull: Pull, now: float) -> None:
        self._requests += 1
        pull.request = self._requests
        pull.deadline = now + self._options.sync_timeout
        pull.until = self._until(pull.cursor) if pull.full else b""
        pull.told = self._metadata.clock.copy()
        request = SyncRequest(
            pull.request,
            self._identity.incarnation,
            pull.told.runs,
            pull.promised.copy().runs,
            pull.full,
            pull.cursor,
            pull.until,
        )
        self._outbox.send(pull.peer, request)

    def _until(self, cursor: bytes) -> bytes:
        """Where a batch is to end so that it says something of a bounded number of this node's own keys."""
        for count, (key, _) in enumerate(self._metadata.entries_after(cursor), 1):
            if count >= self._options.sync_entries:
                return key
        return b""

    def _apply(self, pull: Pull, message: SyncBatch) -> None:
        self.counters.entries_received += len(message.entries)
        received = set()
        for each in message.entries:
            entry = entries.checked(each.siblings, each.context)
            self._metadata.apply(each.key, entry, pull.begun)
            received.add(each.key)
        if pull.full:
            self._drop_deleted(pull, received, message.cursor)

    def _drop_deleted(self, pull: Pull, received: set[bytes], end: bytes | None) -> None:
        """Applies that the answerer has nothing under the other keys up to `end`."""
        own = []
        for key, _ in self._metadata.entries_after(pull.cursor):
            if end is not None and key > end:
                break
            if key not in received:
                own.append(key)
        nothing = Entry([], {})
        for key in own:
            self._metadata.apply(key, nothing, pull.begun)

    def _give_up(self, now: float) -> None:
        self.counters.given_up += 1
        if self._pull is not None and self._pull.peer in self._up:
            self._due.setdefault(self._pull.peer, now + self._options.sync_timeout)
        self._pull = None

    # --- the one who is asked

    def on_request(self, peer: str, message: SyncRequest, now: float) -> None:
        """A peer asks for what it lacks."""
        if message.incarnation != self._membership.incarnation(peer):
            return  # its word on members is on its way
        metadata = self._metadata
        theirs = NodeClock.checked(message.clock)
        known = theirs.copy()
        known.merge(NodeClock.checked(message.promised))
        self._collector.report(message.incarnation, theirs)
        if not metadata.clock.dominates(theirs) and peer in self._up:
            # Most of it is on its way here as broadcasts: asking at once would fetch it twice.
            self._due.setdefault(peer, now + self._options.sync_interval / 10)
        own = self._identity.incarnation
        if not message.full and not known.dominates(metadata.horizon):
            self._outbox.send(peer, SyncBatch(message.id, own, {}, {}, True, [], None))
            return
        if message.full:
            found, cursor = self._by_key(message.cursor, message.until)
        else:
            found, cursor = self._by_difference(known, message.cursor)
        self.counters.entries_sent += len(found)
        first = not message.cursor
        clock = metadata.clock.copy() if first else _NOTHING
        horizon = metadata.horizon.copy() if first and message.full else _NOTHING
        answer = SyncBatch(message.id, own, clock.runs, horizon.runs, message.full, found, cursor)
        self._outbox.send(peer, answer)

    def _by_key(self, cursor: bytes, until: bytes) -> tuple[list[WireEntry], bytes | None]:
        batch = Batch(self._options)
        last = cursor
        for key, entry in self._metadata.entries_after(cursor):
            if until and key > until:
                break
            if batch.is_full:
                return batch.entries, last
            batch.add(key, entry)
            last = key
        return batch.entries, until or None

    def _by_difference(
        self, known: NodeClock, cursor: bytes
    ) -> tuple[list[WireEntry], bytes | None]:
        start: Dot = (0, 0)
        if cursor:
            if len(cursor) != 16:
                raise MalformedError("an exchange that goes on from nowhere")
            start = int.from_bytes(cursor[:8], "big"), int.from_bytes(cursor[8:], "big")
        batch = Batch(self._options)
        for incarnation, runs in self._metadata.clock.beyond(known):
            for at in range(0, len(runs), 2):
                first = max((incarnation, runs[at]), start)
                end = dot_key(DOT, (incarnation, runs[at + 1]))
                if dot_key(DOT, first) >= end:
                    continue
                for dot, key in self._metadata.index(DOT, first, end):
                    if batch.is_full:
                        return batch.entries, dot_key(b"", dot)
                    if key not in batch.keys:
                        entry = self._metadata.load(key)
                        assert entry is not None
                        batch.add(key, entry)
        return batch.entries, None

    # --- turns

    def _next_peer(self, now: float) -> str:
        """Whom to ask now; nobody: an empty name."""
        due = [(when, peer) for peer, when in self._due.items() if when <= now]
        if due:
            _, peer = min(due)
            del self._due[peer]
            return peer
        if now < self._next_turn or not self._up:
            return ""
        self._next_turn = now + self._options.sync_interval * self._random.uniform(0.8, 1.2)
        self._turns = [peer for peer in self._turns if peer in self._up]
        if not self._turns:
            self._turns = sorted(self._up)
            self._random.shuffle(self._turns)
        return self._turns.pop()


class Batch:
    """Entries of one answer, up to a size."""

    def __init__(self, options: Options) -> None:
        self._max_entries = min(options.sync_entries, MAX_ENTRIES)
        self._max_bytes = options.sync_bytes
        self._size = 0
        self.entries: list[WireEntry] = []
        self.keys: set[bytes] = set()

    @property
    def is_full(self) -> bool:
        return len(self.entries) >= self._max_entries or self._size >= self._max_bytes

    def add(self, key: bytes, entry: Entry) -> None:
        self.entries.append(WireEntry(key, entry.siblings, entry.context))
        self.keys.add(key)
        values = sum(len(value) for _, _, _, value in entry.siblings if value is not None)
        self._size += len(key) + values + _ENTRY_BYTES * len(entry.context)
