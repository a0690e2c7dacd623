"""Copies of jobs that nobody was told of: whoever counts on one can, whatever disk is lost next."""

from pathlib import Path

import pytest

from tests.support.present import present
from tests.vmq.jobs.sharing.keys import Keys
from vmq.jobs.queue import WAITING


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.mark.parametrize("comes_back", [False, True], ids=["stays away", "comes back"])
@pytest.mark.parametrize("asks", ["the holder", "the node that died", "another"])
def test_who_is_told_of_a_job_that_its_node_did_not_live_to_add_counts_on_two_hosts(
    keys: Keys, asks: str, comes_back: bool
) -> None:
    first, *others = keys.nodes
    lost = keys.die_while_copying(first, b"a")
    (host,) = keys.hosts(lost)
    if comes_back or asks == "the node that died":
        keys.world.start(first.name)
        while not first.replicas.peers.are_all_up():
            keys.passes(0.1)
    node = first if asks == "the node that died" else None
    node = node or next(each for each in others if (each.host == host) == (asks == "the holder"))
    job = keys.begin(node, b"b")
    while job.state == WAITING and not job.is_gone:
        keys.passes(0.1)
    if not job.is_gone:
        keys.told_at(node, job)
    assert (job.twin or job.id) == lost
    assert len(keys.hosts(lost)) >= 2


def test_a_job_goes_for_another_with_its_key_only_once_that_is_on_its_hosts(keys: Keys) -> None:
    """That one was not added when its node died, its only holder was away when the other was added, and comes back."""
    first, *others = keys.nodes
    lost = keys.die_while_copying(first, b"a")
    keys.world.is_late = False
    holder = next(each for each in others if each.machine.find(lost) is not None)
    keys.world.crash(holder.name)
    keys.world.start(first.name)
    keys.passes(3)
    job = keys.begin(first, b"b")
    assert keys.told(job) == job.id
    keys.world.start(holder.name)
    while keys.hosts(lost) and keys.hosts(job.id):
        keys.passes(0.1)
        assert max(len(keys.hosts(each)) for each in (lost, job.id)) >= 2
    assert len(keys.hosts(lost) | keys.hosts(job.id)) >= 2


def test_a_host_that_is_gone_for_good_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.vmq.jobs.sharing.keys.HOSTS", list("abcd"))
    keys = Keys(tmp_path)
    lost = keys.die_while_copying(keys.nodes[0], b"a")
    holder, gone = sorted(keys.nodes[1:], key=lambda each: not each.machine.find(lost))[:2]
    vouching, told = holder.replicas.adder.vouching, list[bool]()
    number = holder.replicas.peers.numbers[gone.name]
    job = present(holder.machine.find(lost))
    vouching.wait(job, float("inf"), told.append, holder.clock_now)
    keys.world.remove(gone.name)
    vouching.on_stored(number, [lost], holder.clock_now)
    assert told == []
    while not told:
        keys.passes(0.1)
