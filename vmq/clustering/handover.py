"""Rows of streams that go to another node: those of partitions that this node does not own, and all when it leaves.

**Strays.** Rows of a partition may be here though another node owns it: two nodes had a stream of one name before they
joined, or messages came while the owner changed. They are sent to the owner, which appends them to what it has, and
are deleted here when it has them. If this node dies in between they are sent again.

**Leaving.** A partition is copied to the node that is to own it next, with its offsets, while it goes on here. The copy
counts for nothing until the owner's record names that node. For the last rows, and the record, publishers are held up.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from vmq.clustering.appends import Rows
from vmq.clustering.placing import chosen
from vmq.clustering.rows import EMPTY, pack
from vmq.core import Core
from vmq.streams.cursor import Cursor
from vmq.streams.errors import StreamError

if TYPE_CHECKING:
    from vmq.clustering.places import ClusterPlaces
    from vmq.clustering.streams import Streams
    from vmq.streams.catalog import Stream
    from vmq.streams.partition import Partition

log = logging.getLogger("vmq.cluster")

#: Seconds until rows are sent again that were not taken.
_AGAIN: Final = 0.5
#: Seconds that publishers are held up at the most.
_LONGEST_HOLD: Final = 5.0


class RefusedError(Exception):
    """Rows were dropped on their way: their receiver is no member any more."""


class Handover:
    """The rows of one node on their way out."""

    def __init__(self, streams: "Streams", places: "ClusterPlaces", core: Core) -> None:
        self._streams = streams
        self._places = places
        self._core = core
        self._loop = asyncio.get_running_loop()
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        """Sends no more."""
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # --- strays

    def look(self) -> None:
        """Has strays sent, if there are any."""
        if self._task is None and self._timer is None and self._next() is not None:
            self._task = self._loop.create_task(self._give_all())
            self._task.add_done_callback(self._ended)

    def look_later(self) -> None:
        """The same, when what is on its way to the disk has come there."""
        if self._timer is None:
            self._timer = self._loop.call_later(_AGAIN, self._look_now)

    def _look_now(self) -> None:
        self._timer = None
        self.look()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task is not self._task:
            return
        self._task = None
        if not task.cancelled():
            if error := task.exception():
                log.error("rows of streams stay here for now: %s", error)
            if self._next() is not None:
                self.look_later()

    def _next(self) -> "tuple[Stream, Partition, str] | None":
        """Rows that are another node's, and whose."""
        catalog = self._streams.catalog
        for stream in [] if catalog is None else catalog.streams.values():
            for partition in stream.partitions:
                owner = self._streams.owner(stream.name, partition.number)
                if owner is None or partition.is_copy or partition.earliest == partition.end:
                    continue
                return stream, partition, owner
        return None

    async def _give_all(self) -> None:
        while (found := self._next()) is not None:
            stream, partition, owner = found
            end = await self._copy(partition, owner, partition.earliest)
            while not await self._clear(stream, partition, end):
                end = await self._copy(partition, owner, end)
            log.info(
                "rows of stream=%s partition=%d are on node=%s",
                stream.name,
                partition.number,
                owner,
            )

    async def _clear(self, stream: "Stream", partition: "Partition", end: int) -> bool:
        """Deletes what another node has now; False if there is more by now."""
        writer = stream.appender.commits.writer
        return await asyncio.wrap_future(writer.call(lambda: partition.clear(end)))

    async def _copy(self, partition: "Partition", node: str, offset: int) -> int:
        """Sends the rows from an offset on, each part when the one before is safe; returns where they end."""
        while offset < partition.end:
            raw, offset = await self._loop.run_in_executor(None, read, partition, offset)
            await self._send(Rows(partition.stream, partition.number, -1, raw), node)
        return offset

    async def _send(self, rows: Rows, node: str) -> None:
        """Returns when a node has some rows.

        Raises:
            RefusedError: it is no member any more.
        """
        done: asyncio.Future[bool] = self._loop.create_future()

        def settle(arrived: bool) -> None:
            if not done.done():
                done.set_result(arrived)

        while not self._places.send_rows_to(node, rows, settle):
            if node not in self._streams.members:
                raise RefusedError(f"{node} is no member any more")
            await asyncio.sleep(_AGAIN)  # until the lane has room
        self._places.flush()
        if not await done:
            raise RefusedError(f"{node} is no member any more")

    # --- leaving

    async def leave(self, up: set[str], may_go: Callable[[], bool]) -> bool:
        """Gives every partition of this node to one of some others; returns whether all are given.

        Args:
            up: the nodes that keep streams and can be reached.
            may_go: whether there is time for one more.
        """
        catalog = self._streams.catalog
        for stream in [] if catalog is None else list(catalog.streams.values()):
            for partition in stream.partitions:
                if self._streams.owner(stream.name, partition.number) is not None:
                    continue
                if not up or not may_go():
                    return False
                node = chosen(stream.name, partition.number, up)
                try:
                    await self._give(stream, partition, node)
                except (RefusedError, StreamError, OSError) as error:
                    log.error("partition %d of %s stays: %s", partition.number, stream.name, error)
                    return False
        while self._next() is not None:  # what came while owners changed
            if not may_go():
                return False
            self.look()
            await asyncio.sleep(0.01)
        return True

    async def _give(self, stream: "Stream", partition: "Partition", node: str) -> None:
        """Gives one partition to a node, with its offsets.

        Raises:
            RefusedError: the node is no member any more.
            OSError: the disk, or the node did not answer in time.
        """
        first = partition.earliest
        # Of no rows: whatever the copy had before is none, and offsets go on where they were.
        await self._send(Rows(partition.stream, partition.number, first, pack(EMPTY)), node)
        offset = await self._copy(partition, node, first)
        core, commits = self._core, stream.appender.commits
        core.streams_are_behind = True
        try:
            async with asyncio.timeout(_LONGEST_HOLD):
                while commits.pending() or offset < partition.end:
                    await commits.wait()
                    offset = await self._copy(partition, node, offset)
            partition.become_copy()
            self._streams.set_owner(stream.name, partition.number, node)
        finally:
            core.streams_are_behind = commits.pressing
            if not commits.pressing:
                core.resume_all(core.waiting_for_streams)
        while not await self._clear(stream, partition, offset):  # a put was faster
            offset = await self._copy(partition, node, offset)


def read(partition: "Partition", offset: int) -> tuple[bytes, int]:
    """Some rows from an offset on, and where they end; in any thread."""
    with Cursor(partition, offset) as cursor:
        span = cursor.read(None)
    assert span is not None, "the rows that were seen are gone"
    rows = span.rows.slice(max(0, offset - span.offset))
    return pack(rows), span.offset + span.rows.num_rows
