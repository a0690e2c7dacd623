"""Passwords under load: whoever knows the password gets in, however many come, and whoever else guesses meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.attacks.size import size
from tests.attacks.users import PASSWORD, start, write_users
from tests.conftest import BrokerFactory
from tests.support.wire import connect_packet
from vmq.testing.process import BrokerProcess

ACCEPTED, CREDENTIALS, UNAVAILABLE = 0, 4, 3
GUESSING = 130
RIGHTFUL = size(10, 30)
#: Seconds for all of them.
PATIENCE = size(60, 850)


@pytest.fixture(scope="module")
def users(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_users(tmp_path_factory.mktemp("users") / "passwd", GUESSING)


@asynccontextmanager
async def connection(
    broker: BrokerProcess, source: str
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(*broker.tcp, local_addr=(source, 0))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def login(
    broker: BrokerProcess,
    name: str,
    password: bytes = PASSWORD,
    client_id: str | None = None,
    source: str = "127.0.0.2",
) -> int:
    """The code of the CONNACK."""
    async with connection(broker, source) as (reader, writer):
        writer.write(connect_packet(client_id or name, username=name, password=password))
        answer = await reader.readexactly(4)
        assert answer[:2] == b"\x20\x02"
        return answer[3]


async def everybody(logins: Iterable[Awaitable[int]]) -> list[int]:
    async with asyncio.timeout(PATIENCE):
        return list(await asyncio.gather(*logins))


@asynccontextmanager
async def guessing(broker: BrokerProcess, sockets: int, source: str) -> AsyncIterator[None]:
    """So many sockets try one wrong password after the other, until the block ends."""
    answered = asyncio.Event()

    async def guess(number: int) -> None:
        for attempt in range(1_000_000):
            # Half of them guess alice's, the others those of devices that log in meanwhile.
            name = "alice" if number % 2 else f"d{number}"
            code = await login(broker, name, b"%d" % attempt, f"guess-{number}", source)
            assert code == CREDENTIALS
            answered.set()

    tasks = [asyncio.create_task(guess(number)) for number in range(sockets)]
    try:
        await answered.wait()
        yield
        assert not any(task.done() for task in tasks), [task for task in tasks if task.done()]
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.parametrize("source", ("127.0.0.2", "127.0.0.66"))
async def test_guessing_shuts_nobody_out(
    fresh_broker: BrokerFactory, users: Path, tmp_path: Path, source: str
) -> None:
    """130 sockets with wrong passwords, from the address of the devices and from another one."""
    broker = start(fresh_broker, users, tmp_path)
    async with guessing(broker, GUESSING, source):
        # Some are of users that are guessed at from the same address: they wait, and are let in.
        rightful = [login(broker, f"d{number}") for number in range(RIGHTFUL)]
        assert await everybody(rightful) == [ACCEPTED] * RIGHTFUL
        assert await login(broker, "alice", source="127.0.0.3") == ACCEPTED
        # Known by now: these wait for nobody.
        assert await login(broker, "alice", source="127.0.0.3") == ACCEPTED


async def test_nobody_has_anybody_s_client_id_refused(
    fresh_broker: BrokerFactory, users: Path, tmp_path: Path
) -> None:
    """Flapping counts connects of who has shown to be the user."""
    options = "[limits]\nflapping_limit = 3\n"
    broker = start(fresh_broker, users, tmp_path, options)
    wrong = [login(broker, f"d{number}", b"?", "victim") for number in range(10)]
    assert await everybody(wrong) == [CREDENTIALS] * 10
    others = [login(broker, f"d{number}", client_id="victim") for number in range(10)]
    assert await everybody(others) == [ACCEPTED] * 10
    for code in (ACCEPTED, ACCEPTED, ACCEPTED, UNAVAILABLE):
        assert await login(broker, "alice", client_id="victim") == code
