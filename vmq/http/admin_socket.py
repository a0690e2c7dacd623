"""The admin socket: the API on a Unix socket in the data directory, for whoever owns it.

The folder's file permissions are the authentication, so no API key is asked for. The broker holds the lock of the store
in the same directory while the socket is open: one that is found there on start has been left by a broker that is gone.
"""

import asyncio
import socket
import stat
from pathlib import Path
from typing import Final

from aiohttp import web

from vmq.admin.paths import socket_of, within_limit

#: Seconds that a request under way has to end when the broker stops.
STOP_TIMEOUT: Final = 2.0
#: Connections that may wait to be accepted.
BACKLOG: Final = 128


class SocketError(Exception):
    """The socket cannot be opened; the text is for the operator."""


class AdminSocket:
    """The socket of one broker, in a folder that is its own, with the application behind it."""

    def __init__(self, app: web.Application, folder: Path) -> None:
        self.path = socket_of(folder)
        self._runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=STOP_TIMEOUT
        )
        self._server: asyncio.Server | None = None
        self._file: tuple[int, int] | None = None

    async def start(self) -> None:
        """Opens the socket, in place of one that a killed broker left.

        Raises:
            SocketError: it cannot be had.
        """
        try:
            sock = self._bind()
        except OSError as error:
            raise SocketError(f"cannot open {self.path}: {error.strerror or error}") from error
        try:
            await self._runner.setup()
            assert self._runner.server is not None
            loop = asyncio.get_running_loop()
            self._server = await loop.create_server(
                self._runner.server, sock=sock, backlog=BACKLOG, start_serving=False
            )
            await self._server.start_serving()
        except BaseException:  # a start may be cancelled here
            await self.stop()
            sock.close()
            raise

    async def stop(self) -> None:
        """Closes the socket and removes it, unless another one stands there by now."""
        if self._server is not None:
            self._server.close()
        await self._runner.cleanup()
        if self._file is not None and _identity(self.path) == self._file:
            self.path.unlink(missing_ok=True)
        self._file = None

    def _bind(self) -> socket.socket:
        try:
            present = self.path.lstat()
        except FileNotFoundError:
            pass
        else:
            if not stat.S_ISSOCK(present.st_mode):
                raise SocketError(f"{self.path} is in the way: it is no socket")
            self.path.unlink()
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with within_limit(self.path) as address:
                sock.bind(address)
            # Before it listens, so that nobody else can ever connect.
            self.path.chmod(0o600)
            self._file = _identity(self.path)
            sock.setblocking(False)
        except BaseException:
            sock.close()
            raise
        return sock


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        status = path.lstat()
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino
