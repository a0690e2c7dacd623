"""Writes of the store that gather, are on their way, or failed: what is seen of them, and who waits."""

from __future__ import annotations

import plyvel
import pytest

from tests.vmq.test_store_model import commit
from vmq.store.store import Store


class FakeBatch:
    def __init__(self, db: FakeDb) -> None:
        self.db = db
        self.changes: list[tuple[bytes, bytes | None]] = []

    def put(self, key: bytes, value: bytes) -> None:
        self.changes.append((key, value))

    def delete(self, key: bytes) -> None:
        self.changes.append((key, None))

    def write(self) -> None:
        if self.db.failures:
            self.db.failures -= 1
            raise plyvel.IOError(b"IO error: No space left on device")
        for key, value in self.changes:
            if value is None:
                self.db.data.pop(key, None)
            else:
                self.db.data[key] = value


class FakeDb:
    """A database in memory that fails on demand and remembers how it was asked to write."""

    def __init__(self) -> None:
        self.data: dict[bytes, bytes] = {}
        self.failures = 0
        self.syncs: list[bool] = []

    def get(self, key: bytes, verify_checksums: bool) -> bytes | None:
        assert verify_checksums
        return self.data.get(key)

    def write_batch(self, sync: bool) -> FakeBatch:
        self.syncs.append(sync)
        return FakeBatch(self)


def fake_store(durability: str = "os") -> tuple[Store, FakeDb]:
    db = FakeDb()
    return Store(db, durability, lambda: None), db


def test_a_write_is_visible_before_during_and_after_its_commit() -> None:
    store, db = fake_store()
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
    store = Store(FakeDb(), "os", lambda: scheduled.append(1))
    store.put(b"a", b"")
    store.put(b"b", b"")
    store.delete(b"c")
    assert len(scheduled) == 1
    commit(store)
    store.delete(b"a")
    assert len(scheduled) == 2


@pytest.mark.parametrize("durability", ("os", "fsync"))
def test_an_acknowledgement_waits_for_the_commit_that_gathers(durability: str) -> None:
    store, _ = fake_store(durability)
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
    store, db = fake_store("memory")
    assert store.acknowledge_early
    for _ in range(3):
        store.put(b"a", b"1")
        assert store.barrier() == 0
        commit(store)
    assert db.syncs == [False, False, False]


@pytest.mark.parametrize(
    ("durability", "sync"), (("memory", False), ("os", False), ("fsync", True))
)
def test_only_fsync_waits_for_the_disk(durability: str, sync: bool) -> None:
    store, db = fake_store(durability)
    assert store.sync is sync
    store.put(b"a", b"1")
    commit(store)
    assert db.syncs == [sync]


def test_a_caller_sees_whether_its_work_was_durable() -> None:
    store, _ = fake_store()
    before = store.writes
    store.get(b"a")
    assert store.writes == before
    store.put(b"a", b"")
    store.delete(b"a")
    assert store.writes == before + 2


def test_a_failed_commit_joins_the_next_one() -> None:
    store, db = fake_store()
    db.failures = 1
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
    store.retry_commit()
    wanted = {b"kept": b"1", b"changed": b"2", b"back": b"2", b"later": b"2"}
    assert {key: store.get(key) for key in (*wanted, b"deleted")} == {**wanted, b"deleted": None}
    assert db.data == {}
    assert commit(store) == first + 1
    assert db.data == wanted
