"""`vmq.jobs.connect`: a client for threads and one for asyncio, on real sockets."""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Any

import pytest

from tests.support.until import until
from tests.vmq.jobs.serving import Guard, config_of, machine, port_of
from vmq.broker import Broker
from vmq.jobs import JobError, connect
from vmq.jobs.client import AsyncJobClient, JobClient
from vmq.testing.authority import Authority


def url_of(broker: Broker, login: str = "") -> str:
    return f"resp://{login}127.0.0.1:{port_of(broker)}"


def in_a_thread(url: str) -> list[object]:
    with connect(url) as jobs:
        first = jobs.add("mail", "to: ada", retry=60, priority=3)
        jobs.add("mail", b"\0\r\n*", key="k")
        assert jobs.add("mail", b"again", key="k") != first
        (taken,) = jobs.get("none", "mail")
        assert (taken.id, taken.queue, taken.body) == (first, "mail", b"to: ada")
        assert taken.working() == 60
        assert taken.nack()
        assert jobs.get("none") == []
        assert jobs.get("none", timeout=0.2) == []
        found: list[object] = []
        for job in jobs.take("mail"):
            found += [job.body, job.nacks]
            assert job.ack()
            assert not job.ack()
            if len(found) == 4:
                return found
        return found


async def test_jobs_of_a_thread(broker: Broker) -> None:
    found = await asyncio.to_thread(in_a_thread, url_of(broker))
    assert found == [b"to: ada", 1, b"\0\r\n*", 0]
    assert not machine(broker).jobs


async def test_jobs_of_a_task(broker: Broker) -> None:
    async with connect(url_of(broker)) as jobs, connect(url_of(broker)) as worker:

        async def work() -> list[bytes]:
            done = []
            async for job in worker.take("mail"):
                done.append(job.body)
                await job.ack()
                if len(done) == 50:
                    break
            return done

        working = asyncio.create_task(work())
        # Several tasks share one connection: each gets the reply to its own command.
        ids = await asyncio.gather(*[jobs.add("mail", f"{number}") for number in range(50)])
        assert len(set(ids)) == 50
        assert len(await working) == 50
        with pytest.raises(JobError, match="NOREPL"):
            await jobs.add("mail", "x", replicate=3)
        await jobs.add("mail", "x")
        (taken,) = await jobs.get("mail", count=5)
        assert await taken.working() == 300
        assert await taken.nack()


class Patient(JobClient):
    """Gets nothing, and remembers how long it waited for that."""

    def __init__(self) -> None:
        self.waits: list[float] = []

    def _ask(self, data: bytes, wait: float = 0.0) -> Any:
        self.waits.append(wait)
        assert len(self.waits) < 10, "it asks without an end"
        return None


class AsyncPatient(AsyncJobClient):
    def __init__(self) -> None:
        self.waits: list[float] = []

    async def _ask(self, data: bytes, wait: float = 0.0) -> Any:
        self.waits.append(wait)
        assert len(self.waits) < 10, "it asks without an end"
        return None


@pytest.mark.parametrize("seconds", [-1, 0, 0.0001, 0.5, 1 / 3, 0.57, 2.0004, 20.0000001, 50.03])
async def test_who_waits_for_nothing_asks_no_more_when_the_time_is_over(seconds: float) -> None:
    client, other = Patient(), AsyncPatient()
    assert client.get("none", timeout=seconds) == []
    assert await other.get("none", timeout=seconds) == []
    for waits in (client.waits, other.waits):
        assert max(0, seconds) <= sum(waits) < max(0, seconds) + 0.002
        assert all(waits) or seconds <= 0  # none that does not wait


async def test_a_lost_connection_is_told(broker: Broker) -> None:
    async with connect(url_of(broker)) as jobs:
        waiting = asyncio.create_task(jobs.get("mail", timeout=None))
        await asyncio.sleep(0)
        await broker.stop()
        with pytest.raises(ConnectionError):
            await waiting
        with pytest.raises(ConnectionError):
            await jobs.add("mail", "x")


async def test_a_password(tmp_path: Path) -> None:
    async with Broker(config_of(tmp_path), plugins={"guard": Guard()}) as broker:
        async with connect(url_of(broker, "worker:secret@")) as jobs:
            assert await jobs.do("PING") == b"PONG"
        with pytest.raises(JobError, match="WRONGPASS"):
            async with connect(url_of(broker, "worker:guess@")):
                pass
        with pytest.raises(JobError, match="NOAUTH"):
            async with connect(url_of(broker)) as jobs:
                await jobs.get("mail")


async def test_tls(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path / "ca")
    issued = authority.issue("localhost", hosts=["localhost"])
    files = {"certfile": str(issued.certfile), "keyfile": str(issued.keyfile)}
    async with Broker(config_of(tmp_path, "resp+tls://127.0.0.1:0", **files)) as broker:
        context = ssl.create_default_context(cafile=str(authority.cafile))
        url = f"resp+tls://localhost:{port_of(broker)}"
        async with connect(url, context) as jobs:
            assert (await jobs.add("mail", "x")).startswith("D-")
        # Whoever ends TLS before the connection (close_notify) ends in order.
        await until(lambda: not broker.listeners["jobs"].connections)
        assert not [each for each in caplog.records if each.levelno >= logging.ERROR]
        with pytest.raises(ssl.SSLError):
            async with connect(url):
                pass


@pytest.mark.parametrize("url", ["mqtt://:pw@h", "resp://", "resp:7711", "h:1", "resp://:pw@h:x"])
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ValueError, match=r"^'[^@]*': accepted"):  # and no password of it
        connect(url)
