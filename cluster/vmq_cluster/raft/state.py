"""What a log says beside its rows: terms, members, producers, and where rows may be missing.

It is part of the log. The first batch of each segment is the state up to there, so that opening, cutting and fetching
files all give it back in the same way: the last such batch, and what follows it. (A table on the side would keep what
an old leader's batch said when that batch is cut; the producer's retry would then be dropped.)
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final, Self

import msgspec

from vmq_cluster.errors import MalformedError
from vmq_cluster.raft.dots import DOTTED, RowDots
from vmq_cluster.raft.forms import StateForm
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import (
    BLANK,
    COMPACT,
    HOLE,
    MEMBERS,
    RETIRED,
    ROWS,
    STATE,
    UNCLEAN,
    Batch,
    Mark,
)

#: What `Producers.place` says of rows beside how many are known already.
GAP: Final = -1

#: How many former members are known, those that are still there among them.
FORMER: Final = 16
#: How many ranges that may be lost are told apart: a replica that is alone adds one with each unclean start.
MOST_RANGES: Final = 64


class Producers:
    """The next number of each boot of each store; numbers begin at 0 and have no gaps.

    The boot belongs to the name: a store that lost its disk's tail counts anew, and its new rows must not be taken for
    repetitions. Boots of a store rise, as texts: the first row of one ends those before it, of which nothing more is
    taken. So there is an entry a store, and it goes only when the store is retired, never because its rows went by
    retention.
    """

    def __init__(self) -> None:
        self.next: dict[tuple[str, str], int] = {}
        #: The last boot of each store.
        self.last: dict[str, str] = {}
        self.dots = RowDots()

    def place(self, mark: Mark) -> int:
        """How many of these rows, from the first on, are in the log already; or `GAP`. Dots have none: how many."""
        if mark.store.startswith(DOTTED):
            return self.dots.known(mark)
        who = (mark.store, mark.boot)
        if mark.boot < self.last.get(mark.store, ""):
            return mark.count
        expected = self.next.get(who, 0)
        if mark.first > expected:
            return GAP
        return min(max(expected - mark.first, 0), mark.count)

    def add(self, mark: Mark) -> None:
        if mark.store.startswith(DOTTED):
            self.dots.add(mark)
            return
        who = (mark.store, mark.boot)
        before = self.last.get(mark.store, "")
        if mark.boot > before:
            self.next.pop((mark.store, before), None)
        self.last[mark.store] = max(before, mark.boot)
        self.next[who] = max(self.next.get(who, 0), mark.end)

    def retire(self, stores: Iterable[str]) -> None:
        gone = set(stores)
        self.next = {who: number for who, number in self.next.items() if who[0] not in gone}
        self.last = {store: boot for store, boot in self.last.items() if store not in gone}


class Terms:
    """Which term an offset is of: the first offset of each."""

    def __init__(self, starts: Iterable[tuple[int, int]] = ()) -> None:
        self.starts: list[tuple[int, int]] = list(starts)

    def add(self, term: int, offset: int) -> None:
        if not self.starts or self.starts[-1][1] != term:
            self.starts.append((offset, term))

    def at(self, offset: int) -> int:
        """The term of the batch that has an offset, which is in the log or just before it."""
        index = bisect_right(self.starts, offset, key=_offset) - 1
        return self.starts[index][1] if index >= 0 else 0

    def begin(self, offset: int) -> int:
        """Where the term of an offset began."""
        index = bisect_right(self.starts, offset, key=_offset) - 1
        return self.starts[index][0] if index >= 0 else 0

    def runs(self, first: int, end: int) -> Iterator[tuple[int, int, int]]:
        """What lies between two offsets, by terms: first, end, and the term."""
        at = bisect_right(self.starts, first, key=_offset)
        while first < end:
            behind = min(end, self.starts[at][0]) if at < len(self.starts) else end
            yield first, behind, self.at(first)
            first = behind
            at += 1

    def trim(self, first: int) -> None:
        """Nobody asks for terms before the one that the log's first offset follows."""
        index = bisect_right(self.starts, first - 1, key=_offset) - 1
        if index > 0:
            del self.starts[:index]


def _offset(start: tuple[int, int]) -> int:
    return start[0]


_encoder = msgspec.msgpack.Encoder()
_form = msgspec.msgpack.Decoder(StateForm)
_members = msgspec.msgpack.Decoder(Members)
_stores = msgspec.msgpack.Decoder(list[str])
_range = msgspec.msgpack.Decoder(tuple[int, int, int])
_two = msgspec.msgpack.Decoder(tuple[int, int])
#: What the bodies of control batches are, by kind; a new leader's has none.
_BODIES: Final[dict[int, msgspec.msgpack.Decoder[Any]]] = {
    MEMBERS: _members,
    STATE: _form,
    UNCLEAN: _range,
    RETIRED: _stores,
    COMPACT: _two,
    HOLE: _two,
    BLANK: _form,
}


class LogState:
    """The state of a log at its end."""

    def __init__(self, members: Members | None = None) -> None:
        self.terms = Terms()
        self.members = Members() if members is None else members
        #: Where the batch with these members ends.
        self.members_end = 0
        #: Who was a member when somebody went, the last first: it may have what is damaged elsewhere.
        self.former: tuple[str, ...] = ()
        self.producers = Producers()
        #: Ranges whose rows may be missing, since a majority may have forgotten: first, end, and the term that said so.
        self.uncertain: list[tuple[int, int, int]] = []
        #: Up to which offset rows are to be compacted, and before which time tombstones go; and where the batch ends
        #: that said so.
        self.compaction = (0, 0)
        self.compaction_end = 0
        #: What was given up: first, end, and where the batch ends that said so.
        self.holes: list[tuple[int, int, int]] = []

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> Self:
        """The state behind batches that begin with one of kind `STATE`."""
        state = cls()
        for batch in batches:
            state.add(batch)
        return state

    def add(self, batch: Batch) -> None:
        """This batch is in the log now."""
        if batch.kind in (STATE, BLANK):
            self._load(batch)
        self.terms.add(batch.term, batch.offset)
        if batch.kind == ROWS:
            for mark in batch.marks:
                self.producers.add(mark)
        elif batch.kind == MEMBERS:
            before = self.members.all
            self.members = _members.decode(batch.body)
            if not set(before) <= set(self.members.all):
                self.former = tuple(dict.fromkeys((*before, *self.former)))[:FORMER]
            self.members_end = batch.end
        elif batch.kind == UNCLEAN:
            self.uncertain.append(_range.decode(batch.body))
            if len(self.uncertain) > MOST_RANGES:
                one, other = self.uncertain[:2]
                both = (min(one[0], other[0]), max(one[1], other[1]), other[2])
                self.uncertain[:2] = [both]
        elif batch.kind == RETIRED:
            self.producers.retire(_stores.decode(batch.body))
        elif batch.kind == COMPACT:
            self._compact(_two.decode(batch.body), batch)
        elif batch.kind == HOLE:
            self.holes.append((*_two.decode(batch.body), batch.end))

    def _compact(self, decision: tuple[int, int], batch: Batch) -> None:
        if decision != self.compaction:
            self.compaction = decision
            self.compaction_end = batch.end

    @property
    def last_unclean(self) -> tuple[int, int]:
        """From where on nothing counts that was committed before which term; zeros: there was no unclean election.

        The term is the last one's, the offset the lowest of all: who knows not even of those before has to give way to
        them, too. What it gives up too much of is committed again as soon as it is seen to be the leader's.
        """
        if not self.uncertain:
            return (0, 0)
        return (min(first for first, _, _ in self.uncertain), self.uncertain[-1][2])

    def encode(self, first: int) -> bytes:
        """The body of a batch of kind `STATE`, in a log that is kept from `first` on."""
        self.terms.trim(first)
        self.holes = [each for each in self.holes if each[1] > first]
        return self._encode(self.terms.starts)

    def encode_blank(self, offset: int) -> bytes:
        """The body of one of kind `BLANK`: what is known now, and terms only as they were up to there.

        So all that is said of the log behind it is true, and committed, if early.
        """
        return self._encode([each for each in self.terms.starts if each[0] < offset])

    def _encode(self, terms: list[tuple[int, int]]) -> bytes:
        known = sorted((*who, number) for who, number in self.producers.next.items())
        return _encoder.encode(
            StateForm(
                terms,
                self.members,
                known,
                [],
                self.uncertain,
                self.compaction,
                [(*who, list(runs)) for who, runs in self.producers.dots.runs.items()],
                self.former,
                [(first, end) for first, end, _ in self.holes],
            )
        )

    def _load(self, batch: Batch) -> None:
        form = _form.decode(batch.body)
        self.terms = Terms(form.terms)
        if form.members != self.members:
            self.members = form.members
            self.members_end = batch.end
        self.former = form.former
        self.producers = Producers()
        self.producers.next = {(store, boot): number for store, boot, number in form.next}
        for store, boot, _ in form.next:
            self.producers.last[store] = max(boot, self.producers.last.get(store, ""))
        for store, boot, runs in form.dots:
            self.producers.dots.runs[store, boot] = runs
        self.uncertain = form.uncertain
        self._compact(form.compaction, batch)
        known = {(first, end): decided for first, end, decided in self.holes}
        self.holes = [(*each, known.get(each, batch.end)) for each in form.holes]


def check_control(batch: Batch) -> None:
    """Looks whether a control batch of another node can be taken into a log's state.

    Raises:
        MalformedError: it cannot.
    """
    body = _BODIES.get(batch.kind)
    try:
        if body is not None:
            body.decode(batch.body)
    except msgspec.MsgspecError as error:
        raise MalformedError(f"a batch of kind {batch.kind}: {error}") from None
    if batch.span != 1:
        raise MalformedError(f"a batch of kind {batch.kind} that spans {batch.span}")


def encode_members(members: Members) -> bytes:
    """The body of a batch of kind `MEMBERS`."""
    return _encoder.encode(members)


def encode_stores(stores: Iterable[str]) -> bytes:
    """The body of a batch of kind `RETIRED`."""
    return _encoder.encode(sorted(stores))


def encode_range(first: int, end: int, term: int) -> bytes:
    """The body of a batch of kind `UNCLEAN`."""
    return _encoder.encode((first, end, term))


def encode_compaction(end: int, before: int) -> bytes:
    """The body of a batch of kind `COMPACT`."""
    return _encoder.encode((end, before))


def encode_hole(first: int, end: int) -> bytes:
    """The body of a batch of kind `HOLE`."""
    return _encoder.encode((first, end))


def genesis(members: Members) -> bytes:
    """The body of the first batch of a new group: each of its first members begins its log with it."""
    return LogState(members).encode(0)
