"""The loop's side of a node's groups: links, metadata, producers; and which groups the node has.

Everything here runs in the event loop, but what `Outside` says: that is called in the thread of the groups, gathered,
and handed to the loop once a pass.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.raft import GroupEnvelope, Produce, Produced
from vmq.clustering.raft.converting import Converter, SinglePartitions
from vmq.clustering.raft.cursors import CursorLog, OnLeading
from vmq.clustering.raft.decisions import Known, new_id
from vmq.clustering.raft.groups.opened import has_part, leads_any
from vmq.clustering.raft.groups.passes import LoopPasses
from vmq.clustering.raft.groups.thread import GroupThread
from vmq.clustering.raft.meta import MetaDecisions, MetaGroup
from vmq.clustering.raft.picture import GroupPicture, PictureNews
from vmq.clustering.raft.places import Key, Places
from vmq.clustering.raft.publishing import known_of, publish
from vmq.clustering.raft.records import GROUPS, GroupRecords, MetaRecord, ReplicaPlace, node_of
from vmq.clustering.raft.requests import GroupRequests
from vmq.clustering.raft.roads import Roads
from vmq.clustering.raft.standing import Observer
from vmq.runtime.metrics import Family
from vmq.streams.replica.partition import ReplicaPartition
from vmq_cluster.effects import Changed
from vmq_cluster.node import ClusterNode
from vmq_cluster.raft.effects import Committed
from vmq_cluster.raft.placement import apart

if TYPE_CHECKING:
    from vmq.streams.catalog import Catalog, Stream

log = logging.getLogger("vmq.cluster")

#: Seconds between two looks at what there is, and after news of it.
_LOOK: Final = 1.0
_SOON: Final = 0.02
#: Seconds for which nobody is heard of who has begun the meta group, before this node does.
_BEGIN: Final = 1.0
#: The node's own folder among the streams.
FOLDER: Final = ".groups"


class GroupService:
    """The groups of one node.

    Args:
        node: this node; it runs.
        outboxes: to the other nodes.
        catalog: the streams.
        may_begin: whether this node may begin a meta group where none is known.
        wall_clock: seconds since 1970.
        on_change: called when a stream goes another way.
        singles: partitions of which there is one copy.
        host: what this node shares a disk or a machine with.
        buffer_bytes: what may wait for leaders.

    Raises:
        OSError: the disk.
    """

    def __init__(
        self,
        node: ClusterNode,
        outboxes: Outboxes,
        catalog: "Catalog",
        may_begin: Callable[[], bool],
        wall_clock: Callable[[], float],
        on_change: Callable[[], None],
        singles: SinglePartitions,
        host: str,
        buffer_bytes: int,
    ) -> None:
        self._node = node
        self._catalog = catalog
        self._may_begin = may_begin
        self._wall_clock = wall_clock
        self._on_change = on_change
        self._host = host
        self._loop = asyncio.get_running_loop()
        self._folder = catalog.folder / FOLDER
        self._records = GroupRecords(node)
        self.picture = GroupPicture(self._records)
        self.thread = GroupThread(self._folder, node.name, self)
        self.passes = LoopPasses(self.thread, outboxes.flush)
        self.places = Places(self.thread.name, catalog)
        kept = self._folder / "kept"
        self.roads = Roads(
            self.passes, self.places, catalog, outboxes, wall_clock, buffer_bytes, kept
        )
        self.converter = Converter(
            node.name,
            self._records,
            catalog,
            self.places,
            self.roads,
            outboxes,
            singles,
            self._converted,
        )
        self.requests = GroupRequests(self._records, catalog, self.places, self.thread)
        self._observer = Observer()
        #: The meta group, and the log of consumer groups, by their names.
        self._system: dict[str, MetaGroup | CursorLog] = {}
        self.cursors: CursorLog | None = None
        #: Told, in the loop, whether this node leads that: term, 0 if not, and where groups are; and that it is long.
        self.on_cursors: OnLeading = lambda _term, _places: None
        self.on_long_cursors: Callable[[], None] = lambda: None
        #: Told on how many hosts there can be copies, by the one node that is to see to it.
        self.on_hosts: Callable[[int], None] = lambda _count: None
        self._meta_record: MetaRecord | None = None
        #: Names in groups that were ever heard of, and those that can be reached.
        self._names: set[str] = set()
        self._reached: set[str] = set()
        #: Since when this node may begin the meta group.
        self._may_since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._is_leaving = self._has_left = False
        self._is_soon = False
        self._is_stale = True  # streams or members have changed since the last look

    # --- its life

    def start(self) -> None:
        """Takes part."""
        self.places.moving = self.picture.moving
        self._node.watch_steps(GROUPS, self._on_changes)
        self.thread.start()
        self._look()

    async def release(self) -> None:
        """Returns when others lead what this node led, or a while later: it stops."""
        self.hand_over()
        until = self._loop.time() + _LOOK
        while self._loop.time() < until:
            if not await asyncio.wrap_future(self.thread.turns.call(leads_any, self.thread.opened)):
                return
            await asyncio.sleep(_SOON)

    def hand_over(self) -> None:
        """Has others lead what this node leads, and what it comes to lead."""
        names = self._records.nodes()
        drained = {names[node] for node in self._records.drained() if node in names}
        self.thread.post(self.thread.hand_over, drained)

    def stop(self) -> None:
        """Closes everything in order."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.roads.close()
        self.converter.close()
        self.passes.is_closed = True
        self.thread.stop()

    def on_message(self, peer: str, message: GroupEnvelope | Produce | Produced) -> None:
        """A peer says something."""
        match message:
            case _ if self._is_closed:
                pass
            case GroupEnvelope():
                self.passes.receive(peer, message.raw)
            case Produce():
                self.roads.on_produce(peer, message)
            case Produced():
                self.roads.on_produced(message)

    def set_up(self, up: Iterable[str]) -> None:
        """These nodes can be reached."""
        names = self._records.nodes()
        self._names.update(names.values())
        before, self.places.up = self.places.up, frozenset(up)
        self.requests.note_left(before - self.places.up)
        reached = {
            each
            for each in self._names
            if node_of(each) in self.places.up and names.get(node_of(each), each) == each
        }
        if self.places.up != before:
            for group in self.picture.leads:
                self._note_hint(group)
        if reached != self._reached:
            self._reached = reached
            self.look()
            self.thread.post(self.thread.peers, reached)

    async def leave(self) -> None:
        """Returns when other nodes have what this one had, and none of the groups names it any more."""
        self._is_leaving = True
        self._records.delete("node", self._node.name)
        self.look()
        name = self.places.name
        while (  # noqa: ASYNC110 - others decide
            self.roads.backlog.size
            or self.places.open
            or self.converter.is_waiting
            or any(name in each.voters for each in self.places.places.values())
        ):
            await asyncio.sleep(_LOOK / 10)

    # --- what is said in the thread

    def send(self, peer: str, raw: bytes) -> None:
        self.passes.tell(lambda: self.roads.carry(peer, raw))

    def on_led(self, group: str, leader: str, term: int) -> None:
        self.passes.tell(lambda: self._on_led(group, leader))
        if group in self._system:
            self._system[group].look()

    def on_committed(self, committed: Committed) -> None:
        if committed.group in self._system:
            self._system[committed.group].look()
        if committed.own:
            self.passes.tell(lambda: self.roads.on_committed(committed.group, committed.own))

    def on_uncertain(self, group: str, first: int, end: int, given_up: bool) -> None:
        self.passes.tell(lambda: self.places.tell_loss(group, first, end, given_up))

    def on_unknown(self, group: str) -> None:
        self.passes.tell(lambda: self._on_unknown(group))

    def on_pass(self) -> None:
        self.passes.on_pass()

    # --- which groups there are

    def look(self) -> None:
        """Streams or members may have changed."""
        self._is_stale = True
        self._look_soon()

    def _on_changes(self, changes: list[Changed]) -> None:
        self.picture.on_changes(changes)
        self._look_soon()

    def _look_soon(self) -> None:
        if not self._is_closed and not self._is_soon:
            self._is_soon = True
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(_SOON, self._look)

    def _look(self) -> None:
        self._is_soon, due = False, self._node.next_tick(_LOOK)
        self._timer = None if self._is_closed else self._loop.call_at(due, self._look)
        if self._is_closed or not self._node.is_running:
            return
        belongs = self._node.machine.membership.belongs
        self._is_leaving &= not (belongs and self._has_left)  # it was let in again
        self._has_left = not belongs
        if not self._is_leaving:
            # Again, if need be: others may have what an earlier life of this node wrote, and theirs may have stood.
            self._records.offer(self._node.name, self.places.name, self._host, self._catalog.limit)
        self.set_up(self._node.up)
        self._look_at_meta()
        self.requests.follow()
        news, is_stale = self.picture.news(), self._is_stale
        self._is_stale = False
        for group in list(self.picture.leads) if is_stale else news.led:
            self._note_hint(group)
        if is_stale or news.keys or news.has_more:
            self._look_at_places(news, is_stale)
        self.converter.look(self.picture.places)
        known = self._known(news, is_stale) if is_stale or news.is_moved or news.has_more else None
        self.thread.post(self._look_in_thread, list(self._system.values()), known)

    def _look_in_thread(self, system: list[MetaGroup | CursorLog], known: Known | None) -> None:
        """The rest of a look: the thread is woken once for all of it."""
        for each in system:
            self.thread.post(each.look, known)
        self._observe()

    def _known(self, news: PictureNews, is_stale: bool) -> Known | None:
        """What a leader of the groups of no stream has to know; None: another node leads these."""
        if self.places.name not in map(self.places.own.get, self._system):
            return None
        leads = self.picture.leads.items() if is_stale else self.picture.led_among(news)
        labels = self._records.labels()
        wanted, begun = self.places.wanted(), self.converter.begun
        return known_of(self._records, self._hosts(), wanted, leads, labels, begun)

    def _look_at_meta(self) -> None:
        record = self._records.meta()
        if record is None and self._is_to_begin():
            record = MetaRecord(int(self._wall_clock() * 1000), new_id(), self.places.name)
            self._records.put(msgspec.json.encode(record), "meta")
        if record is None or record == self._meta_record:
            return
        folders = [self._folder / f"{each}-{record.id}" for each in ("meta", "cursors")]
        was_there = [each.exists() for each in folders]
        try:
            meta = MetaGroup(self.thread, folders[0], record.group, self._on_decided)
            cursors = CursorLog(
                self.thread,
                folders[1],
                record.cursors,
                lambda *led: self.passes.tell(lambda: self.on_cursors(*led)),
                lambda: self.passes.tell(self.on_long_cursors),
            )
        except OSError as error:
            self._note_failure(record.group, error)  # the next look tries it again
            return
        if self._meta_record is not None:
            log.error("another cluster's meta group counts, not %s", self._meta_record.group)
            for each in self._system.values():
                self.thread.post(each.close)
        self.thread.failed.pop(record.group, None)
        self._meta_record, self.cursors = record, cursors
        self._system = {record.group: meta, record.cursors: cursors}
        self._is_stale = True
        for each, there in zip(self._system.values(), was_there, strict=True):
            if self.places.name == record.first or there:
                self.thread.post(each.open, (record.first,))

    def _is_to_begin(self) -> bool:
        """Whether this node is to begin the meta group: it may, and for a while there were hosts enough."""
        hosts = self.hosts
        wanted = any(each.options.replicas <= hosts for each in self.places.wanted())
        wanted = wanted or self._records.get("readers") is not None
        now = self._loop.time()
        if not wanted or not self._may_begin():
            self._may_since = now
        return now - self._may_since >= _BEGIN

    @property
    def hosts(self) -> int:
        """On how many hosts there can be copies."""
        return len(apart(self._hosts(), self._records.labels()))

    def _hosts(self) -> tuple[str, ...]:
        """Who takes replicas, by their names in groups."""
        members = {*self._node.members}
        return tuple(name for node, name in self._records.nodes().items() if node in members)

    def _on_unknown(self, group: str) -> None:
        """A member of a group speaks to this node: of one of the node's own it is to be one, too."""
        if group in self._system:
            self.thread.post(self._system[group].open, ())

    def _look_at_places(self, news: PictureNews, is_stale: bool) -> None:
        """Opens what this node is to have, closes what it has no more."""
        self.converter.claim()
        if is_stale or news.has_more:
            self.places.hosts = self.hosts
            self.places.accepted = self._records.accepted()
            if min(self._hosts(), default="") == self.places.name:
                self.on_hosts(self.places.hosts)
        found = self.picture.places
        streams = {stream.name: stream for stream in self.places.wanted()}
        opened = self.places.opened
        keys = found.keys() | opened.keys() if is_stale else news.keys
        wanted: dict[str, Key] = {}
        aims: dict[str, tuple[str, ...]] = {}
        for key in keys:
            place, stream = found.get(key), streams.get(key[0])
            if place is None or stream is None or not self._is_here(stream, key[1], place):
                continue
            wanted[place.group] = key
            aims[place.group] = place.voters
        gone = {group for key in keys if (group := opened.get(key)) is not None} - wanted.keys()
        self._change_open(wanted, gone)
        if aims:
            self.thread.post(self.thread.aim, aims)
        changed = {key: found.get(key) for key in news.keys}
        self._names.update(name for place in changed.values() if place for name in place.voters)
        self.places.put(changed)
        self.roads.follow(None if is_stale else news.keys)

    def _is_here(self, stream: "Stream", number: int, place: ReplicaPlace) -> bool:
        """Whether this node is to have a replica of a partition."""
        if number >= len(stream.partitions):
            return False
        is_ready = isinstance(stream.partitions[number], ReplicaPartition)
        return is_ready and self.places.is_member(place, self.picture.leads.get(place.group))

    def _change_open(self, wanted: Mapping[str, Key], gone: set[str]) -> None:
        """These groups are to be open, those no more."""
        for group in gone:
            self._close_group(group, *self.places.close(group))
        for group in wanted.keys() - self.places.open.keys():
            self.places.open[group] = wanted[group]
            self.places.opened[wanted[group]] = group
            self._open_group(group)

    def _open_group(self, group: str) -> None:
        """Has the thread open a group, if it is to be open."""
        key = self.places.open.get(group)
        if key is not None and not self._is_closed:
            stream, place = self._catalog.streams[key[0]], self.picture.places[key]
            self.thread.post(self._open_in_thread, stream, stream.partitions[key[1]], place)

    def _converted(self) -> None:
        """A stream goes another way."""
        self._on_change()
        self.look()

    def _open_in_thread(
        self, stream: "Stream", partition: ReplicaPartition, place: ReplicaPlace
    ) -> None:
        try:
            partition.belong_to(place.group, is_first=self.places.name in place.first)
        except OSError as error:
            self._note_failure(place.group, error)
            again = (_LOOK, self._open_group, place.group)
            self._loop.call_soon_threadsafe(self._loop.call_later, *again)
            return
        self.thread.open(place.group, partition, stream.appender.keys, place.first)

    def _note_failure(self, group: str, error: OSError) -> None:
        if self.thread.failed.get(group) != str(error):
            log.error("group=%s: it cannot be opened yet: %s", group, error)
        self.thread.failed[group] = str(error)

    def _close_group(self, group: str, name: str, number: int) -> None:
        self.places.own.pop(group, None)
        stream = self._catalog.streams.get(name)
        is_there = stream is not None and number < len(stream.partitions)
        self.thread.post(partial(self.thread.close, group, erase=is_there))
        self._note_hint(group)

    def _on_decided(self, decided: MetaDecisions) -> None:
        """In the thread: the meta group has decided more."""
        if decided.leads:
            self.passes.tell(lambda: self._publish(decided))

    def _publish(self, decided: MetaDecisions) -> None:
        publish(decided, self._records, self.picture)

    def deleted(self, stream: str) -> None:
        """A stream was deleted on this node: the meta group is to forget it."""
        place = self.places.places.get((stream, 0))
        if place is not None:
            self._records.put(b"1", "gone", place.group.partition("/")[0])

    # --- leaders

    def _on_led(self, group: str, leader: str) -> None:
        self.places.own[group] = leader
        if leader:
            self._note_leader(group, leader)
        elif self.places.leaders.get(group):
            self.places.lead(group, "")
            self._note_hint(group)
        if group in self._system:
            self.look()  # who leads it has to know what there is
        self._look_soon()

    def _note_hint(self, group: str) -> None:
        """Of a group whose leader no replica here knows, the metadata may: who led it, and may lead it still."""
        lead = self.picture.leads.get(group)
        if lead is not None and not self.places.own.get(group):
            self._note_leader(group, self.places.hinted(group, lead.leader))

    def _note_leader(self, group: str, leader: str) -> None:
        if self.places.leaders.get(group) != leader:
            self.places.lead(group, leader)
            self.roads.led(group)

    def _observe(self) -> None:
        """In the thread: how this node's replicas stand, and what it leads."""
        found, news = self._observer.look(self.thread, self._system)
        if found is not self.places.here:
            self.passes.tell(partial(setattr, self.places, "here", found))
        if news:
            self.passes.tell(partial(self.picture.tell, news))

    async def recover(self, stream: str, number: int | None, *, force: bool) -> str:
        """Has what has no leader go on with this node's copies alone; returns what is wrong, "" if nothing is."""
        return await self.requests.recover(stream, number, self._system, force=force)

    # --- what is shown

    def meta_leader(self) -> str | None:
        """The node that leads the meta group; "": none that is known; None: this node has no part in it."""
        group = "" if self._meta_record is None else self._meta_record.group
        return (
            node_of(self.places.own.get(group, "")) if has_part(self.thread.opened, group) else None
        )

    def problems(self) -> Iterator[str]:
        """What replicated streams cannot do now, as this node sees it."""
        if self.thread.failure:
            yield f"this node takes no part in replicated streams: {self.thread.failure}"
        yield from self.places.problems(self.meta_leader(), self.thread.failed.copy())
        yield from self.roads.problems()

    def families(self) -> Iterator[Family]:
        """The figures of the groups."""
        yield from self.places.families()
        yield from self.roads.families()
