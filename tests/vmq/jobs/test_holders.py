"""Jobs of workers whose connection shows that they live."""

import pytest

from tests.support.present import present
from tests.vmq.jobs.support import machine_of, rules
from vmq.jobs.machine import JobMachine
from vmq.jobs.queue import Job, JobHolder, JobQueue


class Holder(JobHolder):
    """Is at its jobs until it says otherwise."""

    def __init__(self) -> None:
        self.is_at_it = True
        self.let: list[Job] = []

    def keeps(self, job: Job, now: float) -> bool:
        return self.is_at_it

    def let_go(self, job: Job) -> None:
        self.let.append(job)


def held(retry: int = 10, **changes: object) -> tuple[JobMachine, JobQueue, Job, Holder]:
    """A machine with one job that a holder has."""
    machine = machine_of(lambda _: rules(retry=[retry], **changes))
    queue = machine.queue(b"q", 0.0)
    machine.add(queue, b"x", 0.0)
    job = present(machine.take(queue, 0.0))
    holder = Holder()
    machine.hold(job, holder)
    return machine, queue, job, holder


def test_retry_begins_anew_while_its_holder_is_at_it() -> None:
    machine, queue, job, holder = held()
    for now in (10.2, 20.6, 31.0):
        machine.tick(now)
        assert queue.depth == 0
    holder.is_at_it = False
    machine.tick(41.5)
    assert (queue.depth, job.repeats, holder.let) == (1, 1, [job])
    assert not machine.holders


def test_a_time_to_live_ends_whoever_is_at_it() -> None:
    machine, _, job, holder = held(ttl=15)
    machine.tick(10.2)
    machine.tick(15.2)
    assert (job.reason, holder.let) == ("expired", [job])


@pytest.mark.parametrize("what", ["acknowledge", "nack", "delete", "enqueue"])
def test_a_holder_is_told_of_each_end(what: str) -> None:
    machine, _, job, holder = held()
    if what == "acknowledge":
        machine.acknowledge(job.id)
    elif what == "delete":
        machine.delete(job)
    else:
        getattr(machine, what)(job, 1.0)
    assert holder.let == [job]
    assert not machine.holders


def test_a_job_whose_worker_is_lost_waits_the_longer_the_oftener_that_happened() -> None:
    machine, queue, job, _ = held(retry=6, max_deliveries=7)
    machine.lose(job, 0.0)
    assert queue.depth == 1  # at once
    now = 0.0
    for wait in (1, 2, 4, 6, 6):
        assert machine.take(queue, now) is job
        machine.lose(job, now)
        assert queue.depth == 0
        machine.tick(now + wait - 0.3)
        assert queue.depth == 0
        now += wait + 0.2
        machine.tick(now)
        assert queue.depth == 1
    machine.take(queue, now)
    machine.lose(job, now)
    machine.tick(now + 6.2)
    assert (job.reason, machine.counts.lost) == ("max_deliveries", 7)


def test_a_job_at_most_once_is_gone_with_its_worker() -> None:
    machine = machine_of(lambda _: rules())
    queue = machine.queue(b"q", 0.0)
    machine.add(queue, b"x", 0.0, retry=0)
    job = present(machine.take(queue, 0.0))
    machine.lose(job, 0.0)
    assert (len(machine.jobs), machine.counts.unconfirmed) == (0, 1)
