"""Writes of the store that gather, are on their way, or failed: what is seen of them, and who waits."""

import plyvel
import pytest

from tests.vmq.commit_stage import FULL, Db
from tests.vmq.test_store_model import commit
from vmq.store.store import Store


def store_with(durability: str = "os") -> tuple[Store, Db]:
    db = Db()
    return Store(db, durability, lambda: None), db


def syncs(db: Db) -> list[bool]:
    return [sync for sync, _ in db.writes]


def test_a_write_is_visible_before_during_and_after_its_commit() -> None:
    store, db = store_with()
    db.data[b"k"] = b"old"
    assert store.get(b"k") == b"old"
    store.put(b"k", b"new")
    assert store.get(b"k") == b"new"
    store.begin_commit()
    assert store.get(b"k") == b"new"
    assert db.data[b"k"] == b"old"
    store.write()
    store.end_commit()
    assert store.get(b"k") == b"new"
    assert db.data[b"k"] == b"new"


def test_the_first_write_of_a_commit_schedules_it() -> None:
    scheduled: list[int] = []
    store = Store(Db(), "os", lambda: scheduled.append(1))
    store.put(b"a", b"")
    store.put(b"b", b"")
    store.delete(b"c")
    assert len(scheduled) == 1
    commit(store)
    store.delete(b"a")
    assert len(scheduled) == 2


@pytest.mark.parametrize("durability", ("os", "fsync"))
def test_an_acknowledgement_waits_for_the_commit_that_gathers(durability: str) -> None:
    store, _ = store_with(durability)
    store.put(b"a", b"")
    first = store.barrier()
    assert first > 0
    assert store.begin_commit() == first
    store.put(b"b", b"")
    assert store.barrier() == first + 1
    store.write()
    store.end_commit()
    assert commit(store) == first + 1


def test_memory_never_makes_anybody_wait() -> None:
    store, db = store_with("memory")
    assert store.acknowledge_early
    for _ in range(3):
        store.put(b"a", b"1")
        assert store.barrier() == 0
        commit(store)
    assert syncs(db) == [False, False, False]


@pytest.mark.parametrize(
    ("durability", "sync"), (("memory", False), ("os", False), ("fsync", True))
)
def test_only_fsync_waits_for_the_disk(durability: str, sync: bool) -> None:
    store, db = store_with(durability)
    assert store.sync is sync
    store.put(b"a", b"1")
    commit(store)
    assert syncs(db) == [sync]


def test_a_caller_sees_whether_its_work_was_durable() -> None:
    store, _ = store_with()
    before = store.writes
    store.get(b"a")
    assert store.writes == before
    store.put(b"a", b"")
    store.delete(b"a")
    assert store.writes == before + 2


def test_a_failed_commit_joins_the_next_one() -> None:
    store, db = store_with()
    db.error = FULL
    store.put(b"kept", b"1")
    store.put(b"changed", b"1")
    store.put(b"deleted", b"1")
    store.delete(b"back")
    first = store.begin_commit()
    store.put(b"changed", b"2")
    store.delete(b"deleted")
    store.put(b"back", b"2")
    store.put(b"later", b"2")
    with pytest.raises(plyvel.IOError):
        store.write()
    db.error = None
    store.retry_commit()
    wanted = {b"kept": b"1", b"changed": b"2", b"back": b"2", b"later": b"2"}
    assert {key: store.get(key) for key in (*wanted, b"deleted")} == {**wanted, b"deleted": None}
    assert db.data == {}
    assert commit(store) == first + 1
    assert db.data == wanted
