"""Publishes staged batches, each once: the broker's side of Spark's sink.

A batch goes out in steps. How far it came is noted in the store by the commit that holds what the step
gave to durable sessions and retained messages, so a broker that dies in the middle goes on behind the
last step that is safe: those get every message once. Clients with a clean session may see the
messages of the interrupted step again.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, Final

from vmq.core import Core
from vmq.message import Message
from vmq.mqtt.packets import ProtocolError
from vmq.output import Outbox, Output
from vmq.registry import Registry
from vmq.store import StoreError
from vmq.streams.staging import Staging, StagingError, messages_of

log = logging.getLogger("vmq.streams")

#: Messages published between two looks at the other clients.
STEP: Final = 256

#: Seconds until a step that the store refused is tried again.
RETRY_AFTER: Final = 1.0

#: Whose messages they are to streams.
CLIENT_ID: Final = "vmq-sink:"


class Step(Output):
    """What waits for a step: for its commits, and for queues that ask publishers to wait."""

    def __init__(self, outbox: Outbox) -> None:
        super().__init__(outbox)
        self.pauses = 0
        self.failure: str | None = None
        self.change = asyncio.Event()
        self.is_written = False

    def write(self) -> None:
        self.pieces.clear()
        self.is_written = True
        self.change.set()

    def close(self, reason: str) -> None:
        self.failure = reason
        self.change.set()

    def pause(self) -> None:
        self.pauses += 1

    def resume(self) -> None:
        self.pauses -= 1
        self.change.set()

    def describe(self) -> str:
        return "sink"

    async def done(self) -> None:
        """Returns when the step is safe and nobody asks to wait.

        Raises:
            StoreError: the store cannot write.
        """
        self.touch()
        self.outbox.flush()
        while not self.failure and (not self.is_written or self.pauses > 0):
            self.change.clear()
            await self.change.wait()
        if self.failure:
            raise StoreError(self.failure)


class Sinks:
    """Publishes the batches of all queries, one at a time for each query."""

    def __init__(self, core: Core, registry: Registry, staging: Staging) -> None:
        self.core = core
        self.registry = registry
        self.staging = staging
        self.loop = asyncio.get_running_loop()
        #: Stays for as long as the broker: there are as many queries as folders.
        self.locks: dict[str, asyncio.Lock] = {}

    def publish(self, query: str, batch: int, parts: Sequence[tuple[int, int]]) -> "Future[int]":
        """Publishes a batch once; to be called in another thread than the loop's."""
        return asyncio.run_coroutine_threadsafe(self.publish_once(query, batch, parts), self.loop)

    async def recover(self) -> None:
        """Goes on with the batches that were being published when the broker ended."""
        for query, batch, _ in list(self.staging.unfinished()):
            try:
                count = await self.publish_once(query, batch, [])
                log.info(
                    "published the rest of batch %d of query %s: %d messages", batch, query, count
                )
            except StagingError as error:
                log.error("batch %d of query %s cannot be published: %s", batch, query, error)

    async def publish_once(self, query: str, batch: int, parts: Sequence[tuple[int, int]]) -> int:
        """Publishes a batch, or what is left of it; how many messages that were.

        Raises:
            StagingError: parts are missing, or the store cannot write.
        """
        lock = self.locks.setdefault(query, asyncio.Lock())
        async with lock:
            return await self.publish_alone(query, batch, parts)

    async def publish_alone(self, query: str, batch: int, parts: Sequence[tuple[int, int]]) -> int:
        files = await asyncio.to_thread(self.staging.decide, query, batch, parts)
        if files is None:
            return 0
        count = 0
        for rows in steps(messages_of(files), self.done_before(query, batch)):
            await self.publish_rows(query, batch, rows)
            count += len(rows)
        await asyncio.to_thread(self.staging.finish, query, batch)
        store = self.core.store
        if store is not None:
            store.remove_progress(query)
        return count

    def done_before(self, query: str, batch: int) -> int:
        """How many messages of a batch were published before the broker ended."""
        store = self.core.store
        noted = None if store is None else store.load_progress(query)
        return noted[1] if noted is not None and noted[0] == batch else 0

    async def publish_rows(self, query: str, batch: int, rows: "Rows") -> None:
        """Publishes one step, and waits until it is safe."""
        core, store = self.core, self.core.store
        step = Step(core.outbox)
        if store is not None and store.failing:
            raise StagingError("the store cannot write; the batch stays staged")
        core.publisher = step
        try:
            for topic, payload, qos, retain in rows.messages:
                try:
                    route = self.registry.route(topic.encode())
                except ProtocolError as error:
                    log.warning("a staged message cannot be published: %s", error)
                    continue
                message = Message(route.topic, payload, qos, retain)
                if route.taps:
                    commit = self.registry.tap(route, message, CLIENT_ID + query)
                    step.stream_barrier = max(step.stream_barrier, commit)
                self.registry.publish(route, message)
            if store is not None:
                store.put_progress(query, batch, rows.end)
                step.barrier = store.barrier()
            core.publisher = None
            await step.done()
        except StoreError as error:
            raise StagingError(f"{error}; the batch stays staged") from None
        finally:
            core.publisher = None


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
