"""Asks workers, each on its admin socket."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from vmq.admin.errors import AdminError, NotAuthenticatedError, NotFoundError, RefusedError
from vmq.admin.paths import socket_of
from vmq.http import report
from vmq.http.api import PREFIX
from vmq.http.report import BrokerReport

#: Seconds that a worker has to answer, unless said otherwise.
PATIENCE: Final = 60.0
#: Seconds that it has to give its figures.
QUICK: Final = 3.0
#: Seconds without a sign of life after which a trace has ended.
_SILENCE: Final = 15.0
#: The same of a stream's messages, which may have to be looked for.
_LONG_SILENCE: Final = 30.0

_KINDS: Final = {401: NotAuthenticatedError, 404: NotFoundError, 409: RefusedError}


class UnreachableError(AdminError):
    """A worker does not answer."""

    status = 503


class WorkerClient:
    """Talks to the workers, each of which has its socket in its own folder."""

    def __init__(self, folder_of: Callable[[int], Path]) -> None:
        self._folder_of = folder_of
        self._sessions: dict[int, aiohttp.ClientSession] = {}

    async def close(self) -> None:
        """Ends what is under way."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def ask(
        self,
        number: int,
        method: str,
        path: str,
        parameters: Mapping[str, Any] | None = None,
        patience: float | None = PATIENCE,
    ) -> Any:
        """What an operation of the API answers.

        Raises:
            UnreachableError: the worker does not answer.
            AdminError: it refuses, as this says.
        """
        return msgspec.json.decode(await self.raw(number, method, path, parameters, patience))

    async def raw(
        self,
        number: int,
        method: str,
        path: str,
        parameters: Mapping[str, Any] | None = None,
        patience: float | None = PATIENCE,
    ) -> bytes:
        """What an operation of the API answers, as JSON."""
        given = {name: each for name, each in (parameters or {}).items() if each is not None}
        status, body = await self._request(
            number,
            method,
            PREFIX + path,
            patience,
            params=None
            if method == "POST"
            else {name: _plain(each) for name, each in given.items()},
            json=given if method == "POST" else None,
        )
        return _granted(status, body)

    async def sql(self, number: int, query: bytes) -> bytes:
        """The result of a query on streams, as an Arrow IPC stream; the worker bounds its time. Raises the same."""
        status, body = await self._request(number, "POST", PREFIX + "/sql", None, data=query)
        return _granted(status, body)

    async def report(self, number: int) -> BrokerReport:
        """All figures of a worker.

        Raises:
            UnreachableError: it does not answer.
        """
        status, body = await self._request(number, "GET", report.PATH, QUICK)
        try:
            return msgspec.msgpack.decode(body, type=BrokerReport)
        except msgspec.DecodeError as error:
            raise UnreachableError(f"worker {number} answers {status}: {error}") from None

    async def trace(self, number: int, parameters: Mapping[str, str]) -> AsyncGenerator[bytes]:
        """The lines of a trace as they come, until the worker ends.

        Raises:
            UnreachableError: it does not answer.
            AdminError: it refuses.
        """
        async with self._follow(number, "/trace", parameters, _SILENCE) as content:
            async for line in content:
                yield line

    async def tail(self, number: int, parameters: Mapping[str, str]) -> AsyncGenerator[bytes]:
        """What a worker tells of a stream, some bytes at a time: a line may be as long as a message. Likewise."""
        async with self._follow(number, "/stream/tail", parameters, _LONG_SILENCE) as content:
            async for some in content.iter_any():
                yield some

    @asynccontextmanager
    async def _follow(
        self, number: int, path: str, parameters: Mapping[str, str], silence: float
    ) -> AsyncIterator[aiohttp.StreamReader]:
        """An answer that does not end, unless nothing comes for so many seconds."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=silence)
        try:
            async with self._session(number).get(
                PREFIX + path, params=dict(parameters), timeout=timeout
            ) as response:
                if response.status != 200:
                    error = AdminError(str((await response.json()).get("error")))
                    error.status = response.status
                    raise error
                yield response.content
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_said(number, error)) from None

    async def _request(
        self, number: int, method: str, path: str, patience: float | None, **more: Any
    ) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=patience)
        try:
            async with self._session(number).request(
                method, path, timeout=timeout, **more
            ) as response:
                return response.status, await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UnreachableError(_said(number, error)) from None

    def _session(self, number: int) -> aiohttp.ClientSession:
        session = self._sessions.get(number)
        if session is None:
            # A connection a request: one that is kept may be that of a process that is gone.
            connector = aiohttp.UnixConnector(
                str(socket_of(self._folder_of(number))), force_close=True
            )
            session = aiohttp.ClientSession("http://worker", connector=connector)
            self._sessions[number] = session
        return session


def _granted(status: int, body: bytes) -> bytes:
    """What a worker answers, unless it refuses."""
    if status == 200:
        return body
    text = str(msgspec.json.decode(body, type=dict[str, Any]).get("error"))
    error = _KINDS.get(status, AdminError)(text)
    error.status = status
    raise error


def _said(number: int, error: Exception) -> str:
    return f"worker {number} does not answer: {str(error) or type(error).__name__}"


def _plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
