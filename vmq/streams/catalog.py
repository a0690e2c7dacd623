"""Which streams there are: a folder each, with a definition and a folder for each partition.

streams/LOCK
streams/NAME/stream.json        what the stream is
streams/NAME/0/, 1/, ...        its partitions: segments, their indexes, a checkpoint
"""

import asyncio
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Final

from vmq.config.streams import StreamOptions, check_name
from vmq.disk.room import DiskRoom
from vmq.mqtt.topics import covers, matches
from vmq.streams.appender import Appender
from vmq.streams.column_writer import ColumnWriter
from vmq.streams.damaged import open_partition, open_partitions
from vmq.streams.definition import (
    Origin,
    StreamRef,
    check_before,
    id_of,
    lock_folder,
    read_definition,
    settled,
    write_definition,
)
from vmq.streams.groups.port import GroupsElsewhere
from vmq.streams.growing import grow, open_beside
from vmq.streams.leaving import LeavingStreams, set_aside
from vmq.streams.log.checkpoint import sync_folder
from vmq.streams.log.commits import Commits
from vmq.streams.log.cursor import PartitionLog
from vmq.streams.log.errors import StreamError, UnknownPartitionError, UnknownStreamError
from vmq.streams.log.partition import Partition
from vmq.streams.log.scrub import RATE, Scrubber
from vmq.streams.places import PartitionPlaces
from vmq.streams.reader_places import SharedCursors
from vmq.streams.replica.converting import become_replica, has_single_log, leave_log
from vmq.streams.replica.partition import ReplicaPartition
from vmq.streams.replica.tidying import tidy_replica
from vmq.streams.tidying.janitor import Janitor

log = logging.getLogger("vmq.streams")

#: Stands in the folder of a stream that is to have copies, and has none yet.
SINGLE: Final = "single"
MOST_STREAMS: Final = 1000


class Stream:
    """One stream and its partitions. `fed` is False once neither configuration nor plugin names it."""

    def __init__(
        self,
        folder: Path,
        options: StreamOptions,
        origin: Origin,
        commits: Commits,
        clock: Callable[[], float],
        room: DiskRoom,
    ) -> None:
        self.folder = folder
        self.room = room
        self.name = folder.name
        self.origin = origin
        #: Tells it from one of the same name before or after it; "": nobody knows.
        self.stream_id = id_of(folder)
        self.options = options
        #: What configuration or plugin say, where these say it: how many copies may be left open there.
        self.declared = options
        if options.replicas > 1 and has_single_log(folder):
            # The configuration has changed while nobody was here to convert it.
            (folder / SINGLE).touch()
        #: Several nodes have copies: its partitions are those of groups (`vmq.clustering.raft`), or about to be.
        self.is_replicated = options.replicas > 1 and not (folder / SINGLE).exists()
        self.clock = clock
        self.fed = True
        #: It was deleted.
        self.gone = False
        self.partitions: list[Partition] = []
        self.news = threading.Condition()
        #: Held by who looks whether it is replicated and then has rows written, outside of the event loop.
        self.writing = threading.Lock()
        self.watchers = 0
        try:
            self.open_more(options.partitions)
        except BaseException:
            self.close()
            raise
        self.appender = Appender(options, self.partitions, commits)

    @property
    def ref(self) -> StreamRef:
        """Which stream it is, for those who keep something of it."""
        return StreamRef(self.name, self.stream_id)

    def open_more(self, count: int) -> None:
        """Opens those that are lacking to have so many; before there are options that say so, too (`growing`)."""
        make = ReplicaPartition if self.is_replicated else open_partition
        numbers = range(len(self.partitions), count)
        more = open_partitions(make, self.folder, numbers, self.options, self.clock)
        for partition in more:
            partition.on_publish, partition.room = self._tell, self.room
        self.partitions += more

    def set_options(self, options: StreamOptions) -> None:
        """Takes over other options, of a stream that is fed; it keeps the partitions that it has."""
        if options.replicas > 1 and not self.is_replicated:
            (self.folder / SINGLE).touch()
        self.options = options
        for partition in self.partitions:
            partition.set_options(options)
        self.open_more(options.partitions)
        self._renew_appender()

    def _renew_appender(self) -> None:
        # What is gathered already goes the way it was to go: by the old appender.
        before = self.appender
        self.appender = Appender(self.options, self.partitions, before.commits)
        self.appender.take_over(before)

    async def become_replicated(self, keeps: Callable[[int], bool]) -> None:
        """Partitions of which this node had the only copy become replicas; readers read on.

        The caller sees to it that nothing more is handed to the appender: `is_replicated` says so.

        Args:
            keeps: whether the messages that this node has of a partition are the first of its group's log.

        Raises:
            OSError: the disk; it is to be called again.
        """
        await self.appender.commits.wait()
        await asyncio.wrap_future(self.appender.commits.writer.call(lambda: self._convert(keeps)))
        self._renew_appender()

    def _convert(self, keeps: Callable[[int], bool]) -> None:
        """In the writer's thread, between two commits."""
        single = [each for each in self.partitions if not each.is_replica]
        for partition in single:
            if keeps(partition.number):
                leave_log(partition)
        (self.folder / SINGLE).unlink(missing_ok=True)
        sync_folder(self.folder)
        for partition in single:
            become_replica(partition, keeps=keeps(partition.number))

    def _tell(self) -> None:
        """A partition has new rows."""
        # Who begins to wait after this look has counted itself before it looks at the ends.
        if self.watchers:
            with self.news:
                self.news.notify_all()

    def wait(self, after: Sequence[tuple[PartitionLog, int]], timeout: float) -> bool:
        """Waits until one of some partitions ends behind an offset; False if none does in time."""
        with self.news:
            self.watchers += 1
            try:
                return self.news.wait_for(
                    lambda: any(partition.end > offset for partition, offset in after), timeout
                )
            finally:
                self.watchers -= 1

    def partition(self, number: int) -> Partition:
        """One of the partitions.

        Raises:
            UnknownPartitionError: there is none of this number.
        """
        if not 0 <= number < len(self.partitions):
            raise UnknownPartitionError(self.name, number, len(self.partitions))
        return self.partitions[number]

    def filters_of(self, topics: str | None) -> list[str]:
        """The filters that a reader of these topics has to have a right to: that one, if all of it is kept."""
        kept = self.options.filters
        if topics is not None and any(covers(wider, topics) for wider in kept):
            return [topics]
        return list(kept)

    def matches(self, topic: str) -> bool:
        """Whether messages of a topic belong to the stream."""
        return self.fed and any(matches(each, topic) for each in self.options.filters)

    def close(self) -> None:
        """Closes the partitions' files."""
        for partition in self.partitions:
            partition.close()


class Catalog:
    """All streams of a broker; opening it recovers them.

    `on_change` is called whenever another set of topics belongs to streams: routes that were
    resolved before are out of date then.

    Args:
        folder: where they lie; made when missing.
        declared: those that the configuration names.
        commits: their commits; the catalog starts and feeds its writer.
        clock: seconds since 1970, by which rows are old; in a cluster another one, which threads ask.
        scrub_rate: bytes a second at which sealed segments are read again; 0: they are not.
        limit: partitions that this node takes; 0: as many as there are.
        room: what is to stay free of the disk.

    Raises:
        StreamError: another process uses the folder, or a definition cannot be used.
        OSError: the disk.
    """

    def __init__(
        self,
        folder: Path,
        declared: Mapping[str, StreamOptions],
        commits: Commits,
        clock: Callable[[], float] = time.time,
        scrub_rate: int = RATE,
        limit: int = 0,
        room: DiskRoom | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.commits = commits
        self.clock = clock
        self.limit = limit
        self.room = DiskRoom() if room is None else room
        self.on_change: Callable[[], None] = lambda: None
        #: Told of the name of a stream that was made, changed or deleted here.
        self.on_definition: Callable[[str], None] = lambda _name: None
        #: Streams may have several copies: there is a cluster.
        self.may_replicate = False
        #: Where partitions are that other nodes own; None without a cluster.
        self.places: PartitionPlaces | None = None
        #: Who coordinates consumer groups then.
        self.groups: GroupsElsewhere | None = None
        #: Knows the cursors of readers of all its nodes.
        self.cursors: SharedCursors | None = None
        #: Told that `cursors` is another one.
        self.on_shared: Callable[[], None] = lambda: None
        #: Told of a stream that was deleted: its readers end.
        self.on_dropped: Callable[[Stream], None] = lambda _stream: None
        self.streams: dict[str, Stream] = {}
        self.leaving = LeavingStreams()
        self.lock = lock_folder(folder)
        try:
            self._open(declared)
        except BaseException:
            self._close_files()
            raise
        self.janitor = Janitor(self.all_partitions, tidy_replica)
        self.scrubber = Scrubber(self.all_partitions, scrub_rate)
        self.columns = ColumnWriter(self.all_partitions)
        commits.writer.partitions = self.all_partitions
        commits.writer.tidy = self.janitor.wanted.set

    def _open(self, declared: Mapping[str, StreamOptions]) -> None:
        for path in sorted(self.folder.iterdir()):
            if path.name.startswith(".deleted-"):
                self.leaving.finish(path)
            elif path.name.startswith("."):
                continue  # what the node itself keeps of its replicas
            elif path.is_dir() and path.name not in declared:
                options, origin = read_definition(path)
                stream = self._stream(path, options, origin)
                stream.fed = origin == "command"
                self.streams[path.name] = stream
        for name, options in declared.items():
            self._add(options, self._stream(*self._begin(name, options, "config")))

    def _stream(self, path: Path, options: StreamOptions, origin: Origin) -> Stream:
        return Stream(path, options, origin, self.commits, self._time, self.room)

    def _time(self) -> float:
        """By the clock as it is then."""
        return self.clock()

    def _add(self, declared: StreamOptions, made: Stream) -> None:
        self.streams[made.name] = made
        made.declared = declared

    def open_new(
        self, name: str, options: StreamOptions, origin: Origin, stream_id: str | None = None
    ) -> "asyncio.Future[Stream]":
        """Has a thread make a stream, of a broker that runs; nobody is told of it yet.

        Raises:
            StreamError: the name is unusable, or there are too many streams.
            OSError: the disk, also of what is returned.
        """
        make = partial(self._stream, *self._begin(name, options, origin, stream_id))
        return open_beside(self.leaving, name, make, partial(self._add, options))

    async def _make(self, name: str, options: StreamOptions, origin: Origin) -> Stream:
        self._check_room(options.partitions)
        made = await self.open_new(name, options, origin)
        self.on_change()
        self.on_definition(name)
        return made

    def _begin(
        self, name: str, options: StreamOptions, origin: Origin, stream_id: str | None = None
    ) -> tuple[Path, StreamOptions, Origin]:
        """Writes what a stream is to be, with the copies that it has; returns that, and where."""
        try:
            check_name(name)
        except ValueError as error:
            raise StreamError(str(error)) from None
        if len(self.streams) >= MOST_STREAMS:
            raise StreamError(f"there are {MOST_STREAMS} streams already; accepted: fewer")
        self.leaving.check(name)
        path = self.folder / name
        options = settled(path, options)
        check_before(path, options)
        write_definition(path, options, origin, stream_id)
        return path, options, origin

    def start(self) -> None:
        """Starts the threads that write, tidy and look for damage."""
        self.commits.start()
        self.janitor.start()
        self.scrubber.start()
        self.columns.start()

    async def close(self, patience: float = 5.0) -> bool:
        """Writes what is gathered and closes everything; False if that took longer than `patience` seconds."""
        await self.leaving.opened()
        written = await self.commits.close(patience)
        for thread in (self.columns, self.janitor, self.scrubber):
            await self.commits.loop.run_in_executor(None, thread.stop)
        self._close_files()
        return written

    def _close_files(self) -> None:
        for stream in self.streams.values():
            stream.close()
        os.close(self.lock)

    def all_partitions(self) -> Iterator[Partition]:
        """The partitions of all streams."""
        for stream in list(self.streams.values()):
            yield from stream.partitions

    def damaged(self) -> Iterator[Partition]:
        """The partitions that are refused until they are mended."""
        return (each for each in self.all_partitions() if each.damage is not None)

    def failures(self) -> Iterator[str]:
        """What threads could not do for partitions, while that lasts."""
        for thread in (self.commits.writer, self.janitor, self.scrubber, self.columns):
            yield from thread.failures.told(self.streams)

    def get(self, name: str) -> Stream:
        """One stream.

        Raises:
            UnknownStreamError: there is none of this name.
        """
        stream = self.streams.get(name)
        if stream is None:
            raise UnknownStreamError(name, list(self.streams))
        return stream

    def appenders(self, topic: str) -> list[Appender]:
        """Where messages of a topic are to be appended; asked once a topic, not once a message."""
        return [stream.appender for stream in self.streams.values() if stream.matches(topic)]

    async def create(self, name: str, options: StreamOptions) -> Stream:
        """Makes a stream, of a broker that runs.

        Raises:
            StreamError: the name is taken or unusable.
            OSError: the disk.
        """
        if name in self.streams:
            raise StreamError(f"there is a stream {name!r} already")
        if options.replicas > 1 and not self.may_replicate:
            raise StreamError(
                f"streams.{name}.replicas = {options.replicas}: there is no cluster; accepted: 1"
            )
        return await asyncio.shield(self._make(name, options, "command"))  # who asks may give up

    def _check_room(self, partitions: int) -> None:
        if lacking := self.lacking_room(partitions):
            raise StreamError(lacking)

    def lacking_room(self, partitions: int) -> str:
        """Why a broker alone takes fewer partitions more; "" if it takes them. Of a cluster the nodes have parts."""
        had = sum(len(stream.partitions) for stream in self.streams.values())
        if self.places is not None or not 0 < self.limit < had + partitions:
            return ""
        return (
            f"no room for {partitions} partitions: there are {had} of {self.limit} "
            "(limits.max_partitions); accepted: fewer"
        )

    def adopt(
        self, name: str, options: StreamOptions, origin: Origin, stream_id: str | None = None
    ) -> Stream:
        """Has a stream as the cluster defines it, while it is fed. Without `stream_id` it keeps its id.

        Raises:
            UnknownStreamError: there is none of this name (`open_new`).
            OSError: the disk.
        """
        stream = self.get(name)
        options = options.with_copies_of(stream.options)
        stream_id = stream.stream_id if stream_id is None else stream_id
        wanted = options, origin, stream_id
        if (stream.options, stream.origin, stream.stream_id) != wanted:
            write_definition(stream.folder, *wanted)
            stream.stream_id = stream_id
        if stream.options != options:
            stream.set_options(options)
        stream.origin = origin
        self.on_change()
        return stream

    async def declare(self, name: str, options: StreamOptions) -> Stream:
        """Keeps a stream that a plugin wants, of a broker that runs.

        One that is fed already keeps its options: messages on their way into it would get lost.

        Raises:
            StreamError: the name is taken or unusable, or the stream is fed with other options.
        """
        await self.leaving.see_off(name)
        before = self.streams.get(name)
        if before is not None:
            if before.fed and before.origin != "plugin":
                where = "the configuration" if before.origin == "config" else "a command"
                raise StreamError(f"there is a stream {name!r} already, made by {where}")
            if before.fed:
                if before.declared != options:
                    raise StreamError(
                        f"stream {name!r} has other options since the broker's start; it takes these "
                        "after a restart"
                    )
                self.on_definition(name)
                return before
            self._check_room(options.partitions - len(before.partitions))
            declared, options = options, settled(before.folder, options)
            check_before(before.folder, options)
            await grow(self.leaving, before, options.partitions)
            write_definition(before.folder, options, "plugin")
            before.set_options(options)  # its readers read on
            before.declared, before.origin, before.fed = declared, "plugin", True
        else:
            return await asyncio.shield(self._make(name, options, "plugin"))
        self.on_change()
        self.on_definition(name)
        return before

    def delete(self, name: str) -> "Future[None]":
        """Deletes a stream and all its messages, those included that are not written yet.

        The files go when the writer is done with it; the sealed segments before, if it cannot write, which helps if
        the disk is full. Readers go on to the end of the segment that they are in.

        Raises:
            UnknownStreamError: there is none of this name.
            StreamError: the configuration names it, and would make it again; or it is getting partitions just now.
        """
        stream = self.get(name)
        self.leaving.check(name)
        if stream.origin == "config" and stream.fed:
            raise StreamError(
                f"stream {name!r} stands in the configuration; take [streams.{name}] out first"
            )
        if stream.origin == "plugin" and stream.fed:
            raise StreamError(
                f"stream {name!r} is a plugin's; take it out of the plugin's section and restart first"
            )
        done = self.drop(name)
        self.on_definition(name)
        return done

    def drop(self, name: str) -> "Future[None]":
        """Deletes a stream that may be deleted, whoever has made it."""
        stream = self.get(name)
        stream.fed, stream.gone = False, True
        self.on_change()
        del self.streams[name]
        self.on_dropped(stream)
        for _ in stream.appender.take():
            pass
        for partition in stream.partitions:
            partition.gone = True
        moved = self.commits.writer.call(lambda: set_aside(stream.folder, stream.close))
        return self.leaving.add(name, moved, stream.partitions)
