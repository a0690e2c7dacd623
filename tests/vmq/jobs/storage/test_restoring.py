"""Jobs on disk: what a broker has of them after its end, however it ended."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.support.forgetful_disk import ForgetfulDisk
from tests.support.present import present
from tests.vmq.jobs.storage.lives import Node, seen
from vmq.jobs.queue import ACTIVE, QUEUED, Job
from vmq.jobs.storage.journal import SegmentWalk


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_a_restart_has_every_job_as_it_was_and_bodies_stay_on_disk(tmp_path: Path) -> None:
    node = Node(tmp_path, max_deliveries=2)
    queued = node.add(b"queued", priority=3)
    taken = node.add(b"taken", b"t")
    assert node.take(b"t") is taken
    done = node.add(b"done", b"d")
    node.take(b"d")
    node.machine.acknowledge(done.id)
    delayed = node.add(b"delayed", delay=100)
    dead = node.add(b"dead", b"z", retry=1)
    for _ in range(2):
        node.take(b"z")
        node.passes(2)
    node.journal.commit()
    before = seen(node.machine)
    assert before[dead.id][0] == b"z!dead"
    node = node.again(max_deliveries=2)
    assert seen(node.machine) == before
    jobs = node.machine.jobs
    assert all(each.body is None for each in jobs.values())
    assert node.machine.memory < 6000
    assert {node.body(each) for each in jobs.values()} == {b"queued", b"taken", b"delayed", b"dead"}
    assert (jobs[queued.id].state, jobs[taken.id].state) == (QUEUED, ACTIVE)
    node.passes(90)
    assert jobs[delayed.id].is_delayed
    node.passes(10)
    assert node.machine.queues[b"q"].depth == 2
    node.passes(300)
    assert node.take(b"t").id == taken.id


def test_a_back_off_begins_anew_after_a_restart(tmp_path: Path) -> None:
    node = Node(tmp_path, retry=[5, 30])
    node.add()
    node.machine.nack(node.take(), node.now)
    node.journal.commit()
    node = node.again(retry=[5, 30])
    for seconds, depth in ((4, 0), (4, 1)):
        node.passes(seconds)
        assert node.machine.queues[b"q"].depth == depth


def test_without_persistence_nothing_is_written(tmp_path: Path) -> None:
    node = Node(tmp_path, persistence=0)
    job = node.add()
    node.take()
    node.machine.acknowledge(job.id)
    assert not node.journal.commit()
    assert not list(tmp_path.glob("*.jobs"))


def test_only_fsync_asks_for_a_sync(tmp_path: Path) -> None:
    for persistence in (1, 2):
        node = Node(tmp_path / str(persistence), persistence=persistence)
        job = node.add()
        assert node.journal.commit() is (persistence == 2)
        node.machine.acknowledge(job.id)
        assert node.journal.commit() is (persistence == 2)
        assert not node.journal.commit()


@pytest.mark.parametrize("is_there", [True, False])
def test_what_a_failed_sync_was_to_take_is_written_again_or_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    disk = ForgetfulDisk(monkeypatch)
    node = Node(tmp_path, persistence=2)
    node.add()
    node.journal.commit()
    node.journal.sync()
    node.add(b"lost")
    node.journal.commit()
    disk.fails = True
    for sync in (node.journal.sync, node.segments.begin):
        with pytest.raises(OSError, match="Input/output error"):
            sync()
    disk.fails = False
    path = present(node.segments.last).path
    if not is_there:  # memory was short, and the disk has what was there before
        path.write_bytes(path.read_bytes().replace(b"lost", b"\0" * 4))
        with pytest.raises(OSError, match="is damaged behind"):
            node.journal.sync()
        return
    node.add()
    node.journal.commit()
    node.journal.sync()
    assert disk.is_whole
    assert len(seen(node.again().machine)) == 3


@pytest.mark.parametrize("refused", ["writev", "fsync"])
def test_a_segment_that_cannot_begin_begins_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    """A disk that is full just then: what is acknowledged later is in a file with its header."""
    node = Node(tmp_path)
    node.journal.segment_size = 1
    first = node.add(b"first")
    node.journal.commit()
    second = node.add(b"second")
    with monkeypatch.context() as patch:

        def refuse(*_: object) -> None:
            raise OSError(28, "No space left on device")

        patch.setattr(f"vmq.jobs.storage.segments.os.{refused}", refuse)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                node.journal.commit()
        assert len(node.segments.all) == len(list(tmp_path.glob("*.jobs"))) == 1
    node.journal.commit()
    assert node.body(second) == b"second"
    node = node.again()
    assert set(node.machine.jobs) == {first.id, second.id}
    assert not node.damaged


@pytest.mark.parametrize("cut", [1, 5, 30, 200])
def test_a_torn_end_is_cut_off_and_what_was_before_it_is_there(
    tmp_path: Path, cut: int, node: Node
) -> None:
    first = node.add(b"a" * 100)
    node.journal.commit()
    node.add(b"b" * 300)
    node.journal.commit()
    path = next(tmp_path.glob("*.jobs"))
    data = path.read_bytes()
    node.segments.close()
    path.write_bytes(data[:-cut])
    node = Node(tmp_path, node.now)
    assert list(node.machine.jobs) == [first.id]
    assert node.damaged == []
    later = node.add(b"later")
    node.journal.commit()
    node = node.again()
    assert set(node.machine.jobs) == {first.id, later.id}
    assert node.damaged == []


def test_a_body_that_was_not_written_whole_is_no_job(tmp_path: Path, node: Node) -> None:
    """After a loss of power a file may have its length and not its bytes."""
    node.add(b"b" * 300)
    node.journal.commit()
    node.segments.close()
    path = next(tmp_path.glob("*.jobs"))
    path.write_bytes(path.read_bytes()[:-100] + bytes(100))
    assert not Node(tmp_path, node.now).machine.jobs


@pytest.mark.parametrize("retry", [0, 60])
def test_what_did_not_go_to_another_node_is_queued_after_a_restart(node: Node, retry: int) -> None:
    job = node.add(retry=retry)
    node.journal.commit()
    machine = node.machine
    assert machine.hand_out(job.queue, 1) == [job]
    machine.put_back(job, node.now)
    node.journal.commit()
    state = seen(machine)
    node = node.again()
    assert seen(node.machine) == state
    assert node.take().id == job.id


@pytest.mark.parametrize("is_done", [True, False])
def test_a_clock_that_was_ahead_makes_no_key_last_longer(node: Node, is_done: bool) -> None:
    node.now += 365 * 86_400
    job = node.add(key=b"k")
    if is_done:
        node.machine.acknowledge(job.id)
    node.journal.commit()
    node.now -= 365 * 86_400
    node = node.again()
    assert node.add(key=b"k").id == job.id
    node.passes(3601)
    assert node.add(key=b"k").id != job.id


def test_bodies_leave_memory_once_they_are_written(node: Node) -> None:
    node.journal.keeps_bodies = False
    job = node.add(b"x" * 1000)
    assert job.size == 1000
    node.journal.commit()
    assert job.body is None
    assert node.journal.spilled == 1000
    assert node.body(job) == b"x" * 1000


def test_a_clock_that_jumped_ends_no_job_before_one_more_retry(node: Node) -> None:
    job = node.add(retry=60, ttl=3600)
    node.journal.commit()
    node.now += 10 * 365 * 86_400
    node = node.again()
    assert node.machine.jobs[job.id].queue.name == b"q"
    node.passes(59)
    assert node.machine.queues[b"q"].depth == 1


def test_a_clock_that_is_set_back_delays_no_job_for_longer_than_it_was_to_wait(node: Node) -> None:
    node.add(delay=60, ttl=3600)
    node.journal.commit()
    node.now -= 900
    node = node.again()
    node.passes(59)
    assert node.machine.queues[b"q"].depth == 0
    node.passes(2)
    assert node.machine.queues[b"q"].depth == 1


def test_segments_go_when_nothing_in_them_is_wanted_the_oldest_first(
    tmp_path: Path, node: Node
) -> None:
    node.journal.segment_size = 1000
    jobs = [node.add(b"x" * 900) for _ in range(4) if not node.journal.commit()]
    node.journal.commit()
    assert len(list(tmp_path.glob("*.jobs"))) == 4
    node.machine.acknowledge(jobs[1].id)
    node.journal.commit()
    files = len(list(tmp_path.glob("*.jobs")))
    assert files == 5  # the end of the second is in a fifth; the first is still wanted
    node.machine.acknowledge(jobs[0].id)
    node.journal.commit()
    assert jobs[1].id not in node.again().machine.jobs
    assert len(list(tmp_path.glob("*.jobs"))) < files


def test_what_is_wanted_moves_out_of_a_segment_that_holds_little(node: Node) -> None:
    node.journal.segment_size = 1000
    stays = node.add(b"stays" * 10, retry=5)
    node.take()
    for _ in range(20):
        job = node.add(b"x" * 900)
        node.journal.commit()
        node.machine.acknowledge(job.id)
    node.journal.commit()
    assert node.journal.is_wasteful()
    before = node.segments.total()
    oldest = present(node.segments.oldest())
    node.journal.clean(SegmentWalk(node.machine).some(oldest.number, oldest.live))
    node.journal.commit()
    assert node.segments.total() < before / 5
    state = seen(node.machine)
    node = node.again()
    assert seen(node.machine) == state
    assert node.body(node.machine.jobs[stays.id]) == b"stays" * 10


@pytest.mark.parametrize("persistence", [1, 2])
def test_what_moved_is_synced_before_what_it_left_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, persistence: int
) -> None:
    node = Node(tmp_path, persistence=persistence)
    job = node.add()
    node.journal.commit()
    node.journal.segment_size = 1
    node.journal.clean([job])
    oldest = present(node.segments.oldest() or node.segments.last)
    there: list[bool] = []
    monkeypatch.setattr(
        "vmq.jobs.storage.segments.os.fdatasync", lambda _: there.append(oldest.path.exists())
    )
    node.journal.commit()
    # One sync is of the segment that ends with the beginning of the next.
    assert there == [True] * (1 + (persistence == 2))
    assert not oldest.path.exists()


WORDS = (
    "add add delayed key take take ack nack aside unseen enqueue pass commit commit restart clean "
    "delete index"
)
STEPS = st.lists(st.tuples(st.sampled_from(WORDS.split()), st.integers(0, 12)), max_size=60)


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
@example([*[("add", 5), ("commit", 0)] * 20, ("take", 0), ("commit", 0), ("index", 0), ("ack", 0)])
def test_a_restart_has_exactly_what_was_committed(
    tmp_path: Path, steps: list[tuple[str, int]]
) -> None:
    folder = tmp_path / "jobs"
    shutil.rmtree(folder, ignore_errors=True)
    node = Node(folder, max_deliveries=3)
    node.journal.segment_size = 2000
    committed: dict[bytes, tuple[object, ...]] = {}
    bodies: dict[bytes, bytes] = {}
    for step, which in steps:
        jobs = list(node.machine.jobs.values())
        job = jobs[which % len(jobs)] if jobs else None
        if step in {"add", "delayed", "key"}:
            delay = 5 if step == "delayed" else 0
            key = b"k%d" % (which % 3) if step == "key" else b""
            body = b"%d" % which * 20 * which
            added = node.add(body, ttl=60, retry=which % 4 * 3, delay=delay, key=key)
            bodies.setdefault(added.id, body)
        elif step == "commit":
            node.journal.commit()
            committed = seen(node.machine)
        elif step == "restart":
            node = node.again(max_deliveries=3)
            node.journal.segment_size = 2000
            assert seen(node.machine) == committed
            for each in node.machine.jobs.values():
                assert node.body(each) == bodies[each.id]
        elif step == "index":
            node.index()
        elif step == "clean":
            oldest = node.segments.oldest()
            if oldest is not None:
                node.journal.clean(SegmentWalk(node.machine).some(oldest.number, oldest.live))
        elif step == "pass":
            node.passes(which)
        elif step == "take":
            node.machine.take(node.machine.queue(b"q", node.now), node.now)
        elif job is None:
            continue
        elif step == "ack":
            node.machine.acknowledge(job.id)
        elif step == "delete":
            node.machine.delete(job)
        elif step == "unseen":
            if job.state == ACTIVE and job.deliveries and not job.is_delayed:
                node.machine.give_back(job, node.now)
        elif step == "nack":
            node.machine.nack(job, node.now)
        elif step == "aside":
            node.machine.dequeue(job, node.now)
        else:
            node.machine.enqueue(job, node.now)
    node.journal.commit()
    state = seen(node.machine)
    node = node.again(max_deliveries=3)
    assert seen(node.machine) == state
    node.segments.close()


ALIKE = ["as before"] * 8
KEYED = st.tuples(
    st.sampled_from([*ALIKE, "longer key", "no key", "larger", "delayed", "shared", "committed"]),
    st.sampled_from([*["waits"] * 8, "acknowledged", "taken"]),
)


def among_alike(kind: str, fate: str) -> list[tuple[str, str]]:
    """One job among some that are alike."""
    return [*[("as before", "waits")] * 8, (kind, fate), *[("as before", "waits")] * 8]


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(KEYED, max_size=40), st.sampled_from([6, 100]))
@example([("as before", "waits")] * 40, 6)
@example(among_alike("shared", "waits"), 100)
@example(among_alike("larger", "waits"), 100)
@example(among_alike("delayed", "waits"), 100)
@example(among_alike("as before", "acknowledged"), 100)
@example(among_alike("as before", "taken"), 100)
def test_jobs_with_keys_that_are_alike_are_each_as_it_was(
    tmp_path: Path, jobs: list[tuple[str, str]], page: int
) -> None:
    folder = tmp_path / "jobs"
    shutil.rmtree(folder, ignore_errors=True)
    node = Node(folder)
    added: list[tuple[Job, bytes]] = []
    for number, (kind, _) in enumerate(jobs):
        key = b"" if kind == "no key" else b"%03d" % number + b"x" * (kind == "longer key")
        body = b"%03d" % number + b"x" * (kind == "larger")
        job = node.add(body, key=key, delay=5 * (kind == "delayed"))
        if kind == "shared":
            node.machine.share(job, 2, [1, 2])
        if kind == "committed":
            node.journal.commit()
        added.append((job, body))
    for (job, _), (_, fate) in zip(added, jobs, strict=True):
        if fate == "acknowledged" and job.copies is None:
            node.machine.acknowledge(job.id)
        elif fate == "taken" and job.state == QUEUED:
            node.machine.dequeue(job, node.now)
    node.journal.commit()
    lasting = {job.id: (job.key, copied(job)) for job in node.machine.jobs.values()}
    node = node.again(page=page)
    found = {job.id: node.machine.find(job.id) for job, _ in added}
    again = {job_id: (job.key, copied(job)) for job_id, job in found.items() if job is not None}
    assert again == lasting
    for job, body in added:
        there = found[job.id]
        assert there is None or node.body(there) == body
        assert not job.key or node.add(key=job.key).id == job.id
    node.segments.close()


def copied(job: Job) -> list[int]:
    """Which nodes may have a job, as far as was said."""
    return [] if job.copies is None else list(job.copies.nodes)
