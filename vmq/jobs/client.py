"""A client of jobs, for threads and for asyncio.

with connect("resp://127.0.0.1:7711") as jobs:
    jobs.add("mail", b"to: ada@example.org", retry=60)
    for job in jobs.take("mail"):
        ...
        job.ack()

async with connect("resp://127.0.0.1:7711") as jobs:
    await jobs.add("mail", b"to: ada@example.org", retry=60)
    async for job in jobs.take("mail"):
        ...
        await job.ack()

A connection that is lost raises `ConnectionError`: what was not acknowledged is given again after its RETRY.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Iterator
from math import ceil
from types import TracebackType
from typing import Any, Final, Generic, TypeVar
from urllib.parse import unquote, urlsplit

from vmq.jobs.reply import JobError, ReplyReader, command

__all__ = ["AsyncJobClient", "AsyncTaken", "JobClient", "JobError", "Taken", "connect"]

_PORT: Final = 7711
#: Milliseconds that a GETJOB waits at most: then the next one shows that the connection is there.
_WAIT: Final = 20_000
#: Seconds that a reply may take beyond that.
_PATIENCE: Final = 30.0
_CHUNK: Final = 65_536


class JobAddress:
    """Where to connect to, and as whom.

    Args:
        url: `resp://[USER:PASSWORD@]HOST[:PORT]`, or `resp+tls://` with TLS; `redis://` and `rediss://` mean the same.
        context: of TLS; None: certificates are checked against those that this machine trusts.

    Raises:
        ValueError: it is no such URL.
    """

    def __init__(self, url: str, context: ssl.SSLContext | None) -> None:
        parts = urlsplit(url)
        try:
            port = _PORT if parts.port is None else parts.port
        except ValueError:
            port = 0
        known = parts.scheme in {"resp", "resp+tls", "redis", "rediss"}
        if not known or not parts.hostname or not port:
            shown = url.rpartition("@")[2]  # what is before it has the password
            raise ValueError(f"{shown!r}: accepted: resp://HOST:PORT or resp+tls://HOST:PORT")
        self.host = parts.hostname
        self.port = port
        self.context: ssl.SSLContext | None = None
        if parts.scheme in {"resp+tls", "rediss"}:
            self.context = context or ssl.create_default_context()
        self.user = unquote(parts.username or "")
        self.password = unquote(parts.password or "")

    def login(self) -> bytes:
        """The command that says who this is; nothing where that goes without saying."""
        if not self.user and not self.password:
            return b""
        words = (self.user, self.password) if self.user else (self.password,)
        return command("AUTH", *words)


def adding(queue: str, body: bytes | str, options: dict[str, Any]) -> bytes:
    """ADDJOB with what is set of the options."""
    words: list[str | bytes | int] = ["ADDJOB", queue, body, 0]
    for name, value in options.items():
        if value is not None and value != "":
            words += [name.upper(), value]
    return command(*words)


def getting(queues: tuple[str, ...], count: int, wait: int) -> bytes:
    """GETJOB that waits so many milliseconds, or not at all."""
    if not queues:
        raise ValueError("no queue to take from")
    how: list[str | int] = ["TIMEOUT", wait] if wait else ["NOHANG"]
    return command("GETJOB", *how, "COUNT", count, "WITHCOUNTERS", "FROM", *queues)


def waiting(left: float) -> int:
    """Milliseconds that a GETJOB waits of so many seconds: a part of one as a whole one, as it asks for no less."""
    return max(0, ceil(min(left * 1000, _WAIT)))


C = TypeVar("C")


class _TakenJob(Generic[C]):
    """A job that this program has to do.

    Attributes:
        id: its id.
        queue: the name of its queue.
        body: what is to be done.
        nacks: times that a worker gave it up.
        repeats: times that it was given again since nothing was heard.
    """

    def __init__(self, client: C, told: list[Any]) -> None:
        self._client = client
        self.queue: str = told[0].decode("utf-8", "surrogateescape")
        self.id: str = told[1].decode()
        self.body: bytes = told[2]
        self.nacks: int = told[4]
        self.repeats: int = told[6]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(queue={self.queue!r}, id={self.id!r}, {len(self.body)} bytes)"
        )


class Taken(_TakenJob["JobClient"]):
    """A job that was taken with `JobClient`."""

    def ack(self) -> bool:
        """It is done; False if it was known to be."""
        return bool(self._client.do("ACKJOB", self.id))

    def nack(self) -> bool:
        """It could not be done: given again, at once or after the queue's back-off."""
        return bool(self._client.do("NACK", self.id))

    def working(self) -> int:
        """It takes longer: given again only after another RETRY, in seconds, which is returned."""
        return int(self._client.do("WORKING", self.id))


class AsyncTaken(_TakenJob["AsyncJobClient"]):
    """A job that was taken with `AsyncJobClient`."""

    async def ack(self) -> bool:
        """It is done; False if it was known to be."""
        return bool(await self._client.do("ACKJOB", self.id))

    async def nack(self) -> bool:
        """It could not be done: given again, at once or after the queue's back-off."""
        return bool(await self._client.do("NACK", self.id))

    async def working(self) -> int:
        """It takes longer: given again only after another RETRY, in seconds, which is returned."""
        return int(await self._client.do("WORKING", self.id))


class JobClient:
    """A connection for one thread."""

    def __init__(self, address: JobAddress) -> None:
        self._reader = ReplyReader()
        self._socket = socket.create_connection((address.host, address.port), _PATIENCE)
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if address.context is not None:
                self._socket = address.context.wrap_socket(
                    self._socket, server_hostname=address.host
                )
            login = address.login()
            if login:
                self._ask(login)
        except BaseException:
            self._socket.close()
            raise

    def do(self, *words: str | bytes | int) -> Any:
        """Any command; its reply.

        Raises:
            JobError: the broker refuses.
            ConnectionError: the connection is lost.
        """
        return self._ask(command(*words))

    def _ask(self, data: bytes, wait: float = 0.0) -> Any:
        try:
            self._socket.settimeout(wait + _PATIENCE)
            self._socket.sendall(data)
            while True:
                is_whole, reply = self._reader.next()
                if is_whole:
                    break
                more = self._socket.recv(_CHUNK)
                if not more:
                    raise ConnectionResetError("the broker closed the connection")
                self._reader.feed(more)
        except TimeoutError:
            self._socket.close()
            raise ConnectionAbortedError("the broker does not answer") from None
        if isinstance(reply, JobError):
            raise reply
        return reply

    def add(
        self,
        queue: str,
        body: bytes | str,
        *,
        retry: int | None = None,
        ttl: int | None = None,
        delay: int | None = None,
        priority: int | None = None,
        maxlen: int | None = None,
        key: str = "",
        replicate: int | None = None,
    ) -> str:
        """Adds a job; returns its id when it is as safe as the queue's rules say.

        Args:
            queue: the name of its queue.
            body: what is to be done.
            retry: seconds after which it is given again; 0: never, it is delivered at most once.
            ttl: seconds that it lives, from when it is due.
            delay: seconds until it is due.
            priority: 0 to 9; 9 goes first.
            maxlen: refused if so many are queued.
            key: while the queue's window lasts no second job with it is added; the id is that of the first.
            replicate: hosts that are to have it.

        Raises:
            JobError: it is refused.
            ConnectionError: the connection is lost; nobody knows whether it was added, unless it has a key.
        """
        options = {
            "retry": retry,
            "ttl": ttl,
            "delay": delay,
            "priority": priority,
            "maxlen": maxlen,
            "key": key,
            "replicate": replicate,
        }
        return str(self._ask(adding(queue, body, options)).decode())

    def get(self, *queues: str, count: int = 1, timeout: float | None = 0) -> list[Taken]:
        """Takes up to `count` jobs of queues, from left to right; waits so many seconds for one, None: for ever."""
        left = float("inf") if timeout is None else timeout
        while True:
            wait = waiting(left)
            found = self._ask(getting(queues, count, wait), wait / 1000)
            left -= wait / 1000
            if found or left <= 0:
                return [Taken(self, each) for each in found or ()]

    def take(self, *queues: str) -> Iterator[Taken]:
        """Takes one job after the other, for ever."""
        while True:
            yield from self.get(*queues, timeout=None)

    def close(self) -> None:
        """Ends the connection. What was taken and not acknowledged is given again after its RETRY."""
        self._socket.close()


class AsyncJobClient:
    """A connection for one task at a time; others wait for it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._replies = ReplyReader()
        self._reader = reader
        self._writer = writer
        self._turn = asyncio.Lock()

    async def do(self, *words: str | bytes | int) -> Any:
        """Any command; its reply.

        Raises:
            JobError: the broker refuses.
            ConnectionError: the connection is lost.
        """
        return await self._ask(command(*words))

    async def _ask(self, data: bytes, wait: float = 0.0) -> Any:
        async with self._turn:
            try:
                async with asyncio.timeout(wait + _PATIENCE):
                    self._writer.write(data)
                    await self._writer.drain()
                    reply = await self._reply()
            except TimeoutError:
                self._writer.close()
                raise ConnectionAbortedError("the broker does not answer") from None
            except asyncio.CancelledError:
                # Its reply would be taken for that of the next command.
                self._writer.close()
                raise
        if isinstance(reply, JobError):
            raise reply
        return reply

    async def _reply(self) -> Any:
        while True:
            is_whole, reply = self._replies.next()
            if is_whole:
                return reply
            more = await self._reader.read(_CHUNK)
            if not more:
                raise ConnectionResetError("the broker closed the connection")
            self._replies.feed(more)

    async def add(
        self,
        queue: str,
        body: bytes | str,
        *,
        retry: int | None = None,
        ttl: int | None = None,
        delay: int | None = None,
        priority: int | None = None,
        maxlen: int | None = None,
        key: str = "",
        replicate: int | None = None,
    ) -> str:
        """Adds a job, as `JobClient.add` does."""
        options = {
            "retry": retry,
            "ttl": ttl,
            "delay": delay,
            "priority": priority,
            "maxlen": maxlen,
            "key": key,
            "replicate": replicate,
        }
        reply = await self._ask(adding(queue, body, options))
        return str(reply.decode())

    async def get(
        self,
        *queues: str,
        count: int = 1,
        timeout: float | None = 0,  # noqa: ASYNC109 - as for threads
    ) -> list[AsyncTaken]:
        """Takes jobs, as `JobClient.get` does."""
        left = float("inf") if timeout is None else timeout
        while True:
            wait = waiting(left)
            found = await self._ask(getting(queues, count, wait), wait / 1000)
            left -= wait / 1000
            if found or left <= 0:
                return [AsyncTaken(self, each) for each in found or ()]

    async def take(self, *queues: str) -> AsyncIterator[AsyncTaken]:
        """Takes one job after the other, for ever."""
        while True:
            for each in await self.get(*queues, timeout=None):
                yield each

    async def close(self) -> None:
        """Ends the connection. What was taken and not acknowledged is given again after its RETRY."""
        self._writer.close()


class Connecting:
    """A connection that is made by the block that uses it: `with` for threads, `async with` for asyncio."""

    def __init__(self, address: JobAddress) -> None:
        self._address = address
        self._jobs: JobClient | None = None
        self._async: AsyncJobClient | None = None

    def open(self) -> JobClient:
        """Connects now, without a block; `JobClient.close` ends it.

        Raises:
            OSError: there is nobody.
            JobError: the password is wrong.
        """
        return JobClient(self._address)

    async def open_async(self) -> AsyncJobClient:
        """Connects now, without a block; `AsyncJobClient.close` ends it.

        Raises:
            OSError: there is nobody.
            JobError: the password is wrong.
        """
        address = self._address
        async with asyncio.timeout(_PATIENCE):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=address.context
            )
        found = AsyncJobClient(reader, writer)
        login = address.login()
        try:
            if login:
                await found._ask(login)
        except BaseException:
            writer.close()
            raise
        return found

    def __enter__(self) -> JobClient:
        self._jobs = self.open()
        return self._jobs

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._jobs is not None:
            self._jobs.close()

    async def __aenter__(self) -> AsyncJobClient:
        self._async = await self.open_async()
        return self._async

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._async is not None:
            await self._async.close()


def connect(url: str, context: ssl.SSLContext | None = None) -> Connecting:
    """A client of the jobs at an address, for a block: `with` in threads, `async with` in asyncio.

    Args:
        url: `resp://[USER:PASSWORD@]HOST[:PORT]`, or `resp+tls://` with TLS.
        context: of TLS; None: certificates are checked against those that this machine trusts.

    Raises:
        ValueError: it is no such URL.
    """
    return Connecting(JobAddress(url, context))
