"""A committer with a database that fails or hangs when a test says so, and peers that publish."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import plyvel

from vmq.core.context import Core, CoreOptions
from vmq.core.registry import Registry
from vmq.persistence.group_commit import Committer
from vmq.protocol.connection import Connection
from vmq.protocol.listener_context import ListenerContext
from vmq.store.store import Store, StoreError

#: Nothing here takes time; a test that hangs fails after so many seconds.
PATIENCE = 30.0

FULL = plyvel.IOError(b"IO error: /data/000003.log: No space left on device")


class Batch:
    def __init__(self, db: Db, sync: bool) -> None:
        self.db = db
        self.sync = sync
        self.changes: dict[bytes, bytes | None] = {}

    def put(self, key: bytes, value: bytes) -> None:
        self.changes[key] = value

    def delete(self, key: bytes) -> None:
        self.changes[key] = None

    def write(self) -> None:
        self.db.threads.append(threading.current_thread())
        self.db.may_write.wait(PATIENCE)
        if self.db.error is not None:
            raise self.db.error
        if self.db.rng.random() < self.db.odds:
            raise FULL
        self.db.writes.append((self.sync, self.changes))
        for key, value in self.changes.items():
            if value is None:
                self.db.data.pop(key, None)
            else:
                self.db.data[key] = value


class Db:
    """A database in memory that a test can stop and break."""

    def __init__(self) -> None:
        #: Its folder, which is none.
        self.name = "in-memory"
        self.data: dict[bytes, bytes] = {}
        self.writes: list[tuple[bool, dict[bytes, bytes | None]]] = []
        self.threads: list[threading.Thread] = []
        self.error: Exception | None = None
        self.fails_to_open = False
        #: How likely a write fails without `error`.
        self.odds = 0.0
        self.rng = random.Random(7)
        self.is_closed = False
        self.may_write = threading.Event()
        self.may_write.set()

    def get(self, key: bytes, verify_checksums: bool) -> bytes | None:
        assert verify_checksums
        return self.data.get(key)

    def write_batch(self, sync: bool) -> Batch:
        assert not self.is_closed
        return Batch(self, sync)

    def close(self) -> None:
        self.is_closed = True

    def reopen(self) -> Db:
        """The disk that could not be written may not be read either."""
        if self.error is not None and self.fails_to_open:
            raise StoreError("cannot open")
        self.is_closed = False
        return self


class Peer:
    """The far end of a connection: keeps what was sent to it, and tells when something happens."""

    def __init__(self, registry: Registry) -> None:
        self.sent: list[bytes] = []
        self.is_closed = False
        self.on_write: Callable[[], None] | None = None
        self.changed = asyncio.Event()
        self.connection = Connection(registry, True, "auto", ListenerContext(ignore, ignore))
        self.connection.connection_made(self)

    async def wait_until(self, done: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not done():
                self.changed.clear()
                await self.changed.wait()

    async def wait_for_answer(self) -> None:
        """Acknowledged or cut off."""
        await self.wait_until(lambda: bool(self.sent) or self.is_closed)

    # The transport

    def write(self, data: bytes) -> None:
        self.sent += [piece + b";" for piece in data.split(b";")[:-1]]
        self.changed.set()
        if self.on_write is not None:
            self.on_write()

    def close(self) -> None:
        self.is_closed = True
        self.changed.set()

    def pause_reading(self) -> None:
        """A test hands over what it likes to anyway."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str) -> Any:
        return ("192.0.2.1", 4711)


def ignore(_connection: Connection) -> None:
    """Nobody waits for the beginning or the end of these connections."""


class Stage:
    """A committer with its store and core around a database in memory."""

    def __init__(self, durability: str, flush_interval: float = 0.001) -> None:
        self.db = Db()
        self.committer = Committer(flush_interval)
        self.store = Store(self.db, durability, self.committer.schedule)
        self.core = Core(
            CoreOptions(), self.store, time.monotonic, time.time, random.Random(1).randrange
        )
        self.registry = Registry(self.core, lambda queue: None, lambda session: None)
        self.committer.attach(self.core, self.store, self.db.reopen)

    def peer(self) -> Peer:
        return Peer(self.registry)

    def work(self, peer: Peer, key: bytes) -> None:
        """Durable work and its acknowledgement, as one pass of the loop does it."""
        self.store.put(key, b"")
        peer.connection.write_after(self.core.outbox.stored, self.store.barrier())
        peer.connection.add(b"ack " + key + b";")
        self.core.outbox.flush()


async def cut_off(stage: Stage, error: Exception = FULL) -> Peer:
    """A peer whose durable work the database has failed to write, as it fails all from now on."""
    stage.db.error = error
    peer = stage.peer()
    stage.work(peer, b"1")
    await peer.wait_until(lambda: peer.is_closed)
    return peer
