"""The admin socket: the API on a Unix socket in the data directory, for whoever owns it.

The folder's file permissions are the authentication, so no API key is asked for. The broker holds the lock of the store
in the same directory while the socket is open: one that is found there on start has been left by a broker that is gone.
"""

import socket
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from vmq.admin.paths import socket_of, within_limit
from vmq.http.server import LateServer

if TYPE_CHECKING:
    from aiohttp import web

#: Seconds that a request under way has to end when the broker stops.
STOP_TIMEOUT: Final = 2.0
#: Connections that may wait to be accepted.
BACKLOG: Final = 128


class SocketError(Exception):
    """The socket cannot be opened; the text is for the operator."""


class AdminSocket:
    """The socket of one broker, with the application behind it.

    Args:
        folder: the broker's own.
        make_app: makes the application, for the first who connects; until it has, requests wait.
    """

    def __init__(self, folder: Path, make_app: "Callable[[], Awaitable[web.Application]]") -> None:
        self.path = socket_of(folder)
        self._make_app = make_app
        self._server: LateServer | None = None
        self._file: tuple[int, int] | None = None

    def open(self) -> None:
        """Opens the socket, in place of one that a killed broker left; who connects is served in the loop's next turns.

        Raises:
            SocketError: it cannot be had.
        """
        try:
            self._server = LateServer(
                f"the admin socket {self.path}", self._bind(), BACKLOG, self._load
            )
        except OSError as error:
            raise SocketError(f"cannot open {self.path}: {error.strerror or error}") from error
        self._server.serve()

    async def _load(self) -> "web.AppRunner":
        app = await self._make_app()
        # Late: who opens the socket need not wait for the library.
        from aiohttp import web

        return web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=STOP_TIMEOUT
        )

    async def stop(self) -> None:
        """Closes the socket and removes it, unless another one stands there by now."""
        if self._server is not None:
            await self._server.stop()
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
