"""An owner that goes on while others take it for dead: when it is back, nothing is lost, and nothing comes again."""

import pytest

from tests.support.stored import records_of
from tests.vmq.clustering.replica_run import NAMES, Run
from tests.vmq.clustering.replica_sim import Node


class Split(Run):
    """Node `a` is cut off and goes on, with clients at QoS 2; `b` has made sessions of its own of their copies.

    Some clients come to `b`, and some of what they take there is what they had of `a`.
    """

    def __init__(self, seed: int) -> None:
        super().__init__(seed, 2, NAMES[:3])
        #: What clients have got at `b`, also what they have not acknowledged.
        self.sent: dict[str, set[int]] = {client: set() for client in self.clients}
        #: In flight at `a`: places.
        self.open: list[tuple[str, int]] = []
        self.traffic(20)
        self.world.settle(self.world.is_quiet)

    def take(self) -> None:
        """A client takes what waits, or goes on with what it has begun."""
        owner = self.world.nodes["a"]
        client = self.random.choice(self.clients)
        if self.open and self.random.random() < 0.6:
            client, order = self.open.pop(self.random.randrange(len(self.open)))
            found = owner.in_flight(client, order)
            if found is None:
                return
            if found.released:
                owner.acknowledge(client, order)
                return
            self.taken[client].append(int(found.message.payload))
            if self.random.random() < 0.5:
                owner.acknowledge(client, order)
            else:
                released = owner.release(client, order)
                assert released is not None
                self.open.append((client, released))
            return
        sent = owner.deliver(client)
        if sent is not None:
            self.open.append((client, sent))

    def cut_off(self) -> None:
        for other in "bc":
            self.world.split("a", other)

    def adopt(self) -> None:
        for client in self.clients:
            assert self.world.take_over(client, "a", "b")

    def go_on_there(self, client: str) -> None:
        """A client comes to `b`, is sent some of what is there, and acknowledges some of that."""
        node = self.world.nodes["b"]
        session = node.sessions[client]
        session.has_come = True
        self.sent[client] |= set(node.names(client, (1 << 60, 0)))
        for _ in range(self.random.randrange(12)):
            order = node.deliver(client)
            if order is None:
                break
            found = node.in_flight(client, order)
            assert found is not None
            self.sent[client].add(int(found.message.payload))
            if self.random.random() < 0.7:
                node.acknowledge(client, order)

    def publish_there(self) -> None:
        """Messages of nodes on the other side: acknowledged when they are stored there."""
        for client in self.random.sample(self.clients, 2):
            self.next += 1
            self.world.nodes["b"].publish([client], self.next, 10)
            self.acknowledged[client].add(self.next)

    def heal(self) -> None:
        self.world.heal()
        for _ in range(self.random.randrange(60)):
            self.world.step()

    def tell(self) -> None:
        for client in self.clients:
            self.world.tell(client, "a", "b")

    def lost(self, client: str, wanted: set[int]) -> set[int]:
        there = set(self.world.nodes["b"].names(client))
        there |= set(self.world.only_there(client, "a", "b"))
        return wanted - there - set(self.taken[client]) - self.sent[client]

    def twice(self, client: str) -> set[int]:
        """What the client has from `a`, or is to get from there, and is to get from `b`, which has not sent it yet."""
        more = self.world.only_there(client, "a", "b")
        there = set(self.world.nodes["b"].names(client)) - self.sent[client]
        return there & {*self.taken[client], *more}


def restart(run: Split, name: str) -> Node:
    world = run.world
    node = world.nodes[name]
    world.settle(lambda: not node.store.dirty and not node.committing)
    has_come = {client for client, each in node.sessions.items() if each.has_come}
    world.kill(name)
    node = world.start(name)
    for client in has_come:
        node.sessions[client].has_come = True
    return node


@pytest.mark.parametrize("seed", range(150))
def test_what_its_owner_has_done_does_not_come_again_and_all_else_comes(seed: int) -> None:
    run = Split(seed)
    chance = run.random
    run.cut_off()
    run.traffic(chance.randrange(30))
    run.adopt()
    run.traffic(chance.randrange(30))
    for client in run.clients:
        if chance.random() < 0.4:
            run.go_on_there(client)
    if chance.random() < 0.5:
        restart(run, "b")
    for _ in range(chance.randrange(4)):
        run.publish_there()
    run.traffic(chance.randrange(20))
    run.heal()
    run.tell()
    for client in run.clients:
        assert run.lost(client, run.acknowledged[client]) == set()
        assert run.twice(client) == set()


@pytest.mark.parametrize("seed", range(60))
def test_an_owner_that_starts_again_meanwhile_costs_nothing(seed: int) -> None:
    """It knows what it has done before, but where it has taken places again: that may come again."""
    run = Split(seed)
    world, chance = run.world, run.random
    is_idle = seed % 3 == 0
    if seed % 2:  # its copies are made anew, and get nothing more
        restart(run, "a")
        world.settle(world.is_quiet)
    run.cut_off()
    run.open.clear()
    run.traffic(chance.randrange(30))
    if chance.random() < 0.7:
        run.adopt()
    for _ in range(chance.randrange(1, 3)):
        restart(run, "a")
        run.open.clear()
        if not is_idle:
            run.traffic(chance.randrange(20))
    if not world.nodes["b"].sessions:
        run.adopt()
    for _ in range(chance.randrange(3)):
        run.publish_there()
    run.heal()
    run.tell()
    for client in run.clients:
        assert run.lost(client, run.acknowledged[client]) == set()
        assert not is_idle or run.twice(client) == set()


@pytest.mark.parametrize("seed", range(60))
def test_an_owner_that_has_lost_the_end_of_its_disk_takes_nothing_for_done(seed: int) -> None:
    """As after a loss of power with `store.durability = "os"`: its copies know more than it does."""
    run = Split(seed)
    world, chance = run.world, run.random
    survived = dict(world.dbs["a"].records)
    run.traffic(chance.randrange(1, 30))
    safe = {client: set(names) for client, names in run.acknowledged.items()}
    world.kill("a")
    run.adopt()
    world.dbs["a"].records = survived
    world.cut |= {frozenset(("a", other)) for other in "bc"}
    world.start("a")
    run.open.clear()
    for _ in range(chance.randrange(10)):
        world.step()
    run.heal()
    run.tell()
    for client in run.clients:
        assert run.lost(client, safe[client]) == set()


@pytest.mark.parametrize("seed", range(60))
def test_who_has_lost_a_session_to_the_owner_before_gives_back_only_what_came_since(
    seed: int,
) -> None:
    """Its client has come back to that one, which has all that was in the copy, if its disk is whole."""
    run = Split(seed)
    world, chance = run.world, run.random
    survived = dict(world.dbs["a"].records)
    if seed % 3 == 0:
        run.traffic(chance.randrange(1, 30))
    run.cut_off()
    wanted = {client: set(names) for client, names in run.acknowledged.items()}
    run.adopt()
    if seed % 3 == 0:  # the end of what it had written is lost
        restart(run, "a")
        world.kill("a")
        world.dbs["a"].records = survived
        world.start("a")
    else:
        run.traffic(chance.randrange(30))
        wanted = run.acknowledged
    if seed % 2:
        restart(run, "b")
    for _ in range(chance.randrange(4)):
        run.publish_there()
    run.heal()
    for client in run.clients:
        back = world.given_back(client, "a", "b")
        there = set(world.nodes["a"].names(client))
        assert wanted[client] <= {*back, *there, *run.taken[client]}
        assert seed % 3 == 0 or not {*there, *run.taken[client]}.intersection(back)


@pytest.mark.parametrize("seed", range(40))
def test_what_was_said_once_is_not_said_again_of_what_is_left(seed: int) -> None:
    """The owner takes out of its own what the other has, and starts again: what it lacks then is not done."""
    run = Split(seed)
    world, chance = run.world, run.random
    run.cut_off()
    run.traffic(chance.randrange(30))
    run.adopt()
    run.traffic(chance.randrange(10))
    other = world.nodes["b"]
    world.settle(lambda: not other.store.dirty and not other.committing)
    disk = dict(other.db.records)
    run.heal()
    run.tell()
    left = {client: world.only_there(client, "a", "b") for client in run.clients}
    owner = world.nodes["a"]
    for client in run.clients:
        strip_all(owner, client)
    # What it was told is lost with the end of the other's disk.
    world.settle(lambda: not owner.store.dirty and not owner.committing)
    world.kill("b")
    world.dbs["b"].records = disk
    world.start("b")
    restart(run, "a")
    for client in run.clients:
        world.tell(client, "a", "b")
        there = {*world.nodes["b"].names(client), *left[client]}
        assert run.acknowledged[client] - there - set(run.taken[client]) == set()


def strip_all(node: Node, client: str) -> None:
    """All that the session has is gone: handed over, or the other's already."""
    session = node.sessions[client].number
    node.replicas.note_stripped(session)
    for kind in (b"q", b"i"):
        for key, raw in records_of(node.db, kind + session):
            node.store.purge_record(key, raw)
