"""Nodes of `vmq_cluster` alone, by hundreds: machines under the virtual clock, on the simulated network."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulator.clock import EPOCH, LOOK, Clock
from tests.simulator.network import Network
from vmq_cluster.effects import Contact, Effect, Transmit
from vmq_cluster.machine import Machine
from vmq_cluster.messages import AnyMessage, Frame, decode, encode
from vmq_cluster.metadata.versions import Versions
from vmq_cluster.options import Options
from vmq_cluster.storage import MemoryStorage

#: How often a node is ticked. The options below are quick enough for a test to be short, and no quicker than ticks.
TICK = LOOK
OPTIONS = Options(
    heartbeat_interval=1.0,
    heartbeat_timeout=4.0,
    leave_timeout=20.0,
    lazy_interval=0.25,
    graft_timeout=0.5,
    sync_interval=4.0,
    sync_timeout=1.0,
    sync_entries=10,
    resend_timeout=1.0,
)


@dataclass
class Node:
    """One node, whether it runs or not."""

    name: str
    storage: MemoryStorage
    skew: int
    boot: int = 1
    versions: Versions = Versions()  # noqa: RUF009 - it is immutable
    machine: Machine | None = None
    #: Where it is, if not at its name.
    address: str = ""
    #: While the node is held up: what came meanwhile, by sender.
    unread: list[tuple[str, Frame]] | None = None
    #: Whether a tick is due that it could not do.
    is_late: bool = False
    #: Every effect but frames, since the node was added.
    effects: list[Effect] = field(default_factory=list)

    def of(self, kind: type) -> list[Any]:
        """The effects of one kind."""
        return [effect for effect in self.effects if isinstance(effect, kind)]


class Sim(Clock):
    """Nodes, their clock, and the network between them."""

    def __init__(
        self, seed: int, options: Options = OPTIONS, network: Network | None = None
    ) -> None:
        super().__init__()
        self.random = Random(seed)
        self.options = options
        self.network = Network() if network is None else network
        self.nodes: dict[str, Node] = {}
        self.has_moved = False
        #: Encodes and decodes every frame, as the link does. Some seeds do, for it takes time.
        self.wire = seed % 10 == 0
        #: Messages that were sent, by kind.
        self.sent: dict[type, int] = {}
        self.trace: Callable[[str, str, AnyMessage], None] | None = None

    # --- nodes

    def add(
        self, name: str, join: str = "", skew: int = 0, versions: Versions | None = None
    ) -> Machine:
        """Starts a new node; `skew` is by how many milliseconds its clock is wrong."""
        node = Node(name, MemoryStorage(crashes=True), skew)
        node.versions = node.versions if versions is None else versions
        self.nodes[name] = node
        machine = self._boot(node)
        if join:
            self.ask(name, lambda: machine.join(join))
        return machine

    def cluster(self, count: int, skew: int = 0) -> list[str]:
        """Starts so many nodes as one cluster and waits until all know and reach all."""
        names = [f"n{number:03}" for number in range(count)]
        for name in names:
            wrong = self.random.randint(-skew, skew)
            self.add(name, names[0] if name != names[0] else "", wrong)
        self.until(lambda: self.is_joined(names), 60)
        return names

    def ready(self, count: int) -> list[str]:
        """Like `cluster`, without the way there: for many nodes."""
        names = [f"n{number:03}" for number in range(count)]
        records = [self.add(name).membership.own for name in names]
        for name in names:
            machine = self[name]
            machine.membership.merge(records, name, EPOCH)
            machine.flush(self.now)
            for other in names:
                machine.detector.heard(other, self.now)
            self.ask(name, lambda: None)
        return names

    def is_joined(self, names: list[str]) -> bool:
        """Whether these nodes are a cluster, and each reaches all others."""
        wanted = set(names)
        return all(
            {*self[name].membership.others, name} == wanted
            and {*self[name].detector.up, name} == wanted
            for name in names
        )

    def __getitem__(self, name: str) -> Machine:
        """A node that runs."""
        machine = self.nodes[name].machine
        assert machine is not None, f"{name} does not run"
        return machine

    def __iter__(self) -> Iterator[Machine]:
        """The nodes that run."""
        return (node.machine for node in self.nodes.values() if node.machine is not None)

    def ask(self, name: str, what: Callable[[], Any]) -> Any:
        """Lets an application ask something of a node."""
        answer = what()
        self._carry_out(self.nodes[name], self[name].flush(self.now))
        return answer

    def crash(self, name: str, power: bool = False) -> None:
        """A node dies in mid-step; with its machine, if `power` fails, and then what was not synced may be lost."""
        node = self.nodes[name]
        node.machine = None
        if power:
            node.boot += 1
            node.storage.lose(self.random.randint(0, node.storage.unsynced))

    def stop(self, name: str) -> None:
        node = self.nodes[name]
        self._carry_out(node, self[name].stop(self.now))
        node.machine = None

    def pause(self, name: str) -> None:
        """A node is held up: it does nothing, and what comes lies in its sockets."""
        self.nodes[name].unread = []

    def resume(self, name: str) -> None:
        """It goes on: what is due comes first, as on a loop, and then it reads."""
        node = self.nodes[name]
        assert node.unread is not None
        unread, node.unread = node.unread, None
        if node.is_late and node.machine is not None:
            node.is_late = False
            self._tick(node, node.machine)
        for sender, frame in unread:
            delay = self.random.uniform(0, self.network.longest)
            self.later(delay, self._arrive, sender, name, frame)

    def restart(self, name: str, wipe: bool = False, address: str = "") -> Machine:
        """A node that does not run starts again, on its disk or on an empty one, where it was or elsewhere."""
        node = self.nodes[name]
        node.address = address or node.address
        self.has_moved |= bool(address)
        if wipe:
            node.storage = MemoryStorage(crashes=True)
        return self._boot(node)

    def _boot(self, node: Node) -> Machine:
        assert node.machine is None

        def wall() -> int:
            return EPOCH + node.skew + int(self.now * 1000)

        boot = node.boot.to_bytes(4, "big")
        random = Random(self.random.getrandbits(64))
        node.machine = machine = Machine(
            node.name,
            node.address or node.name,
            node.storage,
            self.options,
            random,
            wall,
            boot,
            node.versions,
        )
        self._carry_out(node, machine.start(self.now))
        self.later(self.random.uniform(0, TICK), self._tick, node, machine)
        return machine

    def _tick(self, node: Node, machine: Machine) -> None:
        if node.machine is machine and node.unread is not None:
            node.is_late = True
        elif node.machine is machine:
            self._carry_out(node, machine.tick(self.now))
            self.later(TICK, self._tick, node, machine)

    # --- the network

    def _carry_out(self, node: Node, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Transmit):
                self._send(node.name, self._place(node, effect.peer), effect.frame)
            elif isinstance(effect, Contact):
                self._send(node.name, self._at(effect.address), effect.frame)
            else:
                node.effects.append(effect)

    def _place(self, node: Node, peer: str) -> str:
        """Who is where a node has its links with a peer."""
        record = node.machine and self.has_moved and node.machine.membership.record(peer)
        return self._at(record.address) if record else peer

    def _at(self, address: str) -> str:
        """Who is there; an address without anybody is nobody's name."""
        found = (each for each in self.nodes.values() if (each.address or each.name) == address)
        return next((each.name for each in found), "")

    def _send(self, sender: str, receiver: str, frame: Frame) -> None:
        for message in frame.messages:
            self.sent[type(message)] = self.sent.get(type(message), 0) + 1
            if self.trace is not None:
                self.trace(sender, receiver, message)
        for delay in self.network.delays(self.random, self.now, sender, receiver):
            self.later(delay, self._arrive, sender, receiver, frame)

    def _arrive(self, sender: str, receiver: str, frame: Frame) -> None:
        node = self.nodes.get(receiver)
        if node is None or node.machine is None or (sender, receiver) in self.network.cuts:
            return
        if node.unread is not None:
            node.unread.append((sender, frame))
            return
        if self.wire:
            frame = decode(encode(frame))
        self._carry_out(node, node.machine.receive(frame, self.now))

    def split(self, *sides: list[str]) -> None:
        """Nothing passes between these sides any more."""
        self.network.split(*sides)

    def heal(self) -> None:
        self.network.heal()


def _drawn(sim: Sim, count: int | tuple[int, int]) -> int:
    return count if isinstance(count, int) else sim.random.randint(*count)


def joined(sim: Sim, count: int | tuple[int, int], skew: int = 0) -> tuple[Sim, list[str]]:
    """It with so many nodes as one cluster, or as many as it draws between two numbers; and their names."""
    return sim, sim.cluster(_drawn(sim, count), skew)


def ready(sim: Sim, count: int | tuple[int, int]) -> tuple[Sim, list[str]]:
    """The same without the way there."""
    return sim, sim.ready(_drawn(sim, count))
