"""Group commit: one write to the store for each pass of the event loop that had durable work."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import plyvel

from vmq.core.context import Core
from vmq.persistence.patience import SPAN, Patience
from vmq.runtime.histogram import Histogram
from vmq.store.damage import ADVICE, Isolation
from vmq.store.files import note_log_end
from vmq.store.opening import StoreDamagedError, text_of
from vmq.store.store import Store, StoreError
from vmq.store.tables import Block

log = logging.getLogger("vmq.store")

#: Seconds until a commit that failed is tried again.
RETRY_AFTER: Final = 1.0

#: How often `finish_all` tries before it gives up.
TRIES: Final = 3


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
        self.reopen: Callable[[], Any] | None = None
        self.writing: asyncio.Future[None] | None = None
        self.isolation: Isolation | None = None
        #: Tables are looked through for what cannot be read; nothing is written meanwhile.
        self.looking: asyncio.Future[list[tuple[Path, Block]]] | None = None
        #: LevelDB was opened anew for damage that was isolated before, and has written nothing since.
        self.is_anew = False
        #: Told when damage was isolated.
        self.on_damage: Callable[[], None] = lambda: None
        #: LevelDB failed in the middle of a write.
        self.is_torn = False
        self.handle: asyncio.Handle | None = None
        self.patience = Patience()
        #: Called before each commit: what must not be behind the store on its own disk is written then. While one of
        #: them raises nothing is committed, and durable work refused: an acknowledgement would leave for half of it.
        self.before: list[Callable[[], None]] = []
        #: Called behind all of these: closes what they may have added to.
        self.sealing: list[Callable[[], None]] = []
        #: Told of each commit that is done, instead of the outbox: what waits for it may have to wait for more.
        self.on_stored: Callable[[int], None] | None = None
        #: The last commit that is done.
        self.stored: int = 0
        #: Called when a commit is done, and when one failed.
        self.after: list[Callable[[], None]] = []
        #: Called before each fsync, in its thread: what must not be behind the store after a loss of power is synced.
        self.before_sync: list[Callable[[], None]] = []
        #: How long writes took, those that failed included.
        self.times = Histogram()

    def attach(
        self,
        core: Core,
        store: Store,
        reopen: Callable[[], Any],
        isolation: Isolation | None = None,
    ) -> None:
        """Names the store, which is opened with `schedule` as its callback.

        `reopen` opens its database again after it was closed, `isolation` is for what of it cannot be read.
        """
        self.isolation = isolation
        store.on_unreadable = self.on_unreadable
        self.core = core
        self.store = store
        self.reopen = reopen

    def close(self) -> None:
        """Closes the store; a commit that failed does not open it again."""
        store, self.store = self.store, None
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None
        if store is not None:
            store.db.close()
            try:
                note_log_end(Path(store.db.name))
            except OSError as error:
                log.warning("how long the store's log is cannot be noted: %s", error)

    def schedule(self) -> None:
        """The store has its first work since the last commit, or the first that somebody waits for."""
        if self.writing is not None or self.looking is not None:
            return
        store = self.store
        if self.handle is not None:
            if not self.patience.is_on or store is None or not store.is_urgent:
                return
            self.handle.cancel()
            self.patience.is_on = False
        if store is not None and store.acknowledge_early:
            self.handle = self.loop.call_later(self.flush_interval, self.commit)
        elif store is not None and not store.is_urgent and not self.patience.hasty:
            self.patience.begin(len(store.unwritten), store.answered, self.loop.time())
            self.handle = self.loop.call_later(SPAN, self.wait_on)
        else:
            self.handle = self.loop.call_soon(self.commit)

    def wait_on(self) -> None:
        """A span of the commit's patience is over."""
        store = self.store
        if store is not None and not store.is_urgent and self._goes_on(store):
            self.handle = self.loop.call_later(SPAN, self.wait_on)
        else:
            self.commit()

    def _goes_on(self, store: Store) -> bool:
        return self.patience.goes_on(len(store.unwritten), store.answered, self.loop.time())

    def commit(self) -> None:
        """Closes the gathering commit and writes it."""
        self.handle = None
        store, core = self.store, self.core
        if store is None or core is None or self.writing is not None or self.looking is not None:
            return
        self.patience.judge(len(store.unwritten), store.answered)
        if self.is_torn and not self.recover(store, core):
            return
        try:
            store.is_due = store.is_urgent = True  # whatever joins it now has it
            store.settle()
            for each in self.before:
                each()
            for each in self.sealing:
                each()
            number = store.begin_commit()
        except Exception as error:
            log.exception("what goes with a commit cannot be written")
            self.refuse(store, core, error)
            return
        if store.sync and store.writing:
            self.writing = self.loop.run_in_executor(None, self.write, store)
            self.writing.add_done_callback(lambda done: self.finish(number, done.exception()))
            return
        try:
            self.write(store)
        except Exception as error:  # noqa: BLE001 - nothing may be acknowledged that is not written
            self.finish(number, error)
        else:
            self.finish(number, None)

    def write(self, store: Store) -> None:
        """Writes the closed commit; in the loop or in a thread, but never in both at once."""
        began = time.perf_counter()
        try:
            if store.sync and store.writing:
                for each in self.before_sync:
                    each()
            store.write()
        finally:
            self.times.observe(time.perf_counter() - began)

    def finish(self, number: int, error: BaseException | None) -> None:
        """The write is done, or failed: then whoever waits for it is cut off unanswered."""
        store, core = self.store, self.core
        self.writing = None
        if store is None or core is None:
            return
        if error is None:
            store.failing = self.is_anew = False
            store.end_commit()
            self.stored = number
            if store.is_due:  # first of all: whatever is told of this one, there is a next
                self.schedule()
            for each in self.after:
                each()
            if self.on_stored is None:
                core.outbox.release(number)
            else:
                self.on_stored(number)
            if core.waiting_for_store:
                core.resume_all(core.waiting_for_store)
            return
        store.retry_commit()
        self.is_torn = True
        if isinstance(error, plyvel.CorruptionError) and self.isolation is not None:
            self.look(error)
        else:
            self.refuse(store, core, error)

    # Damage

    def on_unreadable(self, error: Exception) -> None:
        """A record could not be read."""
        if isinstance(error, plyvel.CorruptionError) and self.isolation is not None:
            self.look(None)

    def isolate(self) -> bool:
        """Isolates at once what cannot be read, at the start; False if nothing can be done.

        Raises:
            OSError: the disk.
        """
        store = self.store
        assert store is not None and self.isolation is not None and self.reopen is not None
        damage = self.isolation.isolate()
        if damage is None:
            return False
        store.damage = damage
        store.db.close()
        store.db = self.reopen()
        return True

    def limit_damage(self) -> None:
        """The sessions that there are were read: what begins from now on is not damaged."""
        store = self.store
        if store is not None and store.damage is not None and self.isolation is not None:
            self.isolation.limit(store.damage, store.next_session, store.next_message)

    def look(self, error: BaseException | None) -> None:
        """Looks in a thread for what of the tables cannot be read; `error` is that of a commit, if one failed."""
        if self.looking is None and self.isolation is not None:
            if self.handle is not None:
                self.handle.cancel()
                self.handle = None
            self.looking = self.loop.run_in_executor(None, self.isolation.survey)
            self.looking.add_done_callback(lambda done: self.looked(done, error))

    def looked(
        self, done: "asyncio.Future[list[tuple[Path, Block]]]", error: BaseException | None
    ) -> None:
        """Isolates what was found, so that everything else is written and read on."""
        self.looking = None
        store, core, isolation = self.store, self.core, self.isolation
        if store is None or core is None or isolation is None or done.cancelled():
            return
        try:
            damage = isolation.apply(done.result(), store.next_session, store.next_message)
        except Exception as failure:
            log.exception("damage of the store cannot be isolated")
            damage, error = None, error or failure
        if damage is not None:
            store.damage = damage
            self.on_damage()
        elif error is not None and (store.damage is None or self.is_anew):
            self.refuse(store, core, error)
            return
        self.is_anew = error is not None and damage is None
        if self.is_torn or store.is_due:
            self.commit()

    def refuse(self, store: Store, core: Core, error: BaseException) -> None:
        """Cuts off who waits for the store, and tries again in a while."""
        log.error(
            "the store cannot write: %s; durable work is refused until it can%s",
            text_of(error),
            ": " + ADVICE if isinstance(error, plyvel.CorruptionError | StoreDamagedError) else "",
        )
        store.failing = True
        # Set before anybody is cut off: what the ends of their sessions write waits for it, too.
        self.handle = self.loop.call_later(RETRY_AFTER, self.commit)
        for each in self.after:
            each()
        core.outbox.fail("the store cannot write [MQTT-4.8.0-2]")
        core.outbox.flush()

    def recover(self, store: Store, core: Core) -> bool:
        """Opens the database anew after a write failed; False if it cannot be had yet.

        LevelDB would go on in its log behind the record that it wrote in part, and the next start
        could not read what follows. Opening anew cuts the part off and begins a new log.
        """
        assert self.reopen is not None
        store.db.close()
        try:
            store.db = self.reopen()
        except (StoreError, plyvel.Error, OSError) as error:
            self.refuse(store, core, error)
            return False
        self.is_torn = False
        if store.failing or store.damage is None:
            log.warning("the store is open again")
        return True

    async def finish_all(self) -> None:
        """Writes everything that is gathered now, and gives up on a disk that keeps failing.

        No thread writes when it returns, unless there was new work meanwhile.
        """
        store, core = self.store, self.core
        if store is None or core is None:
            return
        wanted = store.number if store.has_work() else store.number - 1
        tries = TRIES
        while self.stored < wanted and (
            tries or self.writing is not None or self.looking is not None
        ):
            if self.writing is not None:
                await asyncio.wait([self.writing])
                continue
            if self.looking is not None:
                await asyncio.wait([self.looking])
                await asyncio.sleep(0)
                continue
            if tries < TRIES:
                await asyncio.sleep(RETRY_AFTER)
                if self.stored >= wanted or self.writing is not None:
                    continue
            tries -= 1
            if self.handle is not None:
                self.handle.cancel()
            self.commit()
        if self.writing is not None:
            await asyncio.wait([self.writing])
