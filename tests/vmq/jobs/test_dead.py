"""Dead letters: what goes back to its queue, what does not, and which of them there is no room for."""

from typing import Any

import pytest

from tests.vmq.jobs.serving import machine
from tests.vmq.jobs.support import House, taken
from tests.vmq.jobs.test_holders import Holder
from vmq.admin.errors import NotFoundError, RefusedError
from vmq.admin.jobs.queues import delete, retry, show_queue
from vmq.broker import Broker
from vmq.jobs.queue import ACKED, ACTIVE, QUEUED, JobCopies
from vmq.jobs.queues import JobRefusedError


def test_of_a_dead_letter_that_is_done_nothing_goes_back() -> None:
    """In a cluster this is left of it until all nodes know that it is done."""
    house = House()
    job = house.add(b"x", ttl=1)
    house.passes(1.25)
    assert job.queue.is_dead
    job.copies = JobCopies(2, [1, 2])
    house.machine.entomb(job)
    for _ in range(2):
        assert not house.machine.enqueue(job, house.now)
    assert (job.state, job.queue.name, house.queue().depth) == (ACKED, b"q!dead", 0)


def test_whoever_has_a_dead_letter_is_told_that_it_went_back() -> None:
    house = House(max_deliveries=1)
    job = house.add()
    taken(house)
    assert house.machine.nack(job, house.now)
    assert house.take(b"q!dead") is job
    first, second = Holder(), Holder()
    house.machine.hold(job, first)
    assert house.machine.enqueue(job, house.now)
    assert first.let == [job]
    assert taken(house) is job
    house.machine.hold(job, second)
    assert house.machine.holders == {job.id: second}


def test_a_dead_letter_stays_where_it_is_while_its_queue_cannot_be_made() -> None:
    house = House()
    job = house.add(ttl=1)
    house.passes(1.25)
    house.passes(400)
    house.machine.drop_idle(house.now)
    assert list(house.machine.queues) == [b"q!dead"]
    house.machine.max_queues = 1
    for _ in range(2):
        with pytest.raises(JobRefusedError, match="too many queues"):
            house.machine.enqueue(job, house.now)
        assert (job.state, house.queue(b"q!dead").depth, job.reason) == (QUEUED, 1, "expired")
    assert house.take(b"q!dead") is job
    with pytest.raises(JobRefusedError, match="too many queues"):
        house.machine.enqueue(job, house.now)
    assert (job.state, job.queue.name) == (ACTIVE, b"q!dead")
    house.machine.max_queues = 2
    assert house.machine.enqueue(job, house.now)
    assert taken(house) is job


async def test_for_clients_and_operators_it_is_a_job_that_is_not_there(
    broker: Broker, redis: Any
) -> None:
    job_id = await redis.execute_command("ADDJOB", "mail", "x", 0)
    jobs = machine(broker)
    job = jobs.jobs[job_id]
    jobs.bury(job, "a test", broker.jobs.open().core.clock())
    job.copies = JobCopies(2, [1, 2])
    jobs.entomb(job)
    assert await redis.execute_command("ENQUEUE", job_id) == 0
    assert await redis.execute_command("DELJOB", job_id, job_id) == 0
    for change in (retry(broker, "", job_id.decode(), ""), delete(broker, job_id.decode())):
        with pytest.raises(NotFoundError, match="it was done"):
            await change
    assert job.state == ACKED
    other = await redis.execute_command("ADDJOB", "mail", "x", 0)
    assert await redis.execute_command("DELJOB", other, other) == 1


async def test_an_operator_is_told_why_none_goes_back(broker: Broker, redis: Any) -> None:
    job_id = await redis.execute_command("ADDJOB", "mail", "x", 0)
    jobs = machine(broker)
    now = broker.jobs.open().core.clock()
    jobs.bury(jobs.jobs[job_id], "a test", now)
    jobs.drop_idle(now + 400)
    jobs.max_queues = 1
    for queue, one in (("", job_id.decode()), ("mail", "")):
        with pytest.raises(RefusedError, match="too many queues"):
            await retry(broker, queue, one, "")
    assert (await show_queue(broker, "mail!dead", "")).depth == 1
    jobs.max_queues = 2
    assert (await retry(broker, "mail", "", "")).jobs == 1


def test_the_oldest_goes_where_there_is_no_room_whatever_its_priority() -> None:
    house = House(dead_maxlen=2)
    for number, priority in enumerate((0, 0, 9, 5), 1):
        house.add(b"%d" % number, priority=priority, ttl=number)
        house.now += 0.001
    house.passes(5)
    assert [job.body for job in house.queue(b"q!dead").oldest(9)] == [b"3", b"4"]
    assert house.machine.counts.dead_dropped == 2
