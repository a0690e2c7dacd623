"""Parts of batches on disk: which count, which go, and what a crash leaves."""

import os
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.vmq.streams.support import ShortRoom
from vmq.streams.groups.records import GroupKey
from vmq.streams.groups.steps import PublishStep, StepMove
from vmq.streams.staging import parts as module
from vmq.streams.staging import queries
from vmq.streams.staging.parts import MESSAGE, Staging, messages_of
from vmq.streams.staging.state import BusyError, StagedStep, StagingError


def rows(*payloads: bytes) -> pa.RecordBatch:
    plain = [{"topic": "t", "payload": each, "qos": 1, "retain": False} for each in payloads]
    return pa.RecordBatch.from_pylist(plain, schema=MESSAGE)


def put(
    staging: Staging, query: str, batch: int, part: int, attempt: int, *payloads: bytes
) -> None:
    arriving = staging.part(query, batch, part, attempt)
    try:
        arriving.write(rows(*payloads))
        arriving.close()
    except BaseException:
        arriving.drop()
        raise


def found(files: list[Path] | None) -> list[bytes]:
    assert files is not None
    return [each for batch in messages_of(files) for each in batch.column("payload").to_pylist()]


def lying(staging: Staging) -> int:
    return sum(path.stat().st_size for path in staging.folder.glob("*/*.arrow"))


@pytest.fixture
def staging(tmp_path: Path) -> Staging:
    return Staging(tmp_path / "sinks")


def test_a_batch_is_its_parts_in_order_of_their_numbers(staging: Staging) -> None:
    put(staging, "q", 0, 10, 1, b"c")
    put(staging, "q", 0, 2, 1, b"a", b"b")
    put(staging, "q", 0, 2, 2, b"not this attempt")
    assert found(staging.decide("q", 0, [(10, 1), (2, 1)])) == [b"a", b"b", b"c"]


def test_a_batch_that_was_finished_is_not_decided_again(staging: Staging) -> None:
    put(staging, "q", 3, 0, 0, b"a")
    staging.decide("q", 3, [(0, 0)])
    staging.finish("q", 3)
    assert lying(staging) == staging.size == 0
    for batch in (3, 2):
        put(staging, "q", batch, 0, 0, b"a")
        assert staging.decide("q", batch, [(0, 0)]) is None
    assert lying(staging) == staging.size == 0


def test_what_was_decided_stays_so_after_a_crash(staging: Staging) -> None:
    put(staging, "q", 0, 0, 0, b"a")
    staging.decide("q", 0, [(0, 0)])
    again = Staging(staging.folder)
    assert [(query, batch) for query, batch, _ in again.unfinished()] == [("q", 0)]
    assert found(again.decide("q", 0, [])) == [b"a"]
    again.finish("q", 0)
    assert list(Staging(staging.folder).unfinished()) == []


@pytest.mark.parametrize("is_accepted", [True, False])
def test_what_is_decided_elsewhere_stays_until_it_is(staging: Staging, is_accepted: bool) -> None:
    """Over a crash, and whatever else is said meanwhile; then it is published, or goes."""
    step = StagedStep(GroupKey("g", "s"), PublishStep("a@1", (1, 1), "m", [StepMove(0, 1, 0, 5)]))
    put(staging, "members.q", 0, 0, 0, b"a")
    what = staging.asking("members.q", 0, [(0, 0)], {"s": {0: 5}}, 7)
    what.step = step
    staging.prepare("members.q", what)
    with pytest.raises(BusyError, match="is being published"):
        staging.asking("members.q", 0, [(0, 0)], {}, 7)
    again = Staging(staging.folder)
    with pytest.raises(StagingError, match="is being published already"):
        put(again, "members.q", 0, 0, 0, b"b")
    again.discard("members.q", 0)
    again.forget("members.q")
    assert list(again.asked()) == [("members.q", what, False)]
    assert again.needs("members.q", "a@1", (1, 1))
    assert not again.needs("members.q", "a@1", (1, 2))
    assert list(again.unfinished()) == []
    again.settle("members.q", is_accepted=is_accepted)
    again.settle("members.q", is_accepted=not is_accepted)
    assert list(again.asked()) == ([("members.q", what, True)] if is_accepted else [])
    if is_accepted:
        assert again.marks("members.q") == {"s": {0: 5}}
        assert found(again.decide("members.q", 0, [])) == [b"a"]
        again.finish("members.q", 0)
    assert lying(again) == again.size == 0
    again.forget("members.q")
    assert list(again.folder.iterdir()) == []


def test_a_batch_does_not_replace_the_one_that_is_being_published(staging: Staging) -> None:
    put(staging, "q", 0, 0, 0, b"a")
    put(staging, "q", 1, 0, 0, b"b")
    staging.decide("q", 0, [(0, 0)])
    with pytest.raises(BusyError, match="batch 0 of query q is being published"):
        staging.decide("q", 1, [(0, 0)])
    assert staging.decided("q") == 0
    staging.finish("q", 0)
    assert found(staging.decide("q", 1, [(0, 0)])) == [b"b"]


def test_a_missing_part_is_named(staging: Staging) -> None:
    put(staging, "q", 0, 0, 0, b"a")
    with pytest.raises(StagingError, match=r"part 0-1-0\.arrow is not staged"):
        staging.decide("q", 0, [(0, 0), (1, 0)])
    assert staging.decided("q") is None


def test_parts_that_are_not_whole_are_none(staging: Staging) -> None:
    part = staging.part("q", 0, 0, 0)
    part.write(rows(b"a"))
    with pytest.raises(StagingError, match="not staged"):
        staging.decide("q", 0, [(0, 0)])
    part.drop()
    assert (staging.size, list(staging.folder.glob("q/*"))) == (0, [])


def test_a_part_under_way_goes_with_a_crash(staging: Staging) -> None:
    part = staging.part("q", 0, 0, 0)
    part.write(rows(b"a"))
    again = Staging(staging.folder)
    assert (again.size, list(again.folder.glob("q/*"))) == (0, [])
    part.drop()


def test_two_attempts_of_one_number_do_not_mix_and_are_counted_once(staging: Staging) -> None:
    first, second = staging.part("q", 0, 0, 0), staging.part("q", 0, 0, 0)
    for part, payload in ((first, b"first"), (second, b"second")):
        part.write(rows(payload))
    first.close()
    second.close()
    assert staging.size == lying(staging)
    assert found(staging.decide("q", 0, [(0, 0)])) == [b"second"]


def test_a_part_that_is_being_published_does_not_change(staging: Staging) -> None:
    put(staging, "q", 0, 0, 0, b"a")
    files = staging.decide("q", 0, [(0, 0)])
    with pytest.raises(StagingError, match="being published already"):
        put(staging, "q", 0, 0, 0, b"b")
    assert found(files) == [b"a"]
    assert staging.size == lying(staging)


def test_discarding_throws_parts_away_unless_they_are_decided(staging: Staging) -> None:
    put(staging, "q", 0, 0, 0, b"a")
    put(staging, "q", 1, 0, 0, b"b")
    staging.discard("q", 0)
    assert [path.name for path in staging.folder.glob("q/*")] == ["1-0-0.arrow"]
    assert staging.size == lying(staging)
    staging.decide("q", 1, [(0, 0)])
    staging.discard("q", 1)
    assert found(staging.decide("q", 1, [])) == [b"b"]


def test_no_more_is_staged_than_the_limit_and_what_goes_makes_room(tmp_path: Path) -> None:
    staging = Staging(tmp_path, most=4000)
    put(staging, "q", 0, 0, 0, bytes(2000))
    for _ in range(3):
        with pytest.raises(StagingError, match="more than 4000 bytes are staged"):
            put(staging, "q", 0, 1, 0, bytes(2000))
        assert staging.size == lying(staging)
    staging.discard("q", 0)
    put(staging, "q", 0, 1, 0, bytes(2000))


def test_empty_parts_are_counted_like_others(staging: Staging) -> None:
    for batch in range(3):
        part = staging.part("q", batch, 0, 0)
        part.close()
        assert staging.size == lying(staging) > 0
        assert found(staging.decide("q", batch, [(0, 0)])) == []
        staging.finish("q", batch)
        assert staging.size == 0


def test_parts_that_nobody_commits_go_after_a_day(
    staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    for batch in (0, 1, 2):
        put(staging, "q", batch, 0, 0, b"a")
    staging.decide("q", 0, [(0, 0)])
    old = time.time() - module.STALE - 60
    for batch in (0, 1):
        os.utime(staging.folder / "q" / f"{batch}-0-0.arrow", (old, old))
    monkeypatch.setattr(staging, "tidied", -module.TIDY_EVERY)
    staging.drop_stale()
    names = {path.name for path in staging.folder.glob("q/*.arrow")}
    assert names == {"0-0-0.arrow", "2-0-0.arrow"}
    assert staging.size == lying(staging)


@pytest.mark.parametrize("query", ("", "..", "a/b", ".hidden", "x" * 129, "a\n"))
def test_a_bad_name_is_refused(staging: Staging, query: str) -> None:
    with pytest.raises(StagingError, match="is no name for a query; accepted"):
        staging.part(query, 0, 0, 0)
    with pytest.raises(StagingError, match="is no name for a query; accepted"):
        staging.decide(query, 0, [])


@pytest.mark.parametrize(
    ("limit", "kind", "idle"),
    [("MOST_QUERIES", "anyone.", queries.IDLE), ("MOST_BATCHES", "anyone.batch-", 120.0)],
)
def test_there_is_a_limit_of_queries(
    staging: Staging, monkeypatch: pytest.MonkeyPatch, limit: str, kind: str, idle: float
) -> None:
    """One that has done nothing for long is forgotten for another one, unless it has messages."""
    monkeypatch.setattr(queries, limit, 2)
    for query in ("a", "b"):
        put(staging, kind + query, 0, 0, 0, b"x")
        staging.decide(kind + query, 0, [(0, 0)])
    staging.finish(kind + "b", 0)
    with pytest.raises(StagingError, match="there are 2 queries already"):
        staging.part(kind + "c", 0, 0, 0)
    put(staging, kind + "a", 1, 0, 0, b"x")
    age(staging, kind + "a", kind + "b", seconds=idle)
    put(staging, kind + "c", 0, 0, 0, b"x")
    assert {path.name for path in staging.folder.glob(kind + "?")} == {kind + "a", kind + "c"}


def test_who_wrote_one_batch_is_forgotten_after_a_day(
    staging: Staging, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "anyone.query", "anyone.batch-done", "anyone.batch-deciding", "anyone.batch-staged"
    for query in names:
        put(staging, query, 0, 0, 0, b"x")
    for query in names[:3]:
        staging.decide(query, 0, [(0, 0)])
    for query in names[:2]:
        staging.finish(query, 0)
    age(staging, *names, seconds=queries.BATCH_IDLE)
    monkeypatch.setattr(staging, "tidied", -module.TIDY_EVERY)
    staging.drop_stale()
    assert {path.name for path in staging.folder.iterdir()} == {*names} - {"anyone.batch-done"}


def age(staging: Staging, *names: str, seconds: float) -> None:
    """Has queries have nothing new for so long."""
    for name in names:
        os.utime(staging.folder / name, (then := time.time() - seconds, then))


@pytest.mark.parametrize("text", ("{", "{}", '{"last": "x", "decided": null}'))
def test_a_damaged_state_is_named_and_harms_its_query_alone(staging: Staging, text: str) -> None:
    for query in ("a", "b"):
        put(staging, query, 0, 0, 0, b"x")
        staging.decide(query, 0, [(0, 0)])
    state = staging.folder / "a" / "state.json"
    state.write_text(text)
    with pytest.raises(StagingError, match=f"{state} cannot be used"):
        staging.decide("a", 1, [])
    assert [query for query, _, _ in staging.unfinished()] == ["b"]


def test_a_damaged_part_is_named(staging: Staging) -> None:
    put(staging, "q", 0, 0, 0, b"x" * 1000)
    (path,) = staging.folder.glob("q/*.arrow")
    path.write_bytes(path.read_bytes()[:400])
    with pytest.raises(StagingError, match=f"{path} cannot be read"):
        list(messages_of([path]))


def test_nothing_is_staged_on_a_disk_that_is_short_and_what_is_staged_is_published(
    tmp_path: Path,
) -> None:
    room = ShortRoom()
    room.is_short = False
    staging = Staging(tmp_path, room=room)
    put(staging, "q", 0, 0, 0, b"a")
    room.is_short = True
    with pytest.raises(StagingError, match="the disk is short"):
        put(staging, "q", 1, 0, 0, b"b")
    assert staging.size == lying(staging)
    assert found(staging.decide("q", 0, [(0, 0)])) == [b"a"]
    staging.finish("q", 0)
    assert staging.size == 0
