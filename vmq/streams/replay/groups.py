"""The consumer groups of a broker."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Final

from vmq.core.context import Core
from vmq.core.queue import Queue
from vmq.runtime.metrics import Family, Sample
from vmq.streams.catalog import Catalog, Stream
from vmq.streams.groups.records import GroupKey
from vmq.streams.groups.share import GroupShare
from vmq.streams.log.errors import PassingError, StreamError
from vmq.streams.logs import LogsAnywhere
from vmq.streams.places import PageQuery
from vmq.streams.reader_places import CursorError, CursorKey, Place
from vmq.streams.replay.group import MAX_DELIVERIES, ConsumerGroup
from vmq.streams.replay.group_request import OWNER, GroupRequest
from vmq.streams.replay.keeping import ROWS, Keeping
from vmq.streams.replay.member import GroupMember
from vmq.streams.replay.program import ProgramMember
from vmq.streams.replay.replay import Readers, Replay, ReplayStart
from vmq.streams.replay.sending import ReplaySender

log = logging.getLogger("vmq.streams")

#: Members of all groups at a time.
MOST: Final = 1000
#: Seconds between two looks at who is late.
_TICK: Final = 1.0

Told = tuple[Callable[[Replay], None], Callable[[Replay, str], None]]


class Groups:
    """The groups that have members.

    Args:
        core: that of the broker.
        catalog: the streams.
        keeping: where their places are kept.
        readers: those who read.
    """

    def __init__(self, core: Core, catalog: Catalog, keeping: Keeping, readers: Readers) -> None:
        self.core = core
        self.catalog = catalog
        self.keeping = keeping
        self.readers = readers
        self.loop = asyncio.get_running_loop()
        self.all: dict[CursorKey, ConsumerGroup] = {}
        #: Those that are clients of MQTT, and programs.
        self.members: set[Replay] = set()
        self.programs: set[ProgramMember] = set()
        #: Told of a program that is a member no more.
        self.on_left: Callable[[ProgramMember], None] = lambda _member: None
        self.timer: asyncio.TimerHandle | None = None
        self.dead = 0

    def limit(self) -> str:
        """Why there can be no more members, if so."""
        if self.catalog.places is not None and self.catalog.groups is None:
            return "this node keeps no replicas, and takes no part in groups: see vmq status"
        if len(self.members) + len(self.programs) >= MOST:
            return f"{MOST} clients and programs are members of groups already"
        return ""

    # Members

    def member(
        self, start: ReplayStart, queue: Queue, topic_filter: str, sender: ReplaySender, told: Told
    ) -> GroupMember:
        """A member of the group that it asked for."""
        group = self.group_of(start)
        return GroupMember(start, queue, topic_filter, sender, self.readers, *told, group)

    def group_of(self, start: ReplayStart) -> ConsumerGroup:
        """The group that somebody asks for."""
        request = start.request
        assert isinstance(request, GroupRequest)
        key = request.key()
        group = self.all.get(key)
        if group is None:
            place = self.place_of(key, start)
            group = ConsumerGroup(request, start.stream, place, self.core.clock, self.on_poison)
            self.all[key] = group
        return group

    def place_of(self, key: CursorKey, start: ReplayStart) -> Place | GroupShare:
        """Where a group is that has no members here, or this node's part of it."""
        if self.catalog.groups is None:
            unwritten = self.keeping.unwritten_of(key, start.stream.ref, start.since)
            return unwritten or start.place or Place(start.starts, {})
        share = self.catalog.groups.share_of(group_key(key))
        share.begin(start.stream.ref.text, start.starts)
        return share

    def join(self, member: GroupMember | ProgramMember) -> None:
        """Gives it what is its share."""
        if isinstance(member, GroupMember):
            self.members.add(member)
        else:
            self.programs.add(member)
        group = member.group
        if group.share is not None and self.catalog.groups is not None and not group.members:
            self.catalog.groups.begin(group.share.key, group)
        group.join(member)
        if self.timer is None:
            self.timer = self.loop.call_later(_TICK, self.look)

    def leave(self, member: GroupMember | ProgramMember) -> None:
        """It is gone."""
        if isinstance(member, GroupMember):
            self.members.discard(member)
        else:
            self.programs.discard(member)
        group = member.group
        group.leave(member)
        self.keeping.leave(group)
        if not group.members:
            if self.all.get(group.request.key()) is group:
                del self.all[group.request.key()]
            if group.share is not None and self.catalog.groups is not None:
                self.catalog.groups.end(group.share.key)
        self.on_changed(group)

    def on_dropped(self, stream: Stream) -> None:
        """A stream was deleted: who joins a group of this name from now on reads another one."""
        for key, group in list(self.all.items()):
            if group.stream is not stream:
                continue
            for member in list(group.members.values()):
                if isinstance(member, ProgramMember):
                    self.on_left(member)
                else:
                    member.end(deleted(stream))
            self.all.pop(key, None)

    def on_moved(self, group: ConsumerGroup) -> None:
        """It is further than it was."""
        if group.share is None:
            self.keeping.on_moved(group)
        elif self.catalog.groups is not None and (group.share.is_dirty or group.moved() >= ROWS):
            self.catalog.groups.on_changed(group.share.key)

    def on_changed(self, group: ConsumerGroup) -> None:
        """Its members, or what they have, may be others: a coordinator elsewhere is to hear of it."""
        if group.share is not None and group.share.is_dirty and self.catalog.groups is not None:
            self.catalog.groups.on_changed(group.share.key)

    def may_send(self, replay: Replay) -> bool:
        """Whether something of it may go out now."""
        return not isinstance(replay, GroupMember) or replay.group.may_send()

    async def keep(self, group: ConsumerGroup) -> None:
        """Returns once it is kept how far a group is.

        Raises:
            PassingError: that cannot be now; it is tried again.
        """
        if group.share is not None and self.catalog.groups is not None:
            await self.catalog.groups.kept(group.share.key)
            return
        try:
            await self.keeping.write(group)
        except CursorError as error:
            raise PassingError(str(error)) from None

    def on_heard(self, member: ProgramMember, *, has_committed: bool) -> None:
        """A program has said where it is."""
        group = member.group
        if has_committed:
            group.on_acknowledged(member)
        group.release_settled(member)
        self.on_moved(group)

    def on_acknowledged(self, member: GroupMember) -> None:
        """A member has acknowledged something."""
        member.group.on_acknowledged(member)
        self.on_moved(member.group)

    def look(self) -> None:
        """Looks who is late."""
        self.timer = None
        for group in list(self.all.values()):
            group.look()
            self.on_changed(group)
        if self.all:
            self.timer = self.loop.call_later(_TICK, self.look)

    def stop(self) -> None:
        """Looks no more."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    # Rows that nobody can take

    def on_poison(self, group: ConsumerGroup, partition: int, offset: int) -> None:
        """A row was given to members too often: it is a dead letter of the queue that is named as the group."""
        self.dead += 1
        name, stream = group.request.group, group.stream
        text = "group=%s stream=%s passes over offset=%d of partition=%d: given %d times, never acknowledged"
        log.error(text, name, stream.name, offset, partition, MAX_DELIVERIES)

        def read() -> tuple[str, bytes]:
            wanted = PageQuery(offset, offset + 1, 1, 1)
            rows = (
                LogsAnywhere(stream, self.catalog.places)
                .rows(partition, wanted, ("topic", "payload", "offset"))
                .rows
            )
            return str(rows.column("topic")[0].as_py()), bytes(rows.column("payload")[0].as_py())

        def bury(reading: "Future[tuple[str, bytes]]") -> None:
            try:
                topic, payload = reading.result()
            except (StreamError, IndexError, OSError) as error:
                log.error("group=%s: a row that was passed over cannot be read: %s", name, error)
                return
            reason = (
                f"stream {stream.name}, partition {partition}, offset {offset}, topic {topic}: given "
                f"{MAX_DELIVERIES} times, never acknowledged"
            )
            self.core.jobs.bury(name, payload, reason)

        try:
            reading = self.readers.threads.submit(read)
        except RuntimeError:
            return  # the broker stops
        reading.add_done_callback(lambda done: self.loop.call_soon_threadsafe(bury, done))

    # Figures

    def families(self) -> Iterator[Family]:
        """The figures."""
        lags = [
            Sample(
                (
                    ("group", group.request.group),
                    ("stream", group.stream.name),
                    ("partition", str(number)),
                ),
                lag,
            )
            for group in self.all.values()
            for number, lag in group.lag().items()
        ]
        if lags:
            text = "Messages of a stream that a group has not acknowledged."
            yield Family("stream_group_lag", "gauge", text, tuple(lags))
        text = "Messages that groups passed over: no member could take them."
        yield Family("stream_group_dead", "counter", text, (Sample((), self.dead),))


def deleted(stream: Stream) -> str:
    """Why a reader of a stream ends."""
    return f"the stream {stream.name!r} was deleted"


def group_key(key: CursorKey) -> GroupKey:
    """A group as its coordinator knows it."""
    return GroupKey(key.owner.removeprefix(OWNER), key.name)
