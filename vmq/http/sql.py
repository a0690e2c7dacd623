"""POST /sql: the result of a query on streams, as an Arrow IPC stream. On the admin socket only."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from aiohttp import web

from vmq.admin.errors import AdminError, RefusedError

if TYPE_CHECKING:
    from vmq.ports import BrokerView

#: Callers at a time; the others wait for one of them.
_THREADS: Final = 4


class SqlQueries:
    """Everybody who asks this way."""

    def __init__(self, broker: "BrokerView") -> None:
        self._broker = broker
        self._threads: ThreadPoolExecutor | None = None

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Answers one query."""
        streaming = self._broker.streaming
        if streaming is None:
            raise AdminError("there are no streams")
        try:
            query = (await request.read()).decode()
        except UnicodeDecodeError:
            raise AdminError("a query is UTF-8") from None
        from vmq.streams.log.columns import as_ipc
        from vmq.streams.log.errors import PassingError, StreamError
        from vmq.streams.sql.running import sources_of

        sources = sources_of(streaming.catalog, lambda _stream: True)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="vmq-sql")
        loop = asyncio.get_running_loop()
        try:
            found = await loop.run_in_executor(
                self._threads, lambda: as_ipc(streaming.sql.run(query, sources))
            )
        except PassingError as error:
            raise RefusedError(str(error)) from None
        except StreamError as error:
            raise AdminError(str(error)) from None
        return web.Response(body=found, content_type="application/vnd.apache.arrow.stream")
