"""Jobs out of one broker and into another."""

from pathlib import Path

import msgspec
import pytest

from tests.vmq.jobs.serving import config_of, machine
from vmq.admin.jobs.dump import DumpedJob, dump, load
from vmq.broker import Broker


async def dumped(folder: Path) -> list[DumpedJob]:
    """A queued job and a dead letter, with a key each."""
    async with Broker(config_of(folder)) as broker:
        for key in ("living", "dead"):
            await broker.jobs.add("mail", b"x", key=key)
        jobs = machine(broker)
        (_, letter) = jobs.jobs.values()
        jobs.bury(letter, "a test", broker.jobs.open().core.clock())
        return dump(broker, 0).jobs


async def test_a_key_keeps_others_out_where_its_job_comes(tmp_path: Path) -> None:
    found = await dumped(tmp_path / "one")
    config = config_of(tmp_path / "two")
    async with Broker(config) as broker:
        assert (await load(broker, found)).loaded == 2
        for job, key in zip(found, ("living", "dead"), strict=True):
            assert await broker.jobs.add("mail", b"y", key=key) == job.id
        assert len(machine(broker).jobs) == 2
        machine(broker).acknowledge(found[0].id.encode())
        assert await broker.jobs.add("mail", b"y", key="living") == found[0].id
    async with Broker(config) as broker:
        assert await broker.jobs.add("mail", b"y", key="living") == found[0].id
        assert await broker.jobs.add("mail", b"y", key="dead") == found[1].id


async def test_a_key_keeps_nobody_out_whose_window_is_over_or_that_another_has(
    tmp_path: Path,
) -> None:
    first, second = await dumped(tmp_path / "one")
    async with Broker(config_of(tmp_path / "two")) as broker:
        own = await broker.jobs.add("mail", b"own", key="dead")
        old = msgspec.structs.replace(first, created=first.created - 3_601 * 10**9)
        assert (await load(broker, [old, second])).loaded == 2
        assert await broker.jobs.add("mail", b"y", key="dead") == own
        assert await broker.jobs.add("mail", b"y", key="living") != old.id


@pytest.mark.parametrize("name", [b"a\\xzz", b"\\x41", "é".encode() + b"\xff\\n"])
async def test_a_queue_keeps_its_name(tmp_path: Path, name: bytes) -> None:
    async with Broker(config_of(tmp_path / "one")) as broker:
        jobs, now = broker.jobs.open().machine, broker.jobs.open().core.clock()
        jobs.add(jobs.queue(name, now), b"x", now)
        found = dump(broker, 0).jobs
    async with Broker(config_of(tmp_path / "two")) as broker:
        await load(broker, found)
        assert list(machine(broker).queues) == [name]
