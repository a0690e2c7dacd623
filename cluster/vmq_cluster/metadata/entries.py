"""What a node holds under one key, and how two nodes' holdings become one.

A dotted causal container, as the server-wide clocks paper calls it (see `vmq_cluster.clocks`): the **siblings**,
which are the values that no other known write has overwritten, each with its dot and its hybrid time, and the
**context**, which says of which writes to this key the siblings are the outcome: all that an incarnation made to
it, up to a counter.

A write overwrites exactly what its node knew. So one sibling is the rule, and two are writes of which neither knew
the other; they stay side by side until the next write, and every node answers with the same one of them: that of
the higher time, or what the merge function of the prefix makes of all. A deletion is a write without a value. It
overwrites what its node knew and nothing else: a value written elsewhere meanwhile stays. Beside a value the
deletion is kept as well, until all have seen it: others learn from it what it overwrote.
"""

from collections.abc import Callable
from functools import reduce

import msgspec

from vmq_cluster.clocks import Dot, NodeClock
from vmq_cluster.errors import MalformedError, StorageError
from vmq_cluster.messages import MAX_PAYLOAD, Counter, Positive, WireSibling

#: Makes one value of two that were written at the same time. It must be commutative, associative and idempotent.
Merge = Callable[[bytes, bytes], bytes]


class Entry(msgspec.Struct, array_like=True):
    """The siblings and the context of a key. Not changed once made."""

    #: Sorted by incarnation; at most one of each.
    siblings: list[WireSibling]
    context: dict[Positive, Counter]

    def dots(self) -> list[Dot]:
        return [(incarnation, counter) for incarnation, counter, _, _ in self.siblings]

    @property
    def is_deleted(self) -> bool:
        return all(value is None for _, _, _, value in self.siblings)

    def value(self, merge: Merge | None) -> bytes | None:
        """What a reader sees."""
        if len(self.siblings) == 1:
            return self.siblings[0][3]
        live = sorted(
            (time, incarnation, counter, value)
            for incarnation, counter, time, value in self.siblings
            if value is not None
        )
        if not live:
            return None
        if merge is None:
            return live[-1][3]
        return reduce(merge, [value for _, _, _, value in live])


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(Entry)


def encode(entry: Entry) -> bytes:
    """An entry for the storage."""
    return _ENCODER.encode(entry)


def decode(raw: bytes) -> Entry:
    """An entry of the storage."""
    try:
        return _DECODER.decode(raw)
    except msgspec.DecodeError as error:
        raise StorageError(f"a record of the replicated metadata is damaged: {error}") from None


def checked(siblings: list[WireSibling], context: dict[int, int]) -> Entry:
    """An entry that came from a peer.

    Raises:
        MalformedError: its parts do not fit together.
    """
    previous = 0
    for incarnation, counter, _, _ in siblings:
        if incarnation <= previous or context.get(incarnation, 0) < counter:
            raise MalformedError("an entry whose siblings and context do not fit")
        previous = incarnation
    return Entry(siblings, context)


def overwrite(old: Entry | None, dot: Dot, time: int, value: bytes | None) -> Entry:
    """A write by one who knows `old`."""
    context = dict(old.context) if old is not None else {}
    context[dot[0]] = dot[1]
    return Entry([(dot[0], dot[1], time, value)], context)


def join(mine: Entry | None, theirs: Entry, clock: NodeClock, covered: NodeClock) -> Entry:
    """What a node holds after it has heard what another holds.

    `clock` is its own: a dot that is in it and not among its siblings is overwritten. `covered` is the other's,
    where it was sent along: of that the same holds for the other.
    """
    if mine is None:
        mine = Entry([], {})
    siblings = []
    there = {sibling[:2] for sibling in theirs.siblings}
    for sibling in mine.siblings:
        dot = sibling[:2]
        if dot in there or (dot[1] > theirs.context.get(dot[0], 0) and dot not in covered):
            siblings.append(sibling)
    kept = {sibling[0] for sibling in siblings}
    for sibling in theirs.siblings:
        incarnation, counter = sibling[0], sibling[1]
        if (
            incarnation not in kept
            and counter > mine.context.get(incarnation, 0)
            and (incarnation, counter) not in clock
        ):
            siblings.append(sibling)
    context = dict(mine.context)
    for incarnation, counter in theirs.context.items():
        if counter > context.get(incarnation, 0):
            context[incarnation] = counter
    if len(siblings) > 1:
        siblings.sort(key=lambda sibling: sibling[0])
        siblings = _fitting(siblings)
    return Entry(siblings, context)


def _fitting(siblings: list[WireSibling]) -> list[WireSibling]:
    """Those that can be told in one frame, the newest ones: the others count as overwritten, here and wherever this is
    heard. Else no exchange would come to what is behind them.
    """
    size = sum(len(value or b"") for _, _, _, value in siblings)
    if size <= MAX_PAYLOAD:
        return siblings
    gone: set[int] = set()
    for incarnation, _, _, value in sorted(siblings, key=lambda each: (each[2], each[0])):
        if size > MAX_PAYLOAD:
            gone.add(incarnation)
            size -= len(value or b"")
    return [each for each in siblings if each[0] not in gone]
