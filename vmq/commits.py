"""Group commit: one write to the store for each pass of the event loop that had durable work."""

import asyncio
import logging
from typing import Final

import plyvel

from vmq.core import Core
from vmq.store import Store

log = logging.getLogger("vmq.store")

#: Seconds until a commit that failed is tried again.
RETRY_AFTER: Final = 1.0


class Committer:
    """Commits what the store gathered and releases the acknowledgements that waited for it.

    A commit to the operating system takes microseconds and runs in the loop; an fsync runs in a
    thread, while the next commit gathers.
    """

    def __init__(self, flush_interval: float) -> None:
        self.flush_interval = flush_interval
        self.loop = asyncio.get_running_loop()
        self.core: Core | None = None
        self.store: Store | None = None
        self.writing: asyncio.Future[None] | None = None
        self.handle: asyncio.Handle | None = None

    def attach(self, core: Core, store: Store) -> None:
        """Names the store, which is opened with `schedule` as its callback."""
        self.core = core
        self.store = store

    def schedule(self) -> None:
        """The store has its first write since the last commit."""
        if self.writing is not None or self.handle is not None:
            return
        store = self.store
        if store is not None and store.acknowledge_early:
            self.handle = self.loop.call_later(self.flush_interval, self.commit)
        else:
            self.handle = self.loop.call_soon(self.commit)

    def commit(self) -> None:
        """Closes the gathering commit and writes it."""
        self.handle = None
        store, core = self.store, self.core
        if store is None or core is None or self.writing is not None:
            return
        number = store.begin_commit()
        if store.sync:
            self.writing = self.loop.run_in_executor(None, store.write)
            self.writing.add_done_callback(lambda done: self.finish(number, done.exception()))
            return
        try:
            store.write()
        except (plyvel.Error, OSError) as error:
            self.finish(number, error)
        else:
            self.finish(number, None)

    def finish(self, number: int, error: BaseException | None) -> None:
        """The write is done, or failed: then whoever waits for it is cut off unanswered."""
        store, core = self.store, self.core
        assert store is not None and core is not None
        self.writing = None
        if error is None:
            store.end_commit()
            core.outbox.release(number)
            if store.dirty:
                self.schedule()
            return
        log.error("the store cannot write: %s; durable work is refused until it can", error)
        store.retry_commit()
        # Set before anybody is cut off: what the ends of their sessions write waits for it, too.
        self.handle = self.loop.call_later(RETRY_AFTER, self.commit)
        core.outbox.fail("the store cannot write [MQTT-4.8.0-2]")
        core.outbox.flush()

    async def finish_all(self) -> None:
        """Writes everything; for a clean stop."""
        store = self.store
        if store is None:
            return
        for _ in range(3):
            if self.writing is not None:
                await asyncio.wait([self.writing])
            if self.handle is not None:
                self.handle.cancel()
                self.handle = None
            if not store.dirty:
                return
            self.commit()
