"""Traffic through the nodes of `tests.vmq.clustering.replica_sim`, and what must be true of it."""

from tests.vmq.clustering.replica_sim import Node, World
from vmq.store.entries import FLAG_REF
from vmq.store.lines import is_end, scan_line

NAMES = ["a", "b", "c", "d"]


class Run:
    """Clients that publish to durable sessions of node `a` and are acknowledged, and others that take what waits."""

    def __init__(self, seed: int, count: int, names: list[str] = NAMES) -> None:
        self.world = World(seed, names, count)
        self.random = self.world.random
        self.clients = [f"client-{number}" for number in range(5)]
        self.next = 0
        #: Messages that were acknowledged to their publishers, by session; those that the sessions' clients took.
        self.acknowledged: dict[str, set[int]] = {client: set() for client in self.clients}
        self.taken: dict[str, list[int]] = {client: [] for client in self.clients}
        self.world.settle(self.all_active)
        for client in self.clients:
            self.world.nodes["a"].begin(client)

    def all_active(self) -> bool:
        return all(
            peer.is_active for node in self.world.nodes.values() for peer in node.replicas.peers()
        )

    def publish(self) -> None:
        owner = self.world.nodes["a"]
        clients = self.random.sample(self.clients, self.random.choice([1, 1, 1, 3]))
        self.next += 1
        name = self.next
        owner.publish(clients, name, self.random.choice([10, 10, 3000]))

        def acknowledge() -> None:
            for client in clients:
                self.acknowledged[client].add(name)

        owner.then(acknowledge)

    def take(self) -> None:
        owner = self.world.nodes["a"]
        client = self.random.choice(self.clients)
        order = owner.deliver(client)
        if order is None or self.random.random() < 0.3:
            return  # it stays in flight
        session = owner.sessions[client]
        raw = owner.store.get(b"i" + session.number + order.to_bytes(8, "big"))
        assert raw is not None
        delivery = owner.store.read_entry(raw)
        assert delivery is not None
        self.taken[client].append(int(delivery.message.payload))
        owner.acknowledge(client, order)

    def traffic(self, steps: int) -> None:
        for _ in range(steps):
            for _ in range(self.random.randrange(4)):
                self.publish()
            for _ in range(self.random.randrange(3)):
                self.take()
            self.world.step()

    def missing(self, client: str, node: str, more: list[int] | None = None) -> set[int]:
        """What was acknowledged and is nowhere."""
        there = set(self.world.nodes[node].names(client)) | set(more or ())
        return self.acknowledged[client] - set(self.taken[client]) - there


def texts(node: Node, session: bytes) -> dict[bytes, bytes]:
    """Entries by place, with the messages that they name."""
    found = {}
    for kind in (b"q", b"i"):
        for key, raw in scan_line(node.db, kind + session):
            delivery = node.store.read_entry(raw)
            assert delivery is not None
            found[kind + key[9:]] = delivery.message.payload
    return found


def check_counts(node: Node) -> None:
    named: dict[bytes, int] = {}
    for key, raw in node.db.records.items():
        if key[:1] in (b"q", b"i") and not is_end(key) and raw[0] & FLAG_REF:
            named[raw[3:11]] = named.get(raw[3:11], 0) + 1
    messages = {key[1:] for key in node.db.records if key[:1] == b"m"}
    assert messages == named.keys()
    for ref, count in named.items():
        raw = node.db.records.get(b"c" + ref, b"\0\0\0\1")
        assert int.from_bytes(raw, "big") == count


def purge(node: Node) -> None:
    for number in node.purging:
        while node.store.purge_step(number, 10):
            node.commit()
    node.purging.clear()
    while node.store.dirty or node.committing:
        node.commit()
