"""The socket in the data directory: for its owner, while the broker runs."""

import asyncio
import os
import socket
import stat
import sys
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace

from vmq.admin.paths import socket_of
from vmq.broker import Broker, StartError
from vmq.config.options import BrokerOptions, Config
from vmq.http.admin_socket import AdminSocket

# ruff: noqa: ASYNC240 - files of a test's own folder block nobody


async def status_of(path: Path) -> int:
    async with (
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(path))) as client,
        client.get("http://localhost/api/v1/sessions") as answer,
    ):
        return answer.status


def left_behind(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(str(path))


@pytest.fixture
def path(config: Config) -> Path:
    return socket_of(Path(config.broker.data_dir))


async def test_it_serves_the_owner_and_goes_with_the_broker(config: Config, path: Path) -> None:
    async with Broker(config, admin=True):
        assert stat.S_IMODE(path.lstat().st_mode) == 0o600
        assert await status_of(path) == 200
    assert not path.exists()


async def test_an_embedded_broker_has_none_unless_it_asks(config: Config, path: Path) -> None:
    async with Broker(config):
        assert not path.exists()


async def test_one_that_a_killed_broker_left_is_replaced(config: Config, path: Path) -> None:
    left_behind(path)
    async with Broker(config, admin=True):
        assert await status_of(path) == 200
    assert not path.exists()


async def test_what_is_no_socket_is_never_replaced(config: Config, path: Path) -> None:
    path.parent.mkdir()
    path.write_text("mine")
    with pytest.raises(StartError, match=r"admin\.sock is in the way: it is no socket"):
        await Broker(config, admin=True).start()
    assert path.read_text() == "mine"
    path.unlink()
    target = path.with_name("target")
    target.write_text("mine")
    path.symlink_to(target)
    with pytest.raises(StartError, match="in the way"):
        await Broker(config, admin=True).start()
    assert target.read_text() == "mine"


async def test_a_second_broker_on_the_directory_does_not_take_it(
    config: Config, path: Path
) -> None:
    async with Broker(config, admin=True):
        with pytest.raises(StartError):
            await Broker(config, admin=True).start()
        assert await status_of(path) == 200


async def test_a_socket_that_somebody_put_there_meanwhile_stays(config: Config, path: Path) -> None:
    async with Broker(config, admin=True):
        path.unlink()
        left_behind(path)
        inode = path.lstat().st_ino
    assert path.lstat().st_ino == inode


@pytest.mark.skipif(sys.platform != "linux", reason="the way around goes through /proc")
async def test_a_long_path_works(config: Config, tmp_path: Path) -> None:
    folder = tmp_path / ("d" * 120)
    there = replace(config, broker=BrokerOptions(data_dir=str(folder)))
    async with Broker(there, admin=True):
        assert socket_of(folder).is_socket()
        handle = os.open(folder, os.O_RDONLY)
        try:
            assert await status_of(Path(f"/proc/self/fd/{handle}/admin.sock")) == 200
        finally:
            os.close(handle)
    assert not socket_of(folder).exists()


async def test_a_stop_does_not_wait_for_idle_connections(config: Config, path: Path) -> None:
    async with asyncio.timeout(60):
        async with Broker(config, admin=True):
            reader, writer = await asyncio.open_unix_connection(str(path))
            writer.write(b"GET /api/v1/sessions HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()


@pytest.mark.parametrize("how", ["stopped", "broken"])
async def test_who_waits_for_an_application_that_never_comes_is_sent_away(
    tmp_path: Path, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    asked = asyncio.Event()

    async def make_app() -> web.Application:
        await asked.wait()
        raise ImportError("aiohttp")

    admin = AdminSocket(tmp_path, make_app)
    admin.open()
    async with asyncio.timeout(60):
        reader, writer = await asyncio.open_unix_connection(str(admin.path))
        if how == "stopped":
            await admin.stop()
        asked.set()
        with suppress(ConnectionResetError):
            assert await reader.read() == b""
        writer.close()
        await admin.stop()
    assert ("is not served" in caplog.text) == (how == "broken")
    assert not admin.path.exists()
