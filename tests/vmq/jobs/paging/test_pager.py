"""Jobs that are paged out are where they would be in memory: in their order, by their ids, over restarts."""

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.present import present
from tests.vmq.jobs.storage.lives import Node
from vmq.jobs.machine import JobMachine
from vmq.jobs.queue import Job, JobQueue

PAGE = 4
Step = tuple[str, int]


def paged(folder: Path, now: float = 1000.0, page: int = PAGE, seed: int = 1) -> Node:
    """A node that pages out whatever it can."""
    node = Node(folder, now, page, seed)
    node.machine.pager.above = 0
    return node


def again(node: Node, page: int = PAGE) -> Node:
    """The next start of a node, a second later."""
    node.segments.close()
    return paged(node.folder, node.now + 1, page, node.seed + 1)


def pages_out(node: Node) -> None:
    """Some passes end."""
    node.journal.commit()
    pager = node.machine.pager
    for queue in list(node.machine.queues.values()):
        if queue.depth > 4 * PAGE:
            pager.crowded[queue] = None
    while pager.wants_out():
        pager.page_out(node.now)
    pager.mark(len(pager.unmarked) // 2)


def queue_of(node: Node, name: bytes = b"q") -> JobQueue:
    return node.machine.queue(name, node.now)


def ids_of(jobs: list[Job]) -> list[bytes]:
    return [job.id for job in jobs]


def filled(folder: Path, count: int = 60) -> tuple[Node, list[bytes]]:
    node = paged(folder)
    ids = ids_of([node.add(b"%d" % number) for number in range(count)])
    pages_out(node)
    return node, ids


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return paged(tmp_path)


def test_jobs_that_are_paged_out_are_few_bytes_and_go_in_their_order(tmp_path: Path) -> None:
    node, ids = filled(tmp_path)
    machine = node.machine
    assert machine.pager.count > 30
    assert machine.count() == 60
    assert len(machine.jobs) == 60 - machine.pager.count
    later = node.add(b"later").id
    node.journal.commit()
    got: list[bytes] = []
    while (job := machine.take(queue_of(node), node.now)) is not None:
        assert node.body(job) == (b"later" if job.id == later else b"%d" % len(got))
        got.append(job.id)
        assert machine.acknowledge(job.id)
    assert got == [*ids, later]
    assert machine.count() == machine.pager.count == 0
    assert not machine.pager.pages


def test_looking_takes_nothing_in_what_is_paged_out(tmp_path: Path) -> None:
    node, ids = filled(tmp_path)
    queue = queue_of(node)
    assert ids_of(queue.newest(60)) == ids[::-1]
    count = node.machine.pager.count
    assert ids_of(node.machine.jobs_after(0, 25)) == ids[:25]
    assert (
        ids_of(node.machine.jobs_after(node.machine.jobs_after(0, 25)[-1].created, 99)) == ids[25:]
    )
    assert node.machine.pager.count == count
    assert ids_of(queue.oldest(60)) == ids


def test_a_job_that_is_paged_out_is_found_by_its_id(tmp_path: Path) -> None:
    node, ids = filled(tmp_path)
    machine = node.machine
    inside = [each for each in ids if each not in machine.jobs]
    first, second, *_ = inside
    assert machine.acknowledge(first)
    assert not machine.acknowledge(first)
    job = present(machine.find(second))
    assert node.body(job) == b"%d" % ids.index(second)
    machine.delete(job)
    assert machine.find(b"D-00000000-" + b"x" * 24 + b"-05a1") is None
    assert ids_of(queue_of(node).oldest(99)) == [
        each for each in ids if each not in (first, second)
    ]


def test_jobs_are_named_at_a_cost_that_does_not_grow_with_the_pages(tmp_path: Path) -> None:
    """Though each page may have jobs of all times, as those have that came back."""
    node, ids = filled(tmp_path, 800)
    pager = node.machine.pager
    pager.mark(len(pager.unmarked))
    assert len(pager.pages) > 100
    named = [*ids[100:300:50], b"D-00000000-LYyQMK4fgYJLigrQnwiD1GW2-05a1"]
    before = int(pager.compared)
    found = pager.having(b"q", 0, 1 << 62, named)
    assert pager.compared - before <= 2 * len(named)
    assert sorted(each for _, groups in found for group in groups for each in group.ids) == sorted(
        named[:-1]
    )
    assert pager.having(b"other", 0, 1 << 62, named) == []


def test_a_scan_has_no_more_of_pages_than_it_asks_for(tmp_path: Path) -> None:
    node, ids = filled(tmp_path, 200)
    pager = node.machine.pager
    pager.find(ids[50])
    seen: list[bytes] = []
    created = 0
    while jobs := pager.after(created, 7):
        assert len(jobs) <= 7
        seen += ids_of(jobs)
        created = int(jobs[-1].created)
    assert seen == [each for each in ids if each not in node.machine.jobs]
    assert pager.count == len(seen)
    # It asks an order that is kept, and does not put all pages in order each time.
    assert pager.starts == sorted((page.first, page.number) for page in pager.pages)
    assert len(pager.starts) > 2


def test_the_time_of_a_job_that_is_paged_out_ends(node: Node) -> None:
    for number in range(60):
        node.machine.add(queue_of(node), b"%d" % number, node.now, ttl=10 + number % 2 * 1000)
    pages_out(node)
    assert node.machine.pager.count
    node.now += 12
    for _ in range(100):
        node.machine.tick(node.now)
        node.now += 0.11
    assert queue_of(node).depth == 30
    assert queue_of(node, b"q!dead").depth == 30


@pytest.mark.parametrize("has_more", [False, True])
def test_a_restart_pages_out_what_it_need_not_know(tmp_path: Path, has_more: bool) -> None:
    node, ids = filled(tmp_path)
    machine = node.machine
    for _ in range(5):
        job = present(machine.take(queue_of(node), node.now))
        machine.acknowledge(job.id)
    job = present(machine.take(queue_of(node), node.now))
    machine.nack(job, node.now)
    if has_more:
        ids.append(node.add(b"60").id)
    node.journal.commit()
    whole = again(node, 2048)
    assert whole.machine.count() == len(ids) - 5
    assert whole.machine.pager.count == 0, "pages have 2048 jobs"
    found = again(whole)
    assert found.machine.pager.count > 40
    assert ids_of(queue_of(found).oldest(99)) == ids[5:]
    fresh = found.add(b"fresh")
    assert fresh.serial > max(int(each.serial) for each in queue_of(found).oldest(99)[:-1])


def test_jobs_of_one_pass_are_pages_after_a_restart_each_as_it_was(node: Node) -> None:
    """Alike, and between them some that are not, are gone, or are of another queue or class."""
    ids: dict[bytes, list[bytes]] = {b"q": [], b"other": []}
    details: dict[bytes, tuple[bytes, int, int, int]] = {}
    for number in range(90):
        name = b"other" if number in {7, 8, 61} else b"q"
        ttl = 3600 if number // 10 == 3 else -1
        body = b"b" * (number % 30 == 0) + b"%02d" % number
        retry, delay = (0 if number == 50 else -1), (1000 if number == 41 else 0)
        job = node.add(body, name, ttl=ttl, retry=retry, delay=delay)
        if number in {20, 21, 55}:
            node.machine.delete(job)
            continue
        details[job.id] = body, int(job.ttl), int(job.retry), int(job.created)
        if number != 41:
            ids[name].append(job.id)
    node.journal.commit()
    node = again(node)
    assert node.machine.pager.count > 60
    assert node.machine.count() == 87
    for name, wanted in ids.items():
        found = queue_of(node, name).oldest(99)
        assert ids_of(found) == wanted
        for job in found:
            assert (node.body(job), job.ttl, job.retry, job.created) == details[job.id]
    assert sum(job.is_delayed for job in node.machine.jobs.values()) == 1


def test_a_segment_is_cleaned_of_jobs_that_are_paged_out(tmp_path: Path) -> None:
    node, _ = filled(tmp_path)
    pager = node.machine.pager
    segment = present(node.segments.last)
    page = present(pager.in_segment(segment.number))
    pager.scatter(page)
    assert pager.in_segment(segment.number - 1) is None


@settings(max_examples=25, deadline=None)
@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(
                [
                    "add",
                    "many",
                    "some",
                    "keyed",
                    "take",
                    "nack",
                    "ack",
                    "back",
                    "named",
                    "page",
                    "restart",
                    "window",
                ]
            ),
            st.integers(0, 60),
        ),
        min_size=20,
        max_size=120,
    )
)
@example(steps=[("add", 0)] * 13 + [("keyed", 1)] + [("add", 0)] * 5 + [("restart", 1)])
def test_pages_change_nothing(steps: list[Step], tmp_path_factory: pytest.TempPathFactory) -> None:
    """The same steps with pages and indexes of segments, and without: the same jobs in the same order, and keys."""
    plain = Node(tmp_path_factory.mktemp("plain"), seed=1)
    other = paged(tmp_path_factory.mktemp("paged"))
    other.journal.segment_size = 1500
    for name, number in [("add", 0)] * 30 + steps:
        results = [does(node, name, number) for node in (plain, other)]
        assert results[0] == results[1]
        if name == "page":
            pages_out(other)
        elif name == "restart":
            for node in (plain, other):
                node.journal.commit()
                node.segments.close()
            if number % 3:
                other.index()
            plain = Node(plain.folder, plain.now + 1, seed=plain.seed + 1)
            other = again(other, page=PAGE if number % 2 else 2048)
            other.journal.segment_size = 1500
            live = [(each.live, each.live_bytes) for each in other.segments.all.values()]
            gone = [known.job for known in plain.machine.keys.values() if known.job.is_gone]
            assert sum(each[0] for each in live) == plain.machine.count() + len(gone)
            assert sum(each[1] for each in live) == sum(
                job.size for job in [*plain.machine.jobs.values(), *gone]
            )
        for node in (plain, other):
            node.now += 0.01
    assert ids_of(queue_of(plain).oldest(999)) == ids_of(queue_of(other).oldest(999))


def does(node: Node, name: str, number: int) -> object:
    """One step, and what is seen of it."""
    machine: JobMachine = node.machine
    if name == "add":
        node.journal.commit()
        return node.add(b"%d" % number, retry=5).id
    if name in {"many", "some"}:  # of one pass, with what happens to them in it
        node.journal.commit()
        ids = [node.add(b"%d" % (number % 9), retry=5, ttl=6000 + each // 7) for each in range(9)]
        if name == "some":
            machine.acknowledge(ids[number % 9].id)
        return ids_of(ids)
    if name == "keyed":
        keys = [b"key-%d" % (number * each % 97) for each in range(9)]
        return [node.add(b"k" * (number % 3), key=each, retry=5).id for each in keys]
    if name == "window":  # keys end; what is due then is not looked at
        node.now += 1200 + number
        for _ in range(50):
            machine.tick(node.now)
            node.now += 0.11
        return machine.count()
    if (
        name == "back"
    ):  # nobody knows better: they are older than all that is queued, and to be paged out again
        found = [machine.take(queue_of(node), node.now) for _ in range(number % 30)]
        for job in found:
            assert job is None or machine.enqueue(job, node.now)
        return [(job.id, int(job.repeats), job.key) for job in found if job is not None]
    if name in {"take", "nack", "ack"}:
        job = machine.take(queue_of(node), node.now)
        if job is None:
            return None
        act: dict[str, Callable[[], object]] = {
            "take": lambda: None,
            "nack": lambda: machine.nack(job, node.now),
            "ack": lambda: machine.acknowledge(job.id),
        }
        return job.id, node.body(job), act[name]()
    if name == "named":
        seen = machine.jobs_after(0, 999)
        return machine.acknowledge(seen[number % len(seen)].id) if seen else None
    return machine.count()


def test_jobs_that_other_nodes_have_are_not_looked_at_again_and_again(node: Node) -> None:
    for number in range(60):
        node.machine.share(node.add(b"%d" % number), 2, [1, 2])
    pages_out(node)
    pager = node.machine.pager
    assert not pager.count
    assert pager.idle_until > node.now
    assert len(queue_of(node).oldest(99)) == 60
    pager.crowded[queue_of(node)] = None
    pager.page_out(node.now)
    assert not pager.crowded


def test_jobs_that_came_back_are_paged_out_again(node: Node) -> None:
    ids = ids_of([node.add(b"%d" % number) for number in range(60)])
    machine = node.machine
    node.journal.commit()
    for job in [node.take() for _ in range(60)]:
        assert machine.enqueue(job, node.now)
    pages_out(node)
    assert machine.pager.queued > 40
    assert ids_of(queue_of(node).newest(60)) == ids[::-1]
    got = [node.take() for _ in range(60)]
    assert ids_of(got) == ids
    assert [int(job.repeats) for job in got] == [1] * 60


def test_a_key_keeps_a_second_job_out_though_its_own_is_paged_out_or_gone(node: Node) -> None:
    machine = node.machine
    keys = [b"key-%d" % number for number in range(60)]
    ids = ids_of([node.add(b"%d" % number, key=key) for number, key in enumerate(keys)])
    pages_out(node)
    assert machine.pager.count > 40
    assert len(machine.keys) == 60 - machine.pager.count
    assert [node.add(b"again", key=key).id for key in keys[20:40]] == ids[20:40]
    for job_id in ids:
        assert machine.acknowledge(job_id)
    pages_out(node)
    assert machine.count() == 0
    assert len(machine.keys) < 2 * PAGE
    node = again(node)
    machine = node.machine
    assert len(machine.keys) < PAGE
    assert [node.add(b"again", key=key).id for key in keys] == ids
    assert node.machine.count() == 0
    node.now += 4000
    while machine.next_due() <= node.now:
        machine.tick(node.now)
    assert not machine.keys
    assert not machine.pager.keyed
    assert not any(each.live for each in node.segments.all.values()), "segments wait for nothing"
    assert node.add(b"again", key=keys[0]).id != ids[0]


@pytest.mark.parametrize("is_done", [False, True])
def test_who_asks_for_known_keys_again_and_again_fills_no_memory(is_done: bool, node: Node) -> None:
    machine = node.machine
    keys = [b"key-%d" % number for number in range(120)]
    ids = ids_of([node.add(b"x", key=key) for key in keys])
    for job_id in ids if is_done else []:
        assert machine.acknowledge(job_id)
    pages_out(node)
    for _ in range(3):
        for some in range(0, 120, 10):
            found = [node.add(b"again", key=key).id for key in keys[some : some + 10]]
            assert found == ids[some : some + 10]
            pages_out(node)
    assert len(machine.keys) < 60
    assert len(machine.jobs) < 60


def test_a_job_that_somebody_counts_on_is_so_though_it_was_paged_out(node: Node) -> None:
    machine = node.machine
    jobs = [node.add(b"x") for _ in range(60)]
    vouched = {job.id for job in jobs[::3]}
    for job in jobs:
        job.is_vouched = job.id in vouched
    pages_out(node)
    assert machine.pager.count > 40
    for job_id in ids_of(jobs):
        job_again = present(machine.find(job_id))
        assert job_again.is_vouched == (job_id in vouched)


def test_the_newest_job_of_a_key_keeps_others_out_though_an_older_one_waits_still(
    node: Node,
) -> None:
    for _ in range(45):
        node.add(b"x")
    first = node.add(b"first", key=b"k").id
    for _ in range(PAGE):
        node.add(b"x")
    node.now += 3601  # the window of a key
    for _ in range(50):
        node.machine.tick(node.now)
        node.now += 0.11
    second = node.add(b"second", key=b"k").id
    assert second != first
    for _ in range(45):
        node.add(b"x")
    node.journal.commit()
    node = again(node)
    assert node.machine.pager.count > 90
    assert node.add(b"third", key=b"k").id == second


def test_a_key_that_is_paged_out_ends_though_nothing_else_happens(node: Node) -> None:
    for _ in range(30):
        node.add(b"x")
    first = node.add(b"first", key=b"k").id
    for _ in range(30):
        node.add(b"x")
    pages_out(node)
    assert first not in node.machine.jobs
    node.now += 3601
    assert node.add(b"second", key=b"k").id != first


@pytest.mark.parametrize("is_done", [True, False])
def test_a_clock_that_was_ahead_makes_no_key_that_is_paged_out_last_longer(
    node: Node, is_done: bool
) -> None:
    node.now += 365 * 86_400
    ids = ids_of([node.add(b"%d" % number, key=b"%d" % number) for number in range(60)])
    if is_done:
        for job_id in ids:
            node.machine.acknowledge(job_id)
    node.journal.commit()
    node.now -= 365 * 86_400
    node = again(node)
    pages_out(node)
    for seconds in (1800, 1700):
        node.now += seconds
        assert node.add(b"again", key=b"7").id == ids[7]
        pages_out(node)
    node.now += 200
    while node.machine.next_due() <= node.now:
        node.machine.tick(node.now)
    assert node.add(b"again", key=b"7").id != ids[7]
