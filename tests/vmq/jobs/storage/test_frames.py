"""Jobs that other nodes were asked about before they were queued: what the log says of them."""

from pathlib import Path

import pytest

from tests.vmq.jobs.storage.lives import Node, seen
from vmq.jobs.sharing_port import JobSharing


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


class Asking(JobSharing):
    """Asks others for keys; the test says when they have answered."""

    def asks_for(self, key: bytes) -> bool:
        return True


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize("is_taken", [False, True])
@pytest.mark.parametrize(("delay", "answered"), [(0, 1), (5, 1), (5, 9), (0, 99)])
def test_a_job_whose_key_was_asked_for_is_as_it_was(
    node: Node, is_async: bool, is_taken: bool, delay: int, answered: int
) -> None:
    """`is_async`: it is on disk before there is an answer; one that comes after its time finds a dead letter."""
    node.machine.sharing = Asking()
    job = node.add(key=b"k", delay=delay, ttl=60, retry=0)
    if is_async:
        node.machine.keep(job)
        node.journal.commit()
    node.passes(answered)
    node.machine.settle(job, node.now)
    if is_taken:
        node.machine.take(job.queue, node.now)
    node.journal.commit()
    before = seen(node.machine)
    node = node.again()
    assert seen(node.machine) == before
    assert len(before) == 1


def test_jobs_on_disk_whose_keys_nobody_answered_for_are_queued_after_a_start(node: Node) -> None:
    node.machine.sharing = Asking()
    for number in range(40):
        node.machine.keep(node.add(key=b"%d" % number))
    node.journal.commit()
    assert node.again(page=6).machine.queues[b"q"].depth == 40
