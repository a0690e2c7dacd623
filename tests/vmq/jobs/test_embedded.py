"""Jobs from inside the process."""

import asyncio
from pathlib import Path

import pytest

from tests.support.until import until
from tests.vmq.jobs.serving import client_of, config_of
from vmq.broker import Broker
from vmq.config.jobs import JobOptions


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
    with pytest.raises(ValueError, match="name of a queue"):
        await broker.jobs.add("", b"x")
    async with client_of(broker) as redis:
        assert (await redis.execute_command("GETJOB", "FROM", "q"))[0][2] == b"x"
