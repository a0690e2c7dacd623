"""Indexes of segments: a start reads them instead of the frames, and does without them."""

from pathlib import Path

import pytest

from tests.support.flipped import flip
from tests.support.until import until
from tests.vmq.jobs.serving import client_of, config_of
from tests.vmq.jobs.storage.lives import Node, seen
from tests.vmq.jobs.storage.test_damage import places
from vmq.broker import Broker
from vmq.jobs.storage.journal import JobJournal


def filled(folder: Path) -> Node:
    """Jobs one at a time in two segments, the first of which has an index; some were worked at."""
    node = Node(folder, max_deliveries=1)
    for number in range(60):
        name = b"other" if number % 7 == 3 else b"q"
        key = b"k%d" % number if number % 9 == 4 else b""
        delay = 500 if number % 11 == 5 else 0
        job = node.add(
            b"%02d" % number * (1 + number % 3), name, priority=number % 2, key=key, delay=delay
        )
        if number % 13 == 6:
            node.machine.share(job, 2, [1, 2])
        node.journal.commit()
    for _ in range(3):
        node.take()
    node.journal.commit()
    node.machine.nack(node.take(), node.now)
    node.machine.acknowledge(node.take().id)
    node.journal.commit()
    node.journal.segment_size = 0
    node.add(b"last")
    node.machine.acknowledge(node.take().id)
    node.journal.commit()
    node.index()
    node.segments.close()
    return node


def first_of(folder: Path, kind: str) -> Path:
    return min(folder.glob(f"*.{kind}"))


def restarted(node: Node, page: int = 2) -> Node:
    return Node(node.folder, node.now, page, max_deliveries=1)


def everything(node: Node) -> dict[bytes, tuple[object, ...]]:
    """All jobs and their bodies, also those that are paged out."""
    for page in list(node.machine.pager.pages):
        node.machine.pager.scatter(page)
    found = seen(node.machine)
    return {name: (*each, node.body(node.machine.jobs[name])) for name, each in found.items()}


def test_a_start_reads_the_index_and_no_frame(tmp_path: Path) -> None:
    node = filled(tmp_path)
    index = first_of(tmp_path, "index")
    kept = index.read_bytes()
    index.unlink()
    before = everything(restarted(node))
    assert len(before) == 59
    index.write_bytes(kept)
    path = first_of(tmp_path, "jobs")
    for at in range(30, 2000, 100):  # heads and events alike
        flip(path, at)
    found = restarted(node)
    assert found.damaged == []
    for at in range(30, 2000, 100):
        flip(path, at)
    assert everything(found) == before


@pytest.mark.parametrize("harm", ["gone", "torn", "flipped", "empty", "other size", "other frames"])
def test_a_start_does_without_an_index_that_is_not_that_of_its_segment(
    tmp_path: Path, harm: str
) -> None:
    node = filled(tmp_path)
    before = everything(restarted(node))
    index, path = first_of(tmp_path, "index"), first_of(tmp_path, "jobs")
    data = index.read_bytes()
    if harm == "gone":
        index.unlink()
    elif harm == "torn":
        index.write_bytes(data[:-1])
    elif harm == "flipped":
        flip(index, len(data) // 2)
    elif harm == "empty":
        index.write_bytes(b"")
    elif harm == "other size":
        path.write_bytes(path.read_bytes()[:-40])
    else:
        flip(path, places(path.read_bytes())[-1][0] + 5)
    found = restarted(node)
    assert not found.segments.all[1].has_index
    if harm.startswith("other"):
        assert found.damaged == ["0000000001.jobs.damaged"]
    else:
        assert everything(found) == before


def test_an_index_goes_with_its_segment(tmp_path: Path) -> None:
    node = filled(tmp_path)
    found = restarted(node)
    for page in list(found.machine.pager.keyed):
        found.machine.pager.scatter(page)
    for known in list(found.machine.keys.values()):
        found.machine.release(known.job)
    for job_id in everything(found):
        found.machine.remove(found.machine.jobs[job_id])
    found.journal.commit()
    assert not list(tmp_path.glob("*.index"))
    assert len(list(tmp_path.glob("*.jobs"))) == 1, "the one that is written, by the same number"
    assert not restarted(found).machine.jobs


def test_what_is_damaged_gets_no_index_and_nothing_is_left_behind(tmp_path: Path) -> None:
    node = filled(tmp_path)
    first_of(tmp_path, "index").unlink()
    found = restarted(node)
    flip(first_of(tmp_path, "jobs"), 50)
    found.add()
    found.journal.commit()
    found.index()
    assert [each.name for each in tmp_path.glob("*.index")] == ["0000000002.index"]
    assert not list(tmp_path.glob("*.new"))


def test_what_was_left_half_written_goes_at_the_start(tmp_path: Path) -> None:
    node = filled(tmp_path)
    for name in ("0000000001.new", "0000000002.new", "0000000009.index"):
        (tmp_path / name).write_bytes(b"x")
    assert restarted(node).machine.count() == 59
    assert {each.suffix for each in tmp_path.iterdir()} == {".jobs", ".index", ""}
    assert [each.name for each in tmp_path.glob("*.index")] == ["0000000001.index"]
    assert first_of(tmp_path, "index").stat().st_mode & 0o777 == 0o600


async def test_a_broker_makes_indexes_by_and_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.jobs.service.SWEEP", 0.01)
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
        journal: JobJournal = broker.jobs.open().journal
        journal.segment_size = 1000
        ids = [await redis.execute_command("ADDJOB", "q", "x" * 100, 0) for _ in range(50)]
        folder = tmp_path / "data" / "jobs"
        segments = len(list(folder.glob("*.jobs")))
        assert segments > 5
        await until(lambda: len(list(folder.glob("*.index"))) == segments - 1)
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
        found = await redis.execute_command("GETJOB", "COUNT", 60, "FROM", "q")
        assert [each[1] for each in found] == ids
