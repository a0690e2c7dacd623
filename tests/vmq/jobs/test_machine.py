"""The machine: what each command does, and random walks against a naive model."""

import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.vmq.jobs.support import Got, House, machine_of, rules, taken
from vmq.jobs.ids import JobIds
from vmq.jobs.machine import JobMachine
from vmq.jobs.queue import ACTIVE, QUEUED, Job
from vmq.jobs.queues import JOB_BYTES, MOST_SWEPT, JobRefusedError
from vmq.jobs.rules import OFF, JobRules


@pytest.fixture
def house() -> House:
    return House()


def test_at_most_once_is_not_lost_while_nobody_had_it(house: House) -> None:
    job = house.add(retry=0, ttl=60)
    assert house.machine.dequeue(job, house.now)
    house.passes(61)
    assert (house.machine.counts.unconfirmed, house.machine.counts.dead) == (0, 1)
    assert house.machine.enqueue(job, house.now)
    assert taken(house) is job
    assert not house.machine.enqueue(job, house.now)


def test_what_one_deadline_ends_is_not_due_in_the_same_tick() -> None:
    house = House(dead_maxlen=1, dead_ttl=1)
    first = house.add(ttl=1)
    house.passes(1.25)  # a dead letter now, until one second later
    other = house.add(retry=1, ttl=1000)
    second = house.add(ttl=1)
    assert taken(house) is other
    house.now += 1.5
    house.machine.tick(
        house.now
    )  # the second dead letter puts the first one out, whose own time is over, too
    assert first.id not in house.machine.jobs
    assert (second.queue.name, other.state) == (b"q!dead", QUEUED)


def test_a_nack_gives_it_back_at_once_or_after_the_back_off(house: House) -> None:
    job = house.add()
    taken(house)
    assert house.machine.nack(job, house.now)
    assert not house.machine.nack(job, house.now)
    assert (taken(house), job.nacks) == (job, 1)
    house.rules.retry = [5, 30]
    assert house.machine.nack(job, house.now)
    assert house.take() is None
    house.passes(31)
    assert taken(house) is job


@pytest.mark.parametrize("key", [b"", b"k"])
def test_what_is_left_of_the_memory_is_enough_for_all_groups_or_for_none(key: bytes) -> None:
    machine = machine_of(lambda name: rules(groups=[] if b"@" in name else [b"mail", b"audit"]))
    queue, *queues = [machine.queue(each, 0.0) for each in (b"q", b"q@mail", b"q@audit")]
    machine.max_memory = machine.memory + 1
    machine.add(queue, bytes(200), 0.0, key=key)
    assert [each.depth for each in queues] == [1, 1]
    with pytest.raises(JobRefusedError, match="OOM"):
        machine.add(queue, bytes(200), 0.0)
    assert [each.depth for each in queues] == [1, 1]


def test_what_is_delivered_too_often_is_a_dead_letter_and_may_come_back_to_life() -> None:
    house = House(max_deliveries=3)
    job = house.add(b"poison", retry=1)
    for _ in range(3):
        assert taken(house) is job
        house.passes(1.5)
    assert house.take() is None
    dead = house.queue(b"q!dead")
    assert (job.queue, job.reason, dead.depth) == (dead, "max_deliveries", 1)
    assert job.history is not None
    assert [each.split()[1] for each in job.history] == ["retry"] * 3 + ["max_deliveries"]
    assert job.history[0].startswith("2023-11-14T22:")
    assert len({each.split()[0] for each in job.history[:3]}) == 3, "each has its own time"
    assert (house.queue().came, house.queue(b"q!dead").came) == (1, 1)
    assert house.machine.enqueue(job, house.now)
    assert (taken(house), job.deliveries, job.reason) == (job, 1, "")


def test_a_job_that_lives_too_long_is_a_dead_letter_which_has_its_time_too() -> None:
    house = House(dead_ttl=100)
    job = house.add(ttl=10)
    house.passes(11)
    assert (job.queue.name, job.reason) == (b"q!dead", "expired")
    house.passes(101)
    assert not house.machine.jobs
    assert house.machine.counts.dead_dropped == 1


def test_a_delayed_job_waits_for_its_time_and_lives_from_then(house: House) -> None:
    job = house.add(delay=50, ttl=10)
    house.passes(49.8)
    assert house.take() is None
    house.passes(0.4)
    assert house.queue().depth == 1
    house.passes(9)
    assert job.queue.name == b"q"
    house.passes(2)
    assert job.reason == "expired"


def test_a_key_keeps_a_second_job_out_longer_than_the_first_one_lives() -> None:
    house = House(key_window=60)
    job = house.add(key=b"k")
    assert house.add(key=b"k") is job
    taken(house)
    house.machine.acknowledge(job.id)
    assert house.add(key=b"k") is job
    assert house.take() is None
    house.passes(61)
    assert house.add(key=b"k") is not job


def test_refusals_say_why(house: House) -> None:
    house.machine.pause(house.queue(), True, False)
    with pytest.raises(JobRefusedError, match=r"^PAUSED"):
        house.add()
    house.machine.pause(house.queue(), False, False)
    house.add()
    with pytest.raises(JobRefusedError, match=r"^MAXLEN"):
        house.add(maxlen=1)
    house.machine.max_memory = 0
    with pytest.raises(JobRefusedError, match=r"^OOM"):
        house.add()
    house.machine.max_queues = 1
    with pytest.raises(JobRefusedError, match=r"^OOM.*queues"):
        house.queue(b"other")
    assert house.machine.counts.refused == 4


def test_memory_is_free_again_when_the_time_of_jobs_ends() -> None:
    """Of dead letters as many are kept as the queue's rules say."""
    house = House(dead_maxlen=2)
    house.machine.max_memory = 100 * JOB_BYTES
    jobs = 0
    while house.machine.memory < house.machine.max_memory:
        house.add(ttl=10)
        jobs += 1
    with pytest.raises(JobRefusedError, match=r"^OOM"):
        house.add(ttl=10)
    house.passes(11)
    assert house.machine.counts.expired == jobs
    assert house.queue(b"q!dead").depth == 2
    assert len([house.add(ttl=10) for _ in range(jobs - 4)]) == jobs - 4


def test_a_queue_that_is_paused_gives_nothing_and_takes_nothing_back(house: House) -> None:
    job = house.add(retry=5)
    house.machine.pause(house.queue(), False, True)
    assert house.take() is None
    house.machine.pause(house.queue(), True, False)
    taken(house)
    house.passes(6)
    assert job.state == ACTIVE
    house.machine.pause(house.queue(), False, False)
    house.passes(600)
    assert taken(house) is job


def test_working_postpones_until_half_of_the_time_to_live(house: House) -> None:
    job = house.add(retry=10, ttl=100)
    taken(house)
    house.passes(8)
    assert house.machine.working(job, house.now) == 10
    house.passes(8)
    assert job.state == ACTIVE
    house.passes(60)
    taken(house)
    with pytest.raises(JobRefusedError, match=r"^TOOLATE"):
        house.machine.working(job, house.now)
    other = house.add()
    with pytest.raises(JobRefusedError, match=r"^NOJOB"):
        house.machine.working(other, house.now)


def test_who_waits_longest_is_served_first_and_each_gets_what_he_asked_for(house: House) -> None:
    one, other = Got([house.queue()], 1), Got([house.queue(b"p"), house.queue()], 2)
    house.machine.wait(one.waiter, float("inf"), house.now)
    house.machine.wait(other.waiter, house.now + 5, house.now)
    jobs = [house.add() for _ in range(4)]
    house.machine.serve(house.now)
    assert one.jobs == jobs[:1]
    assert other.jobs == jobs[1:3]
    assert house.queue().depth == 1
    late = Got([house.queue(b"p")], 1)
    house.machine.wait(late.waiter, house.now + 5, house.now)
    house.passes(6)
    assert late.jobs == []
    assert house.queue(b"p").waiters is None


def test_many_queues_are_looked_at_in_turns(house: House) -> None:
    for number in range(MOST_SWEPT + 50):
        house.queue(b"%d" % number)
    house.passes(301)
    assert house.machine.drop_idle(house.now)
    assert len(house.machine.queues) == 50
    assert not house.machine.drop_idle(house.now)
    assert (len(house.machine.queues), house.machine.memory) == (0, 0)


def test_a_queue_that_nobody_uses_is_forgotten_with_its_memory(house: House) -> None:
    job = house.add()
    before = house.machine.memory
    house.queue(b"other")
    house.passes(301)
    house.machine.drop_idle(house.now)
    assert list(house.machine.queues) == [b"q"]
    assert house.machine.memory == before
    house.machine.delete(job)
    house.passes(301)
    house.machine.drop_idle(house.now)
    assert not house.machine.queues
    assert house.machine.memory == 0


def test_queues_that_are_empty_make_room_for_others(house: House) -> None:
    house.machine.max_queues = 3
    job = house.add()
    house.machine.pause(house.queue(b"paused"), True, False)
    house.queue(b"empty")
    with pytest.raises(JobRefusedError, match="too many queues"):
        house.queue(b"other")  # who was just given an empty one may add to it
    house.passes(2)
    house.queue(b"other")
    assert list(house.machine.queues) == [b"q", b"paused", b"other"]
    assert house.machine.jobs == {job.id: job}


# --- a naive model


@dataclass
class Naive:
    """A job, as simply as it can be had."""

    number: int
    priority: int
    retry: int
    expires: float
    state: str = "queued"
    due: float = 0.0
    deliveries: int = 0
    queue: str = "q"


@dataclass
class Model:
    """Jobs in a list; each question looks at all of them."""

    limit: int
    jobs: list[Naive] = field(default_factory=list)

    def take(self, now: float) -> int | None:
        found = [each for each in self.jobs if each.state == "queued" and each.queue == "q"]
        if not found:
            return None
        job = min(found, key=lambda each: (-each.priority, each.number))
        job.state = "active"
        job.deliveries += 1
        job.due = now + job.retry if job.retry else float("inf")
        return job.number

    def of(self, number: int) -> Naive | None:
        return next((each for each in self.jobs if each.number == number), None)

    def fail(self, job: Naive, now: float) -> None:
        job.state = "queued"
        if job.deliveries >= self.limit:
            self.die(job, now)

    def die(self, job: Naive, now: float) -> None:
        job.queue, job.state, job.expires = "dead", "queued", now + 14 * 86_400

    def passes(self, now: float) -> None:
        for job in list(self.jobs):
            if now >= job.expires and job.queue == "q":
                if job.state == "active" and not job.retry and job.deliveries:
                    self.jobs.remove(job)
                else:
                    self.die(job, now)
            elif job.state == "active" and job.queue == "q" and now >= job.due:
                self.fail(job, now)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), st.sampled_from([0, 2, 5, 60])),
        st.tuples(
            st.sampled_from(["take", "ack", "nack", "set_aside", "enqueue"]),
            st.integers(0, 30),
            st.just(0),
        ),
        st.tuples(st.just("pass"), st.integers(1, 40), st.just(0)),
    ),
    max_size=80,
)


@settings(max_examples=120)
@given(STEPS)
def test_it_does_what_a_naive_model_does(steps: list[tuple[str, int, int]]) -> None:
    house = House(max_deliveries=3)
    model = Model(3)
    jobs: list[Job] = []
    now = house.now
    for step, first, second in steps:
        known = jobs[first] if first < len(jobs) else None
        naive = None if known is None else model.of(first)
        if step == "add":
            jobs.append(house.add(priority=first, retry=second, ttl=50))
            model.jobs.append(Naive(len(jobs) - 1, first, second, now + 50))
        elif step == "take":
            job = house.take()
            assert (None if job is None else jobs.index(job)) == model.take(now)
        elif step == "pass":
            for _ in range(first):  # second by second, so that both see the same order of deadlines
                now += 1
                house.passes(1 + 0.2)
                house.now = now
                model.passes(now)
        elif known is None:
            continue
        elif step == "ack":
            assert house.machine.acknowledge(known.id) is (naive is not None)
            if naive is not None:
                model.jobs.remove(naive)
        elif naive is None or naive.queue == "dead":
            continue
        elif step == "nack":
            is_due = naive.state == "active" and naive.retry > 0
            assert house.machine.nack(known, now) is is_due
            if is_due:
                model.fail(naive, now)
        elif step == "set_aside":
            assert house.machine.dequeue(known, now) is (naive.state == "queued")
            if naive.state == "queued":
                naive.state = "active"
                naive.due = now + naive.retry if naive.retry else float("inf")
        else:
            is_due = naive.state == "active" and not (naive.deliveries and not naive.retry)
            assert house.machine.enqueue(known, now) is is_due
            if is_due:
                naive.state = "queued"
        queued = [each for each in model.jobs if each.state == "queued" and each.queue == "q"]
        queued.sort(key=lambda each: (-each.priority, each.number))
        order = [jobs[each.number] for each in queued]
        for count in (2, 100):
            assert house.queue().oldest(count) == order[:count]
            assert house.queue().newest(count) == order[::-1][:count]
        assert house.queue().depth == len(queued)
        assert {jobs.index(each) for each in house.machine.jobs.values()} == {
            each.number for each in model.jobs
        }


def test_memory_of_many_queues_of_one_job() -> None:
    """100,000 queues with a job each: 1.5 KiB a queue, of which this counts what Python allocates for 10,000."""
    import gc
    import tracemalloc

    house = House(persistence=OFF)
    machine = JobMachine(JobIds(b"00000000", random.Random(1).randbytes), lambda _name: house.rules)
    gc.collect()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(10_000):
            queue = machine.queue(b"queue-%08d" % number, 1.0)
            machine.add(queue, b"x" * 16, 1.0 + number / 1000)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used / 10_000 < 1536 or not machine_is_compiled()


def machine_is_compiled() -> bool:
    """Interpreted objects have a dictionary each, and that is not what the promise is of."""
    import vmq.jobs.machine

    return not (vmq.jobs.machine.__file__ or "").endswith(".py")


def test_rules_are_asked_for_once_a_queue() -> None:
    asked: list[bytes] = []

    def of(name: bytes) -> JobRules:
        asked.append(name)
        return JobRules()

    machine = machine_of(of)
    for _ in range(3):
        machine.queue(b"a", 1.0)
    assert asked == [b"a"]


def test_a_released_key_keeps_nobody_out() -> None:
    machine = machine_of(lambda _: rules(key_window=10))
    queue, other = machine.queue(b"q", 0.0), machine.queue(b"other", 0.0)
    first = machine.add(queue, b"x", 0.0, key=b"\0session-1")
    assert (
        machine.add(other, b"y", 0.0, key=b"\0session-1") is first
    )  # it is the session's, not the queue's
    machine.acknowledge(first.id)
    machine.tick(100.0)
    assert (
        machine.add(queue, b"x", 100.0, key=b"\0session-1") is first
    )  # longer than the queue's window
    assert machine.release_key(b"\0session-1")
    assert not machine.release_key(b"\0session-1")
    assert machine.add(queue, b"x", 100.0, key=b"\0session-1") is not first
