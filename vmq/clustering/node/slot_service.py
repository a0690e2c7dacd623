"""The sessions' machines in a running broker: its links, its store, its clock, and who else is there.

What the machines write joins the store's commit that gathers, and what waits for it goes on when that is done. Other
nodes' stores and hosts are in the cluster's metadata, so that of a member that is away it is known what slots it has.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.front.links import LinkListener, SlotLinks
from vmq.clustering.front.sessions import SessionNode
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.fronts import SessionStep
from vmq.clustering.messages.slot_links import LinkBatch, LinkHello
from vmq.clustering.slots.copies import RECORD, VIEW
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.placement import spread
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.words import BOOT_BITS, STORE_BITS, incarnation_of
from vmq.core.context import Core
from vmq.persistence.group_commit import Committer
from vmq.store.lines import scan
from vmq.store.store import Store
from vmq_cluster.effects import MembersChanged, PeerDown, PeerUp
from vmq_cluster.node import ClusterNode

#: This store's number and the lives of its broker, behind `l` as all that a node keeps of itself.
IDENTITY: Final = b"lslots"
#: Under it the metadata have of each node: its store's number and its host.
STORES: Final = "slots.stores"
#: Minutes from 1970 to 2024, from which lives count if the store does not know the last one.
_EPOCH: Final = 28_401_120
#: Heartbeats for which a slot without an owner waits, when all members are up: another may know of one.
_UNOWNED_BEATS: Final = 5

_ENCODER: Final = msgspec.msgpack.Encoder()
_IDENTITY: Final = msgspec.msgpack.Decoder(tuple[int, int])
_STORE: Final = msgspec.msgpack.Decoder(tuple[int, str])


class SessionPort:
    """The connections of this node, as the machines speak to them; by number."""

    def present(self, connection: int, is_present: bool) -> None:
        """Its session is there: CONNACK."""

    def step(self, connection: int, step: SessionStep) -> None:
        """A packet for the client."""

    def acknowledge(self, connection: int, packet: int, qos: int) -> None:
        """A publish is safe: PUBACK, PUBREC."""

    def close(self, connection: int) -> None:
        """The client has a newer connection."""


def next_life(store: Store, now_minutes: int, choose: Callable[[int], int]) -> int:
    """This store's incarnation for a life of the broker that begins; it has to be on disk before it is told."""
    raw = store.get(IDENTITY)
    number, last = (1 + choose((1 << STORE_BITS) - 1), 0) if raw is None else _IDENTITY.decode(raw)
    boot = max(last + 1, now_minutes - _EPOCH) & (1 << BOOT_BITS) - 1
    store.put(IDENTITY, _ENCODER.encode((number, boot)))
    return incarnation_of(number, boot)


class SlotService(LinkListener):
    """Durable sessions in slots, on one node.

    Args:
        core: the broker's.
        committer: writes the core's store.
        node: this node.
        outboxes: to the others; of them only what arrives at most once.
        slots: how many the cluster has.
        replicas: how many hosts are to have each.
        timeout: seconds after which a silent node is gone.
        host: the name of this machine; nodes with the same are never each other's copies.
    """

    def __init__(
        self,
        core: Core,
        committer: Committer,
        node: ClusterNode,
        outboxes: Outboxes,
        slots: int,
        replicas: int,
        timeout: float,
        host: str = "",
    ) -> None:
        assert core.store is not None, "a node has a store"
        self._store: Store = core.store
        self._committer = committer
        self._node = node
        self._outboxes = outboxes
        self._wall = core.wall_clock
        self.host = host or node.name
        incarnation = next_life(self._store, int(core.wall_clock() / 60), core.choose)
        milliseconds = max(1, int(timeout * 1000))
        reach = Reach(incarnation >> BOOT_BITS, self.host, milliseconds, milliseconds // 5)
        self.here = LocalNode(incarnation, reach, replicas, core.options.max_inflight_messages)
        disk = {key: value for kind in (RECORD, VIEW) for key, value in scan(self._store.db, kind)}
        self.machines = SessionNode(self.here, slots, disk)
        self.links = SlotLinks(self.here.store, self.host, self, outboxes.send_quick, core.choose)
        self.port = SessionPort()
        self._slots = slots
        self._names: dict[int, str] = {}
        #: The machines' commits, and the store's that have them.
        self._commits: list[tuple[int, int]] = []
        self._unowned = 0
        self._is_running = False
        self._is_turning = False
        self._timer: asyncio.TimerHandle | None = None

    # Its life

    def start(self) -> None:
        """Takes part. The identity that was written when this was made is on disk."""
        self._is_running = True
        node = self._node
        self._outboxes.on(LinkHello, self._on_hello)
        self._outboxes.on(LinkBatch, self._on_batch)
        node.on(PeerUp, lambda effect: self._on_up(effect.peer))
        node.on(PeerDown, lambda effect: self._on_down(effect.peer))
        node.on(MembersChanged, lambda _: self._set_members())
        node.watch(STORES, lambda _: self._set_members())
        node.put(STORES, node.name.encode(), _ENCODER.encode((self.here.store, self.host)))
        self._committer.after.append(self._after_commit)
        self._set_members()
        for peer in node.up:
            self._on_up(peer)
        self._tick()

    def stop(self) -> None:
        """Ends; what is not on disk of other nodes stays theirs to ask for."""
        self._is_running = False
        if self._timer is not None:
            self._timer.cancel()
        if self._after_commit in self._committer.after:
            self._committer.after.remove(self._after_commit)

    def _on_hello(self, peer: str, hello: LinkHello) -> None:
        if self._is_running:
            self.links.on_hello(peer, hello)
            self.turn()

    def _on_batch(self, peer: str, batch: LinkBatch) -> None:
        if self._is_running:
            self.links.on_batch(peer, batch)
            self.turn()

    # Time

    def _tick(self) -> None:
        self.links.tick()
        self.machines.tick(int(self._wall() * 1000))
        self._take_unowned()
        self.turn()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(self.here.reach.interval / 4000, self._tick)

    def _take_unowned(self) -> None:
        """In a cluster that is new nobody has a slot: once all members are there, each goes where it should be."""
        slots, reach = self.machines.slots, self.here.reach
        unowned = [slot for slot in range(self._slots) if not slots.view(slot).epoch]
        if (
            not unowned
            or len(self._names) < len(self._node.members)
            or len(reach.up()) < len(reach.peers)
        ):
            self._unowned = 0
            return
        self._unowned += 1
        if self._unowned < 4 * _UNOWNED_BEATS:
            return
        hosts = {store: reach.host_of(store) for store in [*reach.peers, self.here.store]}
        wanted = spread(self._slots, hosts, self.here.replicas)
        for slot in unowned:
            if wanted[slot][0] == self.here.store:
                slots.take_over(slot)

    # Others

    def _set_members(self) -> None:
        if not self._is_running or not self._node.is_running:
            return
        members = self._node.members
        hosts: dict[int, str] = {self.here.store: self.host}
        self._names = {self.here.store: self._node.name}
        for key, value in self._node.items(STORES):
            name = key.decode()
            if name in members and name != self._node.name:
                store, host = _STORE.decode(value)
                hosts[store] = host
                self._names[store] = name
        self.here.reach.set_members(hosts)

    def _on_up(self, peer: str) -> None:
        if self._is_running:
            self.links.peer_up(peer)
            self.turn()

    def _on_down(self, peer: str) -> None:
        if not self._is_running:
            return
        self.links.peer_down(peer)
        for store, name in self._names.items():
            if name == peer:
                self.machines.on_break(store, True)
        self.turn()

    def on_hello(self, peer: str, store: int, host: str) -> None:
        if self._names.get(store) != peer:
            for old in [each for each, name in self._names.items() if name == peer]:
                del self._names[old]  # it has lost its disk
            self._names[store] = peer
            hosts = {each: self.here.reach.host_of(each) for each in self._names}
            self.here.reach.set_members({**hosts, store: host})

    def on_link(self, peer: str, life: int) -> None:
        self.machines.on_link(self._store_of(peer), life)

    def on_break(self, peer: str) -> None:
        self.machines.on_break(self._store_of(peer), False)

    def on_message(self, peer: str, message: NodeMessage) -> None:
        self.machines.receive(self._store_of(peer), message)

    def _store_of(self, peer: str) -> int:
        return next((store for store, name in self._names.items() if name == peer), 0)

    # Turns

    def turn(self) -> None:
        """Carries out what the machines want done."""
        if self._is_turning:
            return
        self._is_turning = True
        effects = self.machines.effects
        try:
            while effects.sent or effects.writes:
                self._write()
                self._send()
            self._tell()
        finally:
            self._is_turning = False

    def _write(self) -> None:
        effects = self.machines.effects
        if not effects.writes:
            return
        number, writes, _ = effects.begin_commit()
        for key, value in writes.items():
            if value is None:
                self._store.delete(key)
            else:
                self._store.put(key, value)
        self._commits.append((number, self._store.number))

    def _send(self) -> None:
        effects = self.machines.effects
        sent, effects.sent = effects.sent, []
        by_peer: dict[str, list[NodeMessage]] = {}
        for store, message in sent:
            by_peer.setdefault(self._names.get(store, ""), []).append(message)
        for peer, messages in by_peer.items():
            self.links.send(peer, messages)

    def _tell(self) -> None:
        effects, port = self.machines.effects, self.port
        present, effects.present = effects.present, []
        for connection, is_present in present:
            port.present(connection, is_present)
        steps, effects.steps = effects.steps, []
        for connection, step in steps:
            port.step(connection, step)
        acknowledged, effects.acknowledged = effects.acknowledged, []
        for connection, packet, qos in acknowledged:
            port.acknowledge(connection, packet, qos)
        closed, effects.closed = effects.closed, []
        for connection in closed:
            port.close(connection)

    def _after_commit(self) -> None:
        done = 0
        while self._commits and self._commits[0][1] <= self._committer.stored:
            done = self._commits.pop(0)[0]
        if done:
            self.machines.on_stored(done)
            self.turn()
