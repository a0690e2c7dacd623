"""What a node knows to be on its disk from lives before."""

from __future__ import annotations

import pytest

from tests.vmq.clustering.replica_sim import MemoryDb
from vmq.clustering.survival import COMMITS, Survival
from vmq.store import Store, StoreError


def commit(store: Store) -> None:
    store.begin_commit()
    store.write()
    store.end_commit()


def store_of(db: MemoryDb) -> Store:
    return Store(db, "os", lambda: None)


def test_what_was_noted_is_known_in_later_lives_if_it_is_there() -> None:
    db = MemoryDb()
    store = store_of(db)
    store.number = 7
    survival = Survival(store, 3)
    assert survival.has(3, 1000)
    survival.note()
    before = dict(db.records)
    commit(store)
    later = Survival(store_of(db), 4)
    assert later.has(3, 7)
    assert not later.has(3, 8)
    assert not later.has(2, 1)
    later.note()
    later.note()
    assert Survival(store_of(db), 5).has(3, 7)
    db.records = before
    assert not Survival(store_of(db), 5).has(3, 7)


def test_some_lives_are_remembered() -> None:
    db = MemoryDb()
    for life in range(1, 20):
        store = store_of(db)
        Survival(store, life).note()
        commit(store)
    known = [life for life in range(1, 20) if Survival(store_of(db), 20).has(life, 1)]
    assert known == list(range(12, 20))


def test_what_is_no_note_is_told() -> None:
    db = MemoryDb()
    db.records[COMMITS] = b"x"
    with pytest.raises(StoreError, match="ill-formed note of commits"):
        Survival(store_of(db), 1)
