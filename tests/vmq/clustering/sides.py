"""Two real brokers that are nodes, through all their lives, with what their outboxes brought."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
from msgspec.structs import replace

from tests.support.peer import Peer
from tests.support.present import present
from tests.support.until import until
from tests.vmq.clustering.nodes import clustering, config, kill, suspended, together
from vmq.broker import Broker
from vmq.clustering.delivery.inbox import M
from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.codec import count_of
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.streams import Append
from vmq.config.options import StoreOptions
from vmq.core.context import Core
from vmq.disk.durable import Durable
from vmq.store.store import Store
from vmq_cluster.node import ClusterNode


class Side:
    """One broker through all its lives, with what its outboxes brought."""

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
        #: What comes leaves a trace in the store.
        self.keeps = True
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

    async def kill(self) -> None:
        broker, self.broker = self.running, None
        await kill(broker)

    @property
    def running(self) -> Broker:
        return present(self.broker)

    @property
    def node(self) -> ClusterNode:
        return clustering(self.running).node

    @property
    def outboxes(self) -> Outboxes:
        return clustering(self.running).outboxes

    @property
    def store(self) -> Store:
        return self.running.parts.store

    def records(self, prefix: bytes) -> list[tuple[bytes, bytes]]:
        """What is committed."""
        return list(self.store.db.iterator(prefix=prefix))

    def has_got(self, count: int) -> bool:
        """Whether so many messages came."""
        return len(self.got) >= count

    def spooled(self) -> int:
        """How many messages for peers are committed."""
        parcels = [raw for key, raw in self.records(b"o") if not self.is_total(key)]
        return sum(map(count_of, parcels))

    @staticmethod
    def is_total(key: bytes) -> bool:
        """Whether a key has no place behind the name of the peer; places may end in NUL as well."""
        return key.index(b"\0") == len(key) - 1

    def take(self, publish: RemotePublish) -> None:
        """Handles a message: writes what a retained message would."""
        self.got.append(publish.payload)
        if self.keeps:
            self.store.put(b"rgot/" + publish.payload, b"\0x")
        self.trouble()

    def send(self, payload: bytes, peer: str = "b") -> bool:
        return self.outboxes.send(peer, RemotePublish(b"t", payload, 1), self.done.append)

    def client(self, name: str = "p", clean: bool = True) -> Peer:
        return Peer(self.running.registry(), name, clean=clean)

    async def wants(self, a: Side, topic: str = "t") -> None:
        """This node has a subscriber of a topic, and `a` knows it."""
        self.client("s").subscribe((topic, 2))
        route = a.running.registry().route
        await until(lambda: bool(route(topic.encode()).nodes))

    def commit(self) -> None:
        committer = present(self.running.parts.committer)
        committer.commit()

    def commits_of_streams(self) -> None:
        core = self.running.parts.core
        STREAM.advance(STREAM.wanted)
        core.outbox.flush()

    def suspended(self) -> AbstractContextManager[None]:
        return suspended(self.running)


BY_NAME: dict[str, Side] = {}


#: The log of the stream that `Recording` stands for.
STREAM = Durable()


class Recording(Outboxes):
    """Outboxes whose publishes end in the test, and nowhere else."""

    def __init__(
        self, core: Core, node: ClusterNode, buffer_bytes: int, ack_remote: bool = False
    ) -> None:
        super().__init__(core, node, buffer_bytes, ack_remote)
        side = BY_NAME[node.name]
        super().on(RemotePublish, lambda _, publish: side.take(publish))

    def on(
        self, kind: type[M], handle: Callable[[str, M], None], *, for_streams: bool = False
    ) -> None:
        if kind is Append:
            super().on(Append, self.append, for_streams=for_streams)
        elif kind is not RemotePublish:
            super().on(kind, handle, for_streams=for_streams)

    def append(self, peer: str, message: Append) -> None:
        """As a stream that never commits in this life."""
        BY_NAME[self._node.name].got.append(message.payload)
        STREAM.wanted = STREAM.reached + 1
        self.arrivals.confirming(peer).answer_after(STREAM, STREAM.wanted)


@asynccontextmanager
async def sides(
    folder: Path, *, near: bool = False, **options: Any
) -> AsyncIterator[tuple[Side, Side]]:
    """Two nodes, as on two machines unless they are `near`; the options are those of `a`, which sends."""
    a = Side(folder, "a", **options)
    b = Side(folder, "b", join=[f"ipc://{folder}/a.socket"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("vmq.clustering.node.node.Outboxes", Recording)
        if not near:
            patch.setattr("vmq_cluster.link.Link.is_near", lambda *_: False)
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


async def rounds(a: Side, b: Side) -> None:
    """Some time in which other things go to and fro."""
    for number in range(5):
        more = len(a.got) + 1
        assert b.outboxes.send_quick(a.name, RemotePublish(b"t", b"%d" % number, 0))
        await until(partial(a.has_got, more))
