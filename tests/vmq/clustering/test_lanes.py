"""Messages between real brokers: once, in order, whoever dies in between."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from tests.support.peer import Peer
from tests.support.wire import PUBACK, PUBREC
from tests.vmq.clustering.nodes import clustering, config, together, until
from tests.vmq.support import split_packets
from vmq.admin import cluster
from vmq.broker import Broker
from vmq.clustering.appends import Append
from vmq.clustering.clustering import Clustering
from vmq.clustering.lanes import BUFFER_FULL, NODE_REMOVED, Lanes, M
from vmq.clustering.publishes import Publish
from vmq.clustering.wire import count_of
from vmq.config import StoreOptions
from vmq.core import Core
from vmq.store import Store
from vmq_cluster import link
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode


class Side:
    """One broker through all its lives, with what its lanes brought."""

    def __init__(
        self,
        folder: Path,
        name: str,
        durability: Literal["os", "memory"] = "os",
        overflow: Literal["drop", "pause_publisher"] = "drop",
        **options: Any,
    ) -> None:
        base = config(folder, name, listen=f"ipc://{folder}/{name}.socket")
        self.config = replace(
            base,
            store=StoreOptions(durability=durability, flush_interval=0.2),
            queue=replace(base.queue, overflow=overflow),
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

    def spooled(self) -> int:
        """How many messages for peers are committed."""
        parcels = [raw for key, raw in self.records(b"o") if not self.is_total(key)]
        return sum(map(count_of, parcels))

    @staticmethod
    def is_total(key: bytes) -> bool:
        """Whether a key has no place behind the name of the peer; places may end in NUL as well."""
        return key.index(b"\0") == len(key) - 1

    def take(self, publish: Publish) -> None:
        """Handles a message: writes what a retained message would."""
        self.got.append(publish.payload)
        self.store.put(b"rgot/" + publish.payload, b"\0x")
        self.trouble()

    def send(self, payload: bytes, peer: str = "b") -> bool:
        return self.lanes.send(peer, Publish(b"t", payload, 1), self.done.append)

    def client(self, name: str = "p", clean: bool = True) -> Peer:
        return Peer(self.running.registry(), name, clean=clean)

    async def wants(self, a: Side, topic: str = "t") -> None:
        """This node has a subscriber of a topic, and `a` knows it."""
        self.client("s").subscribe((topic, 2))
        route = a.running.registry().route
        await until(lambda: bool(route(topic.encode()).nodes))

    def commit(self) -> None:
        committer = self.running._committer
        assert committer is not None
        committer.commit()

    def commits_of_streams(self) -> None:
        core = self.running._core
        assert core is not None
        core.outbox.release_streams(core.outbox.streams_committed + 1)

    def suspend_commits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(self.running._committer, "commit", lambda: None)


BY_NAME: dict[str, Side] = {}


class Recording(Lanes):
    """Lanes whose publishes end in the test, and nowhere else."""

    def __init__(
        self, core: Core, node: ClusterNode, buffer_bytes: int, ack_remote: bool = False
    ) -> None:
        super().__init__(core, node, buffer_bytes, ack_remote)
        side = BY_NAME[node.name]
        super().on(Publish, lambda _, publish: side.take(publish))

    def on(
        self, kind: type[M], handle: Callable[[str, M], None], *, for_streams: bool = False
    ) -> None:
        if kind is Append:
            super().on(Append, self.append, for_streams=for_streams)
        elif kind is not Publish:
            super().on(kind, handle, for_streams=for_streams)

    def append(self, _: str, message: Append) -> None:
        """As a stream that never commits in this life."""
        BY_NAME[self._node.name].got.append(message.payload)
        self.confirming.stream_barrier = self._core.outbox.streams_committed + 1


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
            assert a.spooled() == 1
            await b.kill(patch)
        # What it had handled died with it, uncommitted: it is handled anew.
        await b.start()
        assert b.records(b"rgot/") == []
        await until(lambda: a.done == [True])
        assert b.got == [b"1", b"1"]
        assert len(b.records(b"rgot/")) == 1
        assert len(b.records(b"t")) == 1


async def test_what_the_streams_had_not_committed_is_handled_again_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sides(tmp_path) as (a, b):
        a.send(b"1")
        a.lanes.send("b", Append("s", b"t", b"2", 1, "p", 0), a.done.append)
        a.send(b"3")
        await until(lambda: b.got == payloads(1, 3))
        await until(lambda: [len(value) for _, value in b.records(b"t")] == [72])
        await rounds(a, b)
        assert a.done == []
        await b.kill(monkeypatch)
        await b.start()
        await until(lambda: b.got == [*payloads(1, 3), b"2"])
        b.commits_of_streams()
        await until(lambda: a.done == [True, True, True])
        await until(lambda: [len(value) for _, value in b.records(b"t")] == [24])


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


async def test_what_is_sent_as_a_commit_begins_is_in_it_whole(tmp_path: Path) -> None:
    """As marks are, when the directory writes what changed."""
    async with sides(tmp_path) as (a, b):
        await b.stop()
        committer = a.running._committer
        assert committer is not None
        said: list[bytes] = []

        def say() -> None:
            if not said:
                said.append(b"1")
                a.send(b"1")

        behind = committer.before.index(clustering(a.running).directory.flush) + 1
        committer.before.insert(behind, say)
        a.commit()
        assert said == [b"1"]
        assert a.spooled() == 1
        committer.before.remove(say)


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
        await until(lambda: a.spooled() == 3)
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
            assert a.spooled() == 3
            await a.kill(patch)
        await a.start()
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


async def test_without_a_start_there_are_no_lanes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.clustering.clustering.Lanes", Lanes)
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
            lambda: broker.open_streams().catalog,
        )
        with pytest.raises(ClusterError, match="not started"):
            _ = idle.lanes


# --- what publishers wait for


def answers(client: Peer) -> list[int]:
    """The packet ids of what was acknowledged."""
    packets = split_packets(bytearray(client.received))
    return [packet.packet_id for packet in packets if packet.type in (PUBACK, PUBREC)]


async def test_by_default_a_publisher_waits_for_the_own_store_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sides(tmp_path) as (a, b):
        await b.wants(a)
        client = a.client()
        b.suspend_commits(monkeypatch)
        client.publish("t", qos=1)
        await until(lambda: answers(client) == [1])
        assert a.spooled() == 1
        monkeypatch.undo()
        b.commit()


async def test_a_publisher_may_wait_for_the_stores_of_other_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sides(tmp_path, ack_after="remote") as (a, b):
        await b.wants(a)
        client, other = a.client(), a.client("other")
        with monkeypatch.context() as patch:
            b.suspend_commits(patch)
            for number in range(3):
                client.publish("t", b"%d" % number, qos=1)
            client.publish("t", b"3", qos=2)
            await until(lambda: len(b.got) == 4)
            other.publish("elsewhere", qos=1)
            await until(lambda: answers(other) == [1])
            await rounds(a, b)
            assert answers(client) == []
        b.commit()
        await until(lambda: answers(client) == [1, 2, 3, 4])


async def test_a_node_that_goes_down_is_waited_for_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sides(tmp_path, ack_after="remote") as (a, b):
        await b.wants(a)
        client = a.client()
        b.suspend_commits(monkeypatch)
        client.publish("t", b"1", qos=1)
        await until(lambda: b.got == [b"1"])
        assert answers(client) == []
        await b.kill(monkeypatch)
        await until(lambda: answers(client) == [1])
        assert a.spooled() == 1
        client.publish("t", b"2", qos=1)
        await until(lambda: answers(client) == [1, 2])
        monkeypatch.undo()
        monkeypatch.setattr("vmq.clustering.clustering.Lanes", Recording)
        await b.start()
        await until(lambda: b.got == [b"1", b"1", b"2"])


async def test_a_node_that_failed_waits_for_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sides(tmp_path, ack_after="remote") as (a, b):
        await b.wants(a)
        client = a.client()
        b.suspend_commits(monkeypatch)
        client.publish("t", b"1", qos=1)
        await until(lambda: b.got == [b"1"])
        node = a.node
        machine, node._machine = node._machine, None
        client.publish("t", b"2", qos=1)
        await until(lambda: answers(client) == [1, 2])
        assert a.spooled() == 2
        node._machine = machine
        monkeypatch.undo()
        monkeypatch.setattr("vmq.clustering.clustering.Lanes", Recording)
        b.commit()


async def test_a_message_sent_again_is_answered_when_the_first_would_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sides(tmp_path, ack_after="remote") as (a, b):
        await b.wants(a)
        client = a.client(clean=False)
        with monkeypatch.context() as patch:
            b.suspend_commits(patch)
            client.publish("t", b"1", qos=2)
            await until(lambda: b.got == [b"1"])
            client.leave()
            again = a.client(clean=False)
            again.publish("t", b"1", qos=2)
            await rounds(a, b)
            assert answers(again) == []
        b.commit()
        await until(lambda: answers(again) == [1])
        assert b.got[-1] == b"1"
        assert b.got.count(b"1") == 1


# --- bounds


async def test_a_node_whose_store_cannot_write_takes_nothing_until_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.commits.RETRY_AFTER", 0.05)
    async with sides(tmp_path) as (a, b):
        with monkeypatch.context() as patch:
            patch.setattr(b.running._committer, "write", full)
            a.send(b"1")
            await until(lambda: b.store.failing)
            for payload in payloads(2, 50):
                a.send(payload)
                await asyncio.sleep(0)
            await until(lambda: len(b.lanes._untaken) > 0)
            assert b.got == [b"1"]
            assert a.done == []
            await rounds(a, b)
        await until(lambda: len(a.done) == 50)
        assert b.got == payloads(1, 50)
        assert not b.lanes._untaken


def full(_: Store) -> None:
    raise OSError("no space left")


async def test_a_node_that_is_behind_takes_as_much_as_its_clients_would_be_let(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sides(tmp_path) as (a, b):
        core = b.running._core
        assert core is not None
        core.options.max_uncommitted_writes = 5
        most = 0

        def write_much() -> None:
            nonlocal most
            b.store.put(b"rmuch/%d" % len(b.got), b"\0" * 10_000)
            most = max(most, b.store.gathered)

        b.trouble = write_much
        with monkeypatch.context() as patch:
            patch.setattr("vmq.clustering.lane.PARCEL", 10)
            for payload in payloads(1, 50):
                a.send(payload)
        await until(lambda: len(a.done) == 50)
        assert b.got == payloads(1, 50)
        assert most < 30  # one message counts 10 or so


async def test_publishers_pause_for_a_node_that_is_up_where_the_options_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with sides(tmp_path, overflow="pause_publisher", buffer_bytes=65_536) as (a, b):
        await b.wants(a)
        client = a.client()
        load = b"x" * 10_000
        with monkeypatch.context() as patch:
            b.suspend_commits(patch)
            for _ in range(4):
                client.publish("t", load, qos=1)
                if client.connection.pauses:
                    break
            assert client.connection.pauses == 1
            assert a.lanes.dropped == 0
        b.commit()
        await until(lambda: client.connection.pauses == 0)
        # For one that is down nobody waits.
        await b.stop()
        await until(lambda: not a.node.up)
        for _ in range(8):
            client.publish("t", load, qos=1)
        assert client.connection.pauses == 0
        assert a.lanes.dropped == 2


async def test_what_waited_for_a_removed_member_is_dropped_counted_and_told(
    tmp_path: Path,
) -> None:
    told: list[tuple[str, bytes, str]] = []
    async with sides(tmp_path) as (a, b):
        await b.stop()
        for payload in payloads(1, 10):
            a.send(payload)
            await asyncio.sleep(0.001)
        a.running.hooks.on_message_drop = lambda who, load, why: told.append(
            (who.client_id, load().payload, why)
        )
        await until(lambda: not a.node.up)
        cluster.remove(a.running, "b", force=True)
        await until(lambda: len(told) == 10)
        assert told == [("b", payload, NODE_REMOVED) for payload in payloads(1, 10)]
        assert a.done == [False] * 10
        assert a.lanes.dropped == 10
        await until(lambda: a.records(b"o") == [])


async def test_a_spool_larger_than_memory_may_hold_goes_out_in_order_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.clustering.lane.PARCEL", 2_000)
    monkeypatch.setattr("vmq.clustering.lane.WINDOW", 20_000)
    async with sides(tmp_path) as (a, b):
        await b.stop()
        sent = [b"%d" % number + b"x" * 500 for number in range(300)]
        for payload in sent[:200]:
            assert a.send(payload)
        await until(lambda: a.spooled() == 200)
        await a.stop()
        await a.start()
        assert a.lanes.waiting()[0] == 200
        for payload in sent[200:]:
            assert a.send(payload)
        await b.start()
        await until(lambda: len(b.got) == 300)
        assert b.got == sent
        await until(lambda: a.records(b"o") == [])


async def test_with_a_store_that_acknowledges_early_everything_still_arrives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmq.clustering.lane.PARCEL", 2_000)
    monkeypatch.setattr("vmq.clustering.lane.WINDOW", 20_000)
    async with sides(tmp_path, durability="memory") as (a, b):
        sent = [b"%d" % number + b"x" * 500 for number in range(300)]
        for payload in sent:
            assert a.send(payload)
        assert a.running._core is not None
        a.running._core.outbox.flush()
        await until(lambda: len(b.got) > 20)
        assert a.spooled() == 0
        await until(lambda: len(a.done) == 300)
        assert b.got == sent
        await until(lambda: a.records(b"o") == [])
