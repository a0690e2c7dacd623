"""Digests of a session's records against the records themselves."""

from hypothesis import given
from hypothesis import strategies as st

from tests.simulator.disk import Database
from vmq.clustering.messages.records import RECORDS
from vmq.clustering.replication.anti_entropy import (
    RANGE,
    CopyComparisons,
    is_behind_end,
    key_at,
    keys_in,
    place_of,
    records_behind,
    sums_behind,
)
from vmq.store.entries import FLAG_REF
from vmq.store.store import Store

OWNER = (7).to_bytes(8, "big")
COPY = (9).to_bytes(8, "big")

#: Kind and number: few of the first, so that ranges are long and meet the ends of kinds.
places = st.tuples(st.sampled_from("uxiqh"), st.integers(0, 3 * RANGE))


def place(kind: str, number: int) -> bytes:
    return kind.encode() + number.to_bytes(8, "big")


def store_of(session: bytes, records: dict[bytes, bytes]) -> Store:
    db = Database()
    for other in (session[:-1] + b"\0", session[:-1] + b"\xff"):
        db.put(b"q" + other + b"\1" * 8, b"none of this session")
    for at, value in records.items():
        db.put(key_at(session, at), value)
    return Store(db, "os", lambda: None)


def order(at: bytes) -> tuple[int, bytes]:
    return RECORDS.index(at[0]), at


def is_in(at: bytes, behind: bytes, end: bytes) -> bool:
    return (not behind or order(at) > order(behind)) and (not end or order(at) <= order(end))


@given(
    st.sets(places, max_size=40),
    st.integers(0, 2 * RANGE),
    st.dictionaries(places, st.sampled_from([b"other", None]), max_size=4),
    st.integers(1, 3 * RANGE),
)
def test_what_differs_is_in_the_ranges_that_are_found_and_what_is_alike_in_none(
    some: set[tuple[str, int]],
    run: int,
    changed: dict[tuple[str, int], bytes | None],
    limit: int,
) -> None:
    mine = {place(*each): b"one" for each in some} | {place("q", at): b"in" for at in range(run)}
    theirs = dict(mine)
    for each, value in changed.items():
        if value is None:
            theirs.pop(place(*each), None)
        else:
            theirs[place(*each)] = value
    owner, copy = store_of(OWNER, mine), store_of(COPY, theirs)
    found: list[list[tuple[bytes, bytes]]] = []
    comparisons = CopyComparisons(copy, lambda name, session, ranges: found.append(ranges))
    comparisons.begin("a", OWNER, COPY)
    behind, is_first = b"", True
    while behind or is_first:
        is_first = False
        sums, behind, read = sums_behind(owner, OWNER, behind, limit)
        assert read <= limit + RANGE
        assert all(comparisons.add("a", each) for each in sums)
        comparisons.step(copy.number)  # some come while others were compared
    while comparisons.step(copy.number):
        pass
    [ranges] = found
    differing = {at for at in mine.keys() | theirs.keys() if mine.get(at) != theirs.get(at)}
    for at in differing:
        assert any(is_in(at, *each) for each in ranges)
    assert bool(ranges) == bool(differing)
    there = sum(is_in(at, *each) for at in mine for each in ranges)
    assert there <= len(differing) * RANGE
    for first, last in ranges:
        assert list(keys_in(copy, COPY, first, last)) == sorted(
            key_at(COPY, at) for at in theirs if is_in(at, first, last)
        )
    assert comparisons.repeat("a", OWNER)
    assert len(found) == 2
    comparisons.end("a", OWNER)
    assert not comparisons.repeat("a", OWNER)


@given(st.sets(places), places, places)
def test_places_are_in_the_order_in_which_records_are_read(
    some: set[tuple[str, int]], one: tuple[str, int], other: tuple[str, int]
) -> None:
    store = store_of(OWNER, {place(*each): b"" for each in some})
    behind = place(*one)
    found = [place_of(key) for key, _ in records_behind(store, OWNER, key_at(OWNER, behind))]
    assert found == sorted(
        (at for each in some if is_in(at := place(*each), behind, b"")), key=order
    )
    assert is_behind_end(behind, place(*other)) == (order(behind) > order(place(*other)))
    assert not is_behind_end(behind, b"")


def test_the_text_of_a_message_counts_and_not_its_number() -> None:
    def sums(number: int, text: bytes) -> bytes:
        store = store_of(
            OWNER, {place("q", 1): bytes((1 | FLAG_REF, 0, 0)) + number.to_bytes(8, "big")}
        )
        store.db.put(b"m" + number.to_bytes(8, "big"), text)
        [found], _, _ = sums_behind(store, OWNER, b"", 10)
        return found.digest

    assert sums(5, b"\0\1tx") == sums(6, b"\0\1tx")
    assert sums(5, b"\0\1tx") != sums(5, b"\0\1ty")


def test_a_copy_is_compared_when_what_came_before_the_digests_is_committed() -> None:
    store = store_of(COPY, {})
    owner = store_of(OWNER, {place("q", 1): b"x"})
    found: list[list[tuple[bytes, bytes]]] = []
    comparisons = CopyComparisons(store, lambda name, session, ranges: found.append(ranges))
    comparisons.begin("a", OWNER, COPY)
    store.put(key_at(COPY, place("q", 1)), b"x")
    [each], _, _ = sums_behind(owner, OWNER, b"", 10)
    comparisons.add("a", each)
    comparisons.step(store.number - 1)
    assert found == []
    number = store.begin_commit()
    store.write()
    store.end_commit()
    assert not comparisons.step(number)
    assert found == [[]]
    assert not comparisons.add("b", each)


def test_what_is_not_committed_is_in_a_range_too() -> None:
    store = store_of(COPY, {place("i", 1): b"x", place("q", 1): b"x"})
    store.delete(key_at(COPY, place("q", 1)))
    store.put(key_at(COPY, place("q", 5)), b"x")
    store.begin_commit()
    store.put(key_at(COPY, place("q", 6)), b"x")
    store.put(key_at(OWNER, place("q", 7)), b"x")
    store.delete(key_at(COPY, place("q", 5)))
    assert list(keys_in(store, COPY, b"", b"")) == [
        key_at(COPY, place("i", 1)),
        key_at(COPY, place("q", 6)),
    ]
    assert list(keys_in(store, COPY, place("i", 1), place("q", 5))) == []
