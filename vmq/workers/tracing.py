"""A trace over all workers: a client may come to any of them."""

import asyncio
from typing import TYPE_CHECKING, Final

from aiohttp import web

from vmq.admin.errors import RefusedError
from vmq.workers.asking import UnreachableError, WorkerClient

if TYPE_CHECKING:
    from vmq.workers.roles import SupervisorView

#: Lines that wait for a watcher, who is behind then; more have to wait in the workers.
_LINES: Final = 1000
#: Seconds until a worker that has gone is looked for again.
_PAUSE: Final = 1.0


class Traces:
    """Follows clients in all workers at once."""

    def __init__(self, supervisor: "SupervisorView", client: WorkerClient) -> None:
        self._supervisor = supervisor
        self._client = client

    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Streams the lines of all workers until the watcher goes, or the broker stops.

        Raises:
            AdminError: a worker refuses the trace.
        """
        lines: asyncio.Queue[bytes] = asyncio.Queue(_LINES)
        numbers = [each.number for each in self._supervisor.serving]
        followers = [
            asyncio.create_task(self._follow(number, dict(request.query), lines))
            for number in numbers
        ]
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = "text/plain"
        response.charset = "utf-8"
        try:
            early = await self._begun(followers, lines)
            await response.prepare(request)
            await response.write(b"\n" + b"".join(early))
            while True:
                await response.write(await lines.get())
        except (ConnectionError, asyncio.CancelledError):
            return response
        finally:
            for each in followers:
                each.cancel()
            await asyncio.gather(*followers, return_exceptions=True)

    async def _begun(
        self, followers: "list[asyncio.Task[None]]", lines: "asyncio.Queue[bytes]"
    ) -> list[bytes]:
        """Returns when each has sent its blank line, and follows from then on: what some have told before that."""
        early: list[bytes] = []
        missing = sum(each.is_running for each in self._supervisor.serving)
        while missing:
            first = asyncio.create_task(lines.get())
            done, _ = await asyncio.wait([first, *followers], return_when=asyncio.FIRST_COMPLETED)
            for follower in followers:
                if follower in done:
                    first.cancel()
                    error = follower.exception()
                    raise error if error is not None else RefusedError("a trace ended")
            if (line := await first) == b"\n":
                missing -= 1
            else:
                early.append(line)
        return early

    async def _follow(
        self, number: int, parameters: dict[str, str], lines: "asyncio.Queue[bytes]"
    ) -> None:
        while True:
            worker = self._supervisor.workers[number]
            if worker.is_running:
                try:
                    async for line in self._client.trace(number, parameters):
                        await lines.put(line)
                except UnreachableError:
                    pass
            await asyncio.sleep(_PAUSE)
