"""What nodes hold under a key against a model that knows all of history."""

from dataclasses import dataclass
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq_cluster.clocks import Dot, NodeClock
from vmq_cluster.errors import MalformedError, StorageError
from vmq_cluster.metadata.entries import Entry, checked, decode, encode, join, overwrite

NOTHING = NodeClock()


def write(old: Entry | None, dot: Dot, value: bytes | None, time: int = 1) -> Entry:
    return overwrite(old, dot, time, value)


def test_writes_that_knew_nothing_of_each_other_stay_side_by_side() -> None:
    both = join(write(None, (1, 1), b"a", 5), write(None, (2, 1), b"b", 4), NOTHING, NOTHING)
    assert both.dots() == [(1, 1), (2, 1)]
    assert both.value(None) == b"a"
    assert both.value(lambda one, other: b"".join(sorted((one, other)))) == b"ab"
    assert write(both, (3, 1), b"c").dots() == [(3, 1)]


@patch("vmq_cluster.metadata.entries.MAX_PAYLOAD", 10)
def test_of_what_no_frame_could_hold_together_the_newest_stay() -> None:
    a, b, c, d = (write(None, (each, 1), b"%04d" % each, 10 - each) for each in (1, 2, 3, 4))

    def both(one: Entry, other: Entry) -> Entry:
        return join(one, other, NOTHING, NOTHING)

    assert both(both(a, d), both(b, c)).dots() == [(1, 1), (2, 1)]
    assert both(c, both(a, both(b, d))).dots() == [(1, 1), (2, 1)]
    # Who has one that is gone elsewhere hears so.
    assert both(both(c, d), both(both(a, b), c)).dots() == [(1, 1), (2, 1)]
    assert both(both(both(a, b), c), c).dots() == [(1, 1), (2, 1)]


def test_the_same_time_is_decided_alike_everywhere() -> None:
    one, other = write(None, (1, 1), b"a"), write(None, (2, 1), b"b")
    assert join(one, other, NOTHING, NOTHING).value(None) == b"b"
    assert join(other, one, NOTHING, NOTHING).value(None) == b"b"


def test_what_this_node_has_seen_and_does_not_hold_is_no_news() -> None:
    seen = NodeClock({1: [1, 2]})
    assert join(None, write(None, (1, 1), b"a"), seen, NOTHING).siblings == []


def test_what_the_other_has_seen_and_does_not_hold_is_gone() -> None:
    mine = write(None, (1, 1), b"a")
    assert join(mine, Entry([], {}), NOTHING, NodeClock({1: [1, 2]})).siblings == []
    assert join(mine, Entry([], {}), NOTHING, NOTHING) == mine


@dataclass
class Model:
    """Nodes that write to one key and tell each other, and the history of it."""

    entries: list[Entry | None]
    known: list[set[Dot]]
    overwritten: list[set[Dot]]
    counters: list[int]

    def write(self, node: int, value: bytes | None) -> None:
        self.counters[node] += 1
        dot = (node + 1, self.counters[node])
        self.overwritten[node] |= self.known[node]
        self.known[node] = {*self.known[node], dot}
        self.entries[node] = write(self.entries[node], dot, value)

    def tell(self, source: int, target: int) -> None:
        theirs = self.entries[source]
        if theirs is not None:
            self.entries[target] = join(self.entries[target], theirs, NOTHING, NOTHING)
            self.known[target] |= self.known[source]
            self.overwritten[target] |= self.overwritten[source]


STEPS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from([b"", None])), max_size=30
)


@given(STEPS)
def test_siblings_are_what_no_known_write_overwrote(
    steps: list[tuple[int, int, bytes | None]],
) -> None:
    model = Model([None] * 3, [set() for _ in range(3)], [set() for _ in range(3)], [0] * 3)
    values: dict[Dot, bytes | None] = {}
    for one, other, value in steps:
        if one == other:
            model.write(one, value)
            values[one + 1, model.counters[one]] = value
        else:
            model.tell(one, other)
    for entry, known, overwritten in zip(
        model.entries, model.known, model.overwritten, strict=True
    ):
        assert (set() if entry is None else set(entry.dots())) == known - overwritten
        live = {dot for dot in known - overwritten if values[dot] is not None}
        assert (entry is None or entry.value(None) is None) == (not live)


@given(STEPS)
def test_joins_are_commutative_associative_idempotent(
    steps: list[tuple[int, int, bytes | None]],
) -> None:
    model = Model([None] * 3, [set() for _ in range(3)], [set() for _ in range(3)], [0] * 3)
    for node in range(3):
        model.write(node, b"x")
    for one, other, value in steps:
        if one == other:
            model.write(one, value)
        else:
            model.tell(one, other)
    a, b, c = (entry for entry in model.entries if entry is not None)

    def both(one: Entry, other: Entry) -> Entry:
        return join(one, other, NOTHING, NOTHING)

    assert both(a, b).value(None) == both(b, a).value(None)
    assert both(both(a, b), c).value(None) == both(a, both(b, c)).value(None)
    assert both(a, a) == a
    assert both(both(a, b), b) == both(a, b)
    assert decode(encode(a)) == a


@pytest.mark.parametrize(
    ("siblings", "context"),
    [
        ([(1, 2, 0, b"")], {}),
        ([(1, 2, 0, b"")], {1: 1}),
        ([(1, 1, 0, b""), (1, 2, 0, b"")], {1: 2}),
        ([(2, 1, 0, b""), (1, 1, 0, b"")], {1: 1, 2: 1}),
    ],
)
def test_an_entry_that_does_not_fit_is_malformed(
    siblings: list[tuple[int, int, int, bytes | None]], context: dict[int, int]
) -> None:
    with pytest.raises(MalformedError):
        checked(siblings, context)


def test_a_damaged_record_is_an_error() -> None:
    with pytest.raises(StorageError):
        decode(b"\x01")
