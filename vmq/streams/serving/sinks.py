"""Publishes staged batches, each once: the broker's side of Spark's sink.

A batch goes out in steps. How far it came is noted in the store by the commit that holds what the step
gave to durable sessions and retained messages, so a broker that dies in the middle goes on behind the
last step that is safe: those get every message once. Clients with a clean session may see the
messages of the interrupted step again. Streams get none of it twice. What other nodes of a cluster are to have of it
is in that same commit of the store. The logs of this node have commits of their own, before it: what they have of the
interrupted step is looked up in them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final, NamedTuple
from weakref import WeakValueDictionary

from vmq.config.mappings import MAPPED
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.core.source import Source
from vmq.core.trie import Route
from vmq.disk.durable import Durable
from vmq.mqtt.message import Message
from vmq.mqtt.packets import ProtocolError
from vmq.mqtt.special import JOBS, is_served
from vmq.streams.append_way import AppendWay
from vmq.streams.appender import REFUSED
from vmq.streams.catalog import Catalog
from vmq.streams.earlier import Earlier, marks_of
from vmq.streams.log.errors import StreamError
from vmq.streams.logs import LogsAnywhere
from vmq.streams.serving.batch_commit import SinkStep
from vmq.streams.staging.parts import MEMBERS, Staging, messages_of
from vmq.streams.staging.state import BusyError, Marks, StagedCursor, StagingError

log = logging.getLogger("vmq.streams")

#: Messages published between two looks at the other clients.
STEP: Final = 256

#: Seconds until a step that the store refused is tried again.
RETRY_AFTER: Final = 1.0

#: Seconds until it is looked again whether a partition has its next owner.
HELD_AGAIN: Final = 0.05

#: Seconds that streams get to write what came before a batch.
PATIENCE: Final = 10.0

#: Whose messages they are to streams.
CLIENT_ID: Final = "vmq-sink:"

#: A topic of jobs, a body, QoS, and of what the job's id is made: whoever adds it again adds the same.
StagedJob = tuple[str, bytes, int, bytes]


async def no_jobs(_staged: Sequence[StagedJob]) -> str:
    """For sinks without a broker."""
    return "there are no jobs"


class Sinks:
    """Publishes the batches of all queries, one at a time for each query."""

    def __init__(self, core: Core, registry: Registry, staging: Staging, catalog: Catalog) -> None:
        self.core = core
        self.registry = registry
        self.staging = staging
        self.catalog = catalog
        self.loop = asyncio.get_running_loop()
        #: For as long as somebody has one, or waits for it.
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: Batch under way by query, and how many of its messages are published, safe or not: what the
        #: store notes counts after a restart only.
        self.progress: dict[str, tuple[int, int]] = {}
        #: By query, what streams have been given of its batch that is not published yet.
        self.given: dict[str, SinkProgress] = {}
        #: By query, what streams had of its batch when this broker took it up.
        self.earlier: dict[str, Earlier] = {}
        self.works: set[asyncio.Task[int]] = set()
        #: Queries that somebody else goes on with after the start.
        self.held: set[str] = set()
        self.is_stopping = False
        #: Adds jobs; returns, once they are safe, why that cannot be now, or nothing.
        self.add_jobs: Callable[[Sequence[StagedJob]], Awaitable[str]] = no_jobs

    def publish(self, query: str, batch: int, parts: Sequence[tuple[int, int]]) -> "Future[int]":
        """Publishes a batch once; to be called in another thread than the loop's."""
        return asyncio.run_coroutine_threadsafe(self.publish_once(query, batch, parts), self.loop)

    async def recover(self) -> None:
        """Goes on with the batches that were being published when the broker ended."""
        unfinished = [(query, batch) for query, batch, _ in self.staging.unfinished()]
        waiting = [each for each in unfinished if each[0] not in self.held]
        while waiting:
            waiting = [each for each in waiting if not await self.recover_batch(*each)]
            if waiting:
                await asyncio.sleep(RETRY_AFTER)

    async def recover_batch(self, query: str, batch: int) -> bool:
        """Goes on with one; False if it has to be tried again."""
        try:
            count = await self.publish_once(query, batch, [])
        except BusyError as error:
            log.warning("batch %d of query %s has to wait: %s", batch, query, error)
            return False
        except StagingError as error:
            log.error("batch %d of query %s cannot be published: %s", batch, query, error)
        else:
            log.info("published the rest of batch %d of query %s: %d messages", batch, query, count)
            if query.startswith(MEMBERS):
                await self.forget(query)
        return True

    def begin(self, query: str) -> None:
        """A batch is decided, and nobody has published any of it."""
        self.given.setdefault(query, SinkProgress())

    async def forget(self, query: str) -> None:
        """A member of a group has ended, and with it what it published."""
        await asyncio.to_thread(self.staging.forget, query)

    async def stop(self) -> None:
        """Publishes nothing more; what is left of a batch is published after the next start."""
        self.is_stopping = True
        works = list(self.works)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    async def publish_once(
        self,
        query: str,
        batch: int,
        parts: Sequence[tuple[int, int]],
        cursor: "SinkCursor | None" = None,
    ) -> int:
        """Publishes a batch, or what is left of it, and moves a cursor with it; how many messages that were.

        Raises:
            StagingError: parts are missing, or the store cannot write.
        """
        if self.is_stopping:
            raise BusyError("the broker ends; the batch stays staged")
        work = asyncio.ensure_future(self.publish_in_turn(query, batch, parts, cursor))
        self.works.add(work)
        work.add_done_callback(self.works.discard)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if self.is_stopping:
                raise BusyError("the broker ends; the batch stays staged") from None
            raise

    async def publish_in_turn(
        self,
        query: str,
        batch: int,
        parts: Sequence[tuple[int, int]],
        cursor: "SinkCursor | None" = None,
    ) -> int:
        """Publishes a batch behind the one that was decided before, which nobody may ask for again."""
        # Refuses a name that is none before anything is kept of it.
        self.staging.folder_of(query)
        lock = self.locks.setdefault(query, asyncio.Lock())
        async with lock:
            before = await asyncio.to_thread(self.staging.decided, query)
            if before is not None and before != batch:
                await self.publish_alone(query, before, [])
            return await self.publish_alone(query, batch, parts, cursor)

    async def publish_alone(
        self,
        query: str,
        batch: int,
        parts: Sequence[tuple[int, int]],
        cursor: "SinkCursor | None" = None,
    ) -> int:
        is_new = await asyncio.to_thread(self.staging.decided, query) is None
        marks = await self.marks() if is_new else None
        staged = None if cursor is None else cursor.staged
        files = await asyncio.to_thread(self.staging.decide, query, batch, parts, marks, staged)
        if files is None:
            return 0
        if cursor is not None:
            await cursor.move()
        if query not in self.given:
            if not is_new:
                await self.look_up(query, batch, files)
            self.given[query] = SinkProgress()
        count = 0
        for rows in steps(messages_of(files), self.done_before(query, batch)):
            await self.publish_rows(query, batch, rows)
            count += len(rows.messages)
        try:
            await asyncio.to_thread(self.staging.finish, query, batch)
        except OSError as error:
            raise BusyError(f"cannot note the batch: {error.strerror or error}") from error
        self.progress.pop(query, None)
        self.given.pop(query, None)
        self.earlier.pop(query, None)
        store = self.core.store
        if store is not None:
            store.remove_progress(query)
        return count

    async def marks(self) -> Marks:
        """Where the streams end, with all that came before.

        Raises:
            BusyError: they cannot write.
        """
        try:
            async with asyncio.timeout(PATIENCE):
                await self.catalog.commits.wait()
        except TimeoutError:
            raise BusyError("the streams cannot write; the batch stays staged") from None
        return marks_of(self.catalog.streams, self.catalog.places)

    async def look_up(self, query: str, batch: int, files: Sequence[Path]) -> None:
        """Finds what the streams have of a batch that the broker before this one began to publish, or another node.

        Raises:
            BusyError: one cannot be read now.
        """
        taken_since = await asyncio.to_thread(self.staging.taken_since, query)
        if taken_since is not None:
            self.earlier[query] = await self.look_everywhere(query, files, taken_since)
            return
        marks = await asyncio.to_thread(self.staging.marks, query)
        self.earlier[query] = earlier = Earlier(marks, CLIENT_ID + query)
        done = self.done_before(query, batch)
        for rows in steps(messages_of(files), 0):
            if rows.begin >= done:
                break
            for each in self.routed(rows):
                if each.place < done:
                    for tap in self.registry.route(each.topic).taps:
                        if is_mapping(tap):
                            continue
                        if tap.way(each.topic, earlier.client_id) is AppendWay.HERE:
                            met(earlier, tap, each)
            await asyncio.sleep(0)

    async def look_everywhere(self, query: str, files: Sequence[Path], since: int) -> Earlier:
        """What the streams of all nodes have of a batch that was staged at a time, on a disk that is lost.

        Raises:
            BusyError: one cannot be read now.
        """
        names: set[str] = set()
        for rows in steps(messages_of(files), 0):
            for each in self.routed(rows):
                taps = self.registry.route(each.topic).taps
                names.update(tap.name for tap in taps if not is_mapping(tap))
            await asyncio.sleep(0)
        streams = [self.catalog.streams[name] for name in sorted(names & {*self.catalog.streams})]
        logs = [(each.name, LogsAnywhere(each, self.catalog.places)) for each in streams]
        try:
            found = Earlier({}, CLIENT_ID + query, is_everywhere=True)
            await asyncio.to_thread(found.fetch, logs, since)
        except StreamError as error:
            raise BusyError(f"what was published cannot be read: {error}") from None
        return found

    def done_before(self, query: str, batch: int) -> int:
        """How many messages of a batch were published before, by this broker or the one that ended."""
        store = self.core.store
        noted = self.progress.get(query)
        if noted is None and store is not None:
            noted = store.load_progress(query)
        return noted[1] if noted is not None and noted[0] == batch else 0

    async def publish_rows(self, query: str, batch: int, rows: "SinkRows") -> None:
        """Publishes one step, and waits until it is safe.

        Streams first: they have commits of their own, and what the store notes as published must not
        be missing there after a crash.

        Raises:
            BusyError: the store or a stream cannot write. What is done is noted all the same.
        """
        core, store = self.core, self.core.store
        if store is not None and store.refuses(core.options.max_uncommitted_writes):
            raise BusyError("the store cannot write; the batch stays staged")
        routed = self.routed(rows)
        await self.keep_jobs(query, batch, rows)
        await self.keep(query, routed)
        # From here on nobody else has a turn: all of this is in one commit.
        step = SinkStep(core.outbox)
        source = Source(step, CLIENT_ID + query)
        end = rows.end
        for each in routed:
            if not self.send(query, each, step):
                end = each.place
                break
            self.registry.publish(self.registry.route(each.topic), each.message(), source)
        self.progress[query] = (batch, end)
        self.given[query].forget(end)
        if store is not None:
            store.put_progress(query, batch, end)
            step.answer_after(core.outbox.stored, store.barrier())
        await settled(step)
        if end < rows.end:
            raise BusyError("another node takes no more for a stream; the batch stays staged")

    def routed(self, rows: "SinkRows") -> "list[SinkRow]":
        """The messages of a step that can be routed."""
        return [
            SinkRow(place, route.topic, payload, qos, retain)
            for place, (topic, payload, qos, retain) in enumerate(rows.messages, rows.begin)
            if not is_served(topic) and (route := self.route(topic)) is not None
        ]

    async def keep_jobs(self, query: str, batch: int, rows: "SinkRows") -> None:
        """Has the jobs of a step added, to queues and as delayed messages; each once, while it is known there.

        Raises:
            BusyError: that cannot be done now.
        """
        given = self.given[query]
        staged = {
            place: (topic, payload, qos, b"\0step %s %d %d" % (query.encode(), batch, place))
            for place, (topic, payload, qos, _) in enumerate(rows.messages, rows.begin)
            if is_served(topic) and (place, JOBS) not in given.rows
        }
        reason = await self.add_jobs(list(staged.values())) if staged else ""
        if reason:
            raise BusyError(f"jobs cannot be added: {reason}; the batch stays staged")
        given.rows |= {(place, JOBS) for place in staged}

    async def keep(self, query: str, routed: "Sequence[SinkRow]") -> None:
        """Has the logs of this node keep their part of a step, each message once.

        Returns, without giving anybody a turn, when that is safe and no message has to wait for an owner.

        Raises:
            BusyError: a stream cannot take a message.
        """
        given = self.given[query]
        while True:
            held = False
            for each in routed:
                held = self.give(query, each) or held
            if given.unsafe:
                step = SinkStep(self.core.outbox)
                for safe, number in given.unsafe.items():
                    step.answer_after(safe, number)
                await settled(step)
                given.unsafe.clear()
            elif held:
                await asyncio.sleep(HELD_AGAIN)
            else:
                return

    def give(self, query: str, row: "SinkRow") -> bool:
        """Hands a message to the logs of this node that have not got it; returns whether one has to wait.

        Raises:
            BusyError: one cannot take it.
        """
        client_id = CLIENT_ID + query
        earlier, given = self.earlier.get(query), self.given[query]
        held = False
        for tap in self.registry.route(row.topic).taps:
            if (row.place, tap.name) in given.rows:
                continue
            is_mapped = is_mapping(tap)
            way = AppendWay.HERE if is_mapped else tap.way(row.topic, client_id)
            held = held or way is AppendWay.HELD
            if way is not AppendWay.HERE:
                continue
            if earlier is None or is_mapped or not met(earlier, tap, row):
                now = int(self.core.wall_clock() * 1_000_000)
                number = tap.append(row.topic, row.payload, row.qos, row.retain, client_id, now)
                if number == REFUSED and row.qos:
                    raise BusyError("a stream cannot write; the batch stays staged")
                if number > 0:
                    given.unsafe[tap.safe_of(row.topic, client_id)] = number
            given.rows.add((row.place, tap.name))
        return held

    def send(self, query: str, row: "SinkRow", step: SinkStep) -> bool:
        """Sends a message to the nodes that own its partitions; False if one cannot take it."""
        client_id = CLIENT_ID + query
        earlier, given = self.earlier.get(query), self.given[query]
        now = int(self.core.wall_clock() * 1_000_000)
        for tap in self.registry.route(row.topic).taps:
            if (row.place, tap.name) not in given.rows:
                is_known = earlier is not None and earlier.is_everywhere and not is_mapping(tap)
                if is_known and earlier is not None and met(earlier, tap, row):
                    given.rows.add((row.place, tap.name))
                    continue
                message = row.topic, row.payload, row.qos, row.retain
                if not tap.send(*message, client_id, now, step):
                    return False
                given.rows.add((row.place, tap.name))
        return True

    def route(self, topic: str) -> Route | None:
        """Where a topic goes; None if it cannot be routed."""
        try:
            return self.registry.route(topic.encode())
        except ProtocolError as error:
            log.warning("a staged message cannot be published: %s", error)
            return None


class SinkCursor(NamedTuple):
    """A cursor that moves with a batch, and who moves it once that is decided, and is safe; again, if need be."""

    staged: StagedCursor
    move: Callable[[], Awaitable[None]]


def is_mapping(tap: Any) -> bool:
    """Whether it is no stream, but sends on what comes by (`vmq.jobs.mappings.tap`)."""
    name: str = tap.name
    return name.startswith(MAPPED)


def met(earlier: Earlier, tap: Any, row: "SinkRow") -> bool:
    """Whether a log of this node has a message of the batch already; the one behind it is the next then."""
    return earlier.meet(tap.place_of(row.topic, earlier.client_id), row.topic, row.payload)


async def settled(step: SinkStep) -> None:
    """Returns when a step is safe and nobody asks to wait.

    Raises:
        BusyError: the store cannot write.
    """
    await step.settle()
    if step.failure is not None:
        raise BusyError(f"{step.failure}; the batch stays staged")


class SinkProgress:
    """What streams have been given of a batch: messages by place and stream, and what these wait for."""

    def __init__(self) -> None:
        self.rows: set[tuple[int, str]] = set()
        #: The last commit of each partition; none once all is safe.
        self.unsafe: dict[Durable, int] = {}

    def forget(self, end: int) -> None:
        """The first so many messages of the batch are published."""
        self.rows = {each for each in self.rows if each[0] >= end}


class SinkRow(NamedTuple):
    """A message of a batch: how many stand before it, and what it is."""

    place: int
    topic: bytes
    payload: bytes
    qos: int
    retain: bool

    def message(self) -> Message:
        """As subscribers get it."""
        return Message(self.topic, self.payload, self.qos, self.retain)


class SinkRows(NamedTuple):
    """The messages of a step: topic, payload, QoS and retain of each; `begin` of the batch stand before them."""

    messages: list[tuple[str, bytes, int, bool]]
    begin: int

    @property
    def end(self) -> int:
        """How many of the batch are published with it."""
        return self.begin + len(self.messages)


def steps(batches: Iterator[Any], skip: int) -> Iterator[SinkRows]:
    """The messages of record batches in steps, but for the first so many."""
    at = 0
    for batch in batches:
        count = batch.num_rows
        start = max(0, skip - at)
        while start < count:
            part = batch.slice(start, STEP)
            columns = [
                part.column(name).to_pylist() for name in ("topic", "payload", "qos", "retain")
            ]
            yield SinkRows(list(zip(*columns, strict=True)), at + start)
            start += part.num_rows
        at += count
