"""Streams in a running broker: every message that one keeps goes into it on its way.

This is where the room of the streams (`vmq.streams`) and the core meet: the core asks once a topic
which streams keep it, and lets acknowledgements wait for its partitions (`vmq.disk.durable`).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from vmq.config.options import Config
from vmq.config.streams import StreamOptions, from_plain
from vmq.core.context import Core
from vmq.core.hook_sites import Hooks
from vmq.core.ports import ReceiptsPort, StreamFinder
from vmq.core.registry import Registry
from vmq.persistence.group_commit import Committer
from vmq.runtime.metrics import Family, Sample
from vmq.runtime.process import ahead, boot_id, since_boot
from vmq.streams.catalog import Catalog, Stream
from vmq.streams.damaged import ADVICE
from vmq.streams.log.commits import Commits
from vmq.streams.log.errors import StreamError
from vmq.streams.replay.port import StreamReaders
from vmq.streams.serving.access import BrokerAccess
from vmq.streams.serving.following import StreamFollower
from vmq.streams.serving.listener import FlightListener
from vmq.streams.serving.programs import Programs, recover_cursors
from vmq.streams.serving.receipts import Receipts
from vmq.streams.serving.sinks import Sinks
from vmq.streams.sql.running import SqlRunner
from vmq.streams.staging.parts import Staging
from vmq.streams.tidying.passed import PassedTime

log = logging.getLogger("vmq.streams")


class CatalogFinder(StreamFinder):
    """The streams of a broker that owns them all."""

    def __init__(self, catalog: Catalog) -> None:
        super().__init__()
        self.catalog = catalog

    def appenders(self, topic: str) -> list[Any]:
        return self.catalog.appenders(topic)


class Streaming:
    """The streams of one broker. They keep the messages of the topic tree without a mountpoint.

    Args:
        core: whose messages they are.
        registry: the topic tree.
        folder: where the streams lie.
        declared: those that the configuration names.
        scrub_rate: see `Catalog`.
        limit: likewise.
        committer: writes the core's store; None: there is none.

    Raises:
        StreamError: a stream cannot be used: its folder is taken, or its definition is damaged.
        OSError: the disk.
    """

    def __init__(
        self,
        core: Core,
        registry: Registry,
        folder: Path,
        declared: Mapping[str, StreamOptions],
        scrub_rate: int,
        limit: int,
        committer: Committer | None = None,
    ) -> None:
        self.core = core
        self.registry = registry
        staging = Staging(folder.with_name("sinks"), room=core.disk_room)
        recover_cursors(staging, folder.with_name("readers"))
        self.commits = Commits(asyncio.get_running_loop())
        self.commits.on_committed = self.on_committed
        self.commits.on_pressure = self.on_pressure
        self.commits.on_failure = self.on_failure
        self._has_failed = False  # the log has said so
        room = core.disk_room
        self.catalog = Catalog(
            folder, declared, self.commits, scrub_rate=scrub_rate, limit=limit, room=room
        )
        clock = PassedTime(folder / ".clock", since_boot, ahead, boot_id())
        self.catalog.janitor.passed = clock.now
        self.catalog.on_change = self.forget_routes
        core.stream_finder = CatalogFinder(self.catalog)
        self.receipts: Receipts | None = None
        if committer is not None and core.store is not None:
            self.receipts = Receipts(core.store, committer, self.commits)
            self.receipts.recover(self.catalog.streams)
            core.receipts = self.receipts
        self.forget_routes()
        self.catalog.start()
        self.sinks = Sinks(core, registry, staging, self.catalog)
        self.readers = StreamReaders(core, registry, self.catalog, folder.with_name("readers"))
        core.readers = self.readers
        self.programs = Programs(self.readers, self.sinks)
        self.follower = StreamFollower(self.catalog, self.programs)
        self.sql = SqlRunner()
        #: Those that were opened, closed ones included.
        self.listeners: list[FlightListener] = []
        self.recovery: asyncio.Task[None] | None = None

    def recover(self) -> None:
        """Goes on with the batches of sinks that the end of a broker cut off; once it knows who owns what."""
        self.programs.steps.resume()
        self.recovery = asyncio.create_task(self.sinks.recover())

    async def listen(self, name: str, config: Config, hooks: Hooks) -> FlightListener:
        """Opens a listener of the configuration, by which programs read and publish.

        Raises:
            OSError: its address cannot be had.
            CertificateError: its certificate cannot be read.
        """
        options = config.listeners[name]

        def anonymous() -> bool:
            until_hook = config.anonymous_until_hook(name) and hooks.auth_on_register is not None
            return config.anonymous_allowed(name) and not until_hook

        access = BrokerAccess(
            name, hooks, anonymous, secure=options.endpoint.is_tls, options=self.core.options
        )
        parts = self.sinks, self.programs, self.sql
        listener = FlightListener(name, options, self.catalog, access, *parts)
        await listener.open()
        self.listeners.append(listener)
        return listener

    async def declare(self, name: str, options: Mapping[str, Any]) -> None:
        """Keeps a stream that a plugin wants, of options as they stand in the configuration.

        Raises:
            ValueError: an option is wrong, or the name or the stream cannot be had.
            OSError: the disk.
        """
        checked = from_plain(name, dict(options))
        try:
            await self.catalog.declare(name, checked)
        except StreamError as error:
            raise ValueError(str(error)) from error

    async def finish(self) -> None:
        """Ends the sinks between two steps; no Flight listener is open any more."""
        if self.recovery is not None:
            self.recovery.cancel()
        await self.sinks.stop()
        await self.programs.stop()

    async def write(self) -> None:
        """Writes what is gathered, so that who waits for it is acknowledged; gives up on a bad disk."""
        try:
            async with asyncio.timeout(5):
                await self.commits.wait()
        except TimeoutError:
            log.error("stopped with unwritten messages: the streams cannot write")
        if self.receipts is not None:
            self.receipts.tidy()

    async def stop(self) -> None:
        """Writes what is gathered and closes the files. No message comes any more."""
        self.sql.close()
        await self.readers.stop()
        self.core.stream_finder = StreamFinder()
        if self.receipts is not None:
            self.receipts.stop()
            self.receipts = None
            self.core.receipts = ReceiptsPort()
        await self.catalog.close()

    def forget_routes(self) -> None:
        """Other topics belong to streams than before."""
        self.registry.routes.resize(self.core.options.topic_cache)

    def on_committed(self, number: int) -> None:
        """What waits for a commit may go on."""
        if self.receipts is not None:
            self.receipts.confirm(number)
        self.core.outbox.flush()
        self.readers.on_committed()

    def on_pressure(self, on: bool) -> None:
        """The disk falls behind, or has caught up: publishers are not read meanwhile."""
        self.core.streams_are_behind = on
        if not on:
            self.core.resume_all(self.core.waiting_for_streams)

    def on_failure(self, text: str | None) -> None:
        if text is None:
            log.warning("the streams can write again")
        elif not self._has_failed:
            log.error("the streams cannot write: %s; acknowledgements wait until they can", text)
        self._has_failed = text is not None

    def problems(self) -> Iterator[str]:
        """Why the streams cannot do their work now."""
        if self.commits.failure is not None:
            yield f"the streams cannot write: {self.commits.failure}"
        yield from self.catalog.failures()
        # There may be ten thousand, and this is asked each second.
        for partition in [
            each
            for stream in list(self.catalog.streams.values())
            for each in stream.partitions
            if each.flaws or each.archive is not None or each.damage is not None
        ]:
            if partition.damage is not None:
                where = f"partition {partition.number} of stream {partition.stream!r}"
                yield f"{where} is damaged and refused: {partition.damage}; {ADVICE}"
            archive = partition.archive
            if archive is not None and archive.failure:
                where = f"partition {partition.number} of stream {partition.stream!r}"
                yield f"{where} cannot be archived to {archive.url.shown}: {archive.failure}"
            for path, flaw in list(partition.flaws.items()):
                if path.exists():  # the retention may have deleted it
                    yield f"readers of a segment are refused from there on: {flaw}"

    def families(self) -> Iterator[Family]:
        """The figures of the streams."""
        streams = list(self.catalog.streams.values())
        if not streams:
            return
        counters: tuple[tuple[str, str, Callable[[Stream], int]], ...] = (
            ("stream_messages", "Messages that streams have taken.", messages_of),
            (
                "stream_dropped",
                "Messages that streams did not take: their disk lagged behind.",
                dropped_of,
            ),
        )
        for name, text, value in counters:
            yield Family(name, "counter", text, samples(streams, value))
        archived = [each for each in streams if each.options.archive]
        if archived:
            text = "Messages that retention deleted though no archive has them."
            yield Family("stream_unarchived", "counter", text, samples(archived, unarchived_of))
        text = "Bytes of a stream's segments on disk."
        yield Family("stream_bytes", "gauge", text, samples(streams, size_of))
        yield from self._column_families(streams)
        waiting = Sample((), self.commits.pending())
        text = "Bytes of messages that the streams' disk has not taken yet."
        yield Family("stream_uncommitted_bytes", "gauge", text, (waiting,))
        yield from self.readers.families()
        if self.listeners:
            text = "Processes of Flight listeners that ended and were started again."
            restarts = sum(each.restarts for each in self.listeners)
            yield Family("flight_process_restarts", "counter", text, (Sample((), restarts),))

    def _column_families(self, streams: list[Stream]) -> Iterator[Family]:
        """What payloads did not give the typed columns of sealed segments that have them beside them."""
        found = [
            ((("stream", each.name), ("column", column)), unfit)
            for each in streams
            if each.options.schema
            for column, unfit in self.catalog.columns.counts(each.partitions).columns.items()
        ]
        text = "Rows of sealed segments without a value for a typed column."
        missing = tuple(Sample(labels, unfit.missing) for labels, unfit in found)
        yield Family("stream_column_missing", "gauge", text, missing)
        text = "Rows of sealed segments whose value does not fit a typed column."
        unfits = tuple(Sample(labels, unfit.unfit) for labels, unfit in found)
        yield Family("stream_column_unfit", "gauge", text, unfits)


def samples(streams: list[Stream], value: Callable[[Stream], int]) -> tuple[Sample, ...]:
    return tuple(Sample((("stream", each.name),), value(each)) for each in streams)


def messages_of(stream: Stream) -> int:
    return stream.appender.messages


def dropped_of(stream: Stream) -> int:
    return stream.appender.dropped


def unarchived_of(stream: Stream) -> int:
    return sum(partition.unarchived for partition in stream.partitions)


def size_of(stream: Stream) -> int:
    return sum(partition.size for partition in stream.partitions)


__all__ = ["StreamError", "Streaming"]
