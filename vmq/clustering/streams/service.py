"""The streams of a cluster: every node knows all of them, and each partition is in the log of one node, its owner.

What a stream is, and who owns what, stands in the replicated metadata (`vmq.clustering.streams.metadata`). Each node
has all streams in its catalog; its own logs of partitions that are others' stay empty. A publish goes straight from the
node where it was made to the owner, by the outboxes: at QoS 1 and 2 it is in this node's store before it is
acknowledged.

Who owns what is told in `vmq.clustering.streams.owners`, how a partition goes from one to another in
`vmq.clustering.streams.handover`.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.streams import (
    Append,
    AskOffsets,
    AskPage,
    HoldPartition,
    Offsets,
    PageFound,
    PartitionHeld,
)
from vmq.clustering.streams.copies import GivenCopies
from vmq.clustering.streams.damage import StreamDamage
from vmq.clustering.streams.definitions import Definitions
from vmq.clustering.streams.figures import stream_families
from vmq.clustering.streams.hold import PartitionHolds
from vmq.clustering.streams.inbox import StreamInbox
from vmq.clustering.streams.introductions import Introductions
from vmq.clustering.streams.loading import Loading
from vmq.clustering.streams.metadata import STREAMS, chosen, merge
from vmq.clustering.streams.owners import Owners
from vmq.clustering.streams.records import StreamRecords
from vmq.clustering.streams.replicas import Replicas
from vmq.clustering.streams.room import PartitionRoom
from vmq.clustering.streams.routed_appender import RoutedAppender
from vmq.clustering.streams.singles import SingleCopies
from vmq.core.context import Core
from vmq.core.ports import StreamFinder
from vmq.runtime.metrics import Family
from vmq_cluster.effects import Changed
from vmq_cluster.keyed_records import parts_of
from vmq_cluster.node import ClusterNode

if TYPE_CHECKING:
    from vmq.clustering.streams.handover import Handover
    from vmq.clustering.streams.remote_partitions import RemotePartitions
    from vmq.streams.catalog import Catalog, Stream

log = logging.getLogger("vmq.cluster")


class Streams(StreamFinder):
    """The streams of one node.

    Args:
        node: this one; `start` is called when it runs.
        core: whose publishes they keep.
        outboxes: to the other nodes.
        open_catalog: opens the catalog of a broker that had no streams; raises RuntimeError where it cannot.
        joins: whether the node is to join others when it starts.
        host: what it shares a disk or a machine with; empty: nothing.
    """

    def __init__(
        self,
        node: ClusterNode,
        core: Core,
        outboxes: Outboxes,
        open_catalog: Callable[[], "Catalog"],
        joins: bool = False,
        host: str = "",
    ) -> None:
        super().__init__()
        self.own_name = node.name
        #: What finds the streams of a broker without a cluster.
        self._alone = StreamFinder()
        self._node = node
        self._core = core
        self._outboxes = outboxes
        self._open_catalog = open_catalog
        self._records = StreamRecords(node, core.wall_clock)
        self._owners = Owners(node.name, self._records, self._begin_at, outboxes.born)
        self._holding = PartitionHolds(node.name, core, outboxes, self)
        self._copies = GivenCopies(self, outboxes)
        self.damage = StreamDamage(node.name, self._records)
        self.catalog: Catalog | None = None
        self._definitions: Definitions | None = None
        self.places: RemotePartitions | None = None
        self.handover: Handover | None = None
        #: The partitions of which several nodes have copies.
        self.replicas = Replicas(
            node,
            core,
            outboxes,
            joins,
            lambda: self._members,
            self._look_again,
            SingleCopies(self._records, outboxes),
            host or node.name,
        )
        #: Why there is no catalog, where other nodes keep streams.
        self.failure = ""
        self._is_started = False
        #: This node is to keep streams no more.
        self._is_leaving = False
        self._members: set[str] = {node.name}
        self._address = ""
        #: Where nodes serve Flight; replaced, never changed: Flight looks in its threads.
        self._addresses: dict[str, str] = {}
        self._taps: dict[str, RoutedAppender] = {}
        self._loading = Loading(self._need_catalog)
        self.introductions = Introductions(self._records, outboxes, self.up)
        self._inbox = StreamInbox(self, core, outboxes, self._records)
        outboxes.on(AskOffsets, self._on_question)
        outboxes.on(Offsets, self._on_question)
        outboxes.on(AskPage, self._on_question)
        outboxes.on(PageFound, self._on_question)
        outboxes.on(HoldPartition, self._holding.on_hold)
        outboxes.on(PartitionHeld, self._holding.on_held)

    # --- its life

    def start(self, catalog: "Catalog | None") -> None:
        """Follows the metadata from now on; `catalog`: the broker's, if it has one already."""
        node = self._node
        self._is_started = True
        self._members = set(node.members)
        node.merge_with(STREAMS, merge)
        node.watch_steps(STREAMS, self._on_changes)
        self.replicas.start()
        if catalog is not None:
            self.attach(catalog)
        elif any(self._records.get("stream", name) for name in self._records.names()):
            self._need_catalog()

    def attach(self, catalog: "Catalog") -> None:
        """The broker has streams from now on, and tells the others of those that they do not know."""
        if self.catalog is catalog or not self._is_started:
            return
        from vmq.clustering.streams.handover import Handover  # these need what only streams need
        from vmq.clustering.streams.remote_partitions import RemotePartitions

        self.catalog = catalog
        looks = self.replicas.look, self._look_again
        self._definitions = definitions = Definitions(
            self.own_name, self._records, catalog, lambda: self._members, *looks
        )
        self.places = catalog.places = RemotePartitions(self, self._outboxes)
        self.handover = Handover(self, self._owners, self.places, self._holding, self._copies)
        self.failure = ""
        self.replicas.on_hosts = definitions.spread
        self.replicas.begin(catalog)
        self._tell_of_node()
        for stream in list(catalog.streams.values()):
            definitions.reconcile(stream)
        for name in self._records.names():
            definitions.follow(name)
        if self._core.stream_finder is not self:
            self._alone = self._core.stream_finder
        self._core.stream_finder = self
        catalog.on_definition = self._on_definition
        self._look_again()

    async def finish(self) -> None:
        """As `detach`; others lead before what this node leads."""
        await self.replicas.release()
        self.detach()

    def detach(self) -> None:
        """The streams close: what other nodes send is left to the next life."""
        self._outboxes.arrivals.end()
        self._holding.close()
        catalog = self.catalog
        if catalog is not None:
            catalog.on_definition = lambda _name: None
            catalog.clock = self._core.wall_clock
            catalog.places = catalog.groups = catalog.cursors = None
            if self._core.stream_finder is self:
                self._core.stream_finder = self._alone
            catalog.on_change()
        for each in (self.handover, self._definitions, self.places):
            if each is not None:
                each.close()
        self.replicas.close()
        self.catalog = self.places = self.handover = self._definitions = None
        self._is_started = False

    def set_address(self, url: str) -> None:
        """Where programs reach this node's streams by Arrow Flight; empty: nowhere."""
        self._address = url
        self._look_again()

    def set_members(self, members: Iterable[str]) -> None:
        """These are the nodes of the cluster now."""
        self._members = set(members)
        if self._members == {self.own_name}:
            self._is_leaving = False
        self.introductions.keep(self._members)
        self._look_again()

    def on_up(self) -> None:
        """A peer can be reached again."""
        self.replicas.set_up(self.up())
        if self.handover is not None:
            self.handover.look()

    def on_down(self, peer: str) -> None:
        """A peer is down; when it is back it may have forgotten."""
        self.introductions.forget(peer)
        self._holding.on_down(peer)
        self.replicas.set_up(self.up())

    async def leave(self, timeout: float) -> bool:  # noqa: ASYNC109 - a limit, not an error
        """Gives all that this node has to the others, before it leaves; returns whether they have it.

        What they do not have stays on this node's disk, and goes to them should it ever join again.
        """
        if self.handover is None:
            return True
        self._is_leaving = True
        self._look_again()
        try:
            async with asyncio.timeout(timeout):
                is_given = await self.handover.leave()
                await self.replicas.leave()
                return is_given
        except TimeoutError:
            return False

    @property
    def members(self) -> set[str]:
        """The nodes of the cluster."""
        return self._members

    def now(self) -> int:
        """Milliseconds since 1970."""
        return self._records.now()

    def up(self) -> list[str]:
        """The other nodes that can be reached."""
        return self._node.up if self._node.is_running else []

    def keepers(self) -> set[str]:
        """The members that keep streams."""
        found = {each for each in self._members if self._records.get("node", each) is not None}
        return found or {self.own_name}

    def set_owner(self, stream: str, partition: int, node: str) -> None:
        """Says who owns a partition from now on: it goes from this node to another, or has come here."""
        self._records.own(stream, partition, node)
        self._look_again()

    def set_replicas(self, stream: "Stream", count: int) -> str:
        """Has a stream get another number of copies; returns what is wrong with that, "" if nothing is."""
        assert self._definitions is not None, "there is a stream"
        number, more = len(stream.partitions), count - max(1, stream.options.replicas)
        lacking = self._room().lacks_for_copies(self._members, number, max(0, more))
        return lacking or self._definitions.alter(stream.name, count, self.replicas.hosts)

    def _room(self) -> PartitionRoom:
        """What nodes have and take, as this one sees it."""
        groups, catalog = self.replicas.groups, self.catalog
        if groups is None or catalog is None:
            return PartitionRoom({}, {})
        had: Counter[str] = Counter()
        for stream in catalog.streams.values():
            if stream.is_replicated:
                for each in stream.partitions:
                    had.update(groups.places.replicas(stream.name, each.number))
            else:
                had.update(each or self.own_name for each in self.owners(stream))
        return PartitionRoom(groups.requests.limits(), had)

    def lacking_room(self, name: str, numbers: range, copies: int) -> str:
        """Why nodes have no room for these partitions of a stream; "" if they have.

        Copies may be on any member: one that keeps no streams yet does as soon as it hears of one.
        """
        room = self._room()
        if copies > 1:
            return room.lacks_for_copies(self._members, len(numbers), copies)
        wanted = (self._owners.wanted(name, number) for number in numbers)
        return room.lacks_for(Counter(wanted))

    def lacking_room_at(self, nodes: Iterable[str]) -> str:
        """Which of these nodes has no room for one partition more; "" if all have."""
        return self._room().lacks_for(Counter(nodes))

    def set_options(self, stream: "Stream", changes: Mapping[str, Any]) -> str:
        """Has a stream get other options; returns what is wrong with that, "" if nothing is."""
        assert self._definitions is not None, "there is a stream"
        return self._definitions.change(stream.name, changes)

    def families(self) -> Iterator[Family]:
        """The figures of the streams as the cluster has them."""
        catalog = self.catalog
        if catalog is None or not catalog.streams:
            return
        single = sorted(each.name for each in catalog.streams.values() if not each.is_replicated)
        owned = {name: self.owners(catalog.streams[name]).count(None) for name in single}
        sent = {name: tap.sent if (tap := self._taps.get(name)) else 0 for name in owned}
        given = 0 if self.handover is None else self.handover.given
        yield from stream_families(owned, sent, given, self._holding.given_up)
        yield from self.replicas.families()

    # --- where messages go

    def appenders(self, topic: str) -> list[Any]:
        """A stream that this node owns alone costs what it costs without a cluster."""
        assert self.catalog is not None
        found: list[Any] = []
        for stream in self.catalog.streams.values():
            if not stream.matches(topic):
                continue
            if stream.is_replicated:
                found += self.replicas.taps(stream)
                continue
            name = stream.name
            is_plain = self._owners.owns_all(name) and not self._holding.holds_any(name)
            found.append(stream.appender if is_plain else self.tap(stream))
        return found

    def tap(self, stream: "Stream") -> RoutedAppender:
        """The tap of a stream."""
        tap = self._taps.get(stream.name)
        if tap is None or tap.stream is not stream:
            self._taps[stream.name] = tap = RoutedAppender(
                stream, self._core, self._outboxes, self, self._holding
            )
        return tap

    def on_held(self) -> None:
        """Messages of another set of partitions wait."""
        if self.catalog is not None:
            self.catalog.on_change()

    def owner(self, stream: str, partition: int) -> str | None:
        """The node that owns a partition, or where it is read if several have it; None: this one."""
        if self.replicas.covers(stream):
            return self.replicas.reader(stream, partition)
        return self._owners.owner(stream, partition)

    def since(self, stream: str, partition: int) -> int:
        """Since when, in milliseconds; 0 where there is no record of it."""
        return self._owners.since(stream, partition)

    def refuses(self, stream: str, partition: int) -> bool:
        """Whether a partition is damaged at its owner, which takes nothing new for it."""
        return self.damage.at(self.owner(stream, partition), stream, partition) is not None

    def problems(self) -> Iterator[str]:
        """What streams of the cluster cannot do now, for this node's clients too."""
        if self.failure:
            yield f"other nodes keep streams, and this one cannot: {self.failure}"
        yield from self.replicas.problems()
        for (node, stream, number), text in self.damage.elsewhere():
            if self.owner(stream, number) == node:
                yield text

    def owners(self, stream: "Stream") -> list[str | None]:
        """The owners of all partitions of a stream; None: this node."""
        return [self.owner(stream.name, each.number) for each in stream.partitions]

    def way(self, stream: str, partition: int) -> str | None:
        """To which node messages go that the owner is to have; None: they stay here."""
        owner = self.owner(stream, partition)
        if not self._is_leaving:
            return owner
        up = self.keepers() & set(self.up())
        return owner if owner in up or not up else chosen(stream, partition, up)

    def address(self, node: str) -> str:
        """The Flight address of a node; empty: it has none."""
        return self._addresses.get(node, "")

    def introduce(self, peer: str, stream: str) -> bool:
        """Makes sure that a peer knows a stream before what is sent to it next; False if there is no room."""
        return self.introductions.tell(peer, stream)

    # --- messages of other nodes

    def hear_of(self, name: str, definition: bytes) -> None:
        """Has a stream of which the metadata do not tell here yet. That it was deleted they would tell."""
        if self._records.get("stream", name) is not None:
            return
        if self.catalog is None:
            self._load()
        elif name not in self.catalog.streams and self._definitions is not None:
            self._definitions.adopt(name, definition)

    def when_open(self, name: str, call: Callable[[], None]) -> bool:
        """Whether a stream of this name is on its way into the catalog, or out; `call` is called after that."""
        catalog = self.catalog
        return self._loading.then(call) or (
            catalog is not None and catalog.leaving.then(name, call)
        )

    def _on_question(self, peer: str, message: AskOffsets | Offsets | AskPage | PageFound) -> None:
        if self.places is not None:
            self.places.on_message(peer, message)

    def is_here(self, message: Append) -> bool:
        """Whether what waited for a node that will not have it goes into a log of this one."""
        stream = None if self.catalog is None else self.catalog.streams.get(message.stream)
        if stream is None:
            return False
        number = stream.appender.partition_of(message.topic, message.client_id)
        return self.way(stream.name, number) is None

    def take_back(self, message: Append) -> int | None:
        """Has who owns the partition now get what waited for a node that will not have it: see `StreamInbox`."""
        return self._inbox.take_back(message)

    async def written(self) -> None:
        """Returns when the streams of this node have what was given to them."""
        if self.catalog is not None:
            await self.catalog.commits.wait()
        await self.replicas.written()

    # --- what changes

    def _on_definition(self, name: str) -> None:
        """A stream was made or deleted on this node, or a plugin changed it."""
        if self.catalog is None or self._definitions is None:
            return
        if (stream := self.catalog.streams.get(name)) is None:
            self._definitions.deleted(name, self._owners.count(name))
            self.replicas.deleted(name)
        else:
            self._definitions.reconcile(stream, is_new=True)
        self._look_again()

    def _on_changes(self, changes: list[Changed]) -> None:
        parts = [parts_of(each.key) for each in changes if not each.local]
        if not parts or not self._is_started:
            return
        changed = {each[1] for each in parts if each[:1] in (["stream"], ["config"]) and each[1:]}
        for name in sorted(changed):
            if self._records.get("stream", name):
                self._load()
            if self._definitions is not None:
                self._definitions.follow(name)
        self._look_again()

    def _look_again(self) -> None:
        """Definitions, owners or members may have changed."""
        if (catalog := self.catalog) is None:
            return
        self._tell_of_node()
        self.damage.look(catalog)
        for name in self._taps.keys() - catalog.streams.keys():
            del self._taps[name]
            self.introductions.end(name)
        keepers = self.keepers()
        self._owners.look(catalog, self._members, keepers)
        self._addresses = {
            each: (self._records.get("node", each) or b"").decode(errors="replace")
            for each in keepers
        }
        catalog.on_change()
        self.replicas.look()
        self._inbox.announced.look(catalog.streams)
        for stream in catalog.streams.values():
            for partition in stream.partitions:
                if partition.is_copy and self.owner(stream.name, partition.number) is None:
                    partition.accept_copy()
        # Not at once: the outboxes to new members may not be open yet.
        asyncio.get_running_loop().call_soon(self._holding.look)
        if self.handover is not None:
            self.handover.look()

    def _begin_at(self, stream: "Stream", number: int, offset: int) -> None:
        if self.places is not None:
            self.places.begin_at(stream, number, offset, self._look_again)

    def _load(self) -> None:
        if self.catalog is None and not self.failure and self._is_started:
            self._loading.begin()

    def _need_catalog(self) -> "Catalog | None":
        if self.catalog is None and not self.failure and self._is_started:
            try:
                self.attach(self._open_catalog())
            except RuntimeError as error:
                self.failure = str(error)
                log.error("other nodes keep streams, and this one cannot: %s", error)
        return self.catalog

    def _tell_of_node(self) -> None:
        if self._is_leaving:
            self._records.delete("node", self.own_name)
        else:
            self._records.put(self._address.encode(), "node", self.own_name)
