"""Copies that are paged out: asked for many at once, served when nobody else serves them, gone when they are done."""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from tests.simulator.jobs.node import QUEUE, RETRY, SimNode
from tests.simulator.jobs.promises import Promise
from tests.vmq.jobs.sharing.keys import Keys, World
from vmq.jobs.queue import AWAY, QUEUED, WAITING, Job, JobQueue
from vmq.jobs.storage.restoring import ASK_AFTER

COUNT = 60


class Paged(World):
    """Of which the first added jobs that all have."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        first = self.nodes[0]
        queue = first.machine.queue(QUEUE, first.clock_now)
        self.ids: list[bytes] = []
        for number in range(COUNT):
            body = b"%d" % number
            self.ids.append(first.machine.add(queue, body, first.clock_now, replicate=3).id)
            self.world._send(first.name)
        self.passes(2)

    def paged(self, node: SimNode) -> int:
        """Copies that are paged out."""
        return sum(page.count for page in node.machine.pager.pages if page.kind == AWAY)

    def served(self, node: SimNode) -> list[bytes]:
        """Jobs that a node has queued, in their order."""
        queue = node.machine.queue(QUEUE, node.clock_now)
        return [job.id for job in queue.oldest(2 * COUNT)]

    def is_served_by(self, *nodes: SimNode) -> bool:
        """Whether these have queued all jobs, each at one of them."""
        return sorted(each for node in nodes for each in self.served(node)) == sorted(self.ids)

    def counted(self) -> int:
        """Jobs, as the nodes count them that can be reached; and in how many steps."""
        found, self.steps = Counter[JobQueue](), 0
        for node in self.nodes:
            peers, pager = node.replicas.peers, node.machine.pager
            if node.is_up:
                self.steps += sum(1 for _ in pager.counting(found, peers.me.number, peers.up))
        return found.total()

    def taken_over(self) -> int:
        return sum(node.replicas.counts.taken_over for node in self.nodes)


@pytest.fixture
def paged(tmp_path: Path) -> Paged:
    return Paged(tmp_path)


def test_copies_are_paged_out_and_stay_so_while_their_jobs_wait(paged: Paged) -> None:
    first, second, third = paged.nodes
    assert first.machine.pager.queued > COUNT // 2
    for node in (second, third):
        assert paged.paged(node) > COUNT // 2
    before = len(second.machine.jobs)
    paged.passes(5 * RETRY)
    assert paged.paged(second) > COUNT // 2
    assert len(second.machine.jobs) <= before, (
        "what others serve is not taken in when it is asked for"
    )
    assert paged.taken_over() == 0
    assert paged.served(first) == paged.ids


def test_who_hears_of_nobody_serves_what_is_paged_out(paged: Paged) -> None:
    first, second, third = paged.nodes
    assert paged.counted() == COUNT
    assert paged.steps > len(paged.nodes), "others are served in between"
    paged.world.crash(first.name)
    paged.passes(4 * RETRY)
    assert paged.is_served_by(second, third)
    assert paged.counted() == COUNT
    for node in (second, third):
        assert paged.served(node) == [each for each in paged.ids if each in set(paged.served(node))]
        for job_id in paged.served(node):
            job = node.machine.find(job_id)
            assert job is not None
            assert job.repeats == 1
    paged.world.start(first.name)
    paged.passes(2 * RETRY)
    assert paged.served(first) == [], "who comes back asks before it queues anything"
    assert paged.is_served_by(second, third)


def test_a_start_has_copies_in_pages_and_serves_them_if_nobody_does(paged: Paged) -> None:
    for node in paged.nodes:
        paged.world.crash(node.name)
    for node in paged.nodes:
        paged.world.start(node.name)
        assert paged.paged(node) == COUNT
        assert not node.machine.jobs
    paged.passes(3 * RETRY)
    assert paged.is_served_by(*paged.nodes)


def test_two_sides_of_a_split_that_both_serve_agree_on_one(paged: Paged) -> None:
    first, second, third = paged.nodes
    for other in (second, third):
        paged.world.cut.add(frozenset((first.name, other.name)))
        paged.world.break_link(first.name, other.name)
    paged.passes(4 * RETRY)
    assert paged.served(first) == paged.ids
    assert paged.is_served_by(second, third)
    paged.world.cut.clear()
    paged.passes(5)
    assert paged.is_served_by(*paged.nodes)


def test_copies_are_made_anew_of_what_is_paged_out(paged: Paged) -> None:
    first, second, third = paged.nodes
    paged.world.crash(third.name)
    third.wipe()
    paged.world.start(third.name)
    paged.passes(30)
    assert third.machine.count() == COUNT
    for job_id in paged.ids:
        job: Job | None = third.machine.find(job_id)
        assert job is not None
        assert third.journal.body(job) == b"%d" % paged.ids.index(job_id)
    assert paged.served(first) == paged.ids
    assert paged.paged(third) + paged.paged(second) > 0


def test_an_acknowledgement_collects_copies_that_are_paged_out(paged: Paged) -> None:
    paged.world.is_idle = False
    for job_id in paged.ids:
        paged.world.promises[job_id] = Promise(3, False, paged.nodes[0].name)
    paged.passes(60)
    assert [node.left() for node in paged.nodes] == [0, 0, 0]
    assert all(each.is_done for each in paged.world.promises.values())
    assert not any(node.machine.pager.pages for node in paged.nodes)


def test_a_job_stays_of_which_somebody_was_told_that_it_has_his_key(keys: Keys) -> None:
    """Who adds it may give up, and has all drop it; who was told its id counts on it."""
    first, second, third = keys.nodes
    job_id = keys.begin(first, b"a", replicate=3).id
    while second.machine.find(job_id) is None or third.machine.find(job_id) is None:
        keys.passes(0.1)
    assert keys.told_at(second, keys.begin(second, b"b", replicate=3)) == job_id
    for node in (second, third):
        node.replicas.ending.on_drop(job_id)
    assert second.machine.find(job_id) is not None
    assert third.machine.find(job_id) is None


def test_who_starts_asks_as_soon_as_all_others_are_there(paged: Paged) -> None:
    first, _, third = paged.nodes
    paged.world.crash(first.name)
    paged.world.start(first.name)
    paged.passes(0.8 * ASK_AFTER)
    found = paged.served(first)
    assert found
    assert found == [each for each in paged.ids if each in set(found)]
    for name in (first.name, third.name):
        paged.world.crash(name)
    paged.world.start(first.name)
    paged.passes(0.8 * ASK_AFTER)
    assert not paged.served(first), "somebody who may serve them was not heard yet"
    paged.passes(ASK_AFTER)
    assert paged.served(first)


@pytest.fixture
def keys(tmp_path: Path) -> Keys:
    return Keys(tmp_path)


@pytest.mark.parametrize("dies", ["while it asks for the key", "while its copies are under way"])
def test_a_known_key_keeps_its_id_though_a_node_comes_back_that_was_adding_another(
    keys: Keys, dies: str
) -> None:
    """Nobody was told of what that node was adding when it died, and somebody was of what was added meanwhile."""
    first, second, _ = keys.nodes
    lost = keys.begin(first, b"a")
    while dies.endswith("under way") and lost.copies is None:
        keys.passes(0.1)
    assert lost.state == WAITING
    keys.world.crash(first.name)
    known = keys.told(keys.begin(second, b"b"))
    keys.world.start(first.name)
    keys.passes(10)
    assert {keys.told(keys.begin(node, b"c")) for node in keys.nodes} == {known}


def test_a_copy_of_a_node_that_died_comes_too_late_to_take_its_key(keys: Keys) -> None:
    """One of the others knows of the death, and adds the key with the third, before that has what was sent to it."""
    first, second, third = keys.nodes
    lost = keys.begin(first, b"a", replicate=3)
    keys.until_copied(lost)
    keys.world.is_late = True
    keys.world.crash(first.name)
    for other in (second, third):
        keys.world.links[other.name, first.name].clear()
    keys.world.links[first.name, second.name].clear()
    second.replicas.on_down(first.name)
    under_way = keys.world.links[first.name, third.name]
    late = list(under_way)
    under_way.clear()
    job = keys.begin(second, b"b")
    keys.until_copied(job)
    under_way.extend((keys.world.now, data) for _, data in late)
    known = keys.told(job)
    keys.passes(10)
    assert {keys.told(keys.begin(node, b"c")) for node in (second, third)} == {known}
    keys.world.start(first.name)
    keys.passes(10)
    assert {keys.told(keys.begin(node, b"d")) for node in keys.nodes} == {known}


def test_a_copy_keeps_the_key_that_another_job_had_when_it_came(keys: Keys) -> None:
    """Else a lost disk takes the key with it, though others had the job."""
    first, second, third = keys.nodes
    job = keys.begin(first, b"a", replicate=3)
    keys.until_copied(job)
    rivals = [keys.begin(second, b"b"), keys.begin(third, b"c")]
    assert keys.told(job) == job.id
    assert {keys.told(each) for each in rivals} == {job.id}
    assert first.machine.acknowledge(job.id)
    keys.passes(10)
    assert [node.left() for node in keys.nodes] == [0, 0, 0]
    keys.world.crash(first.name)
    first.wipe()
    keys.world.start(first.name)
    keys.passes(10)
    for node in keys.nodes:
        assert keys.told(keys.begin(node, b"d", replicate=1)) == job.id


def test_who_has_just_begun_takes_no_key_before_it_has_heard_all(keys: Keys) -> None:
    first, _, third = keys.nodes
    known = keys.told(keys.begin(third, b"b", replicate=1))
    keys.world.crash(first.name)
    keys.world.cut.add(frozenset((first.name, third.name)))
    keys.world.start(first.name)
    keys.passes(0.5)
    assert len(first.replicas.peers.up) == 1
    again = keys.begin(first, b"a", replicate=1)
    keys.passes(1)
    assert again.state == WAITING
    keys.world.cut.clear()
    assert keys.told(again) == known


def test_a_side_of_a_split_that_begins_takes_keys_by_itself_after_a_while(keys: Keys) -> None:
    first = keys.nodes[0]
    for node in keys.nodes:
        keys.world.crash(node.name)
    keys.world.start(first.name)
    job = keys.begin(first, b"a", replicate=1)
    assert job.state == WAITING
    keys.passes(4)
    assert job.state == QUEUED


def test_who_is_slow_to_say_that_it_knows_a_key_is_not_passed_over(keys: Keys) -> None:
    first, _, third = keys.nodes
    known = keys.told(keys.begin(third, b"b", replicate=1))
    third.held_up = True
    again = keys.begin(first, b"a", replicate=1)
    keys.passes(10)
    assert again.state == WAITING
    third.held_up = False
    assert keys.told(again) == known


@pytest.mark.parametrize("is_vouched", [False, True])
def test_who_gives_up_a_job_gives_it_up_for_himself_alone(keys: Keys, is_vouched: bool) -> None:
    """Two wait for one job; with `is_vouched` a third was told its id at once, and counts on it for ever."""
    first, *others = keys.nodes
    for node in others:
        node.held_up = True
    job = keys.begin(first, b"a")
    job.is_vouched = is_vouched
    told: dict[str, bool] = {}
    for name, patience in (("later", 6), ("sooner", 2)):
        first.replicas.wait([job], first.clock_now + patience, partial(told.__setitem__, name))
    keys.passes(3)
    assert told == {"sooner": False}
    keys.passes(4)
    assert told == {"sooner": False, "later": False}
    assert job.is_gone != is_vouched


def test_a_job_that_was_not_added_keeps_nobody_out_where_its_copies_were(keys: Keys) -> None:
    """Else who adds its key is told the id of a job that nobody ever does."""
    first, *others = keys.nodes
    job = keys.begin(first, b"a")
    while not any(node.machine.find(job.id) for node in others):
        keys.passes(0.1)
    assert job.state == WAITING
    first.replicas.adder.abandon(job)
    keys.world._send(first.name)
    keys.passes(2)
    found = {keys.told(keys.begin(node, b"b")) for node in others}
    assert found == {b"D-00000000-%s-05a1" % (b"b" * 24)}
