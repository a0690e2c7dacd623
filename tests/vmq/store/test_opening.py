"""Opening a store: what is refused, what a broker reads at its start, queues across restarts."""

import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import plyvel
import pytest

from tests.support.flipped import flip
from tests.vmq.test_store_model import commit, delivery, number
from vmq.mqtt.message import Message
from vmq.store import opening
from vmq.store.entries import StoredSession
from vmq.store.files import masked_crc
from vmq.store.lines import END, LINES, is_end, scan
from vmq.store.store import FORMAT, FORMAT_1, Store, StoreError
from vmq.store.walk import Walk


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "store"


def start(path: Path) -> Store:
    return opening.open_store(path, "os", lambda: None)


def only(store: Store) -> StoredSession:
    (session,) = opening.stored_sessions(store)
    return session


# What is opened, and what is refused


def test_a_store_is_made_where_there_is_none(path: Path) -> None:
    with closing(start(path).db) as db:
        assert list(db) == [(b"v", FORMAT)]


def test_a_store_in_use_by_this_process_is_refused(path: Path) -> None:
    with closing(start(path).db), pytest.raises(StoreError, match="in use"):
        start(path)


def test_to_look_whether_a_store_is_in_use_leaves_it_locked(path: Path) -> None:
    program = (
        f"import sys; from vmq.store.opening import *; sys.exit(is_locked(Path({str(path)!r})))"
    )
    with closing(start(path).db):
        assert [opening.is_locked(path), opening.is_locked(path)] == [True, True]
        assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 1
    assert not opening.is_locked(path)


def test_a_file_that_cannot_be_had_is_no_store_in_use(tmp_path: Path) -> None:
    """Neither the name of a folder nor that of LevelDB's own file makes an error a lock."""
    path = tmp_path / "clock" / "store"
    (path / "LOCK").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"cannot open .*clock/store: IO error: .*LOCK"):
        start(path)


def test_a_store_of_another_format_is_refused(path: Path) -> None:
    with closing(start(path).db) as db:
        db.put(b"v", b"vmq 9")
    with pytest.raises(StoreError, match="has format 'vmq 9'; this version of vmq reads 'vmq 2'"):
        start(path)
    with closing(plyvel.DB(str(path))) as db:
        assert list(db) == [(b"v", b"vmq 9")]


def test_a_database_of_somebody_else_is_refused(path: Path) -> None:
    path.mkdir(parents=True)
    with closing(plyvel.DB(str(path), create_if_missing=True)) as db:
        db.put(b"theirs", b"1")
    with pytest.raises(StoreError, match="no format record of vmq: it is another program's"):
        start(path)
    with closing(plyvel.DB(str(path))) as db:
        assert list(db) == [(b"theirs", b"1")]


def filled(path: Path) -> Path:
    """A store with a retained message in a table and another one in the log."""
    for topic in (b"a", b"b"):
        with closing(start(path).db) as db:
            db.put(b"r" + topic, b"\1payload")
    return path


@pytest.mark.parametrize("name", ("LOCK", "LOG", "LOG.old"))
def test_a_file_that_does_not_matter_may_be_missing(path: Path, name: str) -> None:
    (filled(path) / name).unlink()
    store = start(path)
    assert len(list(opening.stored_retained(store))) == 2
    store.db.close()


def begin_database(path: Path) -> None:
    """The files that LevelDB makes first: comparator, log 0, next file 2, last sequence 0."""
    edit = b"\1\x1aleveldb.BytewiseComparator\2\0\3\2\4\0"
    record = b"\1" + edit
    head = masked_crc(record).to_bytes(4, "little") + len(edit).to_bytes(2, "little")
    (path / "MANIFEST-000001").write_bytes(head + record)
    (path / "CURRENT").write_bytes(b"MANIFEST-000001\n")


def test_a_database_that_was_just_being_made_is_opened(path: Path) -> None:
    """Killed between the making of CURRENT and that of the log."""
    path.mkdir(parents=True)
    begin_database(path)
    start(path).db.close()


def test_an_interrupted_repair_is_no_new_store(path: Path) -> None:
    filled(path).rename(opening.repair_folder(path))
    with pytest.raises(StoreError, match="was interrupted: run 'vmq store repair' again"):
        start(path)
    assert not path.exists()


def test_text_of_errors_in_bytes() -> None:
    assert opening.text_of(plyvel.IOError(b"IO error: \xff")) == "IO error: �"
    assert (
        opening.text_of(OSError(28, "No space left on device"))
        == "[Errno 28] No space left on device"
    )
    assert opening.text_of(ValueError("text")) == "text"


# Blocks that cannot be read. plyvel's iterators take one at an end of the database for that end.

MARK = bytes(range(200, 240))


def flip_mark(path: Path) -> None:
    """Damages the block of a table that holds the mark."""
    for table in path.glob("*.ldb"):
        if MARK in (raw := table.read_bytes()):
            return flip(table, raw.index(MARK))
    raise AssertionError("the mark is in no table")


@pytest.mark.parametrize("kind", (b"m", b"c", b"q", b"i", b"s", b"u", b"r", b"g"))
@pytest.mark.parametrize("is_first", (False, True))
def test_an_unreadable_end_is_no_end(path: Path, kind: bytes, is_first: bool) -> None:
    """Whatever is read at the start, and wherever it lies in the database."""
    store = start(path)
    session = store.create_session("dev")
    commit(store)
    for index in range(200):
        other = b"x" if is_first else b"a"
        store.db.put(other + session + number(index), random.Random(index).randbytes(50))
    marked = {b"s": kind + b"other", b"r": kind + b"topic", b"u": kind + session + b"a"}
    key = marked.get(kind, kind + session + (number(5) if kind in b"qi" else b""))
    store.db.put(key, number(7) + MARK)
    store.db.close()
    start(path).db.close()
    # The format record lies in the last block too; its latest version is in the log.
    with closing(plyvel.DB(str(path))) as db:
        db.put(b"v", FORMAT)
    flip_mark(path)
    with pytest.raises((opening.StoreDamagedError, plyvel.CorruptionError)):
        read_all(path, session)


def read_all(path: Path, session: bytes) -> None:
    store = start(path)
    with closing(store.db):
        opening.stored_sessions(store)
        opening.ended_sessions(store)
        list(opening.stored_retained(store))
        store.load_inflight(session)
        store.load_received(session)
        for _ in scan(store.db, b"c"):
            pass


def test_unreadable_packet_ids_are_not_forgotten(path: Path) -> None:
    """They are the last of all records but one."""
    store = start(path)
    session = store.create_session("dev")
    for packet_id in range(1, 1000):
        store.put_received(session, packet_id)
    store.put(b"x" + session + b"\xff\xff", MARK)
    commit(store)
    store.db.close()
    start(path).db.close()
    with closing(plyvel.DB(str(path))) as db:
        db.put(b"v", FORMAT)
        db.delete(b"v")
    flip_mark(path)
    with closing(plyvel.DB(str(path))) as db, pytest.raises(StoreError, match="cannot be read"):
        Store(db, "os", lambda: None).load_received(session)


# What a broker reads at its start


def entry(payload: bytes = b"payload") -> bytes:
    return b"\1\0\0\0\1t" + payload


@pytest.mark.parametrize(
    ("waiting", "inflight", "ends"),
    (
        ([], [], (0, 0, 0)),
        ([1], [], (1, 1, 0)),
        ([3, 4, 9], [], (3, 9, 0)),
        ([], [5], (0, 0, 5)),
        ([4, 6], [2, 3], (4, 6, 3)),
        ([4], [2, 5, 300], (4, 4, 300)),
        ([255, 256, 65_536], [1], (255, 65_536, 1)),
    ),
)
def test_the_ends_of_a_queue_are_found(
    path: Path, waiting: list[int], inflight: list[int], ends: tuple[int, int, int]
) -> None:
    store = start(path)
    session = store.create_session("dev")
    commit(store)
    for seq in waiting:
        store.db.put(b"q" + session + number(seq), entry())
    for seq in inflight:
        store.db.put(b"i" + session + number(seq), entry())
    # Of a neighbour on either side.
    for other in (number(0), number(2)):
        store.db.put(b"q" + other + number(77), entry())
        store.db.put(b"i" + other + number(88), entry())
    store.db.close()
    store = start(path)
    found = only(store)
    store.db.close()
    assert (found.first, found.last, found.last_order) == ends


def test_subscriptions_of_ended_sessions_do_not_come_back(path: Path) -> None:
    store = start(path)
    old = store.create_session("dev")
    store.put_subscription(old, "old/#", 1)
    store.end_session("dev", old)
    new = store.create_session("dev")
    store.put_subscription(new, "new/#", 1)
    commit(store)
    store.db.close()
    store = start(path)
    assert only(store).subscriptions == [("new/#", 1)]
    assert opening.ended_sessions(store) == [old]
    store.db.close()


class CountingDb:
    """Counts the records that are read from a database."""

    def __init__(self, db: Any) -> None:
        self.db = db
        self.read = 0

    def iterator(self, **arguments: Any) -> Iterator[Any]:
        for each in self.db.iterator(**arguments):
            self.read += 1
            yield each

    def raw_iterator(self, **arguments: Any) -> Any:
        return self.db.raw_iterator(**arguments)


def put_many(path: Path, sessions: int, count: int) -> None:
    """Makes a store with so many sessions, and so many messages in each one's queue."""
    store = start(path)
    for index in range(sessions):
        session = store.create_session(f"dev-{index}")
        store.put_subscription(session, "a/#", 1)
        commit(store)
        prefix = b"q" + session
        for begin in range(1, count + 1, 10_000):
            with store.db.write_batch() as batch:
                for seq in range(begin, min(begin + 10_000, count + 1)):
                    batch.put(prefix + number(seq), entry(b"message %d" % seq))
    store.db.close()


def test_only_the_ends_of_queues_are_read(path: Path) -> None:
    put_many(path, 5, 1000)
    store = start(path)
    counting = CountingDb(store.db)
    store.db = counting
    found = opening.stored_sessions(store)
    counting.db.close()
    assert [(each.first, each.last, each.last_order) for each in found] == [(1, 1000, 0)] * 5
    # Of each: session, subscription, first and last, and the ends of two lines; a few for the highest number.
    assert counting.read <= 5 * 6 + 6


# A store of version 1


def old_store(path: Path, sessions: int) -> None:
    """Makes a store as version 1 left it: no line of records has an end."""
    store = start(path)
    for index in range(sessions):
        session = store.create_session(f"dev-{index}")
        store.put_subscription(session, "a/#", 1)
        store.put_waiting(session, delivery(Message(b"a/b", b"x", 1, False), 1))
    gone = store.create_session("gone")
    store.put_subscription(gone, "a/#", 1)
    store.end_session("gone", gone)
    copy = store.create_session("copy")
    store.delete(b"scopy")
    store.put(b"k" + copy, b"whose")
    commit(store)
    with store.db.write_batch() as batch:
        for key in store.db.iterator(include_value=False):
            if is_end(key):
                batch.delete(key)
        batch.put(b"v", FORMAT_1)
        batch.put(b"g" + gone, b"")
    store.db.close()


def test_a_store_of_version_1_is_opened_and_gets_ends(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.store.opening.ENDED_AT_ONCE", 4)
    old_store(path, 10)
    report = Walk(opening.open_leveldb(path, create=False), path, mend=False)
    report.run()
    report.db.close()
    assert report.report.ok
    store = start(path)
    assert store.db.get(b"v") == FORMAT
    ends = [key for key in store.db.iterator(include_value=False) if is_end(key)]
    assert len(ends) == 12 * len(LINES)
    found = opening.stored_sessions(store)
    assert len(found) == 10
    assert all(each.subscriptions == [("a/#", 1)] for each in found)
    (gone,) = opening.ended_sessions(store)
    assert not store.purge_step(gone, 100)
    commit(store)
    assert not any(key[1:9] == gone for key in store.db.iterator(include_value=False))
    store.db.close()


def test_ends_are_added_again_where_the_broker_died_meanwhile(path: Path) -> None:
    old_store(path, 3)
    with closing(plyvel.DB(str(path))) as db:
        db.put(b"q" + number(1) + END, b"")
    store = start(path)
    assert sum(is_end(key) for key in store.db.iterator(include_value=False)) == 5 * len(LINES)
    store.db.close()
