"""What damage concerns, and how it is kept."""

import os
import shutil
from contextlib import closing
from pathlib import Path

import plyvel
import pytest

from tests.support.present import present
from tests.vmq.damaged_store import SHARED, hurt, make, number, q, start
from vmq.store.damage import (
    FILE,
    KEPT,
    Damage,
    Isolation,
    LostKeys,
    forget,
    load,
    numbers_between,
    save,
)
from vmq.store.lines import END
from vmq.store.opening import stored_sessions
from vmq.store.store import StoreError
from vmq.store.tools import check, repair

Q = ord("q")


@pytest.mark.parametrize(
    ("first", "last", "expected"),
    (
        (q(5, 1), q(5, 9), (5, 5)),
        (q(5, 9) + b"\0", q(7, 1), (5, 7)),
        # A separator is as short as can be: it sorts before whatever session 6 has.
        (q(5, 9), b"q" + number(6), (5, 5)),
        # What lies behind the end of a line is the next one's.
        (b"q" + number(5) + END + b"\0", q(6, 2), (6, 6)),
        (b"m", q(3, 1), (0, 3)),
        (q(3, 1), b"r", (3, (1 << 64) - 1)),
        (b"a", b"z", (0, (1 << 64) - 1)),
        (b"r", b"z", None),
        (b"a", b"p", None),
        (b"m", b"q", None),
    ),
)
def test_the_sessions_of_a_range(
    first: bytes, last: bytes, expected: tuple[int, int] | None
) -> None:
    assert numbers_between(Q, first, last) == expected


def test_what_damage_concerns() -> None:
    damage = Damage([LostKeys("1.ldb", q(5, 1), q(5, 9)), LostKeys("1.ldb", b"sb", b"sd")])
    assert damage.covers(q(5, 3))
    assert not damage.covers(q(5, 10))
    assert damage.covers(b"sc")
    assert damage.concerns(number(5))
    assert not damage.concerns(number(6))
    assert damage.touches(b"s")
    assert not damage.touches(b"r")
    assert not damage.concerns_nodes()
    assert Damage([LostKeys("1.ldb", b"i", b"m")]).concerns_nodes()


def test_what_began_later_is_not_damaged() -> None:
    damage = Damage([LostKeys("1.ldb", b"c" + number(3), b"r")])
    assert damage.concerns(number(100))
    assert damage.limit(50, 70)
    assert damage.concerns(number(49))
    assert not damage.concerns(number(50))
    assert damage.covers(q(49, 1))
    assert not damage.covers(q(50, 1))
    assert damage.covers(b"m" + number(69))
    assert not damage.covers(b"m" + number(70))
    assert not damage.covers(b"c" + number(70))
    assert not damage.limit(60, 80)


def test_it_is_kept_and_forgotten(tmp_path: Path) -> None:
    assert load(tmp_path).lost == []
    damage = Damage([LostKeys("1.ldb", b"a\xff", b"b", 5, 7), LostKeys("2.ldb", b"b", b"c")])
    save(tmp_path, damage)
    assert load(tmp_path).lost == damage.lost
    (tmp_path / ("1.ldb" + KEPT)).touch()
    forget(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def data(tmp_path: Path) -> Path:
    make(tmp_path)
    return tmp_path


def isolation_of(data: Path, is_node: bool = False) -> Isolation:
    return Isolation(data / "store", is_node)


def test_a_whole_store_has_nothing_to_isolate(data: Path) -> None:
    assert isolation_of(data).survey() == []
    assert isolation_of(data).isolate() is None
    assert not (data / "store" / FILE).exists()


def test_what_cannot_be_read_is_isolated_and_refused(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = hurt(data, q(2, 50))
    before = path.read_bytes()
    synced: list[str] = []
    monkeypatch.setattr(
        os, "fsync", lambda fd: synced.append(Path(f"/proc/self/fd/{fd}").readlink().name)
    )
    damage = present(isolation_of(data).isolate())
    # No loss of power leaves a table that is blank without what says so.
    assert synced == [f"{path.name}{KEPT}.tmp", "store", f"{FILE}.tmp", "store", path.name]
    assert [each.table for each in damage.lost] == [path.name]
    assert path.with_name(path.name + KEPT).read_bytes() == before
    assert path.read_bytes() != before
    # From now on it is known at each start, and nothing else is found.
    assert isolation_of(data).isolate() is None
    store = start(data)
    with closing(store.db):
        assert store.damage is not None
        sessions = {each.client_id: each for each in stored_sessions(store)}
        assert set(sessions) == {"dev-0", "dev-1", "dev-2"}
        found = [store.refuses_session(each.number) for each in sessions.values()]
        assert found == [False, True, False]
        with pytest.raises(StoreError, match="vmq store repair"):
            store.load_waiting(number(2), 50)
        assert store.load_waiting(number(3), 50) is not None
        assert store.load_waiting(number(3), 201) is None
        # A new session is no part of it, whatever number was lost.
        assert not store.refuses_session(store.create_session("new"))


def test_a_message_that_several_wait_for_is_refused_to_them_alone(data: Path) -> None:
    hurt(data, b"m" + number(60))
    assert isolation_of(data).isolate() is not None
    store = start(data)
    with closing(store.db):
        stored_sessions(store)
        for session in (1, 2):
            assert store.load_waiting(number(session), 100) is not None
            assert not store.refuses_session(number(session))
            with pytest.raises(StoreError):
                store.load_waiting(number(session), 160)
            assert store.refuses_session(number(session))
        assert not store.refuses_session(number(3))


def test_what_several_hold_is_not_deleted_when_its_count_is_lost(data: Path) -> None:
    """It would be taken for the last one's, and the others would never get it."""
    hurt(data, b"c" + number(SHARED))
    assert isolation_of(data).isolate() is not None
    store = start(data)
    with closing(store.db):
        assert store.load_message(SHARED) is not None
        for _ in range(3):
            store.let_go(SHARED, 1)
        store.begin_commit()
        store.write()
        store.end_commit()
        assert store.load_message(SHARED) is not None


def test_a_node_does_not_go_on_without_its_own_records(data: Path) -> None:
    """Other nodes count on them."""
    hurt(data, b"k")
    before = {each.name: each.read_bytes() for each in (data / "store").iterdir()}
    damage = Damage(
        [LostKeys("x", block.first, block.last) for _, block in isolation_of(data).survey()]
    )
    assert damage.concerns_nodes()
    assert isolation_of(data, is_node=True).isolate() is None
    assert {each.name: each.read_bytes() for each in (data / "store").iterdir()} == before


def test_files_that_are_missing_are_no_case_for_it(data: Path) -> None:
    hurt(data, q(2, 50))
    (data / "store" / "CURRENT").unlink()
    assert isolation_of(data).isolate() is None


def test_a_reader_that_fails_tells_of_it(data: Path) -> None:
    hurt(data, q(2, 50))
    store = start(data)
    told: list[Exception] = []
    store.on_unreadable = told.append
    with closing(store.db):
        with pytest.raises(
            StoreError, match=r"cannot be read \(Corruption: block checksum mismatch\)"
        ):
            store.load_waiting(number(2), 50)
        assert isinstance(told[0], plyvel.CorruptionError)
        assert store.refuses_session(number(2))
        assert not store.refuses_session(number(1))
    shutil.rmtree(data / "store")


def test_check_tells_of_it_and_repair_forgets_it(data: Path) -> None:
    path = hurt(data, q(2, 50))
    assert isolation_of(data).isolate() is not None
    before = {each.name: each.read_bytes() for each in (data / "store").iterdir()}
    (problem,) = check(data).problems
    assert problem.startswith(f"1 blocks of {path.name} could not be read")
    assert {each.name: each.read_bytes() for each in (data / "store").iterdir()} == before
    report = repair(data)
    assert report.ok, report.problems
    assert any(
        note.startswith(f"lost of table {path.name}: session 2, place") for note in report.notes
    )
    assert {each.name for each in (data / "store.damaged-1").iterdir()} >= {FILE, path.name + KEPT}
    assert check(data).ok
    store = start(data)
    with closing(store.db):
        assert store.damage is None
        stored_sessions(store)
        assert store.load_waiting(number(2), 1) is not None
        assert store.load_waiting(number(2), 50) is None


@pytest.mark.parametrize("note", ["", "{", "[]", '{"lost": [{}]}', '{"lost": 5}', "\0" * 50])
def test_a_note_that_cannot_be_read_is_told_and_a_repair_does_without(
    tmp_path: Path, note: str
) -> None:
    """What is lost is not known any more: the store is not opened as if it were whole."""
    make(tmp_path)
    (tmp_path / "store" / FILE).write_text(note)
    with pytest.raises(StoreError, match=f"{FILE}, which says what is lost, cannot be read"):
        start(tmp_path)
    assert Isolation(tmp_path / "store", False).isolate() is None
    assert FILE in check(tmp_path).problems[0]
    report = repair(tmp_path)
    assert report.ok, report.problems
    assert any(FILE in each for each in report.notes)
    start(tmp_path).db.close()
