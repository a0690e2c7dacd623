"""What an operator does by the commands of Redis."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from tests.support.until import until
from tests.vmq.jobs.serving import client_of, config_of
from vmq.admin.jobs.why import explain
from vmq.broker import Broker


async def test_an_operator_sets_what_has_a_counterpart_and_keeps_it(tmp_path: Path) -> None:
    config = config_of(tmp_path, admin=True)
    async with Broker(config) as broker, client_of(broker) as redis:
        do = redis.execute_command
        assert (await redis.config_get("maxmemory"))["maxmemory"] == "1073741824"
        found = await redis.config_get("append*")
        assert found == {"appendonly": "yes", "appendfsync": "everysec"}
        assert await redis.config_set("maxmemory", 2_000_000)
        assert broker.jobs.open().machine.full_memory == 2_000_000
        assert (await redis.info())["maxmemory"] == 2_000_000
        assert await redis.config_set("maxmemory", "2MB")
        assert (await redis.config_get("maxmemory"))["maxmemory"] == str(2 << 20)
        assert await redis.config_set("maxmemory", 2_000_000)
        for wrong in (("maxmemory", "x"), ("maxmemory", "1"), ("maxmemory", "mb"), ("port", "1")):
            with pytest.raises(ResponseError):
                await do("CONFIG SET", *wrong)
        broker.jobs.configure(config)  # as with a reload
        assert broker.jobs.open().machine.full_memory == 2_000_000
    async with Broker(config) as broker, client_of(broker) as redis:
        assert (await redis.config_get("maxmemory"))["maxmemory"] == "1073741824"
        await redis.config_set("maxmemory", 2_000_000)
        assert await redis.config_rewrite()
    async with Broker(config) as broker, client_of(broker) as redis:
        assert (await redis.config_get("maxmemory"))["maxmemory"] == "2000000"
    (tmp_path / "data" / "jobs" / "config.json").write_text("{}")
    async with Broker(config) as broker, client_of(broker) as redis:
        assert (await redis.config_get("maxmemory"))["maxmemory"] == "1073741824"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("CONFIG BOGUS", "CONFIG knows GET, SET and REWRITE"),
        ("CONFIG SET maxmemory", "CONFIG knows"),
        ("CONFIG SET port 1", "only maxmemory is set here"),
        ("CONFIG SET maxmemory 1", "maxmemory is a number of bytes"),
        ("DEBUG RELOAD", "DEBUG knows FLUSHALL"),
        ("CLIENT KILL", "syntax error"),
        ("CLIENT KILL NAME x", "syntax error"),
        ("CLUSTER MEET 127.0.0.1 7711", "no node of a cluster"),
        ("CLUSTER BOGUS", "CLUSTER knows"),
    ],
)
async def test_what_is_refused_to_an_operator_and_why(
    tmp_path: Path, command: str, error: str
) -> None:
    async with Broker(config_of(tmp_path, admin=True)) as broker, client_of(broker) as redis:
        with pytest.raises(ResponseError, match=error):
            await redis.execute_command(*command.split())
        assert await redis.ping()


async def test_a_value_that_cannot_be_kept_is_told(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path, admin=True)) as broker, client_of(broker) as redis:
        await redis.config_set("maxmemory", 2_000_000)
        (tmp_path / "data" / "jobs" / "config.json.tmp").mkdir()
        with pytest.raises(ResponseError, match="cannot be written"):
            await redis.config_rewrite()
        assert (await redis.config_get("maxmemory"))["maxmemory"] == "2000000"


async def test_an_operator_sees_clients_and_ends_them(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path, admin=True)) as broker, client_of(broker) as redis:
        do = redis.execute_command
        async with client_of(broker) as other:
            await other.execute_command("CLIENT SETNAME", "other")
            number = await other.execute_command("CLIENT ID")
            listed = {each["name"]: each for each in await redis.client_list()}
            assert listed["other"]["id"] == str(number)
            assert len(listed) == 2
            assert await do("CLIENT KILL", "ID", number) == 1
            assert await do("CLIENT KILL", "ADDR", "127.0.0.1:1") == 0
            await until(lambda: len(broker.jobs.open().listeners[0].clients) == 1)
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis, client_of(broker):
        assert len(await redis.client_list()) == 1  # without the right only itself


async def test_an_operator_stops_the_broker_that_a_program_runs(tmp_path: Path) -> None:
    stopped = asyncio.Event()
    broker = Broker(config_of(tmp_path, admin=True))
    async with broker, client_of(broker) as redis:
        with pytest.raises(ResponseError, match="embeds"):
            await redis.execute_command("SHUTDOWN")
    broker = Broker(config_of(tmp_path, admin=True))
    broker.on_left = stopped.set
    async with broker, client_of(broker) as redis:
        assert await redis.execute_command("SHUTDOWN", "REWRITE-AOF") in {True, b"OK"}
        assert stopped.is_set()


async def test_a_pattern_is_short(redis: Any) -> None:
    assert b"maxmemory" in await redis.execute_command("CONFIG", "GET", "max[m]*")
    with pytest.raises(ResponseError, match="too long"):
        await redis.execute_command("CONFIG", "GET", "*a" * 100)


async def test_of_a_job_that_was_set_aside_it_is_told_that_no_worker_has_it(
    broker: Broker, redis: Any
) -> None:
    job_id = (await redis.execute_command("ADDJOB", "mail", "x", 0)).decode()
    await redis.execute_command("GETJOB", "FROM", "mail")
    assert explain(broker, job_id).verdict.startswith("a worker has it")
    for command in ("ENQUEUE", "DEQUEUE"):
        await redis.execute_command(command, job_id)
    found = explain(broker, job_id)
    assert found.verdict.startswith("no worker has it: it was set aside, and it is queued in 300 s")
    assert (found.given, found.remedy) == (False, f"vmq jobs retry {job_id}")
    await redis.execute_command("PAUSE", "mail", "in")
    assert explain(broker, job_id).remedy == "vmq jobs resume mail"
