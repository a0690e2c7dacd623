"""Streams of several workers: any of them follows all partitions, and queries them, wherever they are."""

from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from vmq.streams.log.message import Ended
from vmq.workers.asking import UnreachableError, WorkerClient

if TYPE_CHECKING:
    from vmq.workers.pool import WorkerPool


class WorkerQueries:
    """Has a worker answer queries: it sees the streams of all."""

    def __init__(self, pool: "WorkerPool", client: WorkerClient) -> None:
        self._pool = pool
        self._client = client

    async def serve(self, request: web.Request) -> web.Response:
        """Answers one query.

        Raises:
            AdminError: no worker runs, or the one that was asked refuses.
        """
        found = await self._client.sql(self._pool.running()[0].number, await request.read())
        return web.Response(body=found, content_type="application/vnd.apache.arrow.stream")


class WorkerTails:
    """Passes on what a worker tells of streams."""

    def __init__(self, pool: "WorkerPool", client: WorkerClient) -> None:
        self._pool = pool
        self._client = client

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Streams lines until all is told, or the caller goes.

        Raises:
            AdminError: no worker runs, or the one that was asked refuses.
        """
        lines = self._client.tail(self._pool.running()[0].number, dict(request.query))
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = "application/x-ndjson"
        some = b"\n"
        try:
            some = await anext(lines, some)  # not before: a refusal has a status of its own
            await response.prepare(request)
            await response.write(some)
            async for some in lines:
                await response.write(some)
        except ConnectionError:
            return response  # the caller went
        except UnreachableError as error:
            if not response.prepared:
                raise
            if some.endswith(b"\n"):  # else a message is cut off, and nothing can follow
                await response.write(msgspec.json.encode(Ended(str(error))) + b"\n")
        finally:
            await lines.aclose()
        await response.write_eof()
        return response
