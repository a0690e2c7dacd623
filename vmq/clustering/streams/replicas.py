"""Replicated streams beside those of which one node has each partition: what `Streams` asks of the groups."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Set
from typing import TYPE_CHECKING, Any, Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.groups import GroupTalk
from vmq.clustering.messages.raft import GroupEnvelope, Produce, Produced
from vmq.clustering.messages.streams import Append, AppendRun, PartitionRows
from vmq.clustering.raft.records import GROUPS, merge
from vmq.clustering.streams.cursors import ClusterCursors
from vmq.clustering.streams.singles import SingleCopies
from vmq.core.context import Core
from vmq.core.output import Output
from vmq.disk.durable import Durable
from vmq.runtime.metrics import Family
from vmq_cluster.node import ClusterNode

if TYPE_CHECKING:
    from vmq.clustering.raft.service import GroupService
    from vmq.clustering.streams.groups import ClusterGroups
    from vmq.streams.catalog import Catalog, Stream

log = logging.getLogger("vmq.cluster")

#: Seconds between two looks whether a stream is placed.
_SOON: Final = 0.02


class Replicas:
    """The groups of one node, from when it has streams on.

    Args:
        node: this node.
        core: the broker's.
        outboxes: to the other nodes.
        joins: whether the node is to join others when it starts.
        members: the nodes of the cluster.
        on_change: called when a stream goes another way.
        singles: partitions of which there is one copy.
        host: what this node shares a disk or a machine with.
    """

    def __init__(
        self,
        node: ClusterNode,
        core: Core,
        outboxes: Outboxes,
        joins: bool,
        members: Callable[[], Set[str]],
        on_change: Callable[[], None],
        singles: SingleCopies,
        host: str,
    ) -> None:
        self._node = node
        self._core = core
        self._outboxes = outboxes
        self._joins = joins
        self._members = members
        self._on_change = on_change
        self._singles = singles
        self._host = host
        #: Bytes that may wait for leaders; set before `begin`.
        self.buffer_bytes = 1 << 27
        #: By which rows are old; set before `begin`. One that is ahead here would delete those of all copies.
        self.clock = core.wall_clock
        self.groups: GroupService | None = None
        #: Told on how many hosts there can be copies, at one node.
        self.on_hosts: Callable[[int], None] = lambda _count: None
        #: The consumer groups.
        self.consumers: ClusterGroups | None = None
        #: How far readers of history are, at any node.
        self.cursors = ClusterCursors(node, core.wall_clock)
        #: Why there are none, if they cannot be.
        self.failure = ""
        outboxes.on(GroupEnvelope, self._on_message)
        outboxes.on(Produce, self._on_message)
        outboxes.on(Produced, self._on_message)
        outboxes.on(GroupTalk, self._on_talk)

    def start(self) -> None:
        """The node runs."""
        self._node.merge_with(GROUPS, merge)
        self.cursors.start()

    def begin(self, catalog: "Catalog") -> None:
        """The node has streams from now on."""
        from vmq.clustering.raft.service import GroupService  # these need what only streams need
        from vmq.clustering.streams.groups import ClusterGroups

        catalog.cursors = self.cursors
        catalog.on_shared()
        catalog.clock = self.clock
        catalog.janitor.passed = None
        try:
            self.groups = GroupService(
                self._node,
                self._outboxes,
                catalog,
                self._may_begin_meta,
                self._core.wall_clock,
                self._on_change,
                self._singles,
                self._host,
                self.buffer_bytes,
            )
        except OSError as error:
            self.failure = f"this node cannot keep replicas of streams: {error}"
            log.error("%s", self.failure)
            return
        catalog.may_replicate = True
        self.groups.on_hosts = self.on_hosts
        core = self._core
        self.consumers = catalog.groups = ClusterGroups(
            self._node, self._outboxes, self.groups, core.clock, core.wall_clock
        )
        self.groups.start()

    def _may_begin_meta(self) -> bool:
        """Whether this node begins the meta group where none is known: one that joins others finds theirs."""
        machine, members = self._node.machine, self._members()
        if machine.contacts:
            return False
        if len(members) > 1:
            return self._node.name == min(members)
        return machine.membership.belongs and not self._joins

    async def release(self) -> None:
        """This node stops: others are to lead what it leads."""
        if self.consumers is not None:
            await self.consumers.settle()
        if self.groups is not None:
            await self.groups.release()

    async def hand_over(self, seconds: float) -> bool:
        """Others are to lead what this node leads, until `lead_again`; returns whether they do, that long at most."""
        groups = self.groups
        if groups is None:
            return True
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        groups.hand_over()
        while not groups.places.is_led_elsewhere():
            if loop.time() >= until:
                return False
            await asyncio.sleep(_SOON)
        return True

    def lead_again(self) -> None:
        """This node keeps what it comes to lead."""
        if self.groups is not None:
            self.groups.thread.post(self.groups.thread.hand_over, None)

    async def leave(self) -> None:
        """Returns when other nodes have what this one had."""
        if self.groups is not None:
            await self.groups.leave()

    def close(self) -> None:
        """The streams close."""
        self.cursors.close()
        if self.consumers is not None:
            self.consumers.close()
            self.consumers = None
        if self.groups is not None:
            self.groups.stop()
            self.groups = None

    @property
    def hosts(self) -> int:
        """On how many hosts there can be copies."""
        return 0 if self.groups is None else self.groups.hosts

    def look(self) -> None:
        """Definitions or members may have changed."""
        if self.groups is not None:
            self.groups.look()

    def set_up(self, up: list[str]) -> None:
        """These nodes can be reached."""
        if self.groups is not None:
            self.groups.set_up(up)

    def covers(self, stream: str) -> bool:
        """Whether a stream is replicated, and its partitions are where groups say."""
        return self.groups is not None and self.groups.places.covers(stream)

    def reader(self, stream: str, partition: int) -> str | None:
        """Where a partition of a replicated stream is read; None: on this node."""
        return None if self.groups is None else self.groups.places.reader(stream, partition)

    def taps(self, stream: "Stream") -> list[Any]:
        """The write side of a replicated stream; one that refuses all where this node can have no groups."""
        return [stream.appender if self.groups is None else self.groups.roads.tap(stream)]

    def deleted(self, stream: str) -> None:
        """A stream was deleted on this node."""
        if self.groups is not None:
            self.groups.deleted(stream)

    def take(self, stream: "Stream", message: Append) -> tuple[Durable, int]:
        """A message that was sent before its stream was replicated; returns what its sender keeps it for."""
        if self.groups is None:
            return Durable(), 1  # never: its sender keeps it
        tap = self.groups.roads.tap(stream)
        number = tap.take(message)
        return tap.safe_of(message.topic, message.client_id), number

    def take_back(self, stream: "Stream", message: Append) -> int:
        """A message that waited for a node that will not have it: `written` says when it is safe, if this is not 0."""
        return 1 if self.groups is None else self.groups.roads.tap(stream).take(message)

    async def written(self) -> None:
        """Returns when the groups have what was given to them: never, where this node can have none."""
        if self.groups is not None:
            await self.groups.roads.written()
        elif self.failure:
            await asyncio.Event().wait()

    def take_run(self, stream: "Stream", run: AppendRun) -> None:
        """A run of messages at QoS 0: likewise."""
        for tap in self.taps(stream):
            tap.append_run(run.topic, run.payloads, 0, False, run.client_id, run.time)

    def add_row(
        self,
        address: str,
        number: int,
        given: tuple[bytes, bytes, int, bool, str],
        publisher: Output | None,
        then: Callable[[], None],
    ) -> None:
        """A QoS 2 message whose row its publisher's session knows: topic, payload, QoS, RETAIN and client id."""
        if self.groups is not None:
            from vmq.clustering.raft.dotted import DottedRow

            row = DottedRow(*given, int(self._core.wall_clock() * 1_000_000))
            self.groups.roads.add_row(address, number, row, publisher, then)

    def take_rows(
        self, peer: str, stream: "Stream", message: PartitionRows
    ) -> tuple[Durable, int] | None:
        """Rows of a partition that a node had: likewise."""
        from vmq.clustering.streams.rows import RowsError, unpack
        from vmq.streams.log.gathering import Gathering

        producer = None
        if self.groups is not None:
            producer = self.groups.roads.producer(stream.name, message.partition)
        try:
            rows = unpack(message.rows)
        except RowsError as error:
            log.error("rows from %s for the stream %s: %s", peer, message.stream, error)
            return None
        if producer is None:
            return Durable(), 1  # never: its sender keeps them
        if not rows.num_rows:
            return None
        stream.appender.messages += rows.num_rows
        return producer.safe, producer.add(Gathering.of(rows), rows.nbytes)

    async def settle(self, stream: str, patience: float) -> str:
        """Returns when a stream is placed and its partitions are led: "", or what is wrong if that gets no further.

        A stream without copies is placed at once.

        Args:
            stream: the stream's name.
            patience: seconds for which not one partition more may be led.
        """
        now = asyncio.get_running_loop().time
        until, fewest = now() + patience, 0
        while self.groups is not None and self.groups.places.covers(stream):
            places = self.groups.places
            if not (unled := places.unled(stream)):
                return ""
            if not fewest or len(unled) < fewest:
                until, fewest = now() + patience, len(unled)
            elif now() >= until:
                return places.lacking(stream) or places.why_unled(stream, unled)
            await asyncio.sleep(_SOON)
        return ""

    def problems(self) -> Iterator[str]:
        """What replicated streams cannot do now."""
        if self.failure:
            yield self.failure
        if self.groups is not None:
            yield from self.groups.problems()

    def families(self) -> Iterator[Family]:
        """The figures of the groups."""
        if self.groups is not None:
            yield from self.groups.families()

    def _on_talk(self, peer: str, message: GroupTalk) -> None:
        if self.consumers is not None:
            self.consumers.on_talk(peer, message)

    def _on_message(self, peer: str, message: GroupEnvelope | Produce | Produced) -> None:
        if self.groups is not None:
            self.groups.on_message(peer, message)
