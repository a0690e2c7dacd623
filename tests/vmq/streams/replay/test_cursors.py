"""How far readers are: what is kept, for whom, and for how long."""

from pathlib import Path

import pytest

from tests.vmq.streams.support import Clock
from vmq.streams.definition import StreamRef, new_id
from vmq.streams.reader_places import CursorError, CursorKey, Place
from vmq.streams.replay import cursors as module
from vmq.streams.replay.cursors import Cursors


def at(positions: dict[int, int]) -> Place:
    return Place(positions, {})


ANNA = CursorKey("user anna", "board")
S = StreamRef("s", "")


def test_what_is_kept_is_there_after_a_crash(tmp_path: Path) -> None:
    before = Cursors(tmp_path / "cursors.sqlite")
    before.keep([(ANNA, "s", at({0: 17, 3: 5})), (CursorKey("user ben", "board"), "s", at({0: 1}))])
    before.keep([(ANNA, "s", at({0: 18, 3: 5}))])
    after = Cursors(tmp_path / "cursors.sqlite")  # beside the other, which is never closed
    assert after.find(ANNA, S) == at({0: 18, 3: 5})
    assert after.find(CursorKey("user ben", "board"), S) == at({0: 1})
    assert after.find(CursorKey("client anna", "board"), S) is None
    assert after.find(ANNA, StreamRef("another", "")) is None
    assert after.all_of("user ") == [
        (ANNA, "s", at({0: 18, 3: 5})), (CursorKey("user ben", "board"), "s", at({0: 1}))
    ]  # fmt: skip
    after.forget(ANNA)
    assert before.find(ANNA, S) is None
    before.close()
    after.close()


def test_they_are_of_one_stream_of_a_name(tmp_path: Path) -> None:
    cursors = Cursors(tmp_path / "c")
    first, second = StreamRef("s", new_id()), StreamRef("s", new_id())
    for kept in (first.text, second.text):
        cursors.keep([(ANNA, kept, at({0: 1}))])
        found = [each for each in (S, first, second) if cursors.find(ANNA, each)]
        assert [each.text for each in found] == [kept]
    cursors.forget_stream(first)
    assert cursors.find(ANNA, second) == at({0: 1})
    cursors.forget_stream(second)
    assert cursors.all_of("") == []
    cursors.close()


def test_those_of_versions_before_ids_may_be_of_a_stream_that_was_there_already(
    tmp_path: Path,
) -> None:
    cursors = Cursors(tmp_path / "c", clock := Clock())
    made = f"{int(clock.now * 1000):012x}-00000000"
    cursors.keep([(ANNA, "s", at({0: 1}))])
    assert cursors.find(ANNA, StreamRef("s", made)) == at({0: 1})
    later = f"{int(clock.now * 1000) + 1000:012x}-00000000"
    assert cursors.find(ANNA, StreamRef("s", later)) is None
    assert cursors.find(ANNA, StreamRef("t", made)) is None
    cursors.close()


def test_those_that_nobody_uses_go(tmp_path: Path) -> None:
    clock = Clock()
    cursors = Cursors(tmp_path / "c", clock)
    cursors.keep([(ANNA, "s", at({0: 1})), (CursorKey("user anna", "used"), "s", at({0: 1}))])
    clock.now += module.KEPT - 10
    cursors.keep([(CursorKey("user anna", "used"), "s", at({0: 1}))])
    assert cursors.expire() == 0
    clock.now += 11
    assert cursors.expire() == 1
    assert cursors.find(ANNA, S) is None
    assert cursors.find(CursorKey("user anna", "used"), S) == at({0: 1})
    cursors.close()


def test_nobody_has_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 3)
    cursors = Cursors(tmp_path / "c")
    for number in range(3):
        key = CursorKey("user anna", f"{number}")
        assert cursors.find(key, S) is None
        cursors.keep([(key, "s", at({}))])
    assert cursors.find(CursorKey("user anna", "1"), S) == at({})
    with pytest.raises(CursorError, match="3 cursors are kept for this user"):
        cursors.find(CursorKey("user anna", "another"), S)
    assert cursors.find(CursorKey("user ben", "another"), S) is None
    cursors.close()


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(b"no database" * 100)
    with pytest.raises(CursorError, match="cannot be used"):
        Cursors(tmp_path / "c")
