"""redis-cli (Debian's redis-tools) adds, takes and acknowledges."""

import asyncio
from pathlib import Path

from tests.support.tools import require_tool
from tests.vmq.jobs.serving import config_of, port_of
from vmq.broker import Broker


async def cli(port: int, *words: str, told: bytes = b"") -> list[str]:
    process = await asyncio.create_subprocess_exec(
        require_tool("redis-cli"),
        "-p",
        str(port),
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, _ = await process.communicate(told)
    return out.decode().splitlines()


async def test_a_job_by_hand(broker: Broker) -> None:
    port = port_of(broker)
    (job_id,) = await cli(port, "ADDJOB", "mail", "hello world", "0", "RETRY", "60")
    assert await cli(port, "QLEN", "mail") == ["1"]
    assert await cli(port, "GETJOB", "FROM", "mail") == ["mail", job_id, "hello world"]
    assert await cli(port, "ACKJOB", job_id) == ["1"]


async def test_commands_from_a_file(broker: Broker) -> None:
    lines = b"".join(b'ADDJOB q "line\\n%d" 0\n' % number for number in range(50))
    out = await cli(port_of(broker), told=lines + b"QLEN q\nQPEEK q -1\n")
    assert len({each for each in out if each.startswith("D-")}) == 50
    assert "50" in out
    assert out[-2:] == ["line", "49"]


async def test_a_password(tmp_path: Path) -> None:
    from tests.vmq.jobs.serving import Guard

    async with Broker(config_of(tmp_path), plugins={"guard": Guard()}) as broker:
        port = port_of(broker)
        assert await cli(port, "QLEN", "mail") == ["NOAUTH Authentication required.", ""]
        user = ("--user", "worker", "--pass", "secret", "--no-auth-warning")
        assert await cli(port, *user, "QLEN", "mail") == ["0"]
