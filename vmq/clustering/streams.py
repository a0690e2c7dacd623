"""The streams of a cluster: every node knows all of them, and each partition is in the log of one node, its owner.

What a stream is, and who owns what, stands in the replicated metadata (`vmq.clustering.placing`). Each node has all
streams in its catalog; its own logs of partitions that are others' stay empty. A publish goes straight from the node
where it was made to the owner, by the lanes: at QoS 1 and 2 it is in this node's store before it is acknowledged.

**Who owns.** A partition has the owner that its record names, as long as that is a member. Else the members that keep
streams agree on one by rendezvous hashing, and that one writes the record. A partition that never had a message goes to
whom the hashing names whenever nodes come or go; any other stays where its messages are.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import msgspec

from vmq.clustering.appends import Append, AppendRun, AskOffsets, Define, Offsets, Rows
from vmq.clustering.lanes import Lanes
from vmq.clustering.placing import (
    STREAMS,
    Definition,
    Ownership,
    PlaceError,
    chosen,
    decode_definition,
    decode_owner,
    encode,
    key_of,
    merge,
    parts_of,
)
from vmq.clustering.tap import Tap
from vmq.core import Core
from vmq_cluster.effects import Changed
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode

if TYPE_CHECKING:
    from vmq.clustering.handover import Handover
    from vmq.clustering.places import ClusterPlaces
    from vmq.streams.appender import Appender
    from vmq.streams.catalog import Catalog, Stream

log = logging.getLogger("vmq.cluster")


class Streams:
    """The streams of one node.

    Args:
        name: this node's.
        core: whose publishes they keep.
        lanes: to the other nodes.
        open_catalog: opens the catalog of a broker that had no streams; raises RuntimeError where it cannot.
    """

    def __init__(
        self, name: str, core: Core, lanes: Lanes, open_catalog: Callable[[], "Catalog"]
    ) -> None:
        self.own_name = self._name = name
        self._core = core
        self._lanes = lanes
        self._open_catalog = open_catalog
        self._node: ClusterNode | None = None
        self.catalog: Catalog | None = None
        #: Why there is no catalog, where other nodes keep streams.
        self.failure = ""
        self._members: set[str] = {name}
        self._address = ""
        #: The owners of the partitions by stream, None: this node; and where nodes serve Flight.
        #: They are replaced, never changed: Flight looks at them in its threads.
        self._owners: dict[str, list[str | None]] = {}
        self._addresses: dict[str, str] = {}
        self.places: ClusterPlaces | None = None
        self.handover: Handover | None = None
        #: This node is to keep streams no more.
        self._is_leaving = False
        self._taps: dict[str, Tap] = {}
        #: Peers and streams of which they were told since their link is up.
        self._introduced: set[tuple[str, str]] = set()
        lanes.on(Append, self._on_append)
        lanes.on(AppendRun, self._on_run)
        lanes.on(Define, self._on_define)
        lanes.on(Rows, self._on_rows)
        lanes.on(AskOffsets, self._on_ask)
        lanes.on(Offsets, self._on_offsets)

    # --- its life

    def start(self, node: ClusterNode, catalog: "Catalog | None") -> None:
        """Follows the metadata of a node that runs from now on; `catalog`: the broker's, if it has one already."""
        self._node = node
        self._members = set(node.members)
        node.merge_with(STREAMS, merge)
        node.watch_steps(STREAMS, self._on_changes)
        if catalog is not None:
            self.attach(catalog)
        elif any(parts_of(key)[:1] == ["stream"] and raw for key, raw in node.items(STREAMS)):
            self._need_catalog()

    def attach(self, catalog: "Catalog") -> None:
        """The broker has streams from now on, and tells the others of those that they do not know."""
        if self.catalog is catalog:
            return
        from vmq.clustering.handover import Handover  # these need what only streams need
        from vmq.clustering.places import ClusterPlaces

        self.catalog = catalog
        self.places = catalog.places = ClusterPlaces(self, self._lanes)
        self.handover = Handover(self, self.places, self._core)
        self.failure = ""
        self._tell_of_node()
        for stream in list(catalog.streams.values()):
            self._reconcile(stream)
        for name in self._defined():
            self._follow(name)
        self._core.find_taps = self.taps
        catalog.on_definition = self._on_definition
        self._look_again()

    def detach(self) -> None:
        """The streams close: what other nodes send is left to the next life."""
        self._lanes.is_closed = True
        catalog = self.catalog
        if catalog is not None:
            catalog.on_definition = lambda _name: None
            catalog.places = None
            if self._core.find_taps is not None:
                self._core.find_taps = catalog.appenders
            catalog.on_change()
        if self.handover is not None:
            self.handover.close()
            self.handover = None
        self.catalog = self.places = None
        self._node = None

    def set_address(self, url: str) -> None:
        """Where programs reach this node's streams by Arrow Flight; empty: nowhere."""
        self._address = url
        self._look_again()

    def set_members(self, members: Iterable[str]) -> None:
        """These are the nodes of the cluster now."""
        self._members = set(members)
        if self._members == {self._name}:
            self._is_leaving = False
        self._introduced = {each for each in self._introduced if each[0] in self._members}
        self._look_again()

    def on_down(self, peer: str) -> None:
        """A peer is down; when it is back it may have forgotten."""
        self._introduced = {each for each in self._introduced if each[0] != peer}

    async def leave(self, timeout: float) -> bool:  # noqa: ASYNC109 - a limit, not an error
        """Gives all that this node has to the others, before it leaves; returns whether they have it.

        What they do not have stays on this node's disk, and goes to them should it ever join again.
        """
        node, handover = self._node, self.handover
        if node is None or handover is None or self.catalog is None:
            return True
        self._is_leaving = True
        self._look_again()
        loop = asyncio.get_running_loop()
        until = loop.time() + timeout
        try:
            async with asyncio.timeout(timeout):
                up = self._keepers() & set(node.up)
                return await handover.leave(up, lambda: loop.time() < until)
        except TimeoutError:
            return False

    @property
    def members(self) -> set[str]:
        """The nodes of the cluster."""
        return self._members

    def set_owner(self, stream: str, partition: int, node: str) -> None:
        """Gives a partition of this node to another one."""
        self._own(stream, partition, node)
        self._look_again()

    # --- where messages go

    def taps(self, topic: str) -> "list[Tap | Appender]":
        """What `Core.find_taps` asks: a stream that this node owns alone costs what it costs without a cluster."""
        assert self.catalog is not None
        found: list[Tap | Appender] = []
        for stream in self.catalog.streams.values():
            if stream.matches(topic):
                is_own = self._is_own(stream)
                found.append(stream.appender if is_own else self.tap(stream))
        return found

    def tap(self, stream: "Stream") -> Tap:
        """The tap of a stream."""
        tap = self._taps.get(stream.name)
        if tap is None or tap.stream is not stream:
            self._taps[stream.name] = tap = Tap(stream, self._core, self._lanes, self)
        return tap

    def owner(self, stream: str, partition: int) -> str | None:
        """The node that owns a partition; None: this one."""
        owners = self._owners.get(stream)
        return owners[partition] if owners is not None and partition < len(owners) else None

    def owners(self, stream: "Stream") -> list[str | None]:
        """The owners of all partitions of a stream; None: this node."""
        return [self.owner(stream.name, each.number) for each in stream.partitions]

    def _is_own(self, stream: "Stream") -> bool:
        return not any(self._owners.get(stream.name, ()))

    def address(self, node: str) -> str:
        """The Flight address of a node; empty: it has none."""
        return self._addresses.get(node, "")

    def introduce(self, peer: str, stream: str) -> bool:
        """Makes sure that a peer knows a stream before what is sent to it next; False if there is no room."""
        if (peer, stream) in self._introduced:
            return True
        definition = self._get(key_of("stream", stream))
        if definition and not self._lanes.send(peer, Define(stream, definition)):
            return False
        self._introduced.add((peer, stream))
        return True

    # --- messages of other nodes

    def _on_append(self, peer: str, message: Append) -> None:
        stream = self._stream(peer, message.stream)
        if stream is None:
            return
        commit = self.tap(stream).take(message)
        if commit and self.handover is not None and not self._is_own(stream):
            self.handover.look_later()  # should it have come here though it is another's
        confirming = self._lanes.confirming
        confirming.stream_barrier = max(confirming.stream_barrier, commit)

    def _on_run(self, peer: str, run: AppendRun) -> None:
        stream = self._stream(peer, run.stream)
        if stream is not None:
            given = (run.topic, run.payloads, 0, False, run.client_id, run.time)
            self.tap(stream).append_run(*given, hops=run.hops + 1)

    def _on_define(self, peer: str, message: Define) -> None:
        """Adds a stream of which the metadata do not tell here yet. That it was deleted they would tell."""
        if self._get(key_of("stream", message.stream)) is not None:
            return
        catalog = self._need_catalog()
        if catalog is not None and message.stream not in catalog.streams:
            self._adopt(catalog, message.stream, message.definition)
            self._look_again()

    def _on_rows(self, peer: str, rows: Rows) -> None:
        if self.places is not None and self._stream(peer, rows.stream) is not None:
            confirming = self._lanes.confirming
            commit = self.places.take_rows(peer, rows)
            if self.handover is not None and self.owner(rows.stream, rows.partition) is not None:
                self.handover.look_later()
            confirming.stream_barrier = max(confirming.stream_barrier, commit)

    def _on_ask(self, peer: str, asked: AskOffsets) -> None:
        if self.places is not None:
            self.places.on_ask(peer, asked)

    def _on_offsets(self, peer: str, answer: Offsets) -> None:
        if self.places is not None:
            self.places.on_answer(peer, answer)

    def _stream(self, peer: str, name: str) -> "Stream | None":
        stream = None if self.catalog is None else self.catalog.streams.get(name)
        if stream is None:
            log.warning("messages from %s are dropped: the stream %r was deleted", peer, name)
        return stream

    # --- definitions

    def _on_definition(self, name: str) -> None:
        """A stream was made or deleted on this node, or a plugin changed it."""
        assert self.catalog is not None
        stream = self.catalog.streams.get(name)
        if stream is None:
            self._put(key_of("stream", name), b"")
            for number in range(len(self._owners.get(name, []))):
                self._delete(key_of("owner", name, str(number)))
        else:
            self._reconcile(stream)
        self._look_again()

    def _reconcile(self, stream: "Stream") -> None:
        """Makes what this node wants of a stream, and what the cluster knows of it, the same.

        What a configuration says counts when it is new, that is, when it is not what it said at this node's last start.
        """
        key = key_of("stream", stream.name)
        known = self._get(key)
        own = key_of("config", stream.name, self._name)
        is_wanted = stream.fed and stream.origin != "command"
        said = msgspec.json.encode(stream.options) if is_wanted else None
        if said == self._get(own) and known is not None and (known or not is_wanted):
            return  # the cluster's counts
        if said is not None:
            self._put(own, said)
        else:
            self._delete(own)
            if known is not None:
                return
        most = len(stream.partitions)
        if known:
            try:
                most = max(most, decode_definition(stream.name, known).options.partitions)
            except PlaceError as error:
                log.warning("%s", error)
        options = msgspec.structs.replace(stream.options, partitions=most)
        self._put(key, encode(Definition(options, stream.origin, self._now())))

    def _follow(self, name: str) -> None:
        """Has a stream as the metadata define it."""
        raw = self._get(key_of("stream", name))
        if raw is None:
            return
        catalog = self.catalog if raw == b"" else self._need_catalog()
        if catalog is None:
            return
        if raw:
            self._adopt(catalog, name, raw)
        elif name in catalog.streams:
            log.info("stream %s was deleted on another node", name)
            catalog.drop(name)

    def _adopt(self, catalog: "Catalog", name: str, raw: bytes) -> None:
        from vmq.streams.errors import StreamError

        try:
            found = decode_definition(name, raw)
            options = found.options
            had = catalog.streams.get(name)
            if had is not None and len(had.partitions) > options.partitions:
                options = msgspec.structs.replace(options, partitions=len(had.partitions))
                again = Definition(options, found.origin, max(self._now(), found.since + 1))
                self._put(key_of("stream", name), encode(again))
            stream = catalog.adopt(name, options, found.origin)
        except (PlaceError, StreamError, OSError) as error:
            log.error("this node cannot keep the stream %r of the cluster: %s", name, error)
            return
        stream.fed = found.origin == "command" or any(
            self._get(key_of("config", name, each)) is not None for each in self._members
        )
        catalog.on_change()

    def _on_changes(self, changes: list[Changed]) -> None:
        parts = [parts_of(each.key) for each in changes if not each.local]
        if not parts:
            return
        for name in sorted({each[1] for each in parts if each[:1] in (["stream"], ["config"])}):
            self._follow(name)
        self._look_again()

    # --- owners

    def _look_again(self) -> None:
        """Definitions, owners or members may have changed."""
        if self.catalog is None:
            return
        self._tell_of_node()
        for name in self._taps.keys() - self.catalog.streams.keys():
            del self._taps[name]
        keepers = self._keepers()
        owners: dict[str, list[str | None]] = {}
        for stream in self.catalog.streams.values():
            names = [self._claim(stream, each.number, keepers) for each in stream.partitions]
            owners[stream.name] = [None if each == self._name else each for each in names]
        self._owners = owners
        self._addresses = {
            each: (self._get(key_of("node", each)) or b"").decode(errors="replace")
            for each in keepers
        }
        self.catalog.on_change()
        for stream in self.catalog.streams.values():
            for partition in stream.partitions:
                if partition.is_copy and self.owner(stream.name, partition.number) is None:
                    partition.accept_copy()
        if self.handover is not None:
            self.handover.look()

    def _claim(self, stream: "Stream", number: int, keepers: set[str]) -> str:
        """The owner; this node writes it if nobody else is, or who is to have what nobody has used yet."""
        noted = self._noted(stream.name, number)
        wanted = chosen(stream.name, number, keepers)
        if noted is None:
            is_new = self._get(key_of("owner", stream.name, str(number))) is None
            if is_new and has_rows(stream, number):
                self._own(stream.name, number, self._name, since=0)
                return self._name
            # What a node says that is alone would count when it joins again.
            if wanted == self._name and len(self._members) > 1:
                self._own(stream.name, number, wanted)
        elif noted == self._name and wanted != noted and is_unused(stream, number):
            self._own(stream.name, number, wanted)
        else:
            return noted
        return wanted

    def _own(self, stream: str, number: int, node: str, since: int | None = None) -> None:
        """Writes an owner; with `since` 0 one that had messages before it was in a cluster."""
        record = encode(Ownership(node, self._now() if since is None else since))
        self._put(key_of("owner", stream, str(number)), record)

    def _noted(self, stream: str, number: int) -> str | None:
        """The owner of a partition by its record; None if that is no member."""
        record = decode_owner(self._get(key_of("owner", stream, str(number))))
        return record.node if record is not None and record.node in self._members else None

    def _keepers(self) -> set[str]:
        """The members that keep streams."""
        found = {each for each in self._members if self._get(key_of("node", each)) is not None}
        return found or {self._name}

    # --- the metadata

    def _need_catalog(self) -> "Catalog | None":
        if self.catalog is None and not self.failure and self._node is not None:
            try:
                self.attach(self._open_catalog())
            except RuntimeError as error:
                self.failure = str(error)
                log.error("other nodes keep streams, and this one cannot: %s", error)
        return self.catalog

    def _tell_of_node(self) -> None:
        key = key_of("node", self._name)
        value = self._address.encode()
        if self._is_leaving:
            self._delete(key)
        elif self._get(key) != value:
            self._put(key, value)

    def _defined(self) -> Iterator[str]:
        if self._node is not None and self._node.is_running:
            for key, _ in list(self._node.items(STREAMS)):
                parts = parts_of(key)
                if parts[:1] == ["stream"]:
                    yield parts[1]

    def _get(self, key: bytes) -> bytes | None:
        node = self._node
        return node.get(STREAMS, key) if node is not None and node.is_running else None

    def _put(self, key: bytes, value: bytes) -> None:
        node = self._node
        if node is None or not node.is_running:
            return
        try:
            node.put(STREAMS, key, value)
        except ClusterError as error:
            log.error("other nodes do not learn of a stream: %s", error)

    def _delete(self, key: bytes) -> None:
        node = self._node
        if node is not None and node.is_running and node.get(STREAMS, key) is not None:
            node.delete(STREAMS, key)

    def _now(self) -> int:
        return int(self._core.wall_clock() * 1000)


def has_rows(stream: "Stream", number: int) -> bool:
    """Whether there are rows of a partition here, as far as is known."""
    partition = stream.partitions[number]
    return partition.earliest != partition.end and not partition.is_copy


def is_unused(stream: "Stream", number: int) -> bool:
    """Whether a partition never had a message, as far as can be told at once."""
    return not stream.appender.commits.pending() and stream.partitions[number].active.index.end == 0
