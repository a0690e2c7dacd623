"""A cluster in one thread: whole brokers, their clients, and the faults that befall them, all by one seed.

Gossip, routing, outboxes, durable sessions in slots and clients that go from node to node run together, as they do in
production; simulated are the clock, the network, the disks and the sockets of clients.
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, Self

from tests.simulator.clock import Clock
from tests.simulator.device import Device
from tests.simulator.loop import Loop
from tests.simulator.network import Network
from tests.simulator.node import Broker, Node, SimLink, address_of
from tests.simulator.oracle import Oracle
from tests.support.wire import Will
from vmq.clustering.slots.words import slot_of
from vmq.config.options import BrokerOptions, ClusterOptions, Config, StoreOptions

#: Seconds that anything may take unless a test says otherwise.
PATIENCE = 120.0

SLOTS = 8

#: The longest delays of ways between nodes, in seconds.
SPEEDS = (0.005, 0.05, 0.4)

#: Quick enough for a test to be short; what waits for time waits longer than what works.
CLUSTER: dict[str, Any] = {
    "heartbeat_interval": 0.5,
    "heartbeat_timeout": 2.0,
    "sync_timeout": 3.0,
    "slots": SLOTS,
}


class World:
    """Some nodes by name, and what is between them."""

    def __init__(
        self, seed: int, *names: str, network: Network | None = None, **options: Any
    ) -> None:
        """Options are those of the section [cluster], and `durability`; the names are those of the first nodes."""
        self.random = Random(seed)
        self.clock = Clock()
        self.clock.cost = 1e-6
        self.loop = Loop(self.clock, self.random)
        self.network = Network(ordered=True) if network is None else network
        self.oracle = Oracle(self.clock)
        self.options = options
        self.nodes: dict[str, Node] = {}
        self.devices: dict[str, Device] = {}
        self.links: dict[str, SimLink] = {}
        #: Lives that are over; kept, for what ends with them must not end in between.
        self.ended: list[Broker] = []
        #: Every frame that is sent: sender, receiver, bytes.
        self.trace: Callable[[str, str, bytes], None] | None = None
        self._names = names
        self.folder = tempfile.TemporaryDirectory(prefix="vmq-sim-")

    def __enter__(self) -> Self:
        asyncio._set_running_loop(self.loop.itself)
        for name in self._names:
            self.add(name)
        self.until(self.is_whole)
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()
        asyncio._set_running_loop(None)
        self.folder.cleanup()

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    # --- time

    @property
    def now(self) -> float:
        return self.clock.now

    def run(self, seconds: float) -> None:
        self.clock.run(seconds)
        if self.loop.errors:
            raise self.loop.errors[0]

    def until(self, condition: Callable[[], object], limit: float = PATIENCE) -> None:
        """Lets time pass until something is so."""
        end = self.now + limit
        while not condition():
            assert self.now < end, f"not so after {limit} s"
            self.run(0.05)

    # --- nodes

    def add(self, name: str, skew: float = 0.0, **options: Any) -> Node:
        """A new node, which asks the others to be taken in; it is not up yet."""
        chosen = {**CLUSTER, **self.options, **options}
        durability = chosen.pop("durability", "os")
        config = Config(
            broker=BrokerOptions(data_dir="/nowhere"),
            store=StoreOptions(durability=durability),
            cluster=ClusterOptions(node_name=name, listen=address_of(name), **chosen),
        )
        self.nodes[name] = node = Node(self, name, config, skew)
        node.start()
        return node

    def running(self) -> list[Node]:
        return [each for each in self.nodes.values() if each.broker is not None]

    def alive(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.is_open]

    def kill(self, *names: str) -> None:
        for name in names:
            self.nodes[name].kill()

    def lose(self, *names: str) -> None:
        """They are killed, and their disks are lost."""
        for name in names:
            self.nodes[name].kill()
            self.nodes[name].wipe()

    def start(self, *names: str) -> None:
        """Those that do not run start again; returns when they let clients in."""
        for name in names:
            if self.nodes[name].broker is None:
                self.nodes[name].start()
        self.until(lambda: all(self.nodes[name].is_open for name in names))

    def stop(self, name: str) -> None:
        """It ends in order."""
        broker = self.nodes[name].running
        broker.life.spawn(broker.stop())
        self.until(lambda: self.nodes[name].broker is None)

    def leave(self, name: str) -> bool:
        """It leaves the cluster; returns whether the others have all that it had."""
        node = self.nodes[name]
        node.running.life.spawn(node.running.leave())
        self.until(lambda: node.broker is None)
        return node.has_left

    def remove(self, name: str) -> None:
        """Somebody takes a dead node out."""
        by = next(each for each in self.running() if each.name != name)
        by.running.life.do(by.node.remove, name, True)

    def pause(self, name: str) -> None:
        self.nodes[name].running.life.pause()

    def resume(self, name: str) -> None:
        self.nodes[name].running.life.resume()

    def on_death(self, name: str) -> None:
        """Its clients notice."""
        for device in self.devices.values():
            if device.node == name:
                device.drop()

    # --- the network

    def choose_lags(self) -> None:
        """Each way between nodes is a quick or a slow one."""
        for one in self.nodes:
            for other in self.nodes:
                self.network.lags[one, other] = self.random.choice(SPEEDS)

    def carry(self, sender: str, address: str, raw: bytes) -> None:
        receiver = address.removeprefix("ipc://")
        if self.trace is not None:
            self.trace(sender, receiver, raw)
        for delay in self.network.delays(self.random, self.now, sender, receiver):
            self.clock.later(delay, self._arrive, sender, receiver, raw)

    def _arrive(self, sender: str, receiver: str, raw: bytes) -> None:
        link = self.links.get(address_of(receiver))
        if link is not None and (sender, receiver) not in self.network.cuts:
            link.arrive(raw)

    def split(self, *sides: str) -> None:
        """Cuts the nodes of each side, by their one-letter names, off from the others; returns when they miss them."""
        self.network.split(*sides)
        self.until(self.has_noticed)

    def heal(self) -> None:
        """All reach each other again; returns when they know."""
        self.network.heal()
        self.until(self.has_noticed)

    def has_noticed(self) -> bool:
        """Whether each node takes for up whom it can hear, as far as they are members."""
        running = {each.name for each in self.running()}
        cuts = self.network.cuts
        for name in running:
            node = self.nodes[name].node
            heard = {
                each
                for each in running.intersection(node.members) - {name}
                if (each, name) not in cuts and (name, each) not in cuts
            }
            if set(node.up) != heard:
                return False
        return True

    # --- clients

    def device(self, client_id: str, clean: bool = False, will: Will | None = None) -> Device:
        """A client by its id, made when first asked for."""
        found = self.devices.get(client_id)
        if found is None:
            found = self.devices[client_id] = Device(self, client_id, clean, will)
        return found

    def client(self, client_id: str, at: str, clean: bool = False) -> Device:
        """The same, connected to a node."""
        return self.device(client_id, clean).connect(at)

    def subscriber(self, client_id: str, at: str, topic: str = "t", qos: int = 2) -> Device:
        """A durable session that all nodes that can be reached know; from now on it is to have everything."""
        device = self.client(client_id, at).subscribe((topic, qos))
        self.until(lambda: self.is_routed(client_id, topic, at))
        self.oracle.wants(client_id, topic)
        return device

    def publish(self, at: str, *texts: str, topic: str = "t", qos: int = 2, by: str = "") -> None:
        """A client publishes at a node, and has all acknowledged."""
        publisher = self.device(by or f"publisher-{at}")
        if publisher.node != at:
            publisher.connect(at)
        for text in texts:
            publisher.publish(topic, text, qos)
        publisher.finish()

    def is_known(self, client_id: str, at: str) -> bool:
        """Whether all nodes that a node reaches route to a session there."""
        names = {at, *self.nodes[at].node.up}
        heard = [each for each in self.running() if each.name in names]
        records = [each.clustering.directory.record("", client_id) for each in heard]
        return all(each is not None and each.node == at and each.subscriptions for each in records)

    def is_routed(self, client_id: str, topic: str, at: str) -> bool:
        """Whether all nodes that a node reaches have messages of a topic kept for a durable session."""
        names = {at, *self.nodes[at].node.up}
        slot = slot_of(client_id, SLOTS)
        heard = [each for each in self.running() if each.name in names and each.is_open]
        targets = (each.slots.fronts.targets("", topic)[0] for each in heard)
        return all(slot in dict(each) for each in targets)

    def owners(self, client_id: str) -> list[str]:
        """The nodes that serve a client's durable session."""
        slot = slot_of(client_id, SLOTS)
        return [each.name for each in self.running() if each.is_open and each.serves(slot)]

    def owner(self, client_id: str) -> str:
        """Where the nodes that run think that it is; nothing while they do not agree."""
        names = {each.slots.owner_of(client_id) for each in self.running() if each.is_open}
        return names.pop() if len(names) == 1 else ""

    # --- rest

    def is_served(self) -> bool:
        """Whether all nodes that run are one cluster, and each slot is served and has the copies that it can have."""
        names = {each.name for each in self.running()}
        served = 0
        for node in self.running():
            if not node.is_open or {*node.node.up, node.name} != names:
                return False
            slots = node.slots
            most = min(slots.here.replicas, len(names)) - 1
            for owner in slots.machines.slots.owners.values():
                followers = owner.view.followers
                has_all = len(followers) >= most and owner.followers.are_whole(followers)
                served += owner.serves(slots.store) and has_all
        return served == SLOTS

    def is_whole(self) -> bool:
        """The same, each slot at the node that is to have it, as all members are there."""
        return self.is_served() and all(
            node.slots.machines.slots.places.wanted(slot)[:1] == (node.slots.store,)
            for node in self.running()
            for slot in node.slots.machines.slots.owners
        )

    def is_quiet(self) -> bool:
        """The same, all know the same, and nothing is under way between them."""
        if not self.is_whole():
            return False
        clocks = [each.node.machine.metadata.clock for each in self.running()]
        if any(each != clocks[0] for each in clocks):
            return False
        return not any(self._busy(each) for each in self.running())

    def _busy(self, node: Node) -> bool:
        machines = node.slots.machines
        return bool(
            any(node.clustering.outboxes.waiting())
            or machines.origin.waiting()
            or machines.effects.writes
            or node.running.store.has_work()
        )

    def settle(self) -> None:
        """Everything is well again: whoever is a member runs; returns when nothing is under way."""
        self.network.heal()
        for node in self.nodes.values():
            node.disk.failures = 0.0
            if node.broker is not None and node.running.life.held is not None:
                node.running.life.resume()
            if node.broker is None and not node.has_left:
                node.start()
        self.until(self.is_quiet, 300.0)

    def finish(self) -> None:
        """The same, and every client that wants something comes somewhere, answers, and gets all that is there."""
        self.settle()
        for device in self.devices.values():
            device.answer()
            if not device.is_connected:
                device.connect(self.random.choice(sorted(self.alive())))
        self.until(self._all_came, 300.0)

    def _all_came(self) -> bool:
        for device in self.devices.values():
            if device.wire is None:  # an attempt of before has come behind its last one
                device.begin(self.random.choice(sorted(self.alive())))
        return (
            self.is_quiet()
            and not any(each.unfinished for each in self.devices.values())
            and not any(each.pending for each in self._together())
            and all(map(self._has_all, self.devices.values()))
        )

    def _together(self) -> Iterator[Device]:
        return (each for name, each in self.devices.items() if name not in self.oracle.apart)

    def _has_all(self, device: Device) -> bool:
        if not device.is_connected:
            return False
        found = [
            self.nodes[name].slots.status.contents(device.client_id)
            for name in self.owners(device.client_id)
        ]
        return not any(found)
