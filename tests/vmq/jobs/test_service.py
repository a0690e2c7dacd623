"""Jobs of a broker that is started again, is short of memory, or whose disk fails; groups and figures."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ConnectionError as Lost
from redis.exceptions import ResponseError

from tests.support.until import until
from tests.vmq.clustering.device import Device
from tests.vmq.jobs.serving import LOCAL, client_of, config_of
from tests.vmq.sockets import config_in
from vmq.admin.errors import RefusedError
from vmq.admin.jobs import dump, queues
from vmq.broker import Broker, StartError
from vmq.config.checks import check
from vmq.config.jobs import JobOptions
from vmq.config.options import LimitOptions, ListenerOptions
from vmq.jobs.options import AddOptions


async def test_a_pause_outlives_the_broker(tmp_path: Path, synced: list[str]) -> None:
    config = config_of(tmp_path)
    async with Broker(config) as broker, client_of(broker) as redis:
        assert await redis.execute_command("PAUSE", "q", "in") == b"in"
        assert "pauses.json.tmp" in synced, (
            "a crash leaves one or the other, and what was said holds"
        )
        assert await redis.execute_command("PAUSE", "other", "all") == b"all"
        assert await redis.execute_command("PAUSE", "other", "none") == b"none"
    async with Broker(config) as broker, client_of(broker) as redis:
        with pytest.raises(ResponseError, match="PAUSED"):
            await redis.execute_command("ADDJOB", "q", "x", 0)
        assert await redis.execute_command("PAUSE", "other", "state") == b"none"
        assert await redis.execute_command("PAUSE", "q", "none") == b"none"
    file = tmp_path / "data" / "jobs" / "pauses.json"
    assert file.read_text() == "{}"
    for wrong in ("", '{"q": 1}', '{"\u0431": [true, true]}', "[" * 100_000):
        file.write_text(wrong)
        async with Broker(config) as broker, client_of(broker) as redis:
            assert await redis.execute_command("ADDJOB", "q", "x", 0)


@pytest.mark.parametrize("persistence", ["os", "fsync"])
async def test_a_restart_has_the_jobs(tmp_path: Path, persistence: Any) -> None:
    config = config_of(
        tmp_path,
        jobs={"*": JobOptions(persistence=persistence), "m*": JobOptions(persistence="off")},
    )
    async with Broker(config) as broker, client_of(broker) as redis:
        do = redis.execute_command
        ids = [await do("ADDJOB", "q", f"body {number}", 0) for number in range(20)]
        await do("ADDJOB", "memory", "x", 0)
        await do("GETJOB", "COUNT", 5, "FROM", "q")
        await do("ACKJOB", *ids[:3])
        node = (await do("HELLO"))[1]
    async with Broker(config) as broker, client_of(broker) as redis:
        do = redis.execute_command
        assert await do("QLEN", "q") == 15
        assert await do("QLEN", "memory") == 0
        assert (await redis.info())["registered_jobs"] == 17
        assert (await do("HELLO"))[1] == node
        found = await do("GETJOB", "COUNT", 100, "FROM", "q")
        assert [each[1] for each in found] == ids[5:]
        assert found[0][2] == b"body 5"


async def test_more_jobs_than_memory_stay_on_disk_and_more_than_that_are_refused(
    tmp_path: Path,
) -> None:
    config = config_of(tmp_path, limits=LimitOptions(max_job_memory=400_000))
    async with Broker(config) as broker, client_of(broker) as redis:
        do = redis.execute_command
        body = os.urandom(10_000)
        ids = [await do("ADDJOB", "q", body, 0) for _ in range(100)]
        service = broker.jobs.open()
        assert service.machine.memory < 400_000
        small = await do("ADDJOBS", "small", 0, "JOBS", *["x"] * 500)
        refused = [each for each in small if isinstance(each, Exception)]
        assert 0 < len(refused) < 500
        assert "limits.max_job_memory" in str(refused[0])
        assert broker.condition().reasons
        found = await do("GETJOB", "COUNT", 100, "FROM", "q")
        assert [each[1] for each in found] == ids
        assert {each[2] for each in found} == {body}
        await do("ACKJOB", *ids)
        assert await do("ADDJOB", "q", "x", 0)


async def test_a_disk_that_fails_acknowledges_nothing(
    monkeypatch: pytest.MonkeyPatch, broker: Broker
) -> None:
    service = broker.jobs.open()
    append = service.segments.append

    def fail(_pieces: list[bytes]) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(service.segments, "append", fail)
    async with client_of(broker) as redis:
        with pytest.raises(Lost):
            await redis.execute_command("ADDJOB", "q", "x", 0)
    assert broker.condition().reasons == ["jobs cannot be written to disk"]
    monkeypatch.setattr(service.segments, "append", append)
    await until(lambda: not broker.condition().reasons)
    async with client_of(broker) as redis:
        assert await redis.execute_command("ADDJOB", "q", "y", 0)


async def test_a_sync_that_failed_confirms_nothing_until_one_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, jobs={"*": JobOptions(persistence="fsync")})
    async with Broker(config) as broker, client_of(broker) as redis:
        service = broker.jobs.open()
        commit = service.commit
        tries: list[bool] = []

        def fail() -> None:
            tries.append(commit.stored.reached < number)
            raise OSError(5, "Input/output error")

        number = commit.barrier()
        with monkeypatch.context() as patch:
            patch.setattr(service.segments, "sync", fail)
            with pytest.raises(Lost):
                await redis.execute_command("ADDJOB", "q", "x", 0)
            await until(lambda: len(tries) > 2)
            assert all(tries)
            assert broker.condition().reasons == ["jobs cannot be written to disk"]
        await until(lambda: not broker.condition().reasons)
        assert commit.stored.reached >= number


async def test_who_does_not_wait_for_the_disk_any_more_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(config_of(tmp_path, jobs={"*": JobOptions(persistence="fsync")})) as broker:
        commit = broker.jobs.open().commit
        with monkeypatch.context() as patch:
            patch.setattr(commit, "sync", lambda: None)
            adding = [asyncio.ensure_future(broker.jobs.add("q", b"x")) for _ in range(3)]
            await until(lambda: len(commit.touched) == 2)
            commit.synced("")
            adding[1].cancel()
            await asyncio.wait(adding[:2])
            commit.synced("")
            assert await adding[2]


async def test_nothing_is_added_while_the_broker_is_short_of_memory(
    broker: Broker, redis: Any
) -> None:
    core = broker.jobs.open().core
    core.memory_is_high = True
    with pytest.raises(ResponseError, match=r"limits.max_memory"):
        await redis.execute_command("ADDJOB", "q", "x", 0)
    refused = await redis.execute_command("ADDJOBS", "q", 0, "JOBS", "x", "y")
    assert ["limits.max_memory" in str(each) for each in refused] == [True, True]
    core.memory_is_high = False
    assert await redis.execute_command("ADDJOBS", "q", 0, "JOBS", "x", "y")


async def test_nothing_is_added_while_the_disk_is_short_and_jobs_are_taken_and_acknowledged(
    broker: Broker, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    do, service = redis.execute_command, broker.jobs.open()
    job_id = await do("ADDJOB", "q", "x", 0)
    service._look_at_disk()
    assert not broker.condition().reasons
    with monkeypatch.context() as patch:
        patch.setattr(service.core.disk_room, "lack", lambda _folder: "it is short")
        service._look_at_disk()
        reason = "jobs are refused: the disk is short of room (store.min_free_bytes)"
        assert broker.condition().reasons == [reason]
        with pytest.raises(ResponseError, match="IOERR the disk is short of room"):
            await do("ADDJOB", "q", "y", 0)
        with pytest.raises(ValueError, match="IOERR the disk is short of room"):
            await broker.jobs.add("q", b"y")
        with pytest.raises(RefusedError, match="IOERR the disk is short of room"):
            await queues.add(broker, "q", "", b"y", AddOptions(b"q"))
        with pytest.raises(RefusedError, match="IOERR the disk is short of room"):
            await dump.load(broker, dump.dump(broker, 0).jobs)
        assert await do("GETJOB", "FROM", "q") == [[b"q", job_id, b"x"]]
        assert await do("ACKJOB", job_id) == 1
    service._look_at_disk()
    assert await do("ADDJOB", "q", "y", 0)
    assert not broker.condition().reasons


async def test_the_disk_of_jobs_is_looked_at_as_much_is_written(
    broker: Broker, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = broker.jobs.open()
    monkeypatch.setattr(service.core.disk_room, "lack", lambda _folder: "it is short")
    for _ in range(6):  # 300 kB
        await redis.execute_command("ADDJOB", "q", bytes(50_000), 0)
    with pytest.raises(ResponseError, match="IOERR the disk is short of room"):
        await redis.execute_command("ADDJOB", "q", bytes(50_000), 0)


async def test_memory_that_is_used_up_still_lets_jobs_be_taken_and_acknowledged(
    broker: Broker, redis: Any
) -> None:
    do = redis.execute_command
    job_id = await do("ADDJOB", "q", "x", 0)
    machine = broker.jobs.open().machine
    machine.max_memory = machine.full_memory = machine.memory
    for command in (("ADDJOB", "q", "x", 0), ("ADDJOB", "new", "x", 0), ("GETJOB", "FROM", "new")):
        with pytest.raises(ResponseError, match="jobs have all of"):
            await do(*command)
    assert await do("GETJOB", "FROM", "q") == [[b"q", job_id, b"x"]]
    assert await do("ACKJOB", job_id) == 1


async def test_a_job_for_one_queue_too_many_is_refused_and_others_go_on(tmp_path: Path) -> None:
    config = config_of(tmp_path, limits=LimitOptions(max_job_queues=2))
    async with Broker(config) as broker, client_of(broker) as redis:
        for queue in ("a", "b"):
            await redis.execute_command("ADDJOB", queue, "x", 0)
        for command in (("ADDJOB", "c", "x", 0), ("GETJOB", "FROM", "c")):
            with pytest.raises(ResponseError, match="too many queues"):
                await redis.execute_command(*command)
        await redis.execute_command("ADDJOB", "b", "x", 0)
        assert await redis.execute_command("QLEN", "b") == 2


async def test_a_user_makes_so_many_queues_and_others_go_on(tmp_path: Path) -> None:
    config = config_of(tmp_path, limits=LimitOptions(max_job_queues_per_user=2))
    async with (
        Broker(config) as broker,
        client_of(broker) as redis,
        Device("c") as worker,
        Device("d", username="u") as other,
    ):
        made = broker.jobs.open().machine.made
        await worker.connect(broker, ("$jobs/a", 1))
        await redis.execute_command("ADDJOB", "b", "x", 0)
        assert made == {"": 2}
        for command in (("ADDJOB", "c", "x", 0), ("GETJOB", "FROM", "c"), ("PAUSE", "c", "in")):
            with pytest.raises(ResponseError, match="max_job_queues_per_user"):
                await redis.execute_command(*command)
        await other.connect(broker)
        other.publish("$jobs/c", "x", 1)
        await other.until(lambda: not other.unfinished)
        assert made == {"": 2, "u": 1}
        samples = {each.name: each.samples for each in broker.metrics.families()}
        assert [each.value for each in samples["job_queues_of_one_user"]] == [2]


async def test_a_job_that_cannot_be_read_is_given_to_nobody_and_again_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_of(tmp_path, jobs={"*": JobOptions(retry=1)})
    async with Broker(config) as broker, client_of(broker) as redis:
        ids = [await redis.execute_command("ADDJOB", "q", body, 0) for body in ("x", "y")]
    async with Broker(config) as broker, client_of(broker) as redis:  # bodies are on disk only
        do = redis.execute_command
        service = broker.jobs.open()
        read = service.segments.read

        def fail(number: int, offset: int, size: int) -> bytes:
            if service.machine.jobs[ids[0]].offset == offset:
                raise OSError("unreadable")
            return read(number, offset, size)

        with monkeypatch.context() as broken:
            broken.setattr(service.segments, "read", fail)
            with pytest.raises(ResponseError, match="IOERR"):
                await do("GETJOB", "FROM", "q")
            assert await do("GETJOB", "FROM", "q") == [[b"q", ids[1], b"y"]]
            assert await do("ACKJOB", ids[1]) == 1
        assert await do("GETJOB", "FROM", "q") == [[b"q", ids[0], b"x"]]


async def test_who_takes_by_hand_gets_those_before_a_job_that_cannot_be_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [await broker.jobs.add("q", body) for body in (b"x", b"y")]
    service = broker.jobs.open()

    def fail(_number: int, _offset: int, _size: int) -> bytes:
        raise OSError("unreadable")

    monkeypatch.setattr(service.segments, "read", fail)
    service.machine.jobs[ids[1].encode()].body = None
    rows = await queues.take(broker, "q", "", 2, True)
    assert [row.id for row in rows] == ids[:1]
    assert list(service.machine.jobs) == [ids[1].encode()]


async def test_a_folder_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "jobs").write_text("a file")
    broker = Broker(config_of(tmp_path))
    with pytest.raises(StartError, match="jobs"):
        await broker.start()


async def test_figures_are_told(broker: Broker, redis: Any) -> None:
    await redis.execute_command("ADDJOB", "q", "x", 0)
    samples = {each.name: each.samples for each in broker.metrics.families()}
    assert [each.value for each in samples["jobs_added"]] == [1]
    assert [each.value for each in samples["jobs"]] == [1]
    assert [each.value for each in samples["job_connections"]] == [1]
    assert list(samples["job_queue_depth"]) == [((("queue", "q"),), 1)]


async def test_a_broker_may_serve_nothing_but_jobs(tmp_path: Path) -> None:
    config = config_in(tmp_path, {"jobs": ListenerOptions(url=LOCAL)})
    check(config)
    async with Broker(config) as broker, client_of(broker) as redis:
        job_id = await redis.execute_command("ADDJOB", "q", "x", 0)
        assert (await redis.execute_command("GETJOB", "FROM", "q"))[0][1] == job_id


async def test_a_start_knows_what_the_clock_was_set_by_before_the_machine_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = 0
    monkeypatch.setattr("vmq.jobs.service.ahead", lambda: ahead)
    for boot in ("1", "2"):
        monkeypatch.setattr("vmq.jobs.service.boot_id", lambda boot=boot: boot)
        async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
            service = broker.jobs.open()
            await redis.execute_command("ADDJOB", "q", "x", 0)
            ahead = 7200 * 10**9
            service._sweep()
            shifts = [each.shift for each in service.segments.all.values()]
    assert shifts == [ahead, 0]
