"""A clock that is set while a broker runs, or after: at the next start jobs have waited for as long as they did."""

from pathlib import Path

import pytest

from tests.vmq.jobs.storage.lives import Node
from tests.vmq.jobs.support import WALL

HOURS = 7200
PAGE = 4


def set_clock(node: Node, seconds: int, boot: str) -> Node:
    """The clock is set, and the broker starts anew; the machine too, if it has another name then."""
    node.journal.commit()
    node.now += seconds
    node.ahead += seconds * 10**9
    if boot != node.clock.kept.boot:
        node.clock.look()
    return node.again(page=PAGE, ahead=node.ahead, boot=boot, max_deliveries=1)


def waited(node: Node, ids: list[bytes]) -> list[tuple[object, ...]]:
    """How old jobs are, and how long they live still, in seconds."""
    jobs = [node.machine.find(each) for each in ids]
    return [
        (
            job.state,
            job.reason,
            round(int(job.created - WALL) / 1e9 - node.now),
            round(job.expires - node.now),
        )
        for job in jobs
        if job is not None
    ]


def lives(folder: Path, steps: tuple[int, ...], *, is_same_boot: bool) -> list[tuple[object, ...]]:
    node = Node(folder, page=PAGE, seed=1, boot="0", max_deliveries=1)
    ids: list[bytes] = []
    for number, step in enumerate(steps, 1):
        jobs = [node.add(name=b"long") for _ in range(9)]
        jobs += [node.add(name=b"keyed", key=b"%d %d" % (number, each)) for each in range(9)]
        jobs += [node.add(delay=1200), node.add(b"dead", b"z", retry=1)]
        node.take(b"z")
        node.passes(2)
        assert jobs[-1].reason
        node.journal.commit()
        node.index()
        assert all(
            each.has_index for each in node.segments.all.values() if each is not node.segments.last
        )
        node.passes(300)
        ids += [each.id for each in jobs]
        node = set_clock(node, step, "0" if is_same_boot else str(number))
    node.passes(200)
    return waited(node, ids)


@pytest.mark.parametrize("is_same_boot", [True, False])
@pytest.mark.parametrize("steps", [(HOURS, 0, 0), (-HOURS, 0), (HOURS, -60, HOURS)])
def test_a_clock_that_is_set_makes_no_job_older_or_younger(
    tmp_path: Path, steps: tuple[int, ...], is_same_boot: bool
) -> None:
    found = lives(tmp_path / "set", steps, is_same_boot=is_same_boot)
    assert found == lives(tmp_path / "not", (0,) * len(steps), is_same_boot=True)
    assert len(found) == 20 * len(steps)


def test_what_is_written_after_the_clock_was_set_is_by_that(tmp_path: Path) -> None:
    """Also where its segment gets the number of one from before."""
    node = Node(tmp_path, boot="0")
    node.machine.acknowledge(node.add().id)
    node = set_clock(node, HOURS, "0")
    for _ in range(2):
        job = node.add(delay=1200)
        node.passes(300)
        node = set_clock(node, 0, "0")
        assert waited(node, [job.id])[0][2] == -301
        node.machine.acknowledge(job.id)
        node = set_clock(node, HOURS, "0")


def test_without_its_file_the_clock_is_taken_for_one_that_was_not_set(tmp_path: Path) -> None:
    node = Node(tmp_path, boot="0")
    job = node.add(delay=1200)
    node.clock.path.write_bytes(b"{")
    node = set_clock(node, HOURS, "0")
    node.passes(1)
    assert node.take().id == job.id
