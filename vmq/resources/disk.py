"""The disk below the store: what the messages of durable sessions may take of it, and what is done about more.

Above nine tenths of `store.max_bytes` the oldest messages of absent sessions are dropped: of the session with the most
bytes for the longest time first (bytes times the time that it is away), of a connected one never. What nobody is
absent for stays; if that fills the store, durable work is refused until there is room, and so it is while the disk has
less than `store.min_free_bytes` free: what was acknowledged is not lost to what comes later.
"""

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterable
from heapq import heapify, heappop
from pathlib import Path
from typing import Final

from vmq.config.options import StoreOptions
from vmq.core.context import Core
from vmq.core.queue import Queue
from vmq.core.registry import Registry
from vmq.core.waiting import STORE_FULL
from vmq.disk.room import PART, least_free
from vmq.store.store import StoreError
from vmq_cluster.ticks import sleep_to_tick

log = logging.getLogger("vmq.store")

#: Seconds between two looks; and looks between two at what the store may have.
INTERVAL: Final = 1.0
LOOKS: Final = 60

#: The share of the limit above which messages are dropped, and to which.
HIGH: Final = 0.9
LOW: Final = 0.85

#: Bytes that LevelDB works in: tables that it merges, and what they become. On a disk that has less than `SMALL` they
#: count, and a part of them stays free (`vmq.disk.room`).
WORK: Final = 32 << 20
SMALL: Final = 1 << 30

#: Queues that are looked at, and messages that are dropped, between two passes of the event loop.
QUEUES: Final = 2000
STEP: Final = 100

#: (bytes in all, bytes free, bytes of the store's files)
Usage = tuple[int, int, int]


def usage_of(folder: Path) -> Usage:
    """What the disk below a folder has, and what the files in the folder take."""
    usage = shutil.disk_usage(folder)
    own = 0
    for each in folder.iterdir():
        try:
            own += each.stat().st_size
        except FileNotFoundError:
            pass  # LevelDB has merged it
    return usage.total, usage.free, own


def half_of(room: int) -> int:
    """What messages may have of so many bytes for the store."""
    return room // 2 if room >= SMALL else max(room // 4, (room - WORK) // 2)


class DiskWatch:
    """Keeps the store within its limits."""

    def __init__(
        self,
        core: Core,
        registries: Callable[[], Iterable[Registry]],
        options: StoreOptions,
        measure: Callable[[], Usage],
        sharers: Callable[[], int] = lambda: 1,
    ) -> None:
        """So many as `sharers` says have their stores on the disk now, this broker included."""
        assert core.store is not None, "without a store there is nothing to watch"
        self.core = core
        self.store = core.store
        self.registries = registries
        self.options = options
        core.disk_room.wanted = options.min_free_bytes
        self.measure = measure
        self.sharers = sharers
        self.looks = 0
        self.has_told_of_small = False
        self.is_dropping = False
        self.is_blind = False

    def configure(self, options: StoreOptions) -> None:
        """Goes by other options from the next look on."""
        self.options = options
        self.core.disk_room.wanted = options.min_free_bytes
        self.looks = 0

    async def run(self) -> None:
        """Looks every second."""
        while True:
            await self.look()
            await sleep_to_tick(INTERVAL)

    async def look(self) -> None:
        """Compares, and drops what has to go."""
        try:
            total, free, own = self.measure()
        except OSError as error:
            if (
                not self.is_blind
            ):  # without a file left it lasts as long as the clients that have them
                self.is_blind = True
                log.error("cannot look at the disk of the store: %s", error)
            return
        if self.is_blind:
            self.is_blind = False
            log.warning("the disk of the store is looked at again")
        if self.looks % LOOKS == 0:
            wanted = self.options.max_bytes
            if wanted == 0:
                wanted = half_of(free // self.sharers() + own)
            self.store.max_total = max(0, wanted)
        self.looks += 1
        self.check_free(total, free)
        limit = self.store.max_total
        if limit and self.store.sizes.total > limit * HIGH:
            await self.make_room(int(limit * LOW))
        else:
            self.is_dropping = False
        self.check_full()

    def check_free(self, total: int, free: int) -> None:
        """Refuses durable work while the disk is short of room, or takes it again."""
        least = least_free(total, self.options.min_free_bytes)
        if least < self.options.min_free_bytes:
            if not self.has_told_of_small:
                self.has_told_of_small = True
                log.warning(
                    "the disk of the store has %d bytes in all: durable work is refused under %d bytes free, "
                    "not under store.min_free_bytes = %d",
                    total,
                    least,
                    self.options.min_free_bytes,
                )
        store = self.store
        if not store.is_short and free < least:
            store.is_short = True
            log.error(
                "the disk of the store has %d bytes free, %d are to stay (store.min_free_bytes); "
                "durable work is refused until it has more",
                free,
                least,
            )
        elif store.is_short and free >= least + least // PART:
            store.is_short = False
            log.warning("the disk of the store has room again, %d bytes are free", free)

    def check_full(self) -> None:
        """Tells when the store is full though nothing of it may be dropped."""
        store = self.store
        if store.is_full() and not store.was_full:
            store.was_full = True
            log.error(
                "the store is full: %d bytes wait for sessions that are connected, or are on their way to others "
                "(store.max_bytes = %d); durable work is refused until they have taken some",
                store.sizes.total,
                store.max_total,
            )
        elif store.was_full and not store.is_full():
            store.was_full = False
            log.warning("the store has room again")

    async def make_room(self, target: int) -> None:
        """Drops messages of absent sessions until all have no more bytes than that."""
        store = self.store
        if not self.is_dropping:
            self.is_dropping = True
            log.warning(
                "the store has %d of %d bytes (store.max_bytes): "
                "the oldest messages of sessions that are away long are dropped",
                store.sizes.total,
                store.max_total,
            )
        found = await self.absent()
        while found and store.sizes.total > target:
            queue = heappop(found)[2]
            try:
                more = True
                while more:
                    more = self.drop_some(queue, target)
                    await asyncio.sleep(0)
            except StoreError as error:
                log.error("cannot drop messages of client=%s: %s", queue.client_id, error)

    async def absent(self) -> list[tuple[int, int, Queue]]:
        """A heap of the queues of absent sessions that have something in the store, who loses it first in front."""
        sizes = self.store.sizes
        found: list[tuple[int, int, Queue]] = []
        for registry in self.registries():
            now = registry.now_ms()
            for number, (client_id, since) in enumerate(list(registry.offline.items())):
                if number % QUEUES == QUEUES - 1:
                    await asyncio.sleep(0)
                subscriber = registry.subscribers.get(client_id)
                if subscriber is not None and subscriber.queue.backlog:
                    queue = subscriber.queue
                    found.append((-sizes.of(queue.session) * (now - since + 1), len(found), queue))
        heapify(found)
        return found

    def drop_some(self, queue: Queue, target: int) -> bool:
        """Drops some of a queue's messages; whether it may have more to lose."""
        for _ in range(STEP):
            if self.store.sizes.total <= target or queue.online:
                return False
            if not queue.drop_oldest(STORE_FULL):
                return False
        return True
