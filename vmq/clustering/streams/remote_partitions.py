"""Where the partitions of streams are, for the Flight server of this node (`vmq.streams.places.PartitionPlaces`).

It asks in threads of its own; the questions go to the owners in the event loop, at most once each, and are asked again
until time is up: whoever owns a partition answers for it.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.delivery.questions import Questions
from vmq.clustering.messages.streams import (
    AskOffsets,
    AskPage,
    Offsets,
    PageFound,
    PartitionRows,
)
from vmq.clustering.streams.asking import Readings, asked_in_loop
from vmq.clustering.streams.pages import Pages
from vmq.clustering.streams.rows import EMPTY, RowsError, newest_of, pack, unpack
from vmq.streams.extents import extent_of
from vmq.streams.log.errors import DamagedElsewhereError
from vmq.streams.log.gathering import Gathering
from vmq.streams.log.writer import Item
from vmq.streams.places import Page, PageQuery, PartitionExtent
from vmq.streams.times import offset_at

if TYPE_CHECKING:
    import pyarrow as pa

    from vmq.clustering.streams.view import StreamsView
    from vmq.streams.catalog import Stream

log = logging.getLogger("vmq.cluster")

#: Seconds until a question is asked again.
_AGAIN: Final = 0.5

Found = dict[int, PartitionExtent]


class RemotePartitions:
    """The partitions of all nodes. Made in the event loop."""

    def __init__(self, streams: "StreamsView", outboxes: Outboxes) -> None:
        self._streams = streams
        self._outboxes = outboxes
        self._loop = asyncio.get_running_loop()
        self._questions = Questions[Offsets](streams.now(), _AGAIN)
        self._readings = Readings()
        self.pages = Pages(streams, outboxes, self._readings)

    def close(self) -> None:
        """Reads nothing more for others."""
        self._readings.close()

    # --- what Flight asks, in its threads

    def owner(self, stream: str, partition: int) -> str | None:
        return self._streams.owner(stream, partition)

    def location(self, node: str) -> str:
        return self._streams.address(node)

    def check(self, stream: str, partition: int) -> None:
        node = self._streams.owner(stream, partition)
        damage = self._streams.damage.at(node, stream, partition)
        if node is not None and damage is not None:
            raise DamagedElsewhereError(stream, partition, node, damage)

    def extents(
        self, stream: str, patience: float, wanted: Collection[int] | None = None
    ) -> dict[int, PartitionExtent]:
        return self._asked(stream, -1, patience, wanted)

    def at_time(
        self, stream: str, time: int, patience: float, wanted: Collection[int] | None = None
    ) -> dict[int, int]:
        found = self._asked(stream, time, patience, wanted)
        return {number: each.earliest for number, each in found.items()}

    def page(self, stream: str, partition: int, wanted: PageQuery) -> Page | None:
        return self.pages.get(stream, partition, wanted)

    def append(self, stream: str, partition: int, rows: "pa.RecordBatch") -> "Future[bool]":
        done: Future[bool] = Future()
        if self.replicates(stream):
            size, gathered = rows.nbytes, Gathering.of(rows)
            send = partial(self._append_replicated, stream, partition, gathered, size)
        else:
            send = partial(self.send_rows, stream, partition, -1, pack(rows))

        def send_in_loop() -> None:
            if not send(done.set_result):
                done.set_result(False)
            self._outboxes.flush()

        try:
            self._loop.call_soon_threadsafe(send_in_loop)
        except RuntimeError:
            done.set_result(False)  # the broker ends
        return done

    def replicates(self, stream: str) -> bool:
        return self._streams.replicas.covers(stream)

    def _append_replicated(
        self, stream: str, partition: int, rows: Gathering, size: int, done: Callable[[bool], None]
    ) -> bool:
        catalog, groups = self._streams.catalog, self._streams.replicas.groups
        known = None if catalog is None else catalog.streams.get(stream)
        if known is None or groups is None:
            return False
        groups.roads.append_rows(known, partition, rows, size, done)
        return True

    def _asked(
        self, stream: str, time: int, patience: float, wanted: Collection[int] | None
    ) -> Found:
        asking = self.ask(stream, time, patience, wanted)
        return asked_in_loop(self._loop, asking, patience) or {}

    # --- in the event loop

    def on_message(self, peer: str, message: AskOffsets | Offsets | AskPage | PageFound) -> None:
        """A node asks, or answers."""
        match message:
            case AskOffsets():
                self.on_ask(peer, message)
            case Offsets():
                self._questions.on_answer(peer, message)
            case AskPage():
                self.pages.on_ask(peer, message)
            case PageFound():
                self.pages.on_answer(peer, message)

    async def ask(
        self, stream: str, time: int, patience: float, wanted: Collection[int] | None = None
    ) -> Found:
        """What the owners say of their partitions, as far as they answer in time; `wanted`: see `extents`."""
        catalog = self._streams.catalog
        known = None if catalog is None else catalog.streams.get(stream)
        found: Found = {}
        if known is None:
            return found

        def say(question: int) -> bool:
            missing = self._missing(known, found, wanted)
            for node in missing:
                self._outboxes.send_quick(node, AskOffsets(question, stream, time))
            return bool(missing)

        def take(answer: Offsets) -> bool:
            found.update(extents_in(answer))
            return not self._missing(known, found, wanted)

        await self._questions.ask(say, take, patience)
        return found

    def _missing(self, stream: "Stream", found: Found, wanted: Collection[int] | None) -> set[str]:
        """The owners that have not answered for all that is theirs."""
        owners = enumerate(self._streams.owners(stream))
        return {
            node
            for number, node in owners
            if node is not None and number not in found and (wanted is None or number in wanted)
        }

    def on_ask(self, peer: str, asked: AskOffsets) -> None:
        """A peer asks what this node has."""
        catalog = self._streams.catalog
        stream = None if catalog is None else catalog.streams.get(asked.stream)
        if stream is None:
            return
        if asked.time < 0:
            self._answer(peer, asked, stream)
        else:
            reading = partial(self._at_time, stream, asked.time)
            self._readings.begin((peer, asked), reading, partial(self._answer_time, peer, asked))

    def _answer(self, peer: str, asked: AskOffsets, stream: "Stream") -> None:
        found = {number: extent_of(stream.partitions[number]) for number in self._own(stream)}
        extents = [(number, each.earliest, each.end, each.size) for number, each in found.items()]
        messages = tuple(each.messages for each in found.values())
        self._outboxes.send_quick(peer, Offsets(asked.question, extents, messages))

    def _at_time(self, stream: "Stream", time: int) -> list[tuple[int, int, int, int]]:
        found = []
        for number in self._own(stream):
            offset = offset_at(stream.partitions[number], time)
            found.append((number, offset, offset, 0))
        return found

    def _answer_time(
        self, peer: str, asked: AskOffsets, read: list[tuple[int, int, int, int]]
    ) -> None:
        # What has gone to another node meanwhile may have been deleted here while it was read.
        found = [each for each in read if self._streams.owner(asked.stream, each[0]) is None]
        self._outboxes.send_quick(peer, Offsets(asked.question, found))

    def _own(self, stream: "Stream") -> list[int]:
        return [number for number, node in enumerate(self._streams.owners(stream)) if node is None]

    # --- rows

    def send_rows(
        self, stream: str, partition: int, first: int, raw: bytes, done: Callable[[bool], None]
    ) -> bool:
        """Sends rows to the owner of a partition; False if they are not taken, and `done` is not called."""
        catalog = self._streams.catalog
        if catalog is None or stream not in catalog.streams:
            return False
        owner = self._streams.owner(stream, partition)
        rows = PartitionRows(stream, partition, first, raw)
        if owner is None:  # it has become this node's own
            commit = self.take_rows(self._streams.own_name, rows)
            if commit:
                waiting = asyncio.ensure_future(catalog.commits.wait())
                waiting.add_done_callback(lambda _: done(True))
            return bool(commit)
        return self.send_rows_to(owner, rows, done)

    def send_rows_to(self, node: str, rows: PartitionRows, done: Callable[[bool], None]) -> bool:
        """Sends rows to a node, whoever owns the partition; False if there is no room for them."""
        if not self._outboxes.has_room(node, len(rows.rows)):
            return False
        if not self._streams.introduce(node, rows.stream):
            return False
        self._outboxes.send(node, rows, done)
        return True

    def flush(self) -> None:
        """Ends the pass of who sent rows outside of any."""
        self._outboxes.flush()

    def take_rows(self, peer: str, message: PartitionRows) -> int:
        """Appends rows of another node; returns the commit that has them, 0 if they are none."""
        catalog = self._streams.catalog
        stream = None if catalog is None else catalog.streams.get(message.stream)
        if stream is None or catalog is None or message.partition >= len(stream.partitions):
            log.warning("rows from %s are dropped: no stream %r", peer, message.stream)
            return 0
        is_given = message.first >= 0 or message.end >= 0
        if message.first >= 0 and self._streams.owner(message.stream, message.partition) is None:
            log.warning("%s gives this node a partition of %s that it has", peer, message.stream)
            return 0  # it hears so when it asks
        try:
            rows = unpack(message.rows, message.end)
        except RowsError as error:
            log.error("rows from %s for the stream %s: %s", peer, message.stream, error)
            return 0
        appender = stream.appender
        safe = appender.safe[message.partition]
        item = Item(stream.partitions[message.partition], rows, appender.keys, safe)
        item.newest = newest_of(rows)
        item.first, item.end = message.first, message.end
        item.giver = peer if is_given else None
        stream.appender.messages += rows.num_rows
        return catalog.commits.add(item, rows.nbytes)

    def begin_at(
        self, stream: "Stream", number: int, offset: int, then: Callable[[], None]
    ) -> None:
        """Has a partition of this node without rows of its own begin with an offset; `then` follows once it does."""
        item = Item(stream.partitions[number], EMPTY, stream.appender.keys)
        item.first = offset
        commits = stream.appender.commits
        commits.add(item, 0)
        asyncio.ensure_future(commits.wait()).add_done_callback(lambda _: then())


def extents_in(answer: Offsets) -> Found:
    """What a node says of its partitions; to an earlier version each offset is a message."""
    counts = answer.messages or [end - first for _, first, end, _ in answer.partitions]
    return {
        number: PartitionExtent(first, end, size, count)
        for (number, first, end, size), count in zip(answer.partitions, counts, strict=False)
    }
