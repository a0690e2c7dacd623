"""Group commit: who waits for it, what a failing disk does, what a stop leaves."""

from __future__ import annotations

import asyncio
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import plyvel
import pytest

from tests.support.until import until
from tests.support.wire import (
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    connect_packet,
    pubcomp_packet,
    publish_packet,
    pubrec_packet,
    pubrel_packet,
    subscribe_packet,
)
from tests.vmq.support import Client, House, stored_house
from vmq import commits
from vmq.commits import Committer
from vmq.connection import Connection
from vmq.core import Core, Options
from vmq.registry import Registry
from vmq.store import Store, StoreError

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
        self.connection = Connection(registry, True, "auto", ignore, ignore)
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
            Options(), self.store, time.monotonic, time.time, random.Random(1).randrange
        )
        self.registry = Registry(self.core, lambda queue: None, lambda session: None)
        self.committer.attach(self.core, self.store, self.db.reopen)

    def peer(self) -> Peer:
        return Peer(self.registry)

    def work(self, peer: Peer, key: bytes) -> None:
        """Durable work and its acknowledgement, as one pass of the loop does it."""
        self.store.put(key, b"")
        peer.connection.barrier = self.store.barrier()
        peer.connection.add(b"ack " + key + b";")
        self.core.outbox.flush()


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_an_acknowledgement_leaves_after_the_commit(durability: str) -> None:
    stage = Stage(durability)
    peer = stage.peer()
    stage.work(peer, b"1")
    assert peer.sent == []
    await peer.wait_until(lambda: bool(peer.sent))
    assert peer.sent == [b"ack 1;"]
    assert stage.db.data == {b"1": b""}


async def test_what_must_not_be_behind_the_store_is_written_before_each_commit() -> None:
    stage = Stage("os")
    seen: list[int] = []
    stage.committer.before.append(lambda: seen.append(len(stage.db.writes)))
    # What it writes itself is in the same commit.
    stage.committer.before.append(lambda: stage.store.put(b"also", b""))
    for key in (b"1", b"2"):
        peer = stage.peer()
        stage.work(peer, key)
        await peer.wait_for_answer()
    assert seen == [0, 1]
    assert [list(changes) for _, changes in stage.db.writes] == [[b"1", b"also"], [b"2", b"also"]]


async def test_memory_acknowledges_at_once_and_writes_later() -> None:
    stage = Stage("memory", flush_interval=60)
    peer = stage.peer()
    stage.work(peer, b"1")
    assert peer.sent == [b"ack 1;"]
    assert stage.db.writes == []
    await stage.committer.finish_all()
    assert stage.db.data == {b"1": b""}


async def test_memory_writes_after_the_flush_interval() -> None:
    stage = Stage("memory")
    released = stage.peer()
    stage.store.put(b"1", b"")
    released.connection.barrier = 1
    released.connection.add(b"written;")
    stage.core.outbox.flush()
    await released.wait_until(lambda: bool(released.sent))
    assert stage.db.data == {b"1": b""}


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_one_pass_is_one_commit(durability: str) -> None:
    stage = Stage(durability)
    peers = [stage.peer() for _ in range(3)]
    for index, peer in enumerate(peers):
        stage.work(peer, b"%d" % index)
    await peers[-1].wait_until(lambda: all(peer.sent for peer in peers))
    assert [sorted(changes) for _, changes in stage.db.writes] == [[b"0", b"1", b"2"]]


@pytest.mark.parametrize(
    ("durability", "sync"), (("memory", False), ("os", False), ("fsync", True))
)
async def test_only_fsync_asks_the_disk(durability: str, sync: bool) -> None:
    stage = Stage(durability)
    stage.store.put(b"1", b"")
    await stage.committer.finish_all()
    assert [each for each, _ in stage.db.writes] == [sync]


async def test_only_fsync_leaves_the_loop_to_others() -> None:
    for durability, in_loop in (("os", True), ("fsync", False)):
        stage = Stage(durability)
        stage.store.put(b"1", b"")
        await stage.committer.finish_all()
        assert (stage.db.threads == [threading.main_thread()]) is in_loop


async def test_the_next_commit_gathers_while_one_is_written() -> None:
    stage = Stage("fsync")
    stage.db.may_write.clear()
    first, second, third = stage.peer(), stage.peer(), stage.peer()
    stage.work(first, b"1")
    stage.committer.commit()
    stage.work(second, b"2")
    stage.work(third, b"3")
    assert stage.store.get(b"1") == stage.store.get(b"2") == b""
    assert stage.committer.writing is not None
    stage.db.may_write.set()
    await third.wait_until(lambda: bool(third.sent))
    assert (first.sent, second.sent) == ([b"ack 1;"], [b"ack 2;"])
    assert [sorted(changes) for _, changes in stage.db.writes] == [[b"1"], [b"2", b"3"]]


async def test_who_works_on_gets_each_answer_after_its_own_commit() -> None:
    stage = Stage("fsync")
    stage.db.may_write.clear()
    peer = stage.peer()
    written: list[int] = []
    peer.on_write = lambda: written.append(len(stage.db.writes))
    stage.work(peer, b"1")
    stage.committer.commit()
    stage.work(peer, b"2")
    stage.db.may_write.set()
    await peer.wait_until(lambda: len(peer.sent) == 2)
    assert peer.sent == [b"ack 1;", b"ack 2;"]
    assert written[-1] == 2


# A failing disk


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed commit is tried again at once."""
    monkeypatch.setattr(commits, "RETRY_AFTER", 0.001)


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_a_failed_commit_acknowledges_nothing_and_cuts_off(
    durability: str, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(durability)
    stage.db.error = FULL
    peer, idle = stage.peer(), stage.peer()
    stage.work(peer, b"1")
    await peer.wait_until(lambda: peer.is_closed)
    assert peer.sent == []
    assert not idle.is_closed
    assert stage.store.get(b"1") == b""
    assert "the store cannot write: IO error: /data/000003.log: No space left" in caplog.text
    stage.db.error = None
    await stage.committer.finish_all()
    assert peer.sent == []


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_what_a_failed_commit_held_is_written_when_the_disk_is_well(
    durability: str, impatient: None
) -> None:
    stage = Stage(durability)
    stage.db.error = FULL
    first = stage.peer()
    stage.store.put(b"both", b"old")
    stage.work(first, b"1")
    await first.wait_until(lambda: first.is_closed)
    later = stage.peer()
    stage.store.put(b"both", b"new")
    stage.db.error = None
    stage.work(later, b"2")
    await later.wait_until(lambda: bool(later.sent))
    assert later.sent == [b"ack 2;"]
    assert first.sent == []
    assert stage.db.data == {b"both": b"new", b"1": b"", b"2": b""}


async def test_quick_traffic_goes_on_while_the_disk_fails(impatient: None) -> None:
    stage = Stage("os")
    stage.db.error = FULL
    durable, quick = stage.peer(), stage.peer()
    stage.work(durable, b"1")
    await durable.wait_until(lambda: durable.is_closed)
    quick.connection.add(b"QoS 0;")
    stage.core.outbox.flush()
    assert quick.sent == [b"QoS 0;"]


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_what_sessions_write_at_their_end_waits_for_the_next_try(
    durability: str, impatient: None
) -> None:
    """Cutting off a durable session writes when it went offline."""
    stage = Stage(durability)
    peer, other = stage.peer(), stage.peer()
    peer.connection.data_received(connect_packet("dev", clean=False))
    await stage.committer.finish_all()
    online = stage.db.data[b"sdev"]
    assert online[8:] == bytes(8)
    stage.db.error = FULL
    stage.work(peer, b"1")
    await peer.wait_until(lambda: peer.is_closed)
    stage.db.error = None
    stage.work(other, b"2")
    await other.wait_until(lambda: bool(other.sent))
    offline = stage.db.data.pop(b"sdev")
    assert offline[:8] == online[:8]
    assert offline[8:] > bytes(8)
    assert stage.db.data == {b"1": b"", b"2": b""}


def reader_of(stage: Stage) -> None:
    """A durable session that is away and would get everything."""
    peer = stage.peer().connection
    peer.data_received(connect_packet("reader", clean=False) + subscribe_packet(1, ("#", 1)))
    peer.connection_lost(None)


def publish_and_come_again(stage: Stage, rounds: int) -> tuple[int, int]:
    """A publisher that is cut off or left waiting connects anew each time; writes and bytes kept."""
    data = connect_packet("p")
    data += b"".join(publish_packet("t", b"x" * 1024, qos=1, packet_id=n) for n in range(1, 11))
    for _ in range(rounds):
        stage.peer().connection.data_received(data)
    kept = {**stage.store.writing, **stage.store.dirty}
    return len(kept), sum(len(value) for value in kept.values() if value is not None)


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_what_comes_while_the_store_fails_is_refused_and_not_kept(
    durability: str, impatient: None
) -> None:
    stage = Stage(durability)
    reader_of(stage)
    stage.core.options.max_offline_messages = -1
    stage.db.error = FULL
    peer = stage.peer()
    stage.work(peer, b"1")
    await peer.wait_until(lambda: peer.is_closed)
    before = len(stage.store.dirty) + len(stage.store.writing)
    writes, _ = publish_and_come_again(stage, 50)
    assert writes == before
    for packet in (
        publish_packet("t", b"x", retain=True),
        publish_packet("t", b"x", qos=2, packet_id=1),
    ):
        refused = stage.peer()
        refused.connection.data_received(connect_packet("p") + packet)
        assert refused.is_closed
    quick = stage.peer()
    quick.connection.data_received(connect_packet("q") + publish_packet("t", b"x"))
    assert not quick.is_closed
    stage.db.error = None
    await stage.committer.finish_all()
    accepted = stage.peer()
    accepted.connection.data_received(
        connect_packet("q") + publish_packet("t", b"x", qos=1, packet_id=1)
    )
    await stage.committer.finish_all()
    assert not accepted.is_closed


async def test_what_gathers_behind_a_disk_that_hangs_is_bounded(impatient: None) -> None:
    """Counted in KiB where messages are large: ten publishes of 1 KiB are some 20 writes."""
    stage = Stage("fsync")
    stage.core.options.max_uncommitted_writes = 100
    stage.core.options.max_offline_messages = -1
    reader_of(stage)
    await stage.committer.finish_all()
    stage.db.may_write.clear()
    stage.store.put(b"1", b"")
    stage.committer.commit()
    writes, size = publish_and_come_again(stage, 100)
    assert writes <= 2 * 100 + 10
    assert size <= (2 * 100 + 20) * 1024
    stage.db.may_write.set()
    await stage.committer.finish_all()


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_a_disk_that_fails_now_and_then_never_lies(durability: str, impatient: None) -> None:
    """Whoever was acknowledged finds its record in the database at that moment."""
    stage = Stage(durability)
    stage.db.odds = 0.3
    wrong: list[bytes] = []
    peers: list[Peer] = []

    def look(key: bytes) -> None:
        if key not in stage.db.data:
            wrong.append(key)

    for turn in range(500):
        peer = stage.peer()
        peer.on_write = partial(look, b"%d" % turn)
        peers.append(peer)
        stage.work(peer, b"%d" % turn)
        if turn % 2:
            await asyncio.sleep(0)
        if turn % 7 == 0:
            await peer.wait_for_answer()
    stage.db.odds = 0.0
    await stage.committer.finish_all()
    assert wrong == []
    for turn, each in enumerate(peers):
        assert bool(each.sent) is not each.is_closed
        assert b"%d" % turn in stage.db.data
    assert {each.is_closed for each in peers} == {True, False}


async def test_a_damaged_store_is_told_with_what_helps(
    impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage("os")
    stage.db.error = plyvel.CorruptionError(b"Corruption: block checksum mismatch")
    peer = stage.peer()
    stage.work(peer, b"1")
    await peer.wait_until(lambda: peer.is_closed)
    assert "block checksum mismatch; durable work is refused" in caplog.text
    assert "stop the broker and run 'vmq store repair'" in caplog.text
    stage.db.error = None
    await stage.committer.finish_all()


async def test_a_database_that_cannot_be_opened_again_is_tried_again(
    impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage("os")
    stage.db.error = FULL
    stage.db.fails_to_open = True
    first, second, third = stage.peer(), stage.peer(), stage.peer()
    stage.work(first, b"1")
    await first.wait_until(lambda: first.is_closed)
    stage.work(second, b"2")
    await second.wait_until(lambda: second.is_closed)
    assert stage.db.is_closed
    assert "cannot open" in caplog.text
    stage.db.error = None
    stage.work(third, b"3")
    await third.wait_until(lambda: bool(third.sent))
    assert set(stage.db.data) == {b"1", b"2", b"3"}


# The end


@pytest.mark.parametrize("durability", ("memory", "os", "fsync"))
async def test_a_clean_stop_writes_everything(durability: str) -> None:
    stage = Stage(durability, flush_interval=60)
    peer = stage.peer()
    stage.work(peer, b"1")
    if durability == "fsync":
        stage.committer.commit()
        stage.store.put(b"2", b"")
    await stage.committer.finish_all()
    assert stage.store.dirty == {}
    assert stage.store.writing == {}
    assert set(stage.db.data) >= {b"1"}
    assert peer.sent == [b"ack 1;"]


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_writing_everything_ends_although_others_keep_writing(durability: str) -> None:
    """A purge waits for its own deletions, not for a moment without traffic."""
    stage = Stage(durability)
    keys = iter(range(1_000_000))

    busy = stage.peer()
    busy.on_write = lambda: stage.work(busy, b"%d" % next(keys))
    stage.work(busy, b"first")
    stage.store.put(b"mine", b"")
    async with asyncio.timeout(PATIENCE):
        await stage.committer.finish_all()
    assert b"mine" in stage.db.data
    busy.on_write = None
    await stage.committer.finish_all()
    assert stage.committer.writing is None


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_while_what_goes_with_a_commit_cannot_be_written_nothing_is_and_nobody_is_acknowledged(
    durability: str, impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage(durability)
    tries: list[int] = []

    def fail() -> None:
        tries.append(len(stage.db.writes))
        if len(tries) < 4:
            raise ValueError("a defect")

    stage.committer.before.append(fail)
    first = stage.peer()
    stage.work(first, b"1")
    await first.wait_until(lambda: first.is_closed)
    is_failing = stage.store.failing
    assert is_failing
    assert stage.db.writes == []
    assert "the store cannot write: a defect; durable work is refused" in caplog.text
    assert "in fail" in caplog.text  # a traceback
    await stage.committer.finish_all()
    assert tries == [0, 0, 0, 0]
    is_failing = stage.store.failing
    assert not is_failing
    later = stage.peer()
    stage.work(later, b"2")
    await later.wait_for_answer()
    assert (first.sent, later.sent) == ([], [b"ack 2;"])
    assert stage.db.data == {b"1": b"", b"2": b""}


async def test_any_failure_of_a_write_is_told_and_the_next_is_tried(impatient: None) -> None:
    """As that of a database that somebody has closed."""
    stage = Stage("os")
    stage.db.error = RuntimeError("Database is closed")
    peer = stage.peer()
    stage.work(peer, b"1")
    await peer.wait_until(lambda: peer.is_closed)
    stage.db.error = None
    await stage.committer.finish_all()
    assert stage.db.data == {b"1": b""}


async def test_commits_go_on_if_who_is_told_of_one_fails() -> None:
    stage = Stage("fsync")
    stage.db.may_write.clear()

    def fail(number: int) -> None:
        raise ValueError(number)

    stage.committer.on_stored = fail
    failures: list[str] = []
    stage.committer.loop.set_exception_handler(
        lambda _, what: failures.append(repr(what["exception"]))
    )
    stage.store.put(b"1", b"")
    stage.committer.commit()
    stage.store.put(b"2", b"")
    stage.db.may_write.set()
    await until(lambda: len(stage.db.writes) == 2 and len(failures) == 2)
    assert stage.db.data == {b"1": b"", b"2": b""}
    assert failures == ["ValueError(1)", "ValueError(2)"]


async def test_a_clean_stop_gives_up_on_a_broken_disk(
    impatient: None, caplog: pytest.LogCaptureFixture
) -> None:
    stage = Stage("os")
    stage.db.error = FULL
    stage.store.put(b"1", b"")
    async with asyncio.timeout(PATIENCE):
        await stage.committer.finish_all()
    assert stage.store.get(b"1") == b""
    assert caplog.text.count("cannot write") >= 3
    if stage.committer.handle is not None:
        stage.committer.handle.cancel()


@pytest.mark.parametrize("durability", ("os", "fsync"))
async def test_a_store_that_is_closed_is_not_opened_again(durability: str, impatient: None) -> None:
    stage = Stage(durability)
    stage.db.error = FULL
    stage.store.put(b"1", b"")
    stage.committer.commit()
    writing = stage.committer.writing
    stage.committer.close()
    stage.db.close()
    if writing is not None:
        await asyncio.wait([writing])
    stage.store.put(b"2", b"")
    for _ in range(5):
        await asyncio.sleep(0.001)
    assert stage.db.is_closed
    assert stage.committer.handle is None


async def test_nothing_to_write_is_no_commit() -> None:
    stage = Stage("os")
    await stage.committer.finish_all()
    stage.store.put(b"1", b"")
    await stage.committer.finish_all()
    await stage.committer.finish_all()
    assert len(stage.db.writes) == 1


def test_a_committer_without_a_store_has_nothing_to_do() -> None:
    async def main() -> Any:
        committer = Committer(1.0)
        committer.commit()
        await committer.finish_all()
        return committer.handle

    assert asyncio.run(main()) is None


# Killed at any moment


class Publisher:
    """A client that publishes payloads at QoS 2, one after the other, and repeats what it must."""

    def __init__(self, payloads: list[bytes]) -> None:
        self.payloads = payloads
        #: What the broker owes an answer for: PUBREC or PUBCOMP.
        self.released = False

    def connect(self, house: House) -> None:
        self.client = Client(house)
        self.client.send(connect_packet("publisher", clean=False))
        self.say(dup=True)

    def say(self, *, dup: bool) -> None:
        if self.released:
            self.client.send(pubrel_packet(1))
        elif self.payloads:
            self.client.send(publish_packet("t", self.payloads[0], qos=2, packet_id=1, dup=dup))

    def step(self) -> bool:
        packets = [each for each in self.client.take() if each.type in (PUBREC, PUBCOMP)]
        for each in packets:
            if each.type == PUBREC:
                self.released = True
            elif self.released:
                self.released = False
                del self.payloads[0]
            self.say(dup=False)
        return bool(packets)


class Receiver:
    """A client that subscribes at QoS 2 and takes each message once, by its packet id."""

    def __init__(self) -> None:
        self.payloads: list[bytes] = []
        self.owned: set[int] = set()

    def connect(self, house: House) -> None:
        self.client = Client(house)
        self.client.send(connect_packet("receiver", clean=False))

    def step(self) -> bool:
        packets = [each for each in self.client.take() if each.type in (PUBLISH, PUBREL)]
        for each in packets:
            if each.type == PUBREL:
                self.owned.discard(each.packet_id)
                self.client.send(pubcomp_packet(each.packet_id))
                continue
            if each.packet_id not in self.owned:
                self.owned.add(each.packet_id)
                self.payloads.append(each.payload)
            self.client.send(pubrec_packet(each.packet_id))
        return bool(packets)


def commit_and_maybe_die(house: House, death: str | None) -> bool:
    """One commit; it dies "before" it, "between" it and the release, or "after" both."""
    store = house.store
    assert store is not None
    if death != "before":
        done = store.begin_commit()
        store.write()
        store.end_commit()
        if death != "between":
            house.core.outbox.release(done)
    if death is None:
        return False
    house.restart()
    return True


@pytest.fixture
def folder() -> Iterator[Path]:
    """In memory where the system offers that: each opening of a database waits for the disk."""
    offered = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="vmq-test-", dir=offered) as name:
        yield Path(name)


@pytest.mark.parametrize("death", ("before", "between", "after"))
def test_killed_at_any_commit_nothing_is_lost_or_doubled(folder: Path, death: str) -> None:
    wanted = [b"1", b"2", b"3"]
    commits_until_done = 0
    for kill_at in range(100):
        with stored_house(folder / str(kill_at)) as house:
            receiver, publisher = Receiver(), Publisher(list(wanted))
            receiver.connect(house)
            receiver.client.send(subscribe_packet(1, ("t", 2)))
            house.patient = True
            publisher.connect(house)
            count = 0
            is_busy = True
            while is_busy:
                is_busy = receiver.step() | publisher.step()
                assert house.store is not None
                if not house.store.dirty:
                    continue
                is_busy = True
                if commit_and_maybe_die(house, death if count == kill_at else None):
                    receiver.connect(house)
                    publisher.connect(house)
                count += 1
            assert receiver.payloads == wanted
            assert publisher.payloads == []
            assert receiver.owned == set()
            commits_until_done = count
        if kill_at > commits_until_done:
            break
    assert commits_until_done >= 7


async def test_what_must_not_be_behind_the_store_is_synced_first_and_in_the_thread() -> None:
    for durability, expected in (("os", []), ("fsync", [(0, False)])):
        stage = Stage(durability)
        seen: list[tuple[int, bool]] = []

        def sync(stage: Stage = stage, seen: list[tuple[int, bool]] = seen) -> None:
            in_loop = threading.current_thread() is threading.main_thread()
            seen.append((len(stage.db.writes), in_loop))

        stage.committer.before_sync.append(sync)
        stage.store.put(b"1", b"")
        await stage.committer.finish_all()
        assert seen == expected
        assert len(stage.db.writes) == 1


async def test_the_store_is_not_written_if_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commits, "RETRY_AFTER", 0.0)
    stage = Stage("fsync")
    failing = [True, False]

    def sync() -> None:
        if failing.pop(0):
            raise OSError("no disk")

    stage.committer.before_sync.append(sync)
    stage.store.put(b"1", b"")
    await stage.committer.finish_all()
    assert not failing
    assert [sorted(changes) for _, changes in stage.db.writes] == [[b"1"]]
