"""What outboxes keep in the store: lives that rise, messages in order, and each taken once."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import plyvel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.walked import WalkedDb
from tests.vmq.test_store_model import commit
from vmq.clustering.delivery.outbox_storage import (
    TakenPlaces,
    begin_life,
    born_in,
    outgoing_key,
    prefix_of,
    put_total,
    stored_lanes,
    stored_parcels,
)
from vmq.clustering.messages.codec import HEAD, MessageBatch, close, encode_into
from vmq.clustering.messages.publishes import RemotePublish
from vmq.store.opening import open_store
from vmq.store.store import Store, StoreError
from vmq.store.tools import check

PUBLISH = RemotePublish(b"t", b"", 1)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = open_store(tmp_path / "store", "os", lambda: None)
    yield found
    found.db.close()


class Db:
    """As much of a database as `TakenPlaces` reads."""

    def __init__(self) -> None:
        self.records: dict[bytes, bytes] = {}

    def iterator(self, prefix: bytes, **_: object) -> Iterator[tuple[bytes, bytes]]:
        return iter(sorted(each for each in self.records.items() if each[0].startswith(prefix)))

    def raw_iterator(self, **_: object) -> Db:
        return self

    def seek(self, _: bytes) -> None: ...

    def valid(self) -> bool:
        return False

    def close(self) -> None: ...


def taken_again(store: Store) -> TakenPlaces:
    """What a receiver knows that starts again, with all that it had committed."""
    store.begin_commit()
    store.db.records.update(
        {key: value for key, value in store.writing.items() if value is not None}
    )
    store.end_commit()
    return TakenPlaces(store)


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(0, 8), st.booleans()), max_size=20))
def test_each_place_is_taken_once_whatever_is_repeated(steps: list[tuple[int, int, bool]]) -> None:
    """A channel hands on places in order; after a restart of either end it begins anew somewhere before."""
    store = Store(Db(), "os", lambda: None)
    taken = TakenPlaces(store)
    got: list[tuple[int, int]] = []
    sent: list[tuple[int, int]] = []
    life = 1
    for count, back, is_new_life in steps:
        if is_new_life:
            life += 1
        else:
            taken.save()
            taken = taken_again(store)
        number = max((place[1] for place in sent if place[0] == life), default=0)
        again = sent[max(len(sent) - back, 0) :]
        sent += [(life, number + 1 + each) for each in range(count)]
        for place in [*again, *sent[-count:]]:
            if taken.is_new("a", MessageBatch(7, *place, [PUBLISH])):
                got.append(place)
    assert got == sent


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from(["streams", "commit", "crash", ""])),
        max_size=30,
    )
)
def test_what_the_streams_lost_in_a_crash_they_are_given_again(
    steps: list[tuple[int, str]],
) -> None:
    """The store commits what became of batches before the streams do, or behind them, and the process dies anywhere."""
    store = Store(Db(), "os", lambda: None)
    taken = TakenPlaces(store)
    number = 0
    confirmed = (7, 1, 0)
    handled: list[int] = []  # what is in the store, of those whose commit was done
    in_store: list[int] = []
    gathered: list[int] = []
    streams: set[int] = set()
    for count, event in [*steps, (0, "commit"), (0, "crash")]:
        for _ in range(count):
            number += 1
            assert taken.is_new("a", MessageBatch(7, 1, number, [PUBLISH]))
            in_store.append(number)
            gathered.append(number)
        taken.save(streams_lack=bool(gathered))
        if event == "commit":
            taken_again(store)
            handled += in_store
            in_store = []
        elif event == "streams":
            streams |= {*gathered}
            gathered = []
            taken.streamed("a", (7, 1, number))
        elif event == "crash":
            store.dirty.clear()
            taken = TakenPlaces(store)
            in_store, gathered = [], []
            for again in range(confirmed[2] + 1, number + 1):
                parcel = MessageBatch(7, 1, again, [PUBLISH])
                if taken.is_new("a", parcel):
                    in_store.append(again)
                    gathered.append(again)
                elif taken.is_lacking("a", parcel):
                    gathered.append(again)
                assert not taken.is_lacking("a", parcel)
            taken.save(streams_lack=bool(gathered))
            streams |= {*gathered}  # they commit in the end
            gathered = []
            taken.streamed("a", (7, 1, number))
    assert handled + in_store == list(range(1, number + 1))
    assert streams == set(range(1, number + 1))


def test_origins_do_not_mix(store: Store) -> None:
    taken = TakenPlaces(store)
    parcel = MessageBatch(7, 1, 5, [PUBLISH])
    assert taken.is_new("a", parcel)
    assert not taken.is_new("a", parcel)
    assert taken.is_new("b", parcel)
    taken.save()
    commit(store)
    again = TakenPlaces(store)
    assert not again.is_new("a", parcel)
    assert not again.is_new("b", parcel)
    assert again.is_new("c", parcel)


def test_an_origin_with_a_new_store_is_heard_whatever_its_clock_says(store: Store) -> None:
    taken = TakenPlaces(store)
    assert taken.is_new("a", MessageBatch(7, 1000, 5, [PUBLISH]))
    assert taken.is_new("a", MessageBatch(6, 1, 1, [PUBLISH]))
    assert not taken.is_new("a", MessageBatch(6, 1, 1, [PUBLISH]))


def test_lives_rise_whatever_the_clock_says_and_the_name_stays(store: Store) -> None:
    name, life = begin_life(store, 1000, lambda _: 41)
    assert (name, life) == (42, 1000)
    commit(store)
    assert begin_life(store, 5, lambda _: 0) == (42, 1001)
    assert begin_life(store, 2000, lambda _: 0) == (42, 2000)
    assert born_in(store) == 1000


PLACES = [(life, number) for life in (1, 300) for number in (1, 2, 255, 256)]


def test_what_waits_comes_back_in_order(store: Store) -> None:
    for peer in ("a", "ab", "b"):
        for life, number in reversed(PLACES):
            store.put(outgoing_key(peer, life, number), b"%d.%d" % (life, number))
        put_total(store, prefix_of(peer), 8, len(peer))
    put_total(store, prefix_of("b"), 0, 0)
    store.put(b"p", b"\0")  # what comes next in the store
    commit(store)
    last = [outgoing_key(peer, *PLACES[-1]) for peer in ("a", "ab", "b")]
    assert list(stored_lanes(store)) == [
        ("a", last[0], 8, 1),
        ("ab", last[1], 8, 2),
        ("b", last[2], 0, sum(len(b"%d.%d" % each) for each in PLACES)),
    ]
    for peer in ("a", "ab"):
        found = stored_parcels(store, prefix_of(peer), outgoing_key(peer, 300, 255))
        assert [raw for _, raw in found] == [b"%d.%d" % place for place in PLACES[:-1]]
        rest = stored_parcels(store, outgoing_key(peer, 300, 2), outgoing_key(peer, 300, 256))
        assert [raw for _, raw in rest] == [b"300.255", b"300.256"]


def test_a_total_without_parcels_is_a_lane_with_nothing(store: Store) -> None:
    put_total(store, prefix_of("a"), 5, 5)
    commit(store)
    assert list(stored_lanes(store)) == [("a", prefix_of("a"), 0, 0)]
    assert list(stored_parcels(store, prefix_of("a"), prefix_of("a"))) == []


@pytest.mark.parametrize("said", [(0, 0), (-1, 5), (1, -5)])
def test_parcels_without_a_total_that_can_be_are_counted(
    store: Store, said: tuple[int, int]
) -> None:
    raws = []
    for number in (1, 2):
        parcel = bytearray(HEAD)
        for _ in range(number):
            encode_into(PUBLISH, parcel, -1)
        raws.append(close(parcel, (7, 1, number), number))
        store.put(outgoing_key("a", 1, number), raws[-1])
    put_total(store, prefix_of("a"), 9, 9)
    put_total(store, prefix_of("a"), *said)
    commit(store)
    total = sum(map(len, raws))
    assert list(stored_lanes(store)) == [("a", outgoing_key("a", 1, 2), 3, total)]


def test_parcels_are_read_as_the_commits_under_way_leave_them(store: Store) -> None:
    keys = [outgoing_key("a", 1, number) for number in range(1, 5)]
    for key in keys:
        store.put(key, b"whole")
    commit(store)
    store.put(keys[0], b"cut")
    store.delete(keys[1])
    store.begin_commit()
    store.delete(keys[3])

    def read() -> list[bytes]:
        return [raw for _, raw in stored_parcels(store, prefix_of("a"), keys[3])]

    assert read() == [b"cut", b"whole"]
    store.retry_commit()
    assert read() == [b"cut", b"whole"]
    commit(store)
    assert read() == [b"cut", b"whole"]


@pytest.mark.parametrize("key", [b"o", b"oa", b"o" + bytes(17), b"oa\0" + b"x" * 15])
def test_a_damaged_store_is_told_of(store: Store, key: bytes) -> None:
    store.put(key, b"x")
    commit(store)
    with pytest.raises(StoreError, match="is none of a message"):
        list(stored_lanes(store))


def test_so_is_a_damaged_record_of_another_node(store: Store) -> None:
    store.put(b"ta", b"x")
    commit(store)
    with pytest.raises(StoreError, match="is none of another node"):
        TakenPlaces(store)


def test_the_store_check_knows_the_records(store: Store, tmp_path: Path) -> None:
    begin_life(store, 1000, lambda _: 41)
    taken = TakenPlaces(store)
    taken.is_new("a", MessageBatch(7, 1, 5, [PUBLISH]))
    taken.save()
    store.put(outgoing_key("a", 1, 1), b"x")
    put_total(store, prefix_of("a"), 1, 1)
    commit(store)
    store.db.close()
    assert check(tmp_path).problems == []
    with plyvel.DB(str(tmp_path / "store")) as db:
        for key in (b"l", b"ta", b"o\0" + bytes(16), b"ob\0", b"oc\0" + bytes(8)):
            db.put(key, b"x")
    found = check(tmp_path).problems
    assert len(found) == 3
    assert "ill-formed messages to other nodes: 3" in "".join(map(str, found))


def test_what_was_deleted_of_other_lanes_is_not_walked_over(store: Store) -> None:
    """However much of them was sent and confirmed; each piece of a backlog begins where the last one ended."""
    for peer in ("a", "b"):
        for number in range(1, 301):
            store.put(outgoing_key(peer, 1, number), b"parcel")
    commit(store)
    store.db = db = WalkedDb(store.db)
    for number in range(1, 301):
        store.delete(outgoing_key("b", 1, number))
        if number <= 100:
            store.delete(outgoing_key("a", 1, number))
    commit(store)
    last = outgoing_key("a", 1, 300)
    at = outgoing_key("a", 1, 100)
    while at < last:
        at, _ = list(islice(stored_parcels(store, at, last), 50))[-1]
    assert list(stored_parcels(store, outgoing_key("a", 1, 299), last)) == [(last, b"parcel")]
    assert db.take() <= 200 + 5
