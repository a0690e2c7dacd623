"""Connections of other nodes of this machine: who comes as nobody listens any more, or finds no file left here."""

import asyncio
import errno
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from vmq_cluster.transport import accepting
from vmq_cluster.transport.accepting import Accepting
from vmq_cluster.transport.unix_listener import UnixListener
from vmq_cluster.transport.unix_paths import listening_at


def nothing(*_: object) -> None:
    """Nobody says anything."""


def connected(path: Path) -> socket.socket:
    """A stranger's, which waits in the backlog."""
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    made.connect(str(path))
    return made


async def all_said(stranger: socket.socket) -> bytes:
    """What comes until the connection ends, or is cut."""
    said = b""
    with suppress(ConnectionError):
        async with asyncio.timeout(10):
            while more := await asyncio.get_running_loop().sock_recv(stranger, 100):
                said += more
    return said


@pytest.mark.parametrize("turns", range(6))
async def test_who_comes_as_the_listener_closes_is_closed_too(tmp_path: Path, turns: int) -> None:
    """In the backlog, accepted, or in already."""
    listener = UnixListener(nothing, nothing, nothing, nothing, None, 60.0)
    listener.open(f"{tmp_path}/s")
    with connected(tmp_path / "s") as stranger:
        for _ in range(turns):
            await asyncio.sleep(0)
        listener.close()
        assert len(await all_said(stranger)) in {0, 32}, "what it drew, or nothing"
    assert not listener._connections


class Full(socket.socket):
    """A socket of a process that may open no more files at first."""

    is_full = True

    def accept(self) -> tuple[socket.socket, Any]:
        if Full.is_full:
            Full.is_full = False
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


@patch.object(accepting, "_PAUSE", 0.01)
@patch.object(Full, "is_full", True)
async def test_without_files_it_says_so_and_tries_again(tmp_path: Path) -> None:
    listening = Full(fileno=listening_at(f"{tmp_path}/s").detach())
    said: list[str] = []
    made = asyncio.get_running_loop().create_future()

    class Made(asyncio.Protocol):
        def connection_made(self, transport: Any) -> None:
            transport.close()
            made.set_result(True)

    accepts = Accepting(listening, Made, said.append)
    with connected(tmp_path / "s") as stranger:
        async with asyncio.timeout(10):
            assert await made
        assert await all_said(stranger) == b""
    accepts.close()
    assert said == ["cannot accept a node of this machine: Too many open files"]
