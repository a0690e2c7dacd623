"""DEBUG FLUSHALL deletes all jobs of a mountpoint, some a turn."""

import asyncio
from pathlib import Path

from tests.vmq.jobs.paging.test_pager import PAGE, filled, pages_out, queue_of
from tests.vmq.jobs.serving import client_of, config_of
from vmq.broker import Broker
from vmq.jobs.resp.flushing import JobFlush


def test_a_turn_deletes_some_and_what_comes_meanwhile_stays(tmp_path: Path) -> None:
    """Also if it is paged out meanwhile, and what was there before is paged in for a worker."""
    node, ids = filled(tmp_path)
    machine, limit = node.machine, 2 * PAGE
    assert machine.pager.count > len(ids) // 2
    taken = machine.take(queue_of(node), node.now)
    assert taken is not None
    flush = JobFlush(machine, b"", node.now)
    new: list[bytes] = []
    turns = 0
    goes_on = True
    while goes_on:
        before = int(machine.counts.deleted)
        goes_on = flush.turn(limit)
        turns += 1
        assert machine.counts.deleted - before <= limit + PAGE
        if len(new) < len(ids):
            new.extend(node.add(b"new").id for _ in range(PAGE))
            pages_out(node)
    assert turns >= len(ids) // (limit + PAGE)
    assert machine.counts.deleted == len(ids)
    assert machine.count() == len(new) > 0
    assert all(machine.find(each) is not None for each in new)


def test_queues_of_other_mountpoints_keep_their_jobs(tmp_path: Path) -> None:
    node, ids = filled(tmp_path)
    machine = node.machine
    machine.add(machine.queue(b"a\0q", node.now), b"", node.now)
    flush = JobFlush(machine, b"a\0", node.now)
    while flush.turn():
        pass
    assert machine.count() == len(ids)


async def test_the_reply_comes_when_all_are_gone_and_others_are_served_meanwhile(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path, admin=True)
    async with Broker(config) as broker, client_of(broker) as redis:
        for _ in range(24):
            await redis.execute_command("ADDJOBS", "q", 0, "JOBS", *["x"] * 1000)
        machine = broker.jobs.open().machine
        async with client_of(broker) as other:
            flushing = asyncio.create_task(redis.execute_command("DEBUG", "FLUSHALL"))
            seen = [24_000]
            while seen[-1]:
                seen.append(await other.execute_command("QLEN", "q"))
            assert any(0 < each < 24_000 for each in seen)
            assert await flushing in {True, b"OK"}
        assert machine.count() == 0
        assert await redis.execute_command("ADDJOB", "q", "x", 0)
        assert await redis.execute_command("QLEN", "q") == 1
