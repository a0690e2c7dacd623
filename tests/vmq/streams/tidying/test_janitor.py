import threading
from pathlib import Path

import pytest

from tests.support.until import PATIENCE
from tests.vmq.streams.replica.support import partition_in
from tests.vmq.streams.support import Clock, ShortRoom, make, put, read_all, row, rows_from, seal
from vmq.streams.log.partition import Partition
from vmq.streams.tidying.janitor import Janitor


def old_and_cut(folder: Path) -> Partition:
    """One with a row that is too old, and a segment of single rows that wants to be merged."""
    clock = Clock()
    partition = make(folder, clock, retention_age="1h")
    put(partition, [row(0, time=int((clock.now - 7200) * 1e6))])
    partition.roll()
    for number in range(1, 5):
        put(partition, [row(number)])
    partition.roll()
    return partition


def test_a_round_deletes_merges_and_syncs(tmp_path: Path) -> None:
    partition = old_and_cut(tmp_path)
    put(partition, [row(5)])
    assert partition.active.synced < partition.visible
    Janitor(lambda: [partition]).tidy()
    assert [(each.base, each.merged) for each in partition.sealed] == [(1, True)]
    assert read_all(partition) == rows_from(1, 5)
    assert partition.active.synced == partition.visible


def test_trouble_with_one_partition_is_not_that_of_another(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ill, well = make(tmp_path / "1"), make(tmp_path / "2")
    for partition in (ill, well):
        seal(partition, 3)
    path = ill.sealed[0].path
    path.write_bytes(path.read_bytes()[:-40])
    janitor = Janitor(lambda: [ill, well])
    janitor.start()
    janitor.wanted.set()
    janitor.stop()
    janitor.stopping = False
    janitor.tidy()
    assert well.sealed[0].merged
    assert not ill.sealed[0].merged
    assert "is damaged at byte" in caplog.text
    assert not janitor.thread.is_alive()


def fail(*_: object) -> None:
    raise RecursionError("too deep")


def test_what_nobody_expected_of_one_partition_is_told_and_the_thread_goes_on_with_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ill, well = make(tmp_path / "1"), make(tmp_path / "2")
    for partition in (ill, well):
        seal(partition, 3)
    ill.stream = "ill"
    janitor = Janitor(lambda: [ill, well])
    replace = ill.replace
    monkeypatch.setattr(ill, "replace", fail)
    for _ in range(2):
        janitor.tidy()
    assert well.sealed[0].merged
    assert list(janitor.failures.told({"ill", "s"})) == [
        "partition 0 of stream 'ill' cannot be tidied: too deep"
    ]
    assert list(janitor.failures.told({"s"})) == []  # it is deleted
    assert caplog.text.count("stream=ill partition=0 cannot be tidied: too deep") == 1
    assert "Traceback" in caplog.text
    monkeypatch.setattr(ill, "replace", replace)
    janitor.tidy()
    assert ill.sealed[0].merged
    assert list(janitor.failures.told({"ill", "s"})) == []


def test_what_cannot_be_archived_for_a_reason_that_nobody_expected_is_told_and_the_rest_is_tidied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    url = f"file://{tmp_path}/archive"
    partition = make(tmp_path / "0", clock, archive=url, retention_age="1h")
    seal(partition, 3)
    archive = partition.archive
    assert archive is not None
    janitor = Janitor(lambda: [partition])
    clock.now += 7200
    with monkeypatch.context() as patch:
        patch.setattr(archive, "_send", fail)
        janitor.tidy()
    assert archive.failure == "too deep"
    assert "Traceback" in caplog.text
    assert partition.sealed[0].merged
    janitor.tidy()
    assert (archive.failure, partition.kept) == ("", 3)


def test_the_thread_goes_on_after_a_round_with_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Round after round, as the broker has it."""
    ill, well = make(tmp_path / "1"), make(tmp_path / "2")
    monkeypatch.setattr(ill, "retain", fail)
    rounds: list[threading.Event] = [threading.Event(), threading.Event()]
    ahead = iter(rounds)

    def note() -> None:
        next(ahead).set()

    monkeypatch.setattr(well, "sync_behind", note)
    janitor = Janitor(lambda: [ill, well])
    janitor.start()
    for each in rounds:
        janitor.wanted.set()
        assert each.wait(PATIENCE)
    janitor.stop()


def test_on_a_disk_that_is_short_retention_goes_on_and_copies_wait(tmp_path: Path) -> None:
    partition = old_and_cut(tmp_path)
    partition.room = room = ShortRoom()
    janitor = Janitor(lambda: [partition])
    janitor.tidy()
    assert [(each.base, each.merged) for each in partition.sealed] == [(1, False)]
    room.is_short = False
    janitor.tidy()
    assert [(each.base, each.merged) for each in partition.sealed] == [(1, True)]
    assert not janitor.failures.reasons


def test_the_disk_is_not_asked_for_a_copy_that_has_nothing_to_tidy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path] = []

    def lack(_: ShortRoom, folder: Path, *__: int) -> str:
        asked.append(folder)
        return "short"

    monkeypatch.setattr(ShortRoom, "lack", lack)
    copy = partition_in(tmp_path)
    copy.room = ShortRoom()
    janitor = Janitor(lambda: [copy])
    janitor.tidy()
    assert not asked
    copy.sealed = old_and_cut(tmp_path / "other").sealed
    janitor.tidy()
    assert asked == [tmp_path]
