"""GET /stream/tail: messages of a stream, a JSON object a line, and those that follow. On the admin socket only.

Files are read in a thread for each caller, a page at a time, so that the event loop has its turn between them. A caller
that takes nothing holds its page up, and nobody else. An empty line is a sign of life; the last one tells the end. What
other nodes of a cluster own is asked of them; while one does not answer its messages are missing, and the caller is
told so.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec
from aiohttp import web

from vmq.admin.errors import AdminError, RefusedError
from vmq.admin.streams import find_stream
from vmq.streams.log.message import Ended, Notice, StreamMessage, TailQuery

if TYPE_CHECKING:
    from vmq.ports import BrokerView
    from vmq.streams.catalog import Stream
    from vmq.streams.places import PartitionPlaces
    from vmq.streams.tail import Tail

log = logging.getLogger("vmq.http")

T = TypeVar("T")

#: Callers at a time.
LIMIT: Final = 8
#: Messages, and about how many bytes, that are sent at a time.
_ROWS: Final = 256
_BYTES: Final = 262_144
#: Seconds between two looks whether the caller, the stream and the broker are still there.
_SLICE: Final = 0.5
#: Looks between two signs of life.
_ALIVE: Final = 10
#: Seconds without an answer of another node after which who follows is told: a partition that changes its owner, or a
#: worker that is started again, is back sooner.
_SILENCE: Final = 3.0


class StreamTails:
    """Everybody who reads streams this way."""

    def __init__(self, broker: "BrokerView") -> None:
        self._broker = broker
        self._stopping = False
        self.running = 0

    async def stop(self, _app: web.Application) -> None:
        """The broker stops: those who follow are told so."""
        self._stopping = True

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Streams lines until all is told, or the caller goes."""
        try:
            query = msgspec.convert(dict(request.query), TailQuery, strict=False)
        except msgspec.ValidationError as error:
            accepted = ", ".join(TailQuery.__struct_fields__)
            raise AdminError(f"{error}; accepted parameters: {accepted}") from None
        stream = find_stream(self._broker, query.stream)
        if self.running >= LIMIT:
            raise RefusedError(f"{LIMIT} callers follow streams already; accepted: fewer")
        self.running += 1
        worker = ThreadPoolExecutor(1, thread_name_prefix="vmq-tail")
        try:
            return await _Call(self, request, stream, query, worker).run()
        finally:
            self.running -= 1
            worker.shutdown(wait=False)

    def places(self) -> "PartitionPlaces | None":
        """Where partitions are that other nodes own."""
        streaming = self._broker.streaming
        return None if streaming is None else streaming.catalog.places

    def why_over(self, stream: "Stream") -> str:
        """Why nothing more comes of a stream; empty if it may."""
        if self._stopping:
            return "the broker stops"
        streaming = self._broker.streaming
        if streaming is None or streaming.catalog.streams.get(stream.name) is not stream:
            return f"stream {stream.name!r} was deleted"
        return ""


class _Call:
    """One caller."""

    def __init__(
        self,
        tails: StreamTails,
        request: web.Request,
        stream: "Stream",
        query: TailQuery,
        worker: ThreadPoolExecutor,
    ) -> None:
        self.tails = tails
        self.request = request
        self.stream = stream
        self.query = query
        self.worker = worker

    async def run(self) -> web.StreamResponse:
        from vmq.streams.log.errors import StreamError
        from vmq.streams.logs import LogsAnywhere
        from vmq.streams.tail import Tail

        logs = LogsAnywhere(self.stream, self.tails.places())
        try:
            tail = await self._in_thread(
                lambda: Tail(logs, self.query, self.stream.options.filters)
            )
        except StreamError as error:
            raise AdminError(str(error)) from None
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = "application/x-ndjson"
        try:
            await response.prepare(self.request)
            try:
                ended = await self._tell(tail, response)
            except StreamError as error:
                ended = Ended(str(error))
            except OSError as error:
                if isinstance(error, ConnectionError):
                    raise
                log.exception("cannot read stream %s", self.stream.name)
                ended = Ended(f"cannot read the stream: {error.strerror or error}")
            await response.write(_line(ended))
            await response.write_eof()
        except ConnectionError:
            pass  # the caller went
        return response

    async def _tell(self, tail: "Tail", response: web.StreamResponse) -> Ended:
        """Sends what there is, and what follows if that is wanted."""
        looks = 0
        told = ""
        while True:
            messages = tail.messages()
            while True:
                lines, problem = await self._in_thread(partial(_lines, messages))
                if lines:
                    await response.write(lines)
                if problem is not None:
                    raise problem
                if not lines:
                    break
                if why := self.tails.why_over(self.stream):
                    return Ended(why)
            if tail.done:
                return Ended()
            if not self.query.follow:
                missing = tail.missing()
                return Ended(f"{missing}: those messages are missing" if missing else "")
            missing = tail.missing(_SILENCE)
            if missing not in ("", told):
                text = f"{missing}: those messages come when it does"
                await response.write(_line(Notice(text)))
            told = missing
            while not await self._in_thread(lambda: tail.wait(_SLICE)):
                if tail.missing(_SILENCE) != told:
                    break
                if why := self.tails.why_over(self.stream):
                    return Ended(why)
                transport = self.request.transport
                if transport is None or transport.is_closing():
                    raise ConnectionResetError
                looks += 1
                if looks % _ALIVE == 0:
                    await response.write(b"\n")

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.worker, work)


def _lines(messages: Iterator[StreamMessage]) -> tuple[bytes, Exception | None]:
    """Some of the messages, a line each, and what goes wrong behind them; empty once there are no more."""
    from vmq.streams.log.errors import StreamError

    lines: list[bytes] = []
    size = 0
    try:
        for message in messages:
            lines.append(_line(message))
            size += len(lines[-1])
            if len(lines) >= _ROWS or size >= _BYTES:
                break
    except (StreamError, OSError) as problem:
        return b"".join(lines), problem
    return b"".join(lines), None


def _line(thing: StreamMessage | Notice | Ended) -> bytes:
    return msgspec.json.encode(thing) + b"\n"
