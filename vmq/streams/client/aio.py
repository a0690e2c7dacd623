"""A member of a group for programs of asyncio: what blocks is done in a thread of its own."""

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Final, Self, TypeVar

import pyarrow as pa

from vmq.streams.client.group import StreamGroup
from vmq.streams.client.messages import Messages

T = TypeVar("T")

#: Seconds of a look for rows: whoever gives up waits for its end.
_LOOK: Final = 0.5


class AsyncStreamGroup:
    """A member of a group; see `StreamGroup`.

    Args:
        join: makes the member; blocks.
    """

    def __init__(self, join: Callable[[], StreamGroup]) -> None:
        self._join = join
        self._threads = ThreadPoolExecutor(1, thread_name_prefix="vmq-group-aio")
        self._group: StreamGroup | None = None

    @property
    def partitions(self) -> list[int]:
        """The partitions that it has now."""
        return [] if self._group is None else self._group.partitions

    async def read(self, timeout: float | None = None) -> pa.RecordBatch | None:  # noqa: ASYNC109 - its end is no error
        """Rows of one partition, in order; see `StreamGroup.read`. Whoever gives up waiting loses none.

        Raises:
            GroupError: the broker refuses.
        """
        group = self._member()
        loop = asyncio.get_running_loop()
        until = None if timeout is None else loop.time() + timeout
        while True:
            left = _LOOK if until is None else max(0.0, min(_LOOK, until - loop.time()))
            reading = self._threads.submit(group.read, left)
            try:
                found = await asyncio.shield(asyncio.wrap_future(reading))
            except asyncio.CancelledError:
                self._threads.submit(self._undo, group, reading)
                raise
            if found is not None or group.is_closed:
                return found
            if until is not None and loop.time() >= until:
                return None

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        """Rows, until it is closed."""
        while (found := await self.read()) is not None:
            yield found

    async def commit(self, publish: Messages = ()) -> None:
        """The program is done with all that was handed over, and publishes with that; see `StreamGroup.commit`.

        Raises:
            FencedError: partitions are another member's by now.
            GroupError: the broker refuses, or cannot be reached.
            ValueError: there is something to publish, but nothing was handed over that it could come of.
        """
        group = self._member()
        await self._do(lambda: group.commit(publish))

    async def close(self) -> None:
        """Leaves the group; what is not committed goes to others."""
        if self._group is not None:
            await self._do(self._group.close)
        self._threads.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        joining = self._threads.submit(self._join)
        try:
            self._group = await asyncio.shield(asyncio.wrap_future(joining))
        except BaseException:
            self._threads.submit(self._leave, joining)
            self._threads.shutdown(wait=False)
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def _member(self) -> StreamGroup:
        if self._group is None:
            raise RuntimeError("the group is not joined yet; accepted: async with")
        return self._group

    async def _do(self, call: Callable[[], T]) -> T:
        """Does it in the thread, to its end."""
        return await asyncio.shield(asyncio.wrap_future(self._threads.submit(call)))

    @staticmethod
    def _leave(joining: "Future[StreamGroup]") -> None:
        """Nobody waits for the member any more."""
        if joining.exception() is None:
            joining.result().close()

    @staticmethod
    def _undo(group: StreamGroup, reading: "Future[pa.RecordBatch | None]") -> None:
        """Nobody has what was read."""
        if reading.exception() is None and reading.result() is not None:
            group.undo()
