"""Checking and repairing a store: each kind of damage is found, told and mended."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from operator import attrgetter
from pathlib import Path
from typing import Any

import plyvel
import pytest

from tests.vmq.damaged_store import number, start
from tests.vmq.test_store_model import commit
from vmq.mqtt.message import Delivery, Message
from vmq.store import references as counting
from vmq.store.lines import END
from vmq.store.opening import repair_folder, stored_retained, stored_sessions
from vmq.store.store import FORMAT, Store, StoreError
from vmq.store.tools import check, repair

LARGE = b"x" * 2000


def deliver(store: Store, session: bytes, seq: int, message: Message, packet_id: int = 0) -> None:
    delivery = Delivery(message, 2, False, "")
    if packet_id:
        delivery.order, delivery.packet_id = seq, packet_id
        store.put_inflight(session, delivery)
    else:
        delivery.seq = seq
        store.put_waiting(session, delivery)


@pytest.fixture(scope="module")
def original(memory: Path) -> Path:
    make(memory / "original")
    return memory / "original"


@pytest.fixture
def data(memory: Path, original: Path) -> Path:
    shutil.rmtree(memory / "data", ignore_errors=True)
    return Path(shutil.copytree(original, memory / "data"))


def make(data: Path) -> None:
    """A data folder whose store holds some of everything, in a table and in the log."""
    store = start(data)
    for index in range(3):
        session = store.create_session(f"dev-{index}")
        store.put_subscription(session, "a/+", 1, "+")
        store.put_subscription(session, f"$share/group/{index}/#", 2)
        store.put_received(session, 7)
        deliver(store, session, 1, Message(b"a/b", b"sent", 2, False), 1)
    commit(store)
    store.db.close()
    store = start(data)
    sessions = [each.number for each in stored_sessions(store)]
    for index, session in enumerate(sessions):
        for seq in (2, 3, 4):
            deliver(store, session, seq, Message(b"a/b", b"own %d" % seq, 2, False))
        deliver(store, session, 5, Message(b"a/c", LARGE, 2, False))
        store.put_retained(Message(b"topic/%d" % index, b"kept", 1, True))
    shared = Message(b"a/b", b"shared", 2, False)
    shared.share = True
    for session in sessions:
        deliver(store, session, 6, shared)
    released = Delivery(Message(b"", b"", 2, False), 2, False, "")
    released.packet_id, released.order = 2, 7
    store.put_released(sessions[0], released, 8)
    store.end_session("gone", number(9))
    commit(store)
    store.db.close()


counts = attrgetter("sessions", "subscriptions", "queued", "inflight", "retained", "messages")
WHOLE = (3, 6, 15, 4, 3, 4)


def change(data: Path, *changes: tuple[bytes, bytes | None]) -> None:
    """Damages records behind the broker's back."""
    with closing(plyvel.DB(str(data / "store"))) as db:
        for key, value in changes:
            if value is None:
                assert db.get(key) is not None
                db.delete(key)
            else:
                db.put(key, value)


def contents(data: Path) -> dict[bytes, bytes]:
    with closing(plyvel.DB(str(data / "store"))) as db:
        return dict(db)


# A sound store


def test_a_sound_store_is_counted(data: Path) -> None:
    report = check(data)
    assert report.problems == []
    assert report.ok
    assert counts(report) == WHOLE


def test_the_folder_of_the_store_does_as_well(data: Path) -> None:
    assert counts(check(data / "store")) == WHOLE


def test_an_empty_store_is_sound(tmp_path: Path) -> None:
    start(tmp_path).db.close()
    report = check(tmp_path)
    assert report.ok
    assert counts(report) == (0, 0, 0, 0, 0, 0)


def test_a_sound_store_is_not_repaired(data: Path) -> None:
    before = contents(data)
    report = repair(data)
    assert report.ok
    assert report.notes == ["nothing to mend"]
    assert counts(report) == WHOLE
    assert contents(data) == before
    assert [each.name for each in data.iterdir()] == ["store"]


# What is refused


@pytest.mark.parametrize("tool", (check, repair))
def test_a_folder_without_a_store_is_refused(tmp_path: Path, tool: Callable[[Path], Any]) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StoreError, match="there is no store in"):
            tool(path)
    (tmp_path / "store").mkdir()
    with pytest.raises(StoreError, match="there is no store in"):
        tool(tmp_path)
    assert list(tmp_path.iterdir()) == [tmp_path / "store"]
    assert list((tmp_path / "store").iterdir()) == []


@pytest.mark.parametrize("tool", (check, repair))
def test_a_store_in_use_is_refused(data: Path, tool: Callable[[Path], Any]) -> None:
    program = "import plyvel, sys; db = plyvel.DB(sys.argv[1]); print(flush=True); sys.stdin.read()"
    with subprocess.Popen(
        [sys.executable, "-c", program, str(data / "store")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(StoreError, match="in use by another process"):
            tool(data)
        other.communicate()
    assert tool(data).ok


@pytest.mark.parametrize("tool", (check, repair))
def test_a_store_of_a_later_version_is_refused(data: Path, tool: Callable[[Path], Any]) -> None:
    change(data, (b"v", b"vmq 9"), (b"znew", b""))
    with pytest.raises(StoreError, match="has format 'vmq 9'"):
        tool(data)
    assert contents(data)[b"znew"] == b""


@pytest.mark.parametrize("tool", (check, repair))
@pytest.mark.parametrize("key", (b"theirs", b"user:1", b"session", b"\xff", b""))
def test_a_database_of_somebody_else_is_refused(
    tmp_path: Path, tool: Callable[[Path], Any], key: bytes
) -> None:
    with closing(plyvel.DB(str(tmp_path / "store"), create_if_missing=True)) as db:
        db.put(key, b"1")
    with pytest.raises(StoreError, match="no format record of vmq"):
        tool(tmp_path)
    assert contents(tmp_path) == {key: b"1"}
    assert [each.name for each in tmp_path.iterdir()] == ["store"]


def test_a_damaged_database_of_somebody_else_is_refused(tmp_path: Path) -> None:
    with closing(plyvel.DB(str(tmp_path / "store"), create_if_missing=True)) as db:
        db.put(b"theirs", b"1")
    (tmp_path / "store" / "CURRENT").unlink()
    before = sorted(each.name for each in (tmp_path / "store").iterdir())
    with pytest.raises(StoreError, match="no format record of vmq"):
        repair(tmp_path)
    assert sorted(each.name for each in (tmp_path / "store").iterdir()) == before
    assert [each.name for each in tmp_path.iterdir()] == ["store"]


# Records that do not fit together. Sessions are 1 to 3; message 4 is shared, 1 to 3 are large.

OWN = number(1)
ENTRY = b"\1\0\0\0\1tx"

#: Records, and a part of the problem.
MENDED: tuple[tuple[list[tuple[bytes, bytes | None]], str], ...] = (
    ([(b"v", None)], "the format record is missing"),
    ([(b"~z", b"")], "records of an unknown kind: 1 (first: key b'~z')"),
    ([(b"y" + number(1), b"")], "ill-formed receipts: 1"),
    ([(b"y" + number(1) + number(2), b"")], "ill-formed receipts: 1"),
    ([(b"y", b"x")], "ill-formed receipts: 1"),
    ([(b"zz", b"")], "ill-formed records of what streams lack: 1 (first: key b'zz')"),
    ([(b"z" + number(1) + b"\0\7", b"\xff")], "ill-formed records of what streams lack: 1"),
    ([(b"vv", b"")], "records of an unknown kind"),
    ([(b"s\xff", number(8) * 2)], "ill-formed session records"),
    ([(b"s", number(8) * 2)], "ill-formed session records"),
    ([(b"sx", number(8) * 2 + b"\2alice")], "ill-formed session records"),
    ([(b"sx", number(8) * 2 + b"\1\xff")], "ill-formed session records"),
    ([(b"rx", b"\5\0\x09client")], "ill-formed retained messages"),
    ([(b"rx", b"\7\0\1c\0\0\0\2\1ux")], "ill-formed retained messages"),
    ([(b"sx", number(8))], "ill-formed session records: 1 (first: client 'x')"),
    ([(b"szz", OWN * 2)], "sessions with the number of another one: 1 (first: client 'zz')"),
    ([(b"g" + OWN, b"")], "ended sessions that live: 1 (first: session 1)"),
    ([(b"g1", b"")], "ill-formed records of ended sessions"),
    ([(b"f" + OWN, b"a\0")], "ill-formed names of nodes that route sessions elsewhere: 1"),
    ([(b"f1", b"a")], "ill-formed names of nodes that route sessions elsewhere"),
    ([(b"u" + OWN + b"a/#/b", b"\1")], "ill-formed subscriptions: 1 (first: session 1"),
    ([(b"u" + OWN + b"\xff", b"\1")], "ill-formed subscriptions"),
    ([(b"u" + OWN, b"\1")], "ill-formed subscriptions"),
    ([(b"u" + OWN + b"b", b"\3")], "ill-formed subscriptions"),
    ([(b"u" + OWN + b"b", b"")], "ill-formed subscriptions"),
    ([(b"u" + OWN + b"b", b"\1a/#/b")], "ill-formed subscriptions"),
    ([(b"u" + number(8) + b"b", b"\1")], "subscriptions of no session: 1"),
    ([(b"x" + OWN + b"\0\0", b"")], "ill-formed records of received packet ids"),
    ([(b"x" + OWN + b"\0\1", b"1")], "ill-formed records of received packet ids"),
    ([(b"x" + number(8) + b"\0\1", b"")], "received packet ids of no session: 1"),
    ([(b"rx/#", b"\1kept")], "ill-formed retained messages: 1 (first: topic 'x/#')"),
    ([(b"rx", b"\3kept")], "ill-formed retained messages"),
    ([(b"rx", b"\1")], "ill-formed retained messages"),
    ([(b"q" + OWN + number(0), ENTRY)], "ill-formed queue entries"),
    ([(b"q" + OWN + b"1", ENTRY)], "ill-formed queue entries"),
    ([(b"q" + OWN + number(9), b"\1")], "ill-formed queue entries"),
    ([(b"q" + OWN + number(9), b"\0" + ENTRY[1:])], "ill-formed queue entries"),
    ([(b"q" + OWN + number(9), b"\3" + ENTRY[1:])], "ill-formed queue entries"),
    ([(b"q" + OWN + number(9), b"\x41" + ENTRY[1:])], "ill-formed queue entries"),
    ([(b"q" + OWN + number(9), b"\x21" + ENTRY[1:])], "ill-formed queue entries"),
    ([(b"q" + OWN + number(9), b"\x21" + ENTRY[1:] + b"\0\0")], "ill-formed queue entries"),
    ([(b"q" + OWN + number(9), b"\x21" + ENTRY[1:] + b"\xff\0\1")], "ill-formed queue entries"),
    ([(b"i" + OWN + number(9), b"\x32\0\1\0\0g\0\1")], "ill-formed inflight entries"),
    ([(b"q" + OWN + number(9), b"\x12" + ENTRY[1:])], "ill-formed queue entries"),
    ([(b"q" + OWN + number(9), b"\1\0\0\0\2t")], "ill-formed queue entries"),
    ([(b"q" + OWN + number(9), b"\1\0\0\0\1\xffx")], "ill-formed queue entries"),
    ([(b"q" + OWN + number(9), b"\x09\0\0" + b"\1")], "ill-formed queue entries"),
    ([(b"q" + OWN + number(9), b"\x09\0\0" + number(0))], "ill-formed queue entries"),
    ([(b"q" + number(8) + number(1), ENTRY)], "queue entries of no session: 1"),
    ([(b"i" + OWN + number(9), ENTRY)], "ill-formed inflight entries"),
    ([(b"i" + OWN + number(9), b"\x11\0\5\0\0")], "ill-formed inflight entries"),
    ([(b"i" + number(8) + number(1), b"\1\0\5\0\1tx")], "inflight entries of no session"),
    ([(b"i" + OWN + number(9), b"\1\0\1\0\1tx")], "packet ids in flight twice: 1"),
    ([(b"h" + OWN + number(9), ENTRY)], "ill-formed held messages: 1 (first: session 1"),
    ([(b"h" + OWN, b"a\0" + ENTRY)], "ill-formed held messages"),
    ([(b"h" + OWN + number(9), b"\xff\0" + ENTRY)], "ill-formed held messages"),
    ([(b"h" + OWN + number(9), b"a\0\1")], "ill-formed held messages"),
    ([(b"h" + OWN + number(9), b"a\0\x09\0\0" + number(4))], "ill-formed held messages"),
    ([(b"h" + number(8) + number(1), b"a\0" + ENTRY)], "held messages of no session: 1"),
    ([(b"m1", b"\0\1tx")], "ill-formed messages"),
    ([(b"m" + number(8), b"\0\1tx")], "messages that nothing names: 1 (first: message 8)"),
    ([(b"m" + number(8), b"\0\1")], "ill-formed messages"),
    ([(b"c" + number(8), b"\0\0\0\2")], "counts of no message: 1 (first: message 8)"),
    ([(b"c1", b"\0\0\0\2")], "ill-formed counts"),
    ([(b"c" + number(4), b"\2")], "ill-formed counts"),
    ([(b"c" + number(4), b"\0\0\0\2")], "wrong counts: 1 (first: message 4: 2 for 3)"),
    ([(b"c" + number(4), None)], "wrong counts: 1 (first: message 4: 0 for 3)"),
    ([(b"c" + number(1), b"\0\0\0\2")], "wrong counts: 1 (first: message 1: 2 for 1)"),
    ([(b"c" + number(1), b"\0\0\0\1")], "wrong counts: 1 (first: message 1: 1 for 1)"),
)
#: Records, a part of the problem, and counts after the repair.
LOST: tuple[tuple[list[tuple[bytes, bytes | None]], str, tuple[int, ...] | None], ...] = (
    # The older of the two lets go of what it names, which others name as well, or nothing else does.
    (
        [
            (b"i" + OWN + number(9), b"\x0a\0\5" + number(4)),
            (b"i" + OWN + number(10), b"\1\0\5\0\1tx"),
            (b"c" + number(4), b"\0\0\0\4"),
            (b"i" + OWN + number(11), b"\x0a\0\6" + number(8)),
            (b"i" + OWN + number(12), b"\1\0\6\0\1tx"),
            (b"m" + number(8), b"\0\1tx"),
        ],
        "packet ids in flight twice: 2 (first: session 1, place 9)",
        (3, 6, 15, 6, 3, 4),
    ),
    ([(b"m" + number(1), None)], "entries whose message is missing: 1", (3, 6, 14, 4, 3, 3)),
    ([(b"m" + number(4), None)], "entries whose message is missing: 3", (3, 6, 12, 4, 3, 3)),
    ([(b"m" + number(4), b"\0\1\xff")], "entries whose message is missing: 3", (3, 6, 12, 4, 3, 3)),
    # A session's own record is lost: all that was its own goes, and lets go of what it shared.
    ([(b"sdev-0", None)], "queue entries of no session: 5", (2, 4, 10, 2, 3, 3)),
    # The whole session is: the counts alone are wrong.
    ([(b"q" + OWN + number(6), None)], "wrong counts: 1 (first: message 4: 3 for 2)", None),
    ([(b"q" + OWN + number(5), None)], "messages that nothing names: 1 (first: message 1)", None),
)


@pytest.mark.parametrize(
    ("changes", "problem", "left"), [*((*each, WHOLE) for each in MENDED), *LOST]
)
def test_damaged_records_are_found_and_mended(
    data: Path,
    changes: list[tuple[bytes, bytes | None]],
    problem: str,
    left: tuple[int, ...] | None,
) -> None:
    change(data, *changes)
    before = contents(data)
    report = check(data)
    assert not report.ok
    assert any(problem in each for each in report.problems), report.problems
    mended = repair(data)
    assert mended.problems == []
    assert mended.ok
    assert any(problem in each for each in mended.notes), mended.notes
    if left is not None:
        assert counts(mended) == left
    assert check(data).ok
    assert contents(data)[b"v"] == FORMAT
    aside = data / "store.damaged-1"
    assert str(aside) in mended.notes[0]
    with closing(plyvel.DB(str(aside))) as db:
        assert dict(db) == before
    assert sorted(each.name for each in data.iterdir()) == ["store", "store.damaged-1"]
    store = start(data)
    assert len(stored_sessions(store)) == mended.sessions
    assert len(list(stored_retained(store))) == mended.retained
    store.db.close()


def test_a_sound_entry_stays_what_it_was(data: Path) -> None:
    before = contents(data)
    change(data, (b"m" + number(4), None), (b"sx", b""))
    repair(data)
    after = contents(data)
    del before[b"b"]  # the broker counts anew
    gone = {key for key in before if key not in after}
    assert gone == {
        b"m" + number(4),
        b"c" + number(4),
        *(b"q" + number(session) + number(6) for session in (1, 2, 3)),
    }
    assert all(before[key] == value for key, value in after.items())


def test_entries_of_share_groups_are_sound(data: Path) -> None:
    store = start(data)
    session = stored_sessions(store)[0].number
    for seq, size in enumerate((1, 5000), start=1000):
        delivery = Delivery(Message(b"t", b"x" * size, 1, False), 1, False, "$share/g/+")
        delivery.seq = seq
        store.put_waiting(session, delivery)
    commit(store)
    store.db.close()
    assert check(data).problems == []


def test_much_damage_is_told_in_few_words(data: Path) -> None:
    entries = [(b"q" + number(8) + number(seq), ENTRY) for seq in range(1, 5001)]
    change(data, *entries)
    report = check(data)
    assert report.problems == ["queue entries of no session: 5000 (first: session 8, place 1)"]
    assert counts(report) == WHOLE
    assert repair(data).ok


def test_every_dangling_entry_goes_however_many(data: Path) -> None:
    entries = []
    for seq in range(10, 3010):
        entries.append((b"q" + OWN + number(seq), b"\x0a\0\0" + number(1000 + seq)))
    change(data, *entries)
    assert check(data).problems == ["entries whose message is missing: 3000 (first: message 1010)"]
    mended = repair(data)
    assert mended.ok
    assert counts(mended) == WHOLE


def test_a_second_repair_keeps_the_first_copy(data: Path) -> None:
    for _ in range(2):
        change(data, (b"zz", b""))
        assert repair(data).ok
    found = sorted(each.name for each in data.iterdir())
    assert found == ["store", "store.damaged-1", "store.damaged-2"]


# The files of a repair


def test_an_interrupted_repair_is_finished(data: Path) -> None:
    """Killed between the two renames: the old store is aside, the new one not yet in place."""
    (data / "store").rename(repair_folder(data / "store"))
    with pytest.raises(StoreError, match="was interrupted"):
        check(data)
    with pytest.raises(StoreError, match="was interrupted"):
        start(data)
    assert counts(repair(data)) == WHOLE
    assert [each.name for each in data.iterdir()] == ["store"]


def test_a_repair_that_died_early_is_begun_anew(data: Path) -> None:
    change(data, (b"zz", b""))
    left = repair_folder(data / "store")
    left.mkdir()
    (left / "CURRENT").write_bytes(b"rubbish")
    assert repair(data).ok
    assert not left.exists()


def test_ends_of_lines_are_counted_as_nothing_and_put_back_where_they_are_missing(
    data: Path,
) -> None:
    end = b"q" + number(2) + END
    before = contents(data)
    change(data, (end, None))
    assert check(data).problems == [
        "lines of records without an end: 1 (first: session 2, end of its line 'q')"
    ]
    assert counts(repair(data)) == WHOLE
    del before[b"b"]  # the broker counts anew
    assert contents(data) == before


def test_ends_of_no_session_go(data: Path) -> None:
    before = contents(data)
    change(data, (b"x" + number(77) + END, b""), (b"u" + number(1) + END, b"more"))
    assert check(data).problems == [
        "ill-formed ends of lines of records: 1 (first: session 1, end of its line 'u')",
        "ends of lines of records of no session: 1 (first: session 77, end of its line 'x')",
    ]
    repair(data)
    del before[b"u" + number(1) + END], before[b"b"]
    assert contents(data) == before


def test_how_far_the_deletion_of_a_session_has_come_is_sound(data: Path) -> None:
    place = number(4) + number(1) + b"q" + number(7)
    change(data, (b"g" + number(9), place))
    assert check(data).ok
    change(data, (b"g" + number(9), place[:12]))
    assert check(data).problems == ["ill-formed records of ended sessions: 1 (first: session 9)"]


def test_a_repair_works_where_files_cannot_be_linked(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_names: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    change(data, (b"zz", b""))
    assert counts(repair(data)) == WHOLE


def test_a_failed_repair_leaves_the_store_alone(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_names: object) -> None:
        raise OSError(28, "No space left on device")

    change(data, (b"zz", b""))
    before = contents(data)
    monkeypatch.setattr("vmq.store.tools.copy_database", refuse)
    with pytest.raises(OSError, match="No space left"):
        repair(data)
    assert contents(data) == before
    assert [each.name for each in data.iterdir()] == ["store"]


def test_a_repair_tells_how_far_it_is(data: Path) -> None:
    change(data, *((b"rtopic/x%05d" % index, b"\1x") for index in range(5000)), (b"zz", b""))
    parts: dict[str, list[tuple[int, int]]] = {}
    repair(data, lambda part, done, total: parts.setdefault(part, []).append((done, total)))
    assert list(parts) in (["copying", "mending"], ["mending"])  # blocks may be shared
    told = parts["mending"]
    total = told[-1][1]
    assert total > 5000
    assert told[-1] == (total, total)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert len(told) >= 5
    assert {each for _, each in told} == {total}


def test_counts_are_compared_across_runs(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "COUNTED_IN_MEMORY", 1)
    assert check(data).problems == []
    change(data, (b"c" + number(4), b"\0\0\0\2"))
    assert check(data).problems == ["wrong counts: 1 (first: message 4: 2 for 3)"]


#: Checks a store in a process of its own; prints what it found and by how many KiB it grew.
