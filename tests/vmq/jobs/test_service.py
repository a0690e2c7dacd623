"""Jobs in a broker, as Redis clients meet them: on real sockets, with plugins, TLS, PROXY headers and restarts."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, NoPermissionError, ResponseError
from redis.exceptions import ConnectionError as Lost
from vmq_hooks import Plugin, Refuse, hook
from vmq_hooks.types import Message, Peer, SubscriberId, Subscription

from tests.support.until import until
from tests.vmq.sockets import config_in
from vmq.admin.bans import add_ban
from vmq.broker import Broker, StartError
from vmq.config.jobs import JobOptions
from vmq.config.options import Config, LimitOptions, ListenerOptions
from vmq.config.values import Endpoint
from vmq.testing.authority import Authority

LOCAL = "resp://127.0.0.1:0"


def config_of(folder: Path, url: str = LOCAL, **options: Any) -> Config:
    """A broker with one listener for jobs; `jobs` and `limits` are sections, the rest is the listener's."""
    sections = {name: options.pop(name) for name in ("jobs", "limits") if name in options}
    config = config_in(
        folder,
        {
            "jobs": ListenerOptions(url=url, **options),
            "tcp": ListenerOptions(url="tcp://127.0.0.1:0"),
        },
    )
    return msgspec.structs.replace(config, **sections)


def port_of(broker: Broker) -> int:
    return Endpoint.parse(broker.listeners["jobs"].url).port


@asynccontextmanager
async def client_of(broker: Broker, **options: Any) -> AsyncIterator[Any]:
    client = Redis(
        port=port_of(broker),
        socket_timeout=30,
        single_connection_client=True,
        retry=Retry(
            NoBackoff(), 0
        ),  # its own is ten times within half a minute, also for who is refused
        **options,
    )
    try:
        yield await client.initialize()
    finally:
        await client.aclose()


def named(reply: Any) -> dict[bytes, Any]:
    """Names and values: a map in RESP 3, an array of both in RESP 2."""
    return reply if isinstance(reply, dict) else dict(zip(reply[::2], reply[1::2], strict=True))


async def raw(broker: Broker, data: bytes) -> bytes:
    """What comes until the end of the stream."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
    writer.write(data)
    writer.write_eof()
    async with asyncio.timeout(30):
        found = await reader.read()
    writer.close()
    return found


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_job_from_adding_to_acknowledging(tmp_path: Path, protocol: int) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker, protocol=protocol) as redis:
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


async def test_several_jobs_of_several_queues_with_their_counters(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
        do = redis.execute_command
        ids = [await do("ADDJOB", queue, "x", 0) for queue in ("a", "a", "b", "b")]
        assert await do("NACK", (await do("GETJOB", "FROM", "a"))[0][1]) == 1
        found = await do("GETJOB", "WITHCOUNTERS", "COUNT", 3, "FROM", "a", "b")
        assert [each[:2] for each in found] == [[b"a", ids[0]], [b"b", ids[2]], [b"a", ids[1]]]
        assert found[0][3:] == [b"nacks", 1, b"additional-deliveries", 0]
        assert await do("ENQUEUE", ids[0]) == 1
        assert (await do("GETJOB", "WITHCOUNTERS", "FROM", "a"))[0][3:] == [
            *(b"nacks", 1),
            *(b"additional-deliveries", 1),
        ]
        assert await do("DEQUEUE", ids[3], ids[0]) == 1
        assert await do("FASTACK", *ids) == 4
        assert await do("DELJOB", ids[0]) == 0


async def test_a_worker_waits_for_a_job_and_no_longer_than_it_said(tmp_path: Path) -> None:
    async with (
        Broker(config_of(tmp_path)) as broker,
        client_of(broker) as redis,
        client_of(broker) as worker,
    ):
        waiting = asyncio.create_task(worker.execute_command("GETJOB", "FROM", "a", "q"))
        await until(lambda: broker.jobs.service and b"q" in broker.jobs.service.machine.queues)
        job_id = await redis.execute_command("ADDJOB", "q", "x", 0)
        assert await waiting == [[b"q", job_id, b"x"]]
        assert await worker.execute_command("GETJOB", "TIMEOUT", 150, "FROM", "q") is None
        assert await worker.execute_command("PING") is True


async def test_who_goes_away_while_he_waits_gets_nothing(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
        writer.write(b"GETJOB FROM q\r\n")
        service = broker.jobs.open()
        await until(lambda: b"q" in service.machine.queues)
        writer.close()
        await until(lambda: service.machine.queues[b"q"].waiters is None)
        await redis.execute_command("ADDJOB", "q", "x", 0)
        assert await redis.execute_command("QLEN", "q") == 1


async def test_commands_behind_one_that_waits_are_done_after_it(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker:
        data = b"GETJOB TIMEOUT 200 FROM q\r\nADDJOB q x 0\r\nQLEN q\r\nQUIT\r\n"
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
        writer.write(data)
        async with asyncio.timeout(30):
            lines = (await reader.read()).split(b"\r\n")
        assert lines[0] == b"*-1"
        assert lines[1].startswith(b"+D-")
        assert lines[2:] == [b":1", b"+OK", b""]
        writer.close()


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("ADDJOB q x", "wrong number of arguments for 'addjob'"),
        ("ADDJOB q x never", "timeout is not an integer"),
        ("ADDJOB q x 0 TTL 0", "TTL must be a number > 0"),
        ("ADDJOB q x 0 RETRY -1", "RETRY time must be"),
        ("ADDJOB q x 0 DELAY x", "DELAY time must be"),
        ("ADDJOB q x 0 REPLICATE 0", "REPLICATE must be"),
        ("ADDJOB q x 0 REPLICATE 2", "NOREPL Not enough reachable nodes"),
        ("ADDJOB q x 0 REPLICATE 2 RETRY 0", "explicitly set REPLICATE to 1"),
        ("ADDJOB q x 0 PRIORITY 10", "PRIORITY must be"),
        ("ADDJOB q x 0 MAXLEN 0", "MAXLEN must be"),
        ("ADDJOB q x 0 BOGUS 1", "syntax error"),
        ("ADDJOB q x 0 TTL", "syntax error"),
        ("ADDJOB q!dead x 0", "by failing only"),
        ("ADDJOB q " + "x" * 200 + " 0", "TOOBIG"),
        ("GETJOB", "syntax error"),
        ("GETJOB FROM", "syntax error"),
        ("GETJOB BOGUS FROM q", "syntax error"),
        ("GETJOB COUNT 0 FROM q", "COUNT must be"),
        ("GETJOB TIMEOUT x FROM q", "timeout is not"),
        ("ACKJOB", "wrong number"),
        ("ACKJOB x", "BADID Invalid Job ID format."),
        ("NACK x", "BADID"),
        ("WORKING D-00000000-LYyQMK4fgYJLigrQnwiD1GW2-05a1", "NOJOB"),
        ("QPEEK q x", "not an integer"),
        ("PAUSE q sometimes", "PAUSE option"),
        ("QSCAN COUNT", "syntax error"),
        ("JSCAN STATE bogus", "syntax error"),
        ("SELECT 1", "out of range"),
        ("HELLO 4", "NOPROTO"),
        ("CONFIG SET maxmemory 1", "NOPERM"),
        ("CONFIG REWRITE", "NOPERM"),
        ("CLIENT KILL 127.0.0.1:1", "NOPERM"),
        ("CLUSTER MEET 127.0.0.1 7711", "NOPERM"),
        ("CLUSTER BOGUS", "CLUSTER knows"),
        ("DEBUG FLUSHALL", "NOPERM"),
        ("SHUTDOWN", "NOPERM"),
        ("MONITOR", "unknown command 'MONITOR'"),
        ("AUTH x", "no password is set"),
        ("ADDJOBS q 0 JOBS", "syntax error"),
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


async def test_options_of_adding(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
        do = redis.execute_command
        options = [
            "REPLICATE",
            "1",
            "DELAY",
            "0",
            "RETRY",
            "7",
            "TTL",
            "700",
            "MAXLEN",
            "10",
            "PRIORITY",
            "4",
            "KEY",
            "k",
            "ASYNC",
        ]
        job_id = await do("ADDJOB", "q", "x", 100, *options)
        shown = named(await do("SHOW", job_id))
        assert (shown[b"retry"], shown[b"ttl"], shown[b"priority"]) == (7, 699, 4)
        assert (shown[b"state"], shown[b"key"], shown[b"body"]) == (b"queued", b"k", b"x")
        assert await do("ADDJOB", "q", "y", 0, "KEY", "k") == job_id
        assert await do("SHOW", job_id[:-4] + b"0001") is None
        replies = await do("ADDJOBS", "q", 0, "MAXLEN", 3, "JOBS", "a", "b", "c")
        assert [isinstance(each, Exception) for each in replies] == [False, False, True]
        assert "MAXLEN" in str(replies[2])


async def test_a_pause_is_told_and_ends(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
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


async def test_a_pause_outlives_the_broker(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    async with Broker(config) as broker, client_of(broker) as redis:
        assert await redis.execute_command("PAUSE", "q", "in") == b"in"
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


async def test_scans_see_everything_once(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
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


async def test_what_redis_clients_ask_first(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
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
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Broker(config_of(tmp_path)) as broker:
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


# --- who may what


class Guard(Plugin):
    """Knows one user, who may add to and take from what is called mail."""

    def __init__(self, slow: bool) -> None:
        self.slow = slow
        self.asked: list[str] = []


class PlainGuard(Guard):
    """Answers at once."""

    @hook
    def auth_on_register(
        self, peer: Peer, subscriber_id: SubscriberId, username: str | None, password: bytes | None
    ) -> Any:
        self.asked.append(f"{peer.listener} {subscriber_id.client_id}")
        return (
            True
            if (username, password) == ("worker", b"secret")
            else Refuse("no", bad_credentials=True)
        )

    @hook
    def auth_on_publish(self, message: Message) -> Any:
        self.asked.append(message.topic)
        return True if message.topic.startswith("$jobs/mail") else Refuse("no")

    @hook
    def auth_on_subscribe(self, subscriptions: list[Subscription]) -> Any:
        self.asked.extend(each.topic_filter for each in subscriptions)
        wrong = [each for each in subscriptions if not each.topic_filter.startswith("$jobs/mail")]
        return Refuse("no") if wrong else True


class SlowGuard(Guard):
    """Answers later."""

    @hook
    async def auth_on_register(
        self, peer: Peer, subscriber_id: SubscriberId, username: str | None, password: bytes | None
    ) -> Any:
        await asyncio.sleep(0)
        return (
            True
            if (username, password) == ("worker", b"secret")
            else Refuse("no", bad_credentials=True)
        )

    @hook
    async def auth_on_publish(self, message: Message) -> Any:
        await asyncio.sleep(0)
        return True if message.topic.startswith("$jobs/mail") else Refuse("no")

    @hook
    async def auth_on_subscribe(self, subscriptions: list[Subscription]) -> Any:
        await asyncio.sleep(0)
        wrong = [each for each in subscriptions if not each.topic_filter.startswith("$jobs/mail")]
        return Refuse("no") if wrong else True


@pytest.mark.parametrize("guard", [PlainGuard(False), SlowGuard(True)])
async def test_plugins_decide_who_may_connect_add_and_take(tmp_path: Path, guard: Guard) -> None:
    broker = Broker(config_of(tmp_path), plugins={"guard": guard})
    async with broker:
        assert await raw(broker, b"QLEN q\r\n") == b"-NOAUTH Authentication required.\r\n"
        with pytest.raises(AuthenticationError):
            async with client_of(broker, username="worker", password="wrong"):
                pass
        async with client_of(broker, username="worker", password="secret") as redis:
            do = redis.execute_command
            job_id = await do("ADDJOB", "mail", "x", 0)
            with pytest.raises(NoPermissionError):
                await do("ADDJOB", "other", "x", 0)
            with pytest.raises(NoPermissionError):
                await do("GETJOB", "NOHANG", "FROM", "mail", "other")
            with pytest.raises(NoPermissionError):
                await do("JSCAN")
            assert (await do("GETJOB", "FROM", "mail"))[0][1] == job_id
            other = broker.jobs.open().machine.add(
                broker.jobs.open().machine.queue(b"other", 0), b"x", 1.0
            )
            with pytest.raises(NoPermissionError):
                await do("ACKJOB", other.id)
            with pytest.raises(NoPermissionError):
                await do("SHOW", other.id)
            assert await do("ACKJOB", job_id) == 1
        if not guard.slow:
            assert guard.asked[0].startswith("jobs resp:")
            assert "$jobs/mail" in guard.asked


async def test_a_queue_is_one_topic_level_to_plugins(tmp_path: Path) -> None:
    guard = PlainGuard(False)
    async with (
        Broker(config_of(tmp_path), plugins={"guard": guard}) as broker,
        client_of(broker, username="worker", password="secret") as redis,
    ):
        await redis.execute_command("ADDJOB", "mail/#+;%", "x", 0)
        assert guard.asked[-1] == "$jobs/mail%2F%23%2B%3B%25"


async def test_whoever_says_nothing_is_closed(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    config = msgspec.structs.replace(
        config, session=msgspec.structs.replace(config.session, mqtt_connect_timeout=0.05)
    )
    async with Broker(config, plugins={"guard": PlainGuard(False)}) as broker:
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
        async with asyncio.timeout(30):
            assert await reader.read() == b""
        writer.close()


async def test_who_is_banned_is_told_so_and_not_let_in(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path), plugins={"guard": PlainGuard(False)}) as broker:
        add_ban(broker, user="worker", seconds=3600, reason="floods")
        reply = await raw(broker, b"AUTH worker secret\r\nQLEN mail\r\n")
        assert reply.startswith(b"-NOPERM ")
        assert reply.count(b"\r\n") == 1
        assert broker.metrics.counters()["banned_refused"] == 1
    async with Broker(config_of(tmp_path)) as broker:
        add_ban(broker, address="127.0.0.0/8", seconds=3600)
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
        async with asyncio.timeout(30):
            assert (await reader.read()).startswith(b"-NOPERM ")
        writer.close()
        assert not broker.jobs.open().listeners[0].clients


async def test_who_is_banned_while_connected_has_to_go(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path), plugins={"guard": PlainGuard(False)}) as broker:
        login = {"username": "worker", "password": "secret"}
        async with client_of(broker, **login) as redis:
            waiting = asyncio.create_task(redis.execute_command("GETJOB", "FROM", "mail"))
            await until(lambda: b"mail" in broker.jobs.open().machine.queues)
            assert add_ban(broker, user="worker", seconds=3600).disconnected == 1
            with pytest.raises((Lost, NoPermissionError)):  # the client tries to connect again
                await waiting
            assert broker.jobs.open().machine.queues[b"mail"].waiters is None


async def test_mountpoints_have_queues_of_their_own(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    other = ListenerOptions(url=LOCAL, mountpoint="other")
    config = msgspec.structs.replace(config, listeners={**config.listeners, "other": other})
    async with Broker(config) as broker, client_of(broker) as redis:
        port = Endpoint.parse(broker.listeners["other"].url).port
        second: Any = Redis(port=port, single_connection_client=True)
        job_id = await redis.execute_command("ADDJOB", "q", "x", 0)
        assert await second.execute_command("QLEN", "q") == 0
        assert await second.execute_command("ACKJOB", job_id) == 0
        assert await second.execute_command("SHOW", job_id) is None
        own = await second.execute_command("ADDJOB", "q", "y", 0)
        assert await second.execute_command("GETJOB", "FROM", "q") == [[b"q", own, b"y"]]
        assert (await second.execute_command("QSCAN"))[1] == [b"q"]
        assert await redis.execute_command("QLEN", "q") == 1
        await second.aclose()


async def test_tls_and_a_proxy_before_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "ca")
    issued = authority.issue("localhost", hosts=["localhost"])
    files = {"certfile": str(issued.certfile), "keyfile": str(issued.keyfile)}
    config = config_of(tmp_path, "resp+tls://127.0.0.1:0", proxy_protocol=True, **files)
    guard = PlainGuard(False)
    async with Broker(config, plugins={"guard": guard}) as broker:
        context = ssl.create_default_context(cafile=str(authority.cafile))
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(broker))
        writer.write(b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 6379\r\n")
        await writer.start_tls(context, server_hostname="localhost")
        writer.write(b"AUTH worker secret\r\nADDJOB mail x 0\r\nCLIENT INFO\r\nQUIT\r\n")
        async with asyncio.timeout(30):
            reply = await reader.read()
        assert reply.startswith(b"+OK\r\n+D-")
        assert b"addr=203.0.113.7:4711" in reply
        writer.close()


async def test_an_operator_sets_what_has_a_counterpart_and_keeps_it(tmp_path: Path) -> None:
    config = config_of(tmp_path, admin=True)
    async with Broker(config) as broker, client_of(broker) as redis:
        do = redis.execute_command
        assert (await redis.config_get("maxmemory"))["maxmemory"] == "1073741824"
        assert (await redis.config_get("append*")) == {
            "appendonly": "yes",
            "appendfsync": "everysec",
        }
        assert await redis.config_set("maxmemory", 2_000_000)
        assert broker.jobs.open().machine.full_memory == 2_000_000
        for wrong in (("maxmemory", "x"), ("maxmemory", "1"), ("port", "1")):
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


async def test_memory_that_is_used_up_still_lets_jobs_be_taken_and_acknowledged(
    tmp_path: Path,
) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
        do = redis.execute_command
        job_id = await do("ADDJOB", "q", "x", 0)
        machine = broker.jobs.open().machine
        machine.max_memory = machine.full_memory = machine.memory
        for command in (
            ("ADDJOB", "q", "x", 0),
            ("ADDJOB", "new", "x", 0),
            ("GETJOB", "FROM", "new"),
        ):
            with pytest.raises(ResponseError, match="jobs have all of"):
                await do(*command)
        assert await do("GETJOB", "FROM", "q") == [[b"q", job_id, b"x"]]
        assert await do("ACKJOB", job_id) == 1


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


async def test_each_group_gets_each_job(tmp_path: Path) -> None:
    rules = {"orders": JobOptions(groups=["mail", "audit"], retry=7), "*": JobOptions(maxlen=3)}
    async with Broker(config_of(tmp_path, jobs=rules)) as broker, client_of(broker) as redis:
        do = redis.execute_command
        first = await do("ADDJOB", "orders", "x", 0, "KEY", "k", "PRIORITY", 4)
        assert await do("ADDJOB", "orders", "y", 0, "KEY", "k") == first
        assert await do("QLEN", "orders") == 0
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


# --- hostile peers


@pytest.mark.parametrize(
    "data",
    [
        b"*1000000000\r\n",
        b"*2\r\n$4\r\nQLEN\r\n$536870912\r\n",
        b"*1\r\n:1\r\n",
        b"x" * 100_000,
        b'"QLEN\r\n',
        b"\x16\x03\x01\x02\x00\x01\x00\n",
    ],
)
async def test_what_is_no_command_ends_that_connection_with_an_error(
    tmp_path: Path, data: bytes
) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
        reply = await raw(broker, data)
        assert reply.startswith((b"-ERR Protocol error", b"-ERR unknown command"))
        assert await redis.execute_command("PING") is True


async def test_strangers_may_not_send_much(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path), plugins={"guard": PlainGuard(False)}) as broker:
        reply = await raw(broker, b"*2\r\n$4\r\nAUTH\r\n$100000\r\n")
        assert reply.startswith(b"-ERR Protocol error")


@pytest.mark.parametrize("guard", [None, PlainGuard(False)])
async def test_replies_that_nobody_reads_take_no_memory_however_short_they_are(
    tmp_path: Path, guard: Guard | None
) -> None:
    plugins = {} if guard is None else {"guard": guard}
    async with Broker(config_of(tmp_path), plugins=plugins) as broker:
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(broker), limit=1)
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        await until(lambda: broker.jobs.open().listeners[0].clients)
        [connection] = broker.jobs.open().listeners[0].clients
        writer.write(b"INFO\r\n" * 1_000_000)
        await until(lambda: connection.is_paused and connection.socket_full)
        assert connection.reader.kept() < 1_000_000
        assert connection.transport.get_write_buffer_size() < 1_000_000
        writer.transport.abort()


async def test_a_peer_that_does_not_read_its_replies_is_not_served_on(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
        await redis.execute_command("ADDJOB", "q", "x" * 1_000_000, 0)
        _, writer = await asyncio.open_connection("127.0.0.1", port_of(broker), limit=1)
        assert isinstance(writer.transport, asyncio.Transport)
        writer.transport.pause_reading()
        writer.write(b"QPEEK q 1\r\n" * 5000)
        service = broker.jobs.open()
        sent = broker.monitor.core.counters
        await until(lambda: sent.bytes_sent > 2_000_000)
        for _ in range(50):
            await redis.execute_command("PING")
        assert sent.bytes_sent < 100_000_000  # what the system's buffers take, not 5 GB
        assert len(service.listeners[0].clients) == 2
        writer.transport.abort()


SCAN = b"JSCAN 0 QUEUE none BUSYLOOP\r\n"
LONG = b"GETJOB NOHANG FROM " + b" ".join(b"q%d" % each for each in range(500)) + b"\r\n"


@pytest.mark.parametrize(
    ("command", "done"), [(b"PING\r\n", 500), (b"QSCAN\r\n", 1), (SCAN, 1), (LONG, 8)]
)
async def test_what_makes_much_work_leaves_others_their_turn(
    tmp_path: Path, command: bytes, done: int
) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker):
        [connection] = broker.jobs.open().listeners[0].clients
        connection.data_received(command * (done + 10))
        assert connection.reader.kept() == len(command) * 10
        await until(lambda: connection.reader.kept() == 0)


async def test_who_sends_more_than_is_done_is_read_no_further(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker):
        [connection] = broker.jobs.open().listeners[0].clients
        flood = b"PING\r\n" * 50_000
        connection.data_received(flood)
        assert connection.is_paused
        await until(lambda: not connection.is_paused)
        assert 0 < connection.reader.kept() <= 65_536
        # A command that is cut is no such case: the rest of it is wanted.
        await until(lambda: connection.reader.kept() == 0)
        connection.data_received(b"*2\r\n$4\r\nECHO\r\n$200000\r\n" + b"x" * 150_000)
        assert not connection.is_paused


async def test_a_pattern_is_short(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
        assert b"maxmemory" in await redis.execute_command("CONFIG", "GET", "max[m]*")
        with pytest.raises(ResponseError, match="too long"):
            await redis.execute_command("CONFIG", "GET", "*a" * 100)


async def test_jobs_are_kept_by_one_process(tmp_path: Path) -> None:
    from vmq.config.options import ConfigError
    from vmq.workers.plan import Plan

    with pytest.raises(ConfigError, match=r"jobs are kept by one process"):
        Plan(config_of(tmp_path), 2)


async def test_a_folder_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "jobs").write_text("a file")
    broker = Broker(config_of(tmp_path))
    with pytest.raises(StartError, match="jobs"):
        await broker.start()


async def test_figures_are_told(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path)) as broker, client_of(broker) as redis:
        await redis.execute_command("ADDJOB", "q", "x", 0)
        samples = {each.name: each.samples for each in broker.metrics.families()}
        assert [each.value for each in samples["jobs_added"]] == [1]
        assert [each.value for each in samples["jobs"]] == [1]
        assert [each.value for each in samples["job_connections"]] == [1]
        assert list(samples["job_queue_depth"]) == [((("queue", "q"),), 1)]
