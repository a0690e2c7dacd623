"""Jobs from inside the process."""

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from tests.support.until import until
from tests.vmq.jobs.serving import client_of, config_of
from vmq.broker import Broker
from vmq.config.jobs import JobOptions
from vmq.jobs.queue import ACTIVE


async def test_what_is_added_is_taken_and_done_once(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path, jobs={"*": JobOptions(persistence="fsync")})) as broker:
        ids = [await broker.jobs.add("mail", b"%d" % number) for number in range(10)]
        done: list[str] = []
        async for job in broker.jobs.take("mail", workers=3):
            assert job.queue == "mail"
            done.append(job.id)
            await job.ack()
            if len(done) == 10:
                break
        assert done == ids
        assert not broker.jobs.open().machine.jobs
    async with Broker(config_of(tmp_path)) as broker:
        assert not broker.jobs.open().machine.jobs


async def test_no_more_are_under_way_than_there_are_workers(broker: Broker) -> None:
    async with broker.jobs.taking("q", workers=2) as jobs:
        for _ in range(5):
            await broker.jobs.add("q", b"x")
        first, second = await anext(jobs), await anext(jobs)
        machine = broker.jobs.open().machine
        assert machine.queues[b"q"].depth == 3
        await second.nack()
        again = await anext(jobs)
        assert (again.id, again.deliveries) == (second.id, 2)
        assert first.working() == 300
        await first.ack()
        with pytest.raises(ValueError, match="NOJOB"):
            first.working()
    # What it was given and did not look at is there for others.
    await until(lambda: machine.queues[b"q"].depth == 3)
    assert machine.queues[b"q"].waiters is None


@pytest.mark.parametrize("persistence", ["os", "off"])
async def test_what_nobody_looked_at_is_where_it_was_and_was_not_delivered(
    tmp_path: Path, persistence: Literal["os", "off"]
) -> None:
    options = JobOptions(max_deliveries=2, persistence=persistence)
    config = config_of(tmp_path, jobs={"*": options})
    async with Broker(config) as broker:
        for number in range(4):
            await broker.jobs.add("mail", b"%d" % number)
        for _ in range(3):  # oftener than `max_deliveries`
            async with broker.jobs.taking("mail", workers=4) as jobs:
                pass
        async with broker.jobs.taking("mail", workers=4) as jobs:
            first = await anext(jobs)
            assert (first.body, first.deliveries) == (b"0", 1)
        machine = broker.jobs.open().machine
        left = machine.queues[b"mail"].oldest(9)
        assert [(job.body, job.deliveries, job.repeats) for job in left] == [
            *((b"1", 0, 0), (b"2", 0, 0), (b"3", 0, 0))
        ]
        for job in left:
            machine.bury(job, "a test", 1.0)
        async with broker.jobs.taking("mail!dead", workers=4) as jobs:
            assert (await anext(jobs)).body == b"1"
        assert machine.queues[b"mail"].depth == 0
        assert [job.body for job in machine.queues[b"mail!dead"].oldest(9)] == [b"2", b"3"]
    if persistence == "off":
        return
    async with Broker(config) as broker:
        found = broker.jobs.open().machine.queues[b"mail!dead"].oldest(9)
        assert [(int(job.deliveries), int(job.repeats)) for job in found] == [(0, 0), (0, 0)]


async def test_what_others_have_by_now_stays_theirs(broker: Broker) -> None:
    """Its RETRY was over before the block that had it came to it."""
    await broker.jobs.add("q", b"x")
    await broker.jobs.add("q", b"y")
    service = broker.jobs.open()
    now = service.core.clock()
    async with broker.jobs.taking("q", workers=2) as jobs:
        await anext(jobs)
        job = next(each for each in service.machine.jobs.values() if each.body == b"y")
        service.machine.come_again(job, now)
        assert service.machine.take(job.queue, now) is job
    assert (job.state, job.deliveries) == (ACTIVE, 2)


async def test_a_worker_ends_with_the_broker(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker:

        async def work() -> int:
            return len([job.id async for job in broker.jobs.take("q")])

        worker = asyncio.create_task(work())
        await until(lambda: broker.jobs.open().takings)
    async with asyncio.timeout(30):
        assert await worker == 0


async def test_options_and_refusals(broker: Broker) -> None:
    job_id = await broker.jobs.add("q", b"x", key="k", ttl=60, retry=5, priority=3)
    assert await broker.jobs.add("q", b"y", key="k") == job_id
    with pytest.raises(ValueError, match=r"^MAXLEN"):
        await broker.jobs.add("q", b"x", maxlen=1)
    with pytest.raises(ValueError, match=r"^TOOBIG"):
        await broker.jobs.add("q", bytes(2_000_000))
    broker.jobs.open().machine.queue(b"orders", 0.0).rules.groups = [b"mail"]
    with pytest.raises(ValueError, match="take from orders@mail"):
        await anext(broker.jobs.take("orders"))
    with pytest.raises(ValueError, match="name of a queue"):
        await broker.jobs.add("", b"x")
    async with client_of(broker) as redis:
        assert (await redis.execute_command("GETJOB", "FROM", "q"))[0][2] == b"x"


async def test_a_worker_that_was_refused_its_queue_has_it_once_there_is_room(
    broker: Broker,
) -> None:
    machine = broker.jobs.open().machine
    machine.max_queues = 0
    async with broker.jobs.taking("q") as jobs:
        assert not machine.queues
        machine.max_queues = 1
        await broker.jobs.add("q", b"x")
        async with asyncio.timeout(60):
            assert (await anext(jobs)).body == b"x"
