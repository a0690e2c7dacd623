"""Rows of streams that go to another node: of partitions that are to have another owner, and all when this node leaves.

**A change of the owner.** A partition is copied to the node that is to own it next, with its offsets, while it goes on
here. For the last rows, and the owner's record, all nodes hold what is published for it
(`vmq.clustering.streams.hold`). The copy counts for nothing until its giver has heard that it is whole
(`vmq.clustering.streams.copies`); before that nothing is deleted here.

**Strays.** Rows of a partition may be here though another node owns it: two nodes had a stream of one name before they
joined, or a message came late. They are sent to the owner, which appends them to what it has, and are deleted here when
it has them. If this node dies in between they are sent again.
"""

import asyncio
import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from vmq.clustering.messages.streams import PartitionRows
from vmq.clustering.streams.copies import GivenCopies
from vmq.clustering.streams.hold import PartitionHolds
from vmq.clustering.streams.metadata import chosen
from vmq.clustering.streams.owners import Owners, has_rows, is_unused
from vmq.clustering.streams.rows import EMPTY, pack
from vmq.streams.log.columns import within
from vmq.streams.log.cursor import Cursor
from vmq.streams.log.errors import OutOfRangeError, StreamError
from vmq.streams.log.schema import STORED

if TYPE_CHECKING:
    from vmq.clustering.streams.remote_partitions import RemotePartitions
    from vmq.clustering.streams.view import StreamsView
    from vmq.streams.catalog import Stream
    from vmq.streams.log.partition import Partition

log = logging.getLogger("vmq.cluster")

#: Seconds until rows are sent again that were not taken.
_AGAIN: Final = 0.5
#: Rows that may be left when messages begin to wait.
_LAST: Final = 1000
#: Seconds that the last rows may take, while messages wait.
_LONGEST_HOLD: Final = 5.0
#: Seconds that a node has to take some rows of a copy.
_LONGEST_SEND: Final = 60.0


class HandoverRefusedError(Exception):
    """A node does not have what was sent to it, or no member is there any more: it all stays here for now."""


class Handover:
    """The rows of one node on their way out."""

    def __init__(
        self,
        streams: "StreamsView",
        owners: Owners,
        places: "RemotePartitions",
        holding: PartitionHolds,
        copies: GivenCopies,
    ) -> None:
        self._streams = streams
        self._owners = owners
        self._places = places
        self._holding = holding
        self._copies = copies
        #: One partition changes its owner at a time.
        self._giving = asyncio.Lock()
        #: That one, once its next owner is asked whether it has all of it.
        self._gone: Partition | None = None
        #: Partitions that have gone to another owner.
        self.given = 0
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

    # --- what is not where it is to be

    def look(self) -> None:
        """Has sent what is to be sent, if there is anything."""
        if self._task is None and self._timer is None and self._has_any():
            self._task = self._loop.create_task(self._give_all())
            self._task.add_done_callback(self._ended)

    def _has_any(self) -> bool:
        return self._stray() is not None or self._misplaced() is not None

    def look_later(self) -> None:
        """Looks again shortly, when what is on its way to the disk has come there."""
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
                is_usual = isinstance(error, HandoverRefusedError)
                level = logging.INFO if is_usual else logging.ERROR
                log.log(level, "rows of streams stay here for now: %s", error)
            if self._has_any():
                self.look_later()

    def _stray(self) -> "tuple[Stream, Partition] | None":
        """Rows that are another node's."""
        catalog = self._streams.catalog
        for stream in [] if catalog is None else catalog.streams.values():
            if stream.is_replicated:
                continue
            for partition in stream.partitions:
                # What is left of a damaged one goes when it is mended.
                is_stray = has_rows(stream, partition.number) and partition.damage is None
                is_changing = partition is self._gone or partition in self._copies.coming
                owner = self._streams.owner(stream.name, partition.number)
                if is_stray and owner is not None and not is_changing:
                    return stream, partition
        return None

    def _misplaced(self) -> "tuple[Stream, Partition, str] | None":
        """A partition of this node that never had a row, and is another's by the hashing, and whose."""
        catalog, up = self._streams.catalog, set(self._streams.up())
        for stream in [] if catalog is None or not up else catalog.streams.values():
            if stream.options.replicas > 1:
                continue  # where it is its group begins
            for number, partition in enumerate(stream.partitions):
                if partition.is_replica or self._owners.owner(stream.name, number) is not None:
                    continue
                if not is_unused(stream, number) or not self._owners.has_record(
                    stream.name, number
                ):
                    continue
                wanted = self._owners.wanted(stream.name, number)
                if wanted in up and not self._is_damaged_at(wanted, stream, number):
                    return stream, partition, wanted
        return None

    def _is_damaged_at(self, node: str, stream: "Stream", number: int) -> bool:
        return self._streams.damage.at(node, stream.name, number) is not None

    async def _give_all(self) -> None:
        while True:
            if (stray := self._stray()) is not None:
                await self._give_rows(*stray)
            elif (found := self._misplaced()) is not None:
                await self._give(*found)
            else:
                return

    async def _give_rows(self, stream: "Stream", partition: "Partition") -> None:
        """Sends each part to who owns the partition then: two nodes might send theirs to each other for ever."""
        offset = partition.kept
        while not await self._clear(stream, partition, offset):
            owner = self._owners.owner(stream.name, partition.number)
            if owner is None:
                raise HandoverRefusedError(f"{stream.name} {partition.number} is here by now")
            offset = await self._copy_part(partition, owner, offset)
        log.info("rows of stream=%s partition=%d are with its owner", stream.name, partition.number)

    async def _clear(self, stream: "Stream", partition: "Partition", end: int) -> bool:
        """Deletes what another node has now; False if there is more by now."""
        writer = stream.appender.commits.writer
        return await asyncio.wrap_future(writer.call(lambda: partition.clear(end)))

    async def _copy(
        self, partition: "Partition", node: str, offset: int, rest: int = 0, *, keeps: bool = False
    ) -> int:
        """Sends the rows from an offset on, but for so many, each part after the one before; returns where they end.

        `keeps`: they keep their offsets there.
        """
        while offset + rest < partition.end:
            offset = await self._copy_part(partition, node, offset, keeps=keeps)
        return offset

    async def _copy_part(
        self, partition: "Partition", node: str, offset: int, *, keeps: bool = False
    ) -> int:
        raw, end = await self._loop.run_in_executor(None, read, partition, offset, keeps)
        rows = PartitionRows(partition.stream, partition.number, -1, raw, end if keeps else -1)
        # Who gives up a copy begins it anew; rows that were sent without would be there twice.
        async with asyncio.timeout(_LONGEST_SEND if keeps else None):
            await self._send(rows, node)
        return end

    async def _send(self, rows: PartitionRows, node: str) -> None:
        """Returns when a node has some rows.

        Raises:
            HandoverRefusedError: it is no member any more.
        """
        done: asyncio.Future[bool] = self._loop.create_future()

        def settle(arrived: bool) -> None:
            if not done.done():
                done.set_result(arrived)

        while not self._places.send_rows_to(node, rows, settle):
            if node not in self._streams.members:
                raise HandoverRefusedError(f"{node} is no member any more")
            await asyncio.sleep(_AGAIN)  # until the outbox has room
        self._places.flush()
        if not await done:
            raise HandoverRefusedError(f"{node} is no member any more")

    # --- changes of owners

    async def leave(self) -> bool:
        """Gives every partition of this node to nodes that can be reached; returns whether all are given.

        A damaged one stays: nobody can read what the others would have to have.
        """
        while (found := next(self._own(), None)) is not None:
            stream, partition = found
            number = partition.number
            keepers = self._streams.keepers() & set(self._streams.up())
            up = {each for each in keepers if not self._is_damaged_at(each, stream, number)}
            if not up:
                return False
            try:
                await self._give(stream, partition, chosen(stream.name, number, up))
            except HandoverRefusedError as error:
                log.info("partition %d of %s stays for now: %s", number, stream.name, error)
                await asyncio.sleep(_AGAIN)
            except (StreamError, OSError) as error:
                log.error("partition %d of %s stays: %s", number, stream.name, error)
                return False
        while await self._is_anything_left():  # what came while owners changed
            self.look()
            await asyncio.sleep(0.01)
        return not any(self._own(is_damaged=True))

    def _own(self, *, is_damaged: bool = False) -> "Iterator[tuple[Stream, Partition]]":
        """The partitions of this node, those that are damaged or those that are whole."""
        catalog = self._streams.catalog
        for stream in [] if catalog is None else catalog.streams.values():
            if stream.options.replicas > 1 and self._streams.replicas.groups is not None:
                continue  # it becomes a group's, which other nodes get
            for partition in stream.partitions:
                is_own = self._owners.owner(stream.name, partition.number) is None
                is_own = is_own and not partition.is_replica
                if is_own and is_damaged == (partition.damage is not None):
                    yield stream, partition

    async def _is_anything_left(self) -> bool:
        if self._streams.catalog is not None:
            await self._streams.catalog.commits.wait()
        return self._stray() is not None

    async def _give(self, stream: "Stream", partition: "Partition", node: str) -> None:
        """Gives one partition to a node, with its offsets.

        Raises:
            HandoverRefusedError: the node has no copy, or is no member any more.
            OSError: the disk, or the node did not answer in time.
        """
        async with self._giving:
            if self._owners.owner(stream.name, partition.number) is not None:
                return  # somebody else had the same thought
            first = partition.kept
            # Of no rows: whatever the copy had before is none, and offsets go on where they were.
            begin = PartitionRows(partition.stream, partition.number, first, pack(EMPTY))
            async with asyncio.timeout(_LONGEST_SEND):
                await self._send(begin, node)
                await self._check(partition, node, first)
            # Not to the very end, which may go on for ever.
            offset = await self._copy(partition, node, first, _LAST, keeps=True)
            try:
                offset = await self._hand_over(stream, partition, node, offset)
                while not await self._clear(stream, partition, offset):  # a put was faster
                    offset = await self._copy(partition, node, offset)
            finally:
                self._gone = None
        self.given += 1
        self.look_later()  # should anything have been on its way to the disk
        log.info("stream=%s partition=%d is on %s", stream.name, partition.number, node)

    async def _hand_over(
        self, stream: "Stream", partition: "Partition", node: str, offset: int
    ) -> int:
        """Gives a node the last rows, and makes it the owner, while messages wait; returns where the rows end."""
        name, number, commits = stream.name, partition.number, stream.appender.commits
        with self._holding.own(name, number, self._streams.up) as asked:
            await self._holding.quiet(name, number, asked, self._streams.up)
            async with asyncio.timeout(_LONGEST_HOLD):
                await commits.wait()
                while offset < partition.end:
                    offset = await self._copy(partition, node, offset, keeps=True)
                    await commits.wait()
                self._gone = partition
                await self._check(partition, node, offset, counts=True)
            if self._owners.owner(name, number) is None:
                self._streams.set_owner(name, number, node)
        return offset

    async def _check(
        self, partition: "Partition", node: str, end: int, *, counts: bool = False
    ) -> None:
        """Returns if a node has a copy up to an offset, and this one still owns the partition."""
        name, number = partition.stream, partition.number
        if self._owners.owner(name, number) is not None:
            raise HandoverRefusedError(f"{name} {number} is another node's by now")
        if not await self._copies.is_whole(node, name, number, end, counts=counts):
            raise HandoverRefusedError(f"{node} has no copy of {name} {number}")


def read(partition: "Partition", offset: int, keeps: bool) -> tuple[bytes, int]:
    """Some rows from an offset on, and where they end; in any thread.

    `keeps`: with their own offsets, if some are gone.
    """
    while True:
        end = partition.end
        try:
            with Cursor(partition, max(offset, partition.earliest)) as cursor:
                span = cursor.read(None)
            break
        except OutOfRangeError:  # retention was faster
            if partition.earliest <= offset:
                raise
    if span is None:  # of those that were there until then none is left
        return pack(EMPTY), end
    rows, _ = within(span.rows, span.offset, offset, span.end)
    return pack(rows if keeps else rows.select(STORED.names)), span.end
