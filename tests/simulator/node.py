"""One node of a simulated cluster: a whole broker but for sockets, files and the clock, through all its lives."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, cast

from msgspec.structs import replace

from tests.simulator.clock import EPOCH
from tests.simulator.disk import Database, Disk, Shelf
from tests.simulator.loop import Life
from vmq.clustering.node.initial_sync import catch_up
from vmq.clustering.node.node import Clustering
from vmq.clustering.running.service import SlotService
from vmq.config.core import options_of
from vmq.config.options import Config
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.persistence.group_commit import Committer
from vmq.persistence.purging import Purger
from vmq.persistence.restoring import restore
from vmq.protocol.connection import Connection
from vmq.runtime.draining import QueueTasks
from vmq.runtime.registries import BrokerRegistries
from vmq.store.opening import ended_sessions, last_number, load_sizes
from vmq.store.store import Store
from vmq_cluster.leveldb import LevelStorage
from vmq_cluster.link import Link
from vmq_cluster.messages import Frame, decode, encode
from vmq_cluster.node import ClusterNode
from vmq_cluster.surroundings import Surroundings
from vmq_cluster.transport.traffic import Traffic

if TYPE_CHECKING:
    from tests.simulator.world import World


def address_of(name: str) -> str:
    return f"ipc://{name}"


class SimLink(Link):
    def __init__(
        self, world: World, life: Life, name: str, on_frame: Callable[[Frame], None], *_rest: object
    ) -> None:
        self.dropped_frames = 0
        self.traffic = Traffic()
        self._world = world
        self._life = life
        self._name = name
        self._on_frame = on_frame
        self._addresses: dict[str, str] = {}

    async def start(self, listen: str) -> str:
        self._world.links[listen] = self
        return listen

    async def stop(self) -> None:
        self._world.links.pop(address_of(self._name), None)

    def set_members(self, addresses: dict[str, str]) -> None:
        self._addresses = addresses

    def set_up(self, name: str, is_up: bool) -> None:
        """There is room in any case."""

    def send(self, name: str, frame: Frame) -> None:
        if name in self._addresses and not self._life.is_over:
            self._world.carry(self._name, self._addresses[name], encode(frame))

    def send_at_once(self, name: str, life: int, payload: bytes) -> bool:
        """Everything goes in frames, as between machines."""
        return False

    def is_near(self, name: str) -> bool:
        """See `send_at_once`."""
        return False

    def contact(self, address: str, frame: Frame) -> None:
        if not self._life.is_over:
            self._world.carry(self._name, address, encode(frame))

    def drop(self, name: str) -> None:
        raise AssertionError(f"{name} said nonsense to {self._name}")

    def arrive(self, raw: bytes) -> None:
        self._life.soon(lambda: self._on_frame(decode(raw)))


class Broker:
    """One life of a node's broker."""

    def __init__(self, node: Node, life: Life) -> None:
        self.life = life
        self.node = node
        self.tasks: set[Connection] = set()
        self.connections: set[Connection] = set()
        self.registries: dict[str, Registry] = {}
        self.committer = committer = Committer(node.config.store.flush_interval)
        random = node.world.random
        self.db = Database(node.disk, random)
        self.store = store = Store(self.db, node.config.store.durability, committer.schedule)
        store.next_message = last_number(self.db, b"m") + 1
        load_sizes(store)
        loop = node.world.loop
        committer.patience.computed = loop.time  # by the simulator's clock, as all else
        self.core = core = Core(
            options_of(node.config), store, loop.time, node.wall, random.randrange
        )
        core.registries = BrokerRegistries(self.registry)
        core.call_soon = loop.call_soon
        core.call_later = loop.call_later
        committer.attach(core, store, self._reopen)
        self.purger = Purger(store, committer)
        self.queue_tasks = QueueTasks(core)
        restore(store, self.registry, self.registries)
        for session in ended_sessions(store):
            self.purger.add(session)
        life.spawn(self.purger.run())
        self.shelves: list[Shelf] = []
        self.clustering = Clustering(
            node.config.cluster,
            Path("/nowhere"),
            core,
            committer,
            self.registries,
            self.registry,
            self._no_streams,
            open_storage=self._open,
            world=Surroundings(
                partial(SimLink, node.world, life, node.name),
                Random(random.getrandbits(64)),
                lambda: int(node.wall() * 1000),
                node.boot,
                lambda now, step: now + step,  # nodes are not to look at the same moments
            ),
            data_dir=node.folder,
        )

    def _reopen(self) -> Database:
        self.db = Database(self.node.disk, self.node.world.random)
        return self.db

    def _open(self, folder: Path) -> LevelStorage:
        disk = self.node.disk
        shelf = Shelf(disk.slots if folder.name == "slots" else disk.storage)
        self.shelves.append(shelf)
        return cast("LevelStorage", shelf)

    def _no_streams(self) -> Any:
        raise RuntimeError("there are no streams here")

    def registry(self, mountpoint: str = "") -> Registry:
        found = self.registries.get(mountpoint)
        if found is None:
            found = Registry(self.core, self.queue_tasks.wake, self.purger.add, mountpoint)
            self.registries[mountpoint] = found
        return found

    async def start(self) -> None:
        await self.clustering.start()
        await catch_up(self.clustering, {})
        self.clustering.begin_wills()
        self.node.is_open = True

    async def stop(self) -> None:
        """As `vmq.broker` does."""
        await self._close("the broker is shutting down")
        for connection in list(self.connections):
            connection.connection_lost(None)
        await self.committer.finish_all()
        await self.clustering.stop()
        await self.committer.finish_all()
        self.node.end()

    async def leave(self) -> None:
        """As `vmq cluster leave` does: without clients, and for good."""
        await self._close("the node leaves its cluster")
        self.node.has_left = await self.clustering.leave(60.0)
        await self.stop()

    async def _close(self, reason: str) -> None:
        self.node.is_open = False
        for connection in list(self.connections):
            connection.close(reason)
        self.core.outbox.flush()
        await self.committer.finish_all()


class Node:
    """One node by its name: its machine's disk and clock, and the broker that runs there, if one does."""

    def __init__(self, world: World, name: str, config: Config, skew: float) -> None:
        self.world = world
        self.name = name
        self.config = config
        #: By how many seconds its clock is wrong.
        self.skew = skew
        self.disk = Disk()
        #: What is in files: the wills.
        self.folder = Path(world.folder.name) / name
        self.folder.mkdir()
        self.boot = b"1"
        self.broker: Broker | None = None
        #: Whether clients are let in.
        self.is_open = False
        self.has_left = False

    def wall(self) -> float:
        return EPOCH / 1000 + self.skew + self.world.clock.now

    @property
    def running(self) -> Broker:
        assert self.broker is not None, f"{self.name} does not run"
        return self.broker

    @property
    def clustering(self) -> Clustering:
        return self.running.clustering

    @property
    def node(self) -> ClusterNode:
        return self.clustering.node

    def start(self) -> None:
        """It starts, and asks all others to take it in if it does not know them."""
        assert self.broker is None
        life = Life(self.world.loop)
        others = [address_of(each) for each in self.world.nodes if each != self.name]
        self.config = replace(self.config, cluster=replace(self.config.cluster, join=others))

        def begin() -> None:
            self.broker = broker = Broker(self, life)
            life.spawn(broker.start())

        life.do(begin)

    def kill(self) -> None:
        """The process dies; what it wrote is on the disk."""
        if self.broker is not None:
            self.end()

    def end(self) -> None:
        broker = self.running
        self.broker = None
        self.is_open = False
        self.world.links.pop(address_of(self.name), None)
        broker.db.close()
        if (wills := broker.clustering._wills) is not None:
            wills._disk.close()
        for shelf in broker.shelves:
            shelf.close()
        self.world.ended.append(broker)
        self.world.on_death(self.name)
        broker.life.end()  # with whatever it is at: who called this, too

    def wipe(self) -> None:
        assert self.broker is None
        self.disk = Disk()
        for file in self.folder.iterdir():
            file.unlink()

    @property
    def slots(self) -> SlotService:
        assert self.clustering.slots is not None, f"{self.name} does not run"
        return self.clustering.slots

    def serves(self, slot: int) -> bool:
        """Whether it serves the sessions of a slot."""
        owner = self.slots.machines.slots.owners.get(slot)
        return owner is not None and owner.serves(self.slots.store)
