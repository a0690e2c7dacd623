"""Publishes staged batches, each once: the broker's side of Spark's sink.

A batch goes out in steps. How far it came is noted in the store by the commit that holds what the step
gave to durable sessions and retained messages, so a broker that dies in the middle goes on behind the
last step that is safe: those get every message once. Clients with a clean session may see the
messages of the interrupted step again. Streams get none of it twice: what they have of it is looked up in them.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Final

from vmq.core import Core
from vmq.message import Message
from vmq.mqtt.packets import ProtocolError
from vmq.registry import Registry
from vmq.step import Step
from vmq.store import StoreError
from vmq.streams.appender import REFUSED, Appender
from vmq.streams.catalog import Catalog
from vmq.streams.earlier import Earlier, marks_of
from vmq.streams.staging import BusyError, Marks, Staging, StagingError, messages_of
from vmq.trie import Route

log = logging.getLogger("vmq.streams")

#: Messages published between two looks at the other clients.
STEP: Final = 256

#: Seconds until a step that the store refused is tried again.
RETRY_AFTER: Final = 1.0

#: Seconds that streams get to write what came before a batch.
PATIENCE: Final = 10.0

#: Whose messages they are to streams.
CLIENT_ID: Final = "vmq-sink:"


class Sinks:
    """Publishes the batches of all queries, one at a time for each query."""

    def __init__(self, core: Core, registry: Registry, staging: Staging, catalog: Catalog) -> None:
        self.core = core
        self.registry = registry
        self.staging = staging
        self.catalog = catalog
        self.loop = asyncio.get_running_loop()
        #: Stays for as long as the broker: there are as many queries as folders.
        self.locks: dict[str, asyncio.Lock] = {}
        #: Batch under way by query, and how many of its messages are published, safe or not: what the
        #: store notes counts after a restart only.
        self.progress: dict[str, tuple[int, int]] = {}
        #: The step that streams were given last by query: batch, its end, and how many of its messages.
        self.tapped: dict[str, tuple[int, int, int]] = {}
        #: By query, what streams had of its batch when this broker took it up.
        self.earlier: dict[str, Earlier] = {}
        self.works: set[asyncio.Task[int]] = set()
        self.is_stopping = False

    def publish(self, query: str, batch: int, parts: Sequence[tuple[int, int]]) -> "Future[int]":
        """Publishes a batch once; to be called in another thread than the loop's."""
        return asyncio.run_coroutine_threadsafe(self.publish_once(query, batch, parts), self.loop)

    async def recover(self) -> None:
        """Goes on with the batches that were being published when the broker ended."""
        waiting = [(query, batch) for query, batch, _ in self.staging.unfinished()]
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
        return True

    async def stop(self) -> None:
        """Publishes nothing more; what is left of a batch is published after the next start."""
        self.is_stopping = True
        works = list(self.works)
        for work in works:
            work.cancel()
        await asyncio.gather(*works, return_exceptions=True)

    async def publish_once(self, query: str, batch: int, parts: Sequence[tuple[int, int]]) -> int:
        """Publishes a batch, or what is left of it; how many messages that were.

        Raises:
            StagingError: parts are missing, or the store cannot write.
        """
        if self.is_stopping:
            raise BusyError("the broker ends; the batch stays staged")
        work = asyncio.ensure_future(self.publish_in_turn(query, batch, parts))
        self.works.add(work)
        work.add_done_callback(self.works.discard)
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if self.is_stopping:
                raise BusyError("the broker ends; the batch stays staged") from None
            raise

    async def publish_in_turn(
        self, query: str, batch: int, parts: Sequence[tuple[int, int]]
    ) -> int:
        """Publishes a batch behind the one that was decided before, which nobody may ask for again."""
        # Refuses a name that is none before anything is kept of it.
        self.staging.folder_of(query)
        lock = self.locks.setdefault(query, asyncio.Lock())
        async with lock:
            before = await asyncio.to_thread(self.staging.decided, query)
            if before is not None and before != batch:
                await self.publish_alone(query, before, [])
            return await self.publish_alone(query, batch, parts)

    async def publish_alone(self, query: str, batch: int, parts: Sequence[tuple[int, int]]) -> int:
        is_new = await asyncio.to_thread(self.staging.decided, query) is None
        marks = await self.marks() if is_new else None
        files = await asyncio.to_thread(self.staging.decide, query, batch, parts, marks)
        if files is None:
            return 0
        if not is_new and query not in self.tapped:
            await self.look_up(query, batch, files)
        count = 0
        for rows in steps(messages_of(files), self.done_before(query, batch)):
            await self.publish_rows(query, batch, rows)
            count += len(rows)
        try:
            await asyncio.to_thread(self.staging.finish, query, batch)
        except OSError as error:
            raise BusyError(f"cannot note the batch: {error.strerror or error}") from error
        self.progress.pop(query, None)
        self.tapped.pop(query, None)
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
        return marks_of(self.catalog.streams)

    async def look_up(self, query: str, batch: int, files: Sequence[Path]) -> None:
        """Finds what the streams have of a batch that the broker before this one began to publish."""
        marks = await asyncio.to_thread(self.staging.marks, query)
        self.earlier[query] = earlier = Earlier(marks, CLIENT_ID + query)
        done = self.done_before(query, batch)
        for rows in steps(messages_of(files), 0):
            if rows.end > done:
                break
            for route, message in self.routed(rows):
                for tap in route.taps:
                    met(earlier, tap, route, message)
            await asyncio.sleep(0)

    def done_before(self, query: str, batch: int) -> int:
        """How many messages of a batch were published before, by this broker or the one that ended."""
        store = self.core.store
        noted = self.progress.get(query)
        if noted is None and store is not None:
            noted = store.load_progress(query)
        return noted[1] if noted is not None and noted[0] == batch else 0

    async def publish_rows(self, query: str, batch: int, rows: "Rows") -> None:
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
        await self.keep(query, batch, rows.end, routed)
        step = Step(core.outbox)
        core.publisher = step
        try:
            for route, message in routed:
                self.registry.publish(self.registry.route(route.topic), message)
        finally:
            core.publisher = None
        self.progress[query] = (batch, rows.end)
        if store is not None:
            store.put_progress(query, batch, rows.end)
            step.barrier = store.barrier()
        await settled(step)

    def routed(self, rows: "Rows") -> list[tuple[Route, Message]]:
        """The messages of a step, and where they go."""
        return [
            (route, Message(route.topic, payload, qos, retain))
            for topic, payload, qos, retain in rows.messages
            if (route := self.route(topic)) is not None
        ]

    async def keep(
        self, query: str, batch: int, end: int, routed: Sequence[tuple[Route, Message]]
    ) -> None:
        """Has the streams keep the messages of a step that ends at `end`, each once.

        Raises:
            BusyError: one cannot take a message.
        """
        step = Step(self.core.outbox)
        store = self.core.store
        before = 0 if store is None else store.writes
        known = self.tapped.get(query)
        done = known[2] if known is not None and known[:2] == (batch, end) else 0
        self.core.publisher = step
        try:
            for route, message in routed[done:]:
                if route.taps:
                    commit = self.tap(query, route, message)
                    step.stream_barrier = max(step.stream_barrier, commit)
                done += 1
        except StoreError as error:
            raise BusyError(f"{error}; the batch stays staged") from None
        finally:
            self.core.publisher = None
            self.tapped[query] = (batch, end, done)
        if store is not None and store.writes != before:
            step.barrier = store.barrier()  # other nodes keep some, and get them from the store
        if step.stream_barrier or step.barrier or step.wait is not None:
            await settled(step)

    def tap(self, query: str, route: Route, message: Message) -> int:
        """Hands a message to the streams that have not got it from the broker before this one.

        Raises:
            StoreError: one cannot take it.
        """
        client_id = CLIENT_ID + query
        earlier = self.earlier.get(query)
        having = (
            [] if earlier is None else [t for t in route.taps if met(earlier, t, route, message)]
        )
        if earlier is None or not having:
            return self.registry.tap(route, message, client_id)
        now = int(self.core.wall_clock() * 1_000_000)
        commit = 0
        for tap in route.taps:
            if tap in having:
                continue
            payload, qos, retain = message.payload, message.qos, message.retain
            number = tap.append(route.topic, payload, qos, retain, client_id, now)
            if number == REFUSED and qos:
                for each in having:
                    earlier.put_back(each.place_of(route.topic, client_id), route.topic, payload)
                raise StoreError("a stream cannot write")
            having.append(tap)
            commit = max(commit, number)
        return commit

    def route(self, topic: str) -> Route | None:
        """Where a topic goes; None if it cannot be routed."""
        try:
            return self.registry.route(topic.encode())
        except ProtocolError as error:
            log.warning("a staged message cannot be published: %s", error)
            return None


def met(earlier: Earlier, tap: Any, route: Route, message: Message) -> bool:
    """Whether a stream has a message of the batch already.

    A tap that is no appender leads to another node; what it has is not known here.
    """
    if not isinstance(tap, Appender):
        return False
    return earlier.meet(tap.place_of(route.topic, earlier.client_id), route.topic, message.payload)


async def settled(step: Step) -> None:
    """Returns when a step is safe and nobody asks to wait.

    Raises:
        BusyError: the store cannot write.
    """
    step.touch()
    step.outbox.flush()
    while step.waits():
        step.change.clear()
        await step.change.wait()
    if step.failure is not None:
        raise BusyError(f"{step.failure}; the batch stays staged")


class Rows:
    """The messages of a step, and how many of the batch are published with it."""

    def __init__(self, messages: list[tuple[str, bytes, int, bool]], end: int) -> None:
        self.messages = messages
        self.end = end

    def __len__(self) -> int:
        return len(self.messages)


def steps(batches: Iterator[Any], skip: int) -> Iterator[Rows]:
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
            start += part.num_rows
            yield Rows(list(zip(*columns, strict=True)), at + start)
        at += count
