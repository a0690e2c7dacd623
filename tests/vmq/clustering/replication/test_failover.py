"""Who goes on with the sessions of a node that stays away, and which copies are of no use any more."""

from tests.simulator.disk import Database
from tests.vmq.clustering.replica_sim import Node, World
from vmq.clustering.replication.failover import Failover, StaleCopySweep
from vmq.clustering.replication.follower import Follower, SessionCopy
from vmq.clustering.replication.headers import CopyHeader
from vmq.store.store import Store


class Adopting:
    """The nodes of a world, each of which looks for sessions to adopt; what is adopted changes hands at once."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.owner: dict[str, str] = {}
        self.adopted: list[tuple[str, str]] = []
        self.adoptions = {name: self.make(node) for name, node in world.nodes.items()}

    def make(self, node: Node) -> Failover:
        def adopt(copy: SessionCopy) -> None:
            node.copies.take(copy)
            self.adopted.append((copy.head.scoped_id, node.name))
            self.owner[copy.head.scoped_id] = node.name

        return Failover(
            node.name,
            node.copies,
            node.searcher,
            10.0,
            lambda: [each for each in self.world.nodes if each != node.name],
            self.owner.get,
            adopt,
        )

    def run(self, away: set[str], seconds: float) -> None:
        for _ in range(int(seconds / 0.05)):
            self.world.step()
            for name in self.world.nodes:
                self.adoptions[name].set_away(away, self.world.now)
                self.adoptions[name].tick(self.world.now)


def with_sessions(count: int, copies: int) -> tuple[World, Adopting]:
    world = World(1, ["a", "b", "c", "d"], copies)
    world.settle(lambda: all(peer.is_active for peer in world.nodes["a"].replicas.peers()))
    clients = [f"client-{number}" for number in range(count)]
    for client in clients:
        world.nodes["a"].begin(client)
        world.nodes["a"].publish([client], 1, 10)
    world.settle(world.is_quiet)
    adopting = Adopting(world)
    adopting.owner.update(dict.fromkeys(clients, "a"))
    return world, adopting


def test_each_session_is_adopted_once_by_one_who_has_a_copy() -> None:
    world, adopting = with_sessions(500, 3)
    kept = {
        copy.head.scoped_id + name for name, node in world.nodes.items() for copy in node.copies
    }
    world.kill("a")
    adopting.run({"a"}, 9)
    assert adopting.adopted == []
    adopting.run({"a"}, 8)
    assert len(adopting.adopted) == len(dict(adopting.adopted)) == 500
    assert {client + name for client, name in adopting.adopted} <= kept
    shares = [sum(name == each for _, name in adopting.adopted) for each in "bcd"]
    assert min(shares) > 100


def test_the_one_with_the_newest_copy_adopts() -> None:
    world, adopting = with_sessions(5, 3)
    world.split("a", "b")
    for client in list(adopting.owner):
        world.nodes["a"].publish([client], 2, 10)
    world.settle(lambda: not world.nodes["a"].waiting and not world.nodes["a"].store.dirty)
    for _ in range(20):
        world.step()
    world.kill("a")
    adopting.run({"a"}, 17)
    assert len(adopting.adopted) == 5
    assert "b" not in {name for _, name in adopting.adopted}


def test_nobody_adopts_what_its_owner_comes_back_to_or_others_own() -> None:
    _, adopting = with_sessions(5, 2)
    adopting.run({"a"}, 9)
    adopting.run(set(), 1)
    adopting.run({"a"}, 9)
    assert adopting.adopted == []
    adopting.owner.update(dict.fromkeys(adopting.owner, "d"))
    adopting.run({"a"}, 9)
    assert adopting.adopted == []


def test_an_answer_that_is_lost_does_not_lose_a_session() -> None:
    world, adopting = with_sessions(5, 2)
    world.kill("a")
    world.loss = 0.7
    adopting.run({"a"}, 60)
    assert len(dict(adopting.adopted)) == 5


def test_copies_that_somebody_else_owns_go_after_a_while() -> None:
    store = Store(Database(), "os", lambda: None)
    purged: list[bytes] = []
    copies = Follower(store, lambda *_: True, purged.append)
    owner = {"mine": "a", "gone": "b"}
    for client in ("mine", "gone", "ended"):
        copies.create(CopyHeader("a", bytes(8), client, 1, 0, complete=True, frozen_at=1))
    sweep = StaleCopySweep(copies, owner.get)
    for now in range(600):
        sweep.step(float(now))
    assert len(copies) == 3
    owner["ended"] = "a"  # a record that came late
    for now in range(600, 800):
        sweep.step(float(now))
    assert sorted(copy.head.scoped_id for copy in copies) == ["ended", "mine"]
    assert len(purged) == 1
