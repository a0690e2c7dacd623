"""Messages between real brokers: once, in order, whoever dies in between."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.vmq.clustering.nodes import clustering, config, together, until
from vmq.admin import cluster
from vmq.broker import Broker
from vmq.clustering.clustering import Clustering
from vmq.clustering.lanes import BUFFER_FULL, Lanes, M
from vmq.clustering.publishes import Publish
from vmq.config import StoreOptions
from vmq.core import Core
from vmq.store import Store
from vmq_cluster import link
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode


class Side:
    """One broker through all its lives, with what its lanes brought."""

    def __init__(self, folder: Path, name: str, **options: Any) -> None:
        base = config(folder, name, listen=f"ipc://{folder}/{name}.socket")
        self.config = replace(
            base,
            store=StoreOptions(durability="os"),
            cluster=replace(base.cluster, **options),
        )
        self.folder = folder
        self.name = name
        self.got: list[bytes] = []
        self.done: list[bool] = []
        #: Called by the handler.
        self.trouble: Callable[[], None] = lambda: None
        self.broker: Broker | None = None

    async def start(self) -> None:
        BY_NAME[self.name] = self
        self.broker = Broker(self.config)
        await self.broker.start()

    async def stop(self) -> None:
        broker, self.broker = self.broker, None
        if broker is not None:
            await broker.stop()

    async def kill(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What a killed process leaves is on the disk now; what a stop would add is undone."""
        data, left = self.folder / self.name, self.folder / f"{self.name}.left"
        shutil.copytree(data, left)
        with monkeypatch.context() as patch:
            patch.setattr(self.running._committer, "finish_all", nothing)
            await self.stop()
        shutil.rmtree(data)
        left.rename(data)

    @property
    def running(self) -> Broker:
        assert self.broker is not None
        return self.broker

    @property
    def node(self) -> ClusterNode:
        return clustering(self.running).node

    @property
    def lanes(self) -> Lanes:
        return clustering(self.running).lanes

    @property
    def store(self) -> Store:
        core = self.running._core
        assert core is not None
        assert core.store is not None
        return core.store

    def records(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """What is committed."""
        return list(self.store.db.iterator(prefix=prefix))

    def take(self, publish: Publish) -> None:
        """Handles a message: writes what a retained message would."""
        self.got.append(publish.payload)
        self.store.put(b"rgot/" + publish.payload, b"\0x")
        self.trouble()

    def send(self, payload: bytes, peer: str = "b") -> bool:
        return self.lanes.send(peer, Publish(b"t", payload, 1), self.done.append)

    def suspend_commits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(self.running._committer, "commit", lambda: None)


BY_NAME: dict[str, Side] = {}


class Recording(Lanes):
    """Lanes whose publishes end in the test, and nowhere else."""

    def __init__(self, core: Core, node: ClusterNode, buffer_bytes: int) -> None:
        super().__init__(core, node, buffer_bytes)
        side = BY_NAME[node.name]
        super().on(Publish, lambda _, publish: side.take(publish))

    def on(self, kind: type[M], handle: Callable[[str, M], None]) -> None:
        if kind is not Publish:
            super().on(kind, handle)


async def nothing() -> None:
    pass


@pytest.fixture(autouse=True)
def recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmq.clustering.clustering.Lanes", Recording)


@asynccontextmanager
async def sides(folder: Path, **options: Any) -> AsyncIterator[tuple[Side, Side]]:
    """Two nodes; the options are those of `a`, which sends."""
    a = Side(folder, "a", **options)
    b = Side(folder, "b", join=[f"ipc://{folder}/a.socket"])
    try:
        await a.start()
        await b.start()
        await together(a.running, b.running)
        yield a, b
    finally:
        await a.stop()
        await b.stop()


def payloads(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]


async def test_messages_are_handled_once_in_order_and_then_forgotten(tmp_path: Path) -> None:
    async with sides(tmp_path) as (a, b):
        for payload in payloads(1, 300):
            assert a.send(payload)
        assert b.lanes.send("a", Publish(b"t", b"back", 1))
        await until(lambda: len(a.done) == 300)
        assert b.got == payloads(1, 300)
        assert all(a.done)
        await until(lambda: a.got == [b"back"] and b.lanes.waiting() == (0, 0))
        await until(lambda: a.records(b"o") == [] == b.records(b"o"))
        assert a.lanes.waiting() == (0, 0)


async def test_a_message_is_kept_until_the_peer_has_committed_what_it_made_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sides(tmp_path) as (a, b):
        with monkeypatch.context() as patch:
            b.suspend_commits(patch)
            a.send(b"1")
            await until(lambda: b.got == [b"1"])
            await rounds(a, b)
            assert a.done == []
            assert len(a.records(b"o")) == 1
            await b.kill(patch)
        # What it had handled died with it, uncommitted: it is handled anew.
        await b.start()
        assert b.records(b"rgot/") == []
        await until(lambda: a.done == [True])
        assert b.got == [b"1", b"1"]
        assert len(b.records(b"rgot/")) == 1
        assert len(b.records(b"t")) == 1


async def rounds(a: Side, b: Side) -> None:
    """Some time in which other things go to and fro."""
    for number in range(5):
        before = len(a.got)
        assert b.lanes.send_quick(a.name, Publish(b"t", b"%d" % number, 0))
        await until(lambda: len(a.got) > before)  # noqa: B023


async def test_a_message_does_not_leave_before_it_is_safe_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sides(tmp_path) as (a, b):
        with monkeypatch.context() as patch:
            a.suspend_commits(patch)
            a.send(b"lane")
            await rounds(b, a)
            assert b"lane" not in b.got
        a.running._committer.commit()  # type: ignore[union-attr]
        await until(lambda: a.done == [True])


async def test_a_receiver_that_starts_again_takes_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sides(tmp_path) as (a, b):
        a.send(b"1")
        await until(lambda: a.done == [True])
        monkeypatch.setattr(b.node, "confirm", lambda _: None)
        for payload in payloads(2, 5):
            a.send(payload)
        await until(lambda: b.got == payloads(1, 5) and len(b.records(b"rgot/")) == 5)
        await b.kill(monkeypatch)
        a.send(b"6")
        await b.start()
        await until(lambda: len(a.done) == 6)
        assert b.got == payloads(1, 6)


async def test_what_was_sent_to_a_dead_peer_survives_the_sender(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sides(tmp_path) as (a, b):
        a.send(b"1")
        await until(lambda: a.done == [True])
        await b.stop()
        for payload in payloads(2, 4):
            assert a.send(payload)
        await until(lambda: len(a.records(b"o")) == 3)
        await a.kill(monkeypatch)
        await a.start()
        assert a.lanes.waiting()[0] == 3
        a.send(b"5")
        await b.start()
        await until(lambda: b.got == payloads(1, 5))
        await until(lambda: a.records(b"o") == [])


async def test_a_sender_that_starts_again_sends_nothing_that_is_handled_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It died before it heard that the peer had everything."""
    async with sides(tmp_path) as (a, b):
        with monkeypatch.context() as patch:
            patch.setattr(b.node, "confirm", lambda _: None)
            for payload in payloads(1, 3):
                a.send(payload)
            await until(lambda: len(b.records(b"rgot/")) == 3)
            await a.kill(patch)
        await a.start()
        assert a.lanes.waiting()[0] == 3
        await together(a.running, b.running)
        a.send(b"4")
        await until(lambda: a.done == [True])
        assert a.lanes.waiting()[0] == 0
        assert b.got == payloads(1, 4)


async def test_nonsense_drops_the_link_for_a_while_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(link, "_DEAF_SECONDS", 0.3)
    async with sides(tmp_path) as (a, b):
        for bad in (a.node.send, a.node.send_unreliable):
            caplog.clear()
            bad("b", b"nonsense")
            await until(lambda: "dropped the link of a: no " in caplog.text)
            assert b.node.is_running
            a.send(b"1")
            await until(lambda: a.done == [True])
            a.done.clear()
        assert b.got == [b"1", b"1"]
        assert a.node.machine.channels.waiting("b") == (0, 0)


async def test_a_handler_that_fails_is_logged_and_holds_up_nobody(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def trouble() -> None:
        raise RuntimeError("a defect")

    async with sides(tmp_path) as (a, b):
        b.trouble = trouble
        for payload in payloads(1, 2):
            a.send(payload)
        await until(lambda: a.done == [True, True])
        assert b.got == payloads(1, 2)
        assert "cannot handle a Publish of a" in caplog.text


async def test_what_waits_is_bounded_counted_and_told(tmp_path: Path) -> None:
    told: list[tuple[str, str, bytes, str]] = []
    async with sides(tmp_path, buffer_bytes=65_536) as (a, b):
        await b.stop()
        a.running.hooks.on_message_drop = lambda who, load, why: told.append(
            (who.mountpoint, who.client_id, load().payload, why)
        )
        large = b"x" * 30_000
        assert [a.send(large + b"%d" % number) for number in range(4)] == [True, True, False, False]
        assert a.done == [False, False]
        assert told == [("", "b", large + b"%d" % number, BUFFER_FULL) for number in (2, 3)]
        assert a.lanes.dropped == 2
        assert a.lanes.dropped_bytes > 60_000
        figures = {each.name: each.samples[0].value for each in clustering(a.running).families()}
        assert figures["cluster_messages_dropped"] == 2
        assert figures["cluster_bytes_dropped"] > 60_000
        assert figures["cluster_messages_waiting"] == 2
        assert figures["cluster_bytes_waiting"] > 60_000
        await b.start()
        await until(lambda: len(a.done) == 4)
        assert a.send(large)
        await until(lambda: len(b.got) == 3)


async def test_one_message_alone_may_be_longer_than_the_buffer(tmp_path: Path) -> None:
    async with sides(tmp_path, buffer_bytes=65_536) as (a, b):
        assert a.send(b"x" * 100_000)
        await until(lambda: a.done == [True])
        assert b.got == [b"x" * 100_000]


async def test_a_stranger_gets_nothing_and_a_removed_member_nothing_more(tmp_path: Path) -> None:
    async with sides(tmp_path) as (a, b):
        assert not a.send(b"0", peer="c")
        assert not a.lanes.send_quick("c", Publish(b"t", b"", 0))
        assert a.done == [False]
        await b.stop()
        a.send(b"1")
        await until(lambda: not a.node.up)
        assert not a.lanes.send_quick("b", Publish(b"t", b"", 0))
        cluster.remove(a.running, "b", force=True)
        await until(lambda: a.done == [False, False])
        await until(lambda: a.records(b"o") == [])
        assert not a.send(b"2")
        assert a.lanes.dropped == 3


async def test_a_store_that_cannot_write_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.commits.RETRY_AFTER", 0.05)
    async with sides(tmp_path) as (a, b):
        failures = iter([True] * 3)

        def write(store: Store) -> None:
            if next(failures, False):
                raise OSError("no space left")
            store.write()

        monkeypatch.setattr(b.running._committer, "write", write)
        a.send(b"1")
        await until(lambda: a.done == [True])
        assert b.got == [b"1"]
        assert next(failures, None) is None


async def test_without_a_start_there_are_no_lanes(tmp_path: Path) -> None:
    async with Broker(config(tmp_path, "a")) as broker:
        core, committer = broker._core, broker._committer
        assert core is not None
        assert committer is not None
        idle = Clustering(
            broker.config.cluster,
            tmp_path / "idle",
            core,
            committer,
            broker.registries,
            broker.registry,
        )
        with pytest.raises(ClusterError, match="not started"):
            _ = idle.lanes
