"""Streams of which one node has each partition get copies, while readers and publishers go on.

Each step is a record or a decision, so that it goes on after any end:

1. The definition says how many copies there are to be. Each owner of a partition says that it is ready (`begin`): from
   then on it gives the partition to no other owner.
2. When all have said so the meta group decides: a partition's group begins with its owner as the only voter, whose
   segments are its log, and is to get the others (`vmq_cluster.raft.meta`).
3. Each node that learns of it hands what is published to the group from then on. Its first messages wait until the
   owner has those that this node had sent it before: a key keeps its order.
4. The owner opens its segments as the log of the group; the others learn, and become voters one by one.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.raft.places import Key, Places
from vmq.clustering.raft.records import GroupRecords, ReplicaPlace, node_of
from vmq.clustering.raft.roads import Roads

if TYPE_CHECKING:
    from vmq.streams.catalog import Catalog, Stream

log = logging.getLogger("vmq.cluster")

#: Seconds that the first messages for a group wait for those before them at most.
PATIENCE: Final = 30.0
#: Seconds until a disk is tried again.
_AGAIN: Final = 0.5


class SinglePartitions(Protocol):
    """Partitions of which there is one copy."""

    def owner(self, stream: str, number: int) -> str:
        """The node that owns one, by its record; "" if there is none."""

    def passed_on(self, stream: str, number: int, done: Callable[[bool], None]) -> bool:
        """Tells when the owner has all that this node has sent it so far; False: there is nothing on its way."""


class Converter:
    """What becomes replicated on one node. In the event loop.

    Args:
        node: this node's name.
        records: of the groups.
        catalog: the streams.
        places: where partitions are.
        roads: how messages come to groups.
        outboxes: to the other nodes.
        singles: what has one copy.
        on_change: called when a stream goes another way.
    """

    def __init__(
        self,
        node: str,
        records: GroupRecords,
        catalog: "Catalog",
        places: Places,
        roads: Roads,
        outboxes: Outboxes,
        singles: SinglePartitions,
        on_change: Callable[[], None],
    ) -> None:
        self._node = node
        self._records = records
        self._catalog = catalog
        self._places = places
        self._roads = roads
        self._outboxes = outboxes
        self._singles = singles
        self._on_change = on_change
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def close(self) -> None:
        """Nothing is begun any more."""
        for task in self._under_way.values():
            task.cancel()

    @property
    def is_waiting(self) -> bool:
        """Whether partitions of this node are to become replicated, and are not."""
        return any(
            self._singles.owner(stream.name, each.number) == self._node
            for stream in self._single()
            for each in stream.partitions
        )

    def _single(self) -> "Iterator[Stream]":
        """Streams of one copy that are to have more."""
        for stream in list(self._catalog.streams.values()):
            if stream.options.replicas > 1 and not stream.is_replicated:
                yield stream

    # --- who is ready

    def claim(self) -> None:
        """Says of this node's partitions that they can be the beginning of a group's log."""
        for stream in self._single():
            for partition in stream.partitions:
                key = (stream.name, partition.number)
                if key in self._places.places or self._singles.owner(*key) != self._node:
                    continue
                if partition.damage is None and not partition.flaws and not partition.is_copy:
                    name = self._places.name.encode()
                    self._records.put(name, "begin", stream.name, str(partition.number))

    def begun(self, stream: "Stream") -> tuple[str, ...] | None:
        """Who begins each of its groups alone, by names in groups, "": nobody; None: an owner is not ready."""
        place = self._places.places.get((stream.name, 0))
        if place is not None and self._records.get("gone", place.group.partition("/")[0]) is None:
            return ()  # it is decided
        found = []
        for partition in stream.partitions:
            owner = self._singles.owner(stream.name, partition.number)
            raw = self._records.get("begin", stream.name, str(partition.number)) or b""
            name = raw.decode(errors="replace")
            if owner and node_of(name) != owner:
                return None
            found.append(name if owner else "")
        return tuple(found) if any(found) else ()

    # --- what is decided

    def look(self, places: Mapping[Key, ReplicaPlace]) -> None:
        """Streams that are placed go to their groups; what they may wait for nobody tells."""
        for stream in self._single():
            if stream.name in self._under_way or self._catalog.leaving.is_busy(stream.name):
                continue
            found = [places.get((stream.name, each.number)) for each in stream.partitions]
            placed = {number: each for number, each in enumerate(found) if each is not None}
            if len(placed) < len(found) or any(self._is_stray(stream, each) for each in placed):
                continue
            task = asyncio.get_running_loop().create_task(self._convert(stream, placed))
            self._under_way[stream.name] = task
            task.add_done_callback(partial(self._ended, stream.name))

    def _is_stray(self, stream: "Stream", number: int) -> bool:
        """Whether there are rows here that another node is to have first, or that nobody can read."""
        partition = stream.partitions[number]
        if partition.damage is not None:
            return True
        is_own = self._singles.owner(stream.name, number) == self._node
        return not is_own and not partition.is_copy and partition.kept != partition.end

    def _ended(self, name: str, done: "asyncio.Task[None]") -> None:
        self._under_way.pop(name, None)
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("stream=%s: it gets no copies here: %s", name, error)

    async def _convert(self, stream: "Stream", placed: Mapping[int, ReplicaPlace]) -> None:
        me = self._places.name
        self._roads.hold(stream.name)
        try:
            with stream.writing:
                stream.is_replicated = True
            self._on_change()
            await self._become_replicated(stream, lambda number: placed[number].first == (me,))
            self._on_change()
            await self._passed_on(stream)
        finally:
            self._roads.let_go(stream.name)
        log.info("stream=%s is replicated", stream.name)

    async def _become_replicated(self, stream: "Stream", keeps: Callable[[int], bool]) -> None:
        """However often the disk fails: its messages go the other way already, and wait for that."""
        failure = ""
        while self._catalog.streams.get(stream.name) is stream:
            try:
                await stream.become_replicated(keeps)
            except OSError as error:
                if failure != str(error):
                    failure = str(error)
                    log.error("stream=%s: it gets no copies here for now: %s", stream.name, failure)
                await asyncio.sleep(_AGAIN)
            else:
                return

    async def _passed_on(self, stream: "Stream") -> None:
        """Returns when owners have all that this node had sent them, or after a while."""
        waiting = []
        for partition in stream.partitions:
            done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            if self._singles.passed_on(stream.name, partition.number, partial(_settle, done)):
                waiting.append(done)
        self._outboxes.flush()
        if waiting:
            await asyncio.wait(waiting, timeout=PATIENCE)


def _settle(done: "asyncio.Future[bool]", arrived: bool) -> None:
    if not done.done():
        done.set_result(arrived)
