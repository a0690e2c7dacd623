"""How far readers are: what is kept, for whom, and for how long."""

from pathlib import Path

import pytest

from tests.vmq.streams.support import Clock
from vmq.streams.reader_places import CursorError, CursorKey, Place
from vmq.streams.replay import cursors as module
from vmq.streams.replay.cursors import Cursors


def at(positions: dict[int, int]) -> Place:
    return Place(positions, {})


ANNA = CursorKey("user anna", "board")


def test_what_is_kept_is_there_after_a_crash(tmp_path: Path) -> None:
    before = Cursors(tmp_path / "cursors.sqlite")
    before.keep([(ANNA, "s", at({0: 17, 3: 5})), (CursorKey("user ben", "board"), "s", at({0: 1}))])
    before.keep([(ANNA, "s", at({0: 18, 3: 5}))])
    after = Cursors(tmp_path / "cursors.sqlite")  # beside the other, which is never closed
    assert after.find(ANNA, "s") == at({0: 18, 3: 5})
    assert after.find(CursorKey("user ben", "board"), "s") == at({0: 1})
    assert after.find(CursorKey("client anna", "board"), "s") is None
    assert after.find(ANNA, "another") is None
    assert after.all_of("user ") == [
        (ANNA, "s", at({0: 18, 3: 5})), (CursorKey("user ben", "board"), "s", at({0: 1}))
    ]  # fmt: skip
    after.forget(ANNA)
    assert before.find(ANNA, "s") is None
    before.close()
    after.close()


def test_those_that_nobody_uses_go(tmp_path: Path) -> None:
    clock = Clock()
    cursors = Cursors(tmp_path / "c", clock)
    cursors.keep([(ANNA, "s", at({0: 1})), (CursorKey("user anna", "used"), "s", at({0: 1}))])
    clock.now += module.KEPT - 10
    cursors.keep([(CursorKey("user anna", "used"), "s", at({0: 1}))])
    assert cursors.expire() == 0
    clock.now += 11
    assert cursors.expire() == 1
    assert cursors.find(ANNA, "s") is None
    assert cursors.find(CursorKey("user anna", "used"), "s") == at({0: 1})
    cursors.close()


def test_nobody_has_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    cursors = Cursors(tmp_path / "c")
    for number in range(3):
        key = CursorKey("user anna", f"{number}")
        assert cursors.find(key, "s") is None
        cursors.keep([(key, "s", at({}))])
    assert cursors.find(CursorKey("user anna", "1"), "s") == at({})
    with pytest.raises(CursorError, match="3 cursors are kept for this user"):
        cursors.find(CursorKey("user anna", "another"), "s")
    assert cursors.find(CursorKey("user ben", "another"), "s") is None
    cursors.close()


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"no database" * 100)
    with pytest.raises(CursorError, match="cannot be used"):
        Cursors(tmp_path / "c")
