"""The commands of jobs, as Redis clients give them."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from redis.exceptions import ResponseError

from tests.support.until import until
from tests.vmq.jobs.serving import client_of, config_of, named, port_of, raw
from vmq.admin.jobs.queues import show_queue
from vmq.broker import Broker
from vmq.config.jobs import JobOptions
from vmq.config.options import LimitOptions


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_job_from_adding_to_acknowledging(broker: Broker, protocol: int) -> None:
    async with client_of(broker, protocol=protocol) as redis:
        do = redis.execute_command
        job_id = await do("ADDJOB", "mail", "body", 0)
        assert await do("QLEN", "mail") == 1
        assert await do("QPEEK", "mail", 1) == [[b"mail", job_id, b"body"]]
        assert await do("GETJOB", "FROM", "none", "mail") == [[b"mail", job_id, b"body"]]
        assert await do("GETJOB", "NOHANG", "FROM", "mail") is None
        assert await do("WORKING", job_id) == 300
        assert await do("ACKJOB", job_id) == 1
        assert await do("ACKJOB", job_id) == 0
        assert await do("QLEN", "mail") == 0


async def test_several_jobs_of_several_queues_with_their_counters(redis: Any) -> None:
    do = redis.execute_command
    ids = [await do("ADDJOB", queue, "x", 0) for queue in ("a", "a", "b", "b")]
    assert await do("NACK", (await do("GETJOB", "FROM", "a"))[0][1]) == 1
    found = await do("GETJOB", "WITHCOUNTERS", "COUNT", 3, "FROM", "a", "b")
    assert [each[:2] for each in found] == [[b"a", ids[0]], [b"b", ids[2]], [b"a", ids[1]]]
    assert found[0][3:] == [b"nacks", 1, b"additional-deliveries", 0]
    assert await do("ENQUEUE", ids[0]) == 1
    seen = (await do("GETJOB", "WITHCOUNTERS", "FROM", "a"))[0][3:]
    assert seen == [*(b"nacks", 1), *(b"additional-deliveries", 1)]
    assert await do("DEQUEUE", ids[3], ids[0]) == 1
    assert await do("FASTACK", *ids) == 4
    assert await do("DELJOB", ids[0]) == 0


async def test_a_worker_waits_for_a_job_and_no_longer_than_it_said(
    broker: Broker, redis: Any
) -> None:
    async with client_of(broker) as worker:
        waiting = asyncio.create_task(worker.execute_command("GETJOB", "FROM", "a", "q"))
        await until(lambda: broker.jobs.service and b"q" in broker.jobs.service.machine.queues)
        job_id = await redis.execute_command("ADDJOB", "q", "x", 0)
        assert await waiting == [[b"q", job_id, b"x"]]
        assert await worker.execute_command("GETJOB", "TIMEOUT", 150, "FROM", "q") is None
        assert await worker.execute_command("PING") is True


async def test_who_goes_away_while_he_waits_gets_nothing(broker: Broker, redis: Any) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
    writer.write(b"GETJOB FROM q\r\n")
    service = broker.jobs.open()
    await until(lambda: b"q" in service.machine.queues)
    writer.close()
    await until(lambda: service.machine.queues[b"q"].waiters is None)
    await redis.execute_command("ADDJOB", "q", "x", 0)
    assert await redis.execute_command("QLEN", "q") == 1


async def test_commands_behind_one_that_waits_are_done_after_it(broker: Broker) -> None:
    data = b"GETJOB TIMEOUT 200 FROM q\r\nADDJOB q x 0\r\nQLEN q\r\nQUIT\r\n"
    lines = (await raw(broker, data, ends=False)).split(b"\r\n")
    assert lines[0] == b"*-1"
    assert lines[1].startswith(b"+D-")
    assert lines[2:] == [b":1", b"+OK", b""]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("ADDJOB q x", "wrong number of arguments for 'addjob'"),
        ("ADDJOB q x never", "timeout is not an integer"),
        ("ADDJOB q x 0 TTL 0", "TTL must be a number > 0"),
        ("ADDJOB q x 0 RETRY -1", "RETRY time must be"),
        ("ADDJOB q x 0 RETRY 2147483648", "RETRY time must be"),
        ("ADDJOB q x 0 DELAY x", "DELAY time must be"),
        ("ADDJOB q x 0 REPLICATE 0", "REPLICATE must be"),
        ("ADDJOB q x 0 REPLICATE 2", "NOREPL Not enough reachable nodes"),
        ("ADDJOB q x 0 REPLICATE 2 RETRY 0", "explicitly set REPLICATE to 1"),
        ("ADDJOB q x 0 PRIORITY 10", "PRIORITY must be"),
        ("ADDJOB q x 0 MAXLEN 0", "MAXLEN must be"),
        ("ADDJOB q x 0 MAXLEN x", "MAXLEN must be"),
        ("ADDJOB q x 0 KEY " + "k" * 513, "a KEY has 1 to 512 bytes"),
        ("ADDJOB " + "q" * 513 + " x 0", "the name of a queue has 1 to 512 bytes"),
        ("ADDJOB $own x 0", "the broker's own"),
        ("GETJOB NOHANG FROM $own", "the broker's own"),
        ("ADDJOB q x 0 BOGUS 1", "syntax error at 'BOGUS'"),
        ("ADDJOB q x 0 TTL", "syntax error"),
        ("ADDJOB q!dead x 0", "by failing only"),
        ("ADDJOB q " + "x" * 200 + " 0", "TOOBIG"),
        ("GETJOB", "syntax error"),
        ("GETJOB FROM", "ends with FROM queue"),
        ("GETJOB BOGUS FROM q", "syntax error at 'BOGUS'"),
        ("GETJOB COUNT 0 FROM q", "COUNT must be"),
        ("GETJOB TIMEOUT x FROM q", "timeout is not"),
        ("ACKJOB", "wrong number"),
        ("ACKJOB x", "BADID Invalid Job ID format."),
        ("NACK x", "BADID"),
        ("WORKING D-00000000-LYyQMK4fgYJLigrQnwiD1GW2-05a1", "NOJOB"),
        ("QPEEK q x", "not an integer"),
        ("PAUSE q sometimes", "PAUSE option"),
        ("QSCAN COUNT", "syntax error at 'COUNT'"),
        ("QSCAN 99999999999999999999", "invalid cursor"),
        ("JSCAN 9223372036854775807", "invalid cursor"),
        ("JSCAN 0 COUNT 0", "COUNT must be"),
        ("JSCAN 0 REPLY some", "syntax error"),
        ("JSCAN STATE bogus", "syntax error"),
        ("QSCAN 0 MINLEN x", "MINLEN must be"),
        ("QSCAN 0 MAXLEN x", "MAXLEN must be"),
        ("QSCAN 0 IMPORTRATE x", "IMPORTRATE must be"),
        ("AUTH", "wrong number of arguments for 'auth'"),
        ("HELLO 2 BOGUS", "syntax error in HELLO"),
        ("CLIENT BOGUS", "unknown subcommand"),
        ("SELECT 1", "out of range"),
        ("HELLO 4", "NOPROTO"),
        ("CONFIG SET maxmemory 1", "NOPERM"),
        ("CONFIG REWRITE", "NOPERM"),
        ("CLIENT KILL 127.0.0.1:1", "NOPERM"),
        ("CLUSTER MEET 127.0.0.1 7711", "NOPERM"),
        ("CLUSTER BOGUS", "CLUSTER knows"),
        ("CLUSTER FORGET x", "NOPERM"),
        ("CLUSTER LEAVING yes", "NOPERM"),
        ("CLUSTER RESET", "NOPERM"),
        ("DEBUG FLUSHALL", "NOPERM"),
        ("SHUTDOWN", "NOPERM"),
        ("MONITOR", "unknown command 'MONITOR'"),
        ("AUTH x", "no password is set"),
        ("ADDJOBS q 0 JOBS", "ends with JOBS body"),
        ("ADDJOBS q 0 KEY k JOBS x", "takes no KEY"),
        ('ADDJOB q x 0 KEY "\\x00k"', "does not begin with NUL"),
        ('ADDJOB "a\\x00b" x 0', "none of them NUL"),
        ("QLEN", "wrong number of arguments for 'qlen'"),
    ],
)
async def test_what_is_refused_and_why(tmp_path: Path, command: str, error: str) -> None:
    config = config_of(tmp_path, limits=LimitOptions(max_job_size=100))
    async with Broker(config) as broker:
        reply = (await raw(broker, command.encode() + b"\r\nQLEN q\r\n")).decode()
        first, _, rest = reply.partition("\r\n")
        assert first.startswith("-")
        assert error in first
        assert rest == ":0\r\n"  # the connection goes on, and nothing was added


async def test_options_of_adding(redis: Any) -> None:
    do = redis.execute_command
    options = "REPLICATE 1 DELAY 0 RETRY 7 TTL 700 MAXLEN 10 PRIORITY 4 KEY k ASYNC"
    job_id = await do("ADDJOB q x 100 " + options)
    shown = named(await do("SHOW", job_id))
    assert (shown[b"retry"], shown[b"ttl"], shown[b"priority"]) == (7, 699, 4)
    assert (shown[b"state"], shown[b"key"], shown[b"body"]) == (b"queued", b"k", b"x")
    assert await do("ADDJOB", "q", "y", 0, "KEY", "k") == job_id
    assert await do("SHOW", job_id[:-4] + b"0001") is None
    replies = await do("ADDJOBS", "q", 0, "MAXLEN", 3, "JOBS", "a", "b", "c")
    assert [isinstance(each, Exception) for each in replies] == [False, False, True]
    assert "MAXLEN" in str(replies[2])


async def test_a_pause_is_told_and_ends(broker: Broker, redis: Any) -> None:
    do = redis.execute_command
    await do("ADDJOB", "q", "x", 0)
    assert await do("PAUSE", "q", "in") == b"in"
    assert await do("PAUSE", "q", "out") == b"all"
    assert await do("PAUSE", "q", "state") == b"all"
    with pytest.raises(ResponseError, match="PAUSED"):
        await do("ADDJOB", "q", "x", 0)
    assert await do("GETJOB", "NOHANG", "FROM", "q") is None
    stat = named(await do("QSTAT", "q"))
    assert (stat[b"pause"], stat[b"len"], stat[b"jobs-in"]) == (b"all", 1, 1)
    assert await do("QSTAT", "none") is None
    async with client_of(broker) as worker:
        waiting = asyncio.create_task(worker.execute_command("GETJOB", "FROM", "q"))
        machine = broker.jobs.open().machine
        await until(lambda: machine.queues[b"q"].waiters)
        assert await do("PAUSE", "q", "none") == b"none"
        assert (await waiting)[0][2] == b"x"


async def test_scans_see_everything_once(redis: Any) -> None:
    do = redis.execute_command
    ids = [await do("ADDJOB", f"q{number % 7}", "x", 0) for number in range(50)]
    names: list[bytes] = []
    cursor: Any = 0
    while True:
        cursor, some = await do("QSCAN", cursor, "COUNT", 3)
        names += some
        if cursor == b"0":
            break
    assert sorted(names) == [b"q%d" % number for number in range(7)]
    assert (await do("QSCAN", "MINLEN", 8))[1] == [b"q0"]
    for options in (("COUNT", 3, "BUSYLOOP"), ("BUSYLOOP", "COUNT", 3)):
        assert len((await do("QSCAN", 0, *options))[1]) == 7
    found: list[bytes] = []
    cursor = 0
    while True:
        cursor, some = await do("JSCAN", cursor, "COUNT", 8)
        found += some
        if cursor == b"0":
            break
    assert found == ids
    await do("GETJOB", "FROM", "q3")
    only = await do("JSCAN", "BUSYLOOP", "QUEUE", "q3", "STATE", "active")
    assert only == [b"0", [ids[3]]]
    whole = (await do("JSCAN", "QUEUE", "q3", "STATE", "active", "REPLY", "all"))[1]
    assert (named(whole[0])[b"id"], named(whole[0])[b"queue"]) == (ids[3], b"q3")


async def test_what_redis_clients_ask_first(broker: Broker, redis: Any) -> None:
    do = redis.execute_command
    assert (await redis.info())["registered_jobs"] == 0
    assert await do("COMMAND") is not None
    assert await do("CLIENT SETNAME", "me") in {True, b"OK"}
    assert await do("CLIENT GETNAME") in {"me", b"me"}
    assert isinstance(await do("CLIENT ID"), int)
    assert await do("ECHO", "x") == b"x"
    version, node, myself = await do("HELLO")
    assert (version, len(node), myself[0]) == (1, 40, node)
    assert myself[1:] == [b"127.0.0.1", str(port_of(broker)).encode(), b"1"]
    assert b"myself" in await do("CLUSTER", "NODES")


async def test_each_group_gets_each_job(tmp_path: Path) -> None:
    rules = {"orders": JobOptions(groups=["mail", "audit"], retry=7), "*": JobOptions(maxlen=3)}
    async with Broker(config_of(tmp_path, jobs=rules)) as broker, client_of(broker) as redis:
        do = redis.execute_command
        first = await do("ADDJOB", "orders", "x", 0, "KEY", "k", "PRIORITY", 4)
        assert await do("ADDJOB", "orders", "y", 0, "KEY", "k") == first
        assert await do("QLEN", "orders") == 0
        with pytest.raises(ResponseError, match="take from orders@mail, orders@audit"):
            await do("GETJOB", "FROM", "other", "orders")
        assert (await show_queue(broker, "orders", "")).groups == ["mail", "audit"]
        [[_, mail, body]] = await do("GETJOB", "FROM", "orders@mail")
        [[_, audit, again]] = await do("GETJOB", "FROM", "orders@audit")
        assert (mail, body, again) == (first, b"x", b"x")
        assert audit != first
        shown = named(await do("SHOW", audit))
        assert (shown[b"retry"], shown[b"priority"], shown[b"queue"]) == (7, 4, b"orders@audit")
        assert await do("ACKJOB", mail) == 1
        assert (
            named(await do("SHOW", audit))[b"state"] == b"active"
        )  # that of the other group stays
        for _ in range(3):
            await do("ADDJOB", "orders", "z", 0)
        await do("GETJOB", "COUNT", 3, "FROM", "orders@mail")
        with pytest.raises(ResponseError, match="MAXLEN"):
            await do("ADDJOB", "orders", "z", 0)  # the group of audit is full: none gets it
        assert await do("QLEN", "orders@mail") == 0
        await do("PAUSE", "orders@audit", "in")
        with pytest.raises(ResponseError, match="PAUSED"):
            await do("ADDJOB", "orders", "z", 0)
        await do("PAUSE", "orders@audit", "none")
        await do("PAUSE", "orders", "in")
        with pytest.raises(ResponseError, match="PAUSED"):
            await do("ADDJOB", "orders", "z", 0)
