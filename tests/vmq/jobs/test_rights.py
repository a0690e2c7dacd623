"""Who may connect, add and take; whom a listener of jobs keeps out; TLS, PROXY headers, mountpoints."""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import msgspec
import pytest
from redis.asyncio import Redis
from redis.exceptions import AuthenticationError, NoPermissionError
from redis.exceptions import ConnectionError as Lost

from tests.support.until import until
from tests.vmq.jobs import serving
from vmq.admin.bans import add_ban
from vmq.broker import Broker
from vmq.config.options import ListenerOptions
from vmq.config.values import Endpoint
from vmq.testing.authority import Authority


@pytest.mark.parametrize("guard", [serving.Guard(), serving.SlowGuard()])
async def test_plugins_decide_who_may_connect_add_and_take(
    tmp_path: Path, guard: serving.Guard, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "vmq.jobs")
    broker = Broker(serving.config_of(tmp_path), plugins={"guard": guard})
    async with broker:
        assert await serving.raw(broker, b"QLEN q\r\n") == b"-NOAUTH Authentication required.\r\n"
        with pytest.raises(AuthenticationError):
            async with serving.client_of(broker, username="worker", password="wrong"):
                pass
        async with serving.client_of(broker, username="worker", password="secret") as redis:
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
            with pytest.raises(NoPermissionError, match="no right to inspect"):
                await do("SHOW", other.id)
            assert await do("ACKJOB", job_id) == 1
        if not isinstance(guard, serving.SlowGuard):
            assert guard.asked[0].startswith("jobs resp:")
            assert "$jobs/mail" in guard.asked
    assert 'right=inspect user="worker" queue="other" plugin=none ' in caplog.text


async def test_a_queue_is_one_topic_level_to_plugins(tmp_path: Path) -> None:
    guard = serving.Guard()
    async with (
        Broker(serving.config_of(tmp_path), plugins={"guard": guard}) as broker,
        serving.client_of(broker, username="worker", password="secret") as redis,
    ):
        await redis.execute_command("ADDJOB", "mail/#+;%", "x", 0)
        assert guard.asked[-1] == "$jobs/mail%2F%23%2B%3B%25"


async def test_whoever_says_nothing_is_closed(tmp_path: Path) -> None:
    config = serving.config_of(tmp_path)
    config = msgspec.structs.replace(
        config, session=msgspec.structs.replace(config.session, mqtt_connect_timeout=0.05)
    )
    async with Broker(config, plugins={"guard": serving.Guard()}) as broker:
        assert await serving.raw(broker, b"", ends=False) == b""


async def test_who_is_banned_is_told_so_and_not_let_in(tmp_path: Path) -> None:
    async with Broker(serving.config_of(tmp_path), plugins={"guard": serving.Guard()}) as broker:
        add_ban(broker, user="worker", seconds=3600, reason="floods")
        reply = await serving.raw(broker, b"AUTH worker secret\r\nQLEN mail\r\n")
        assert reply.startswith(b"-NOPERM ")
        assert reply.count(b"\r\n") == 1
        assert broker.metrics.counters()["banned_refused"] == 1
    async with Broker(serving.config_of(tmp_path)) as broker:
        add_ban(broker, address="127.0.0.0/8", seconds=3600)
        assert (await serving.raw(broker, b"", ends=False)).startswith(b"-NOPERM ")
        assert not broker.jobs.open().listeners[0].clients


async def test_who_is_banned_while_connected_has_to_go(tmp_path: Path) -> None:
    async with Broker(serving.config_of(tmp_path), plugins={"guard": serving.Guard()}) as broker:
        login = {"username": "worker", "password": "secret"}
        async with serving.client_of(broker, **login) as redis:
            waiting = asyncio.create_task(redis.execute_command("GETJOB", "FROM", "mail"))
            await until(lambda: b"mail" in broker.jobs.open().machine.queues)
            assert add_ban(broker, user="worker", seconds=3600).disconnected == 1
            with pytest.raises((Lost, NoPermissionError)):  # the client tries to connect again
                await waiting
            assert broker.jobs.open().machine.queues[b"mail"].waiters is None


async def test_mountpoints_have_queues_of_their_own(tmp_path: Path) -> None:
    config = serving.config_of(tmp_path)
    other = ListenerOptions(url=serving.LOCAL, mountpoint="other")
    config = msgspec.structs.replace(config, listeners={**config.listeners, "other": other})
    async with Broker(config) as broker, serving.client_of(broker) as redis:
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
    config = serving.config_of(tmp_path, "resp+tls://127.0.0.1:0", proxy_protocol=True, **files)
    guard = serving.Guard()
    async with Broker(config, plugins={"guard": guard}) as broker:
        context = ssl.create_default_context(cafile=str(authority.cafile))
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port_of(broker))
        writer.write(b"PROXY TCP4 203.0.113.7 127.0.0.1 4711 6379\r\n")
        await writer.start_tls(context, server_hostname="localhost")
        writer.write(b"AUTH worker secret\r\nADDJOB mail x 0\r\nCLIENT INFO\r\nQUIT\r\n")
        async with asyncio.timeout(30):
            reply = await reader.read()
        assert reply.startswith(b"+OK\r\n+D-")
        assert b"addr=203.0.113.7:4711" in reply
        writer.close()


@pytest.mark.parametrize(
    ("command", "queue", "following", "asked", "reply"),
    [
        (b"ACKJOB", b"mail", b"GETJOB NOHANG FROM secret", "take $jobs/secret", b"-NOPERM "),
        (b"SHOW", b"mail", b"ADDJOB secret forged 0", "add $jobs/secret", b"-NOPERM "),
        (b"NACK", b"secret", b"GETJOB NOHANG FROM mail", "take $jobs/mail", b"*-1\r\n"),
        (b"DELJOB", b"secret", b"ADDJOB mail x 0", "add $jobs/mail", b"+D-"),
    ],
)
async def test_a_verdict_is_one_on_what_was_asked(
    tmp_path: Path, command: bytes, queue: bytes, following: bytes, asked: str, reply: bytes
) -> None:
    """The job is done by somebody else while a plugin thinks about its queue: nothing is done with the verdict."""
    guard = serving.SlowGuard()
    guard.may_answer.clear()
    async with Broker(serving.config_of(tmp_path), plugins={"guard": guard}) as broker:
        jobs = serving.machine(broker)
        job = jobs.add(jobs.queue(queue, 1.0), b"x", 1.0)
        words = [b"AUTH worker secret", command + b" " + job.id, following, b"QUIT", b""]
        asking = asyncio.create_task(serving.raw(broker, b"\r\n".join(words), ends=False))
        await until(lambda: guard.asked)
        jobs.acknowledge(job.id)
        guard.may_answer.set()
        found = await asking
        nothing = b"*-1\r\n" if command == b"SHOW" else b":0\r\n"
        assert found.startswith(b"+OK\r\n" + nothing + reply)
        assert guard.asked[1:] == [asked]


async def test_a_verdict_on_one_queue_is_none_on_that_to_which_the_job_went(tmp_path: Path) -> None:
    guard = serving.SlowGuard()
    guard.may_answer.clear()
    async with Broker(serving.config_of(tmp_path), plugins={"guard": guard}) as broker:
        jobs = serving.machine(broker)
        job = jobs.add(jobs.queue(b"mail", 1.0), b"x", 1.0)
        words = b"AUTH worker secret\r\nENQUEUE " + job.id + b"\r\nQUIT\r\n"
        asking = asyncio.create_task(serving.raw(broker, words, ends=False))
        await until(lambda: guard.asked)
        jobs.bury(job, "expired", 1.0)
        guard.may_answer.set()
        assert await asking == b"+OK\r\n:1\r\n+OK\r\n"
        assert guard.asked == ["take $jobs/mail", "take $jobs/mail!dead"]


async def test_the_last_auth_of_a_hello_counts(tmp_path: Path) -> None:
    """Each would else be asked about anew, without an end, as a verdict on one is none on the other."""
    for guard in (serving.Guard(), serving.SlowGuard()):
        async with Broker(serving.config_of(tmp_path), plugins={"guard": guard}) as broker:
            words = (
                b"HELLO 2 AUTH worker secret AUTH worker guess\r\nPING\r\n"
                b"HELLO 2 AUTH worker guess AUTH worker secret\r\nPING\r\nQUIT\r\n"
            )
            found = await serving.raw(broker, words, ends=False)
            assert found.startswith(b"-WRONGPASS ")
            assert b"-NOAUTH " in found
            assert found.endswith(b"+PONG\r\n+OK\r\n")
