"""Storages and transactions against a dict; what crashes lose."""

import os
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq_cluster.errors import StorageError
from vmq_cluster.leveldb import LevelStorage
from vmq_cluster.storage import MemoryStorage, Storage, Transaction, after_prefix

KEYS = st.sampled_from([b"a", b"aa", b"ab", b"b", b"c", b"\xff"])
BATCHES = st.lists(st.dictionaries(KEYS, st.none() | st.binary(max_size=3), max_size=4), max_size=8)
Batches = list[dict[bytes, bytes | None]]


def expected(batches: Batches) -> dict[bytes, bytes]:
    values: dict[bytes, bytes | None] = {}
    for batch in batches:
        values |= batch
    return {key: value for key, value in values.items() if value is not None}


def everything(storage: Storage | Transaction) -> list[tuple[bytes, bytes]]:
    return list(storage.scan(b"", b"\xff\xff"))


@given(BATCHES, KEYS, KEYS)
def test_memory_is_an_ordered_dict(batches: Batches, first: bytes, end: bytes) -> None:
    storage = MemoryStorage()
    for batch in batches:
        storage.write(batch, sync=False)
    wanted = expected(batches)
    assert everything(storage) == sorted(wanted.items())
    part = [(key, value) for key, value in sorted(wanted.items()) if first <= key < end]
    assert list(storage.scan(first, end)) == part
    assert storage.get(first) == wanted.get(first)


@given(BATCHES, BATCHES)
def test_a_transaction_shows_what_it_will_write(before: Batches, pending: Batches) -> None:
    storage = MemoryStorage()
    for batch in before:
        storage.write(batch, sync=False)
    transaction = Transaction(storage)
    for batch in pending:
        for key, value in batch.items():
            if value is None:
                transaction.delete(key)
            else:
                transaction.put(key, value)
    wanted = expected(before + pending)
    assert everything(storage) == sorted(expected(before).items())
    assert everything(transaction) == sorted(wanted.items())
    assert transaction.get(b"a") == wanted.get(b"a")
    transaction.commit()
    assert everything(storage) == everything(transaction) == sorted(wanted.items())


@given(BATCHES, BATCHES, st.data())
def test_a_crash_loses_the_last_batches_and_never_a_synced_one(
    synced: Batches, loose: Batches, data: st.DataObject
) -> None:
    storage = MemoryStorage(crashes=True)
    for batch in synced:
        storage.write(batch, sync=False)
    storage.write({}, sync=True)
    for batch in loose:
        storage.write(batch, sync=False)
    assert storage.unsynced == len(loose)
    lost = data.draw(st.integers(0, len(loose)))
    storage.lose(lost)
    kept = synced + loose[: len(loose) - lost]
    assert everything(storage) == sorted(expected(kept).items())


def test_leveldb_keeps_what_was_written(tmp_path: Path) -> None:
    storage = LevelStorage(tmp_path / "db")
    storage.write({b"a": b"1", b"b": b"2", b"c": b"3"}, sync=True)
    storage.write({b"b": None, b"d": b""}, sync=False)
    assert list(storage.scan(b"a", b"d")) == [(b"a", b"1"), (b"c", b"3")]
    storage.close()
    storage = LevelStorage(tmp_path / "db")
    assert [storage.get(key) for key in (b"a", b"b", b"d")] == [b"1", None, b""]
    storage.close()


def test_two_cannot_use_one_folder(tmp_path: Path) -> None:
    storage = LevelStorage(tmp_path / "db")
    with pytest.raises(StorageError, match="cannot open"):
        LevelStorage(tmp_path / "db")
    storage.close()


def test_a_damaged_table_is_an_error_and_no_other_value(tmp_path: Path) -> None:
    storage = LevelStorage(tmp_path / "db", write_buffer_size=1 << 16)
    for number in range(2000):
        storage.write({b"key%d" % number: b"v" * 100}, sync=False)
    storage.close()
    for table in (tmp_path / "db").glob("*.ldb"):  # one of them may be to be deleted
        raw = bytearray(table.read_bytes())
        raw[100:140] = b"\0" * 40
        table.write_bytes(bytes(raw))
    storage = LevelStorage(tmp_path / "db")
    with pytest.raises(StorageError, match="cannot read"):
        list(storage.scan(b"", b"\xff"))
    storage.close()


def test_the_end_of_a_prefix() -> None:
    assert after_prefix(b"ab") == b"ac"


def test_a_sync_asks_the_disk_for_every_log_and_the_folder_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda file: synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
    )
    folder = tmp_path / "db"
    storage = LevelStorage(folder)
    storage.write({b"a": b"1"}, sync=False)
    logs = sorted(str(each) for each in folder.glob("*.log"))
    assert logs
    storage.sync()
    assert synced == [*logs, str(folder)]
    storage.sync()
    storage.write({b"b": b"1"}, sync=True)
    storage.sync()
    assert len(synced) == len(logs) + 1
    storage.write({b"c": b"1"}, sync=False)
    storage.sync()
    assert len(synced) == 2 * (len(logs) + 1)
    storage.close()


def test_a_sync_that_failed_is_made_up_for_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = LevelStorage(tmp_path / "db")
    storage.write({b"a": b"1"}, sync=False)
    files: list[int] = []

    def fails(file: int) -> None:
        files.append(file)
        raise OSError("no disk")

    monkeypatch.setattr(os, "fsync", fails)
    with pytest.raises(StorageError, match=r"cannot sync .*no disk"):
        storage.sync()
    monkeypatch.setattr(os, "fsync", files.append)
    for _ in range(2):
        with pytest.raises(StorageError, match="is not open anew"):
            storage.sync()
    assert len(files) == 1, "the kernel may say nothing of it the second time"
    before = {each.name for each in (tmp_path / "db").glob("*.log")}
    storage.mend()
    assert storage.get(b"a") == b"1"
    assert {each.name for each in (tmp_path / "db").glob("*.log")}.isdisjoint(before)
    # A log may be gone by now, its content being in a table.
    monkeypatch.setattr(Path, "glob", lambda *_: [tmp_path / "gone.log"])
    storage.sync()
    assert len(files) == 2
    storage.close()


def test_what_is_written_behind_a_write_that_failed_is_there_after_a_restart(
    tmp_path: Path,
) -> None:
    storage = LevelStorage(tmp_path / "db")
    storage.write({b"a": b"1" * 100}, sync=False)
    [log] = (tmp_path / "db").glob("*.log")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (log.stat().st_size + 50, before[1]))
    try:
        with pytest.raises(StorageError, match="File too large"):
            storage.write({b"b": b"2" * 100}, sync=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    storage.mend()
    storage.write({b"c": b"3" * 100}, sync=False)
    storage.close()
    storage = LevelStorage(tmp_path / "db")
    assert [key for key, _ in storage.scan(b"", b"\xff")] == [b"a", b"c"]
    storage.close()
