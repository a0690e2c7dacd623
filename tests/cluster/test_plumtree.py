"""Broadcasts reach all; the tree forms, costs one push a node, and mends itself."""

from dataclasses import replace

import pytest

from tests.simulator.machines import OPTIONS, TICK, Sim, ready
from tests.simulator.network import Network
from tests.simulator.seeds import over_seeds
from vmq_cluster.effects import Changed, Misbehaved, Outbox
from vmq_cluster.errors import MalformedError
from vmq_cluster.messages import Frame, Gossip, Graft, IHave, MessageId, Prune
from vmq_cluster.options import Options
from vmq_cluster.plumtree import MAX_RECENT, Plumtree

#: The tests of hundreds of nodes do without failure detection, whose messages are the square of their number.
QUIET = replace(OPTIONS, heartbeat_interval=1000.0, heartbeat_timeout=9000.0, sync_interval=9000.0)


def say(sim: Sim, name: str, payload: bytes) -> None:
    for machine in sim:
        machine.metadata.watch("said")
    sim.ask(name, lambda: sim[name].metadata.put("said", payload, b""))


def heard(sim: Sim, name: str) -> list[bytes]:
    return [effect.key for effect in sim.nodes[name].of(Changed) if not effect.local]


@pytest.mark.parametrize("count", [2, 3, 5, 8, 20, 30])
def test_a_formed_tree_costs_one_push_a_node(count: int) -> None:
    sim, names = ready(Sim(count, QUIET), count)
    counts = []
    for number in range(16):
        before = sim.sent.get(Gossip, 0)
        sender = sim.random.choice(names)
        say(sim, sender, b"%d" % number)
        sim.run(3)
        counts.append(sim.sent.get(Gossip, 0) - before)
        for name in names:
            assert (b"%d" % number in heard(sim, name)) == (name != sender)
    # The first goes over every link; then the tree is there, and its links are no fewer than it takes.
    assert counts[4:] == [count - 1] * 12
    links = sum(len(machine.plumtree.eager) for machine in sim)
    assert links == 2 * (count - 1)


@over_seeds(10)
def test_a_hole_in_the_tree_is_mended_soon_with_the_timers_as_they_are(seed: int) -> None:
    """Nodes that write at once prune links of each other's tree; some end without any."""
    timers = Options()
    quick = replace(QUIET, lazy_interval=timers.lazy_interval, graft_timeout=timers.graft_timeout)
    sim, names = ready(
        Sim(seed, quick, Network(shortest=0.0002, longest=0.005, ordered=True)), (3, 5)
    )
    sim.run(1)
    for number in range(5):
        writers = sim.random.sample(names, 3)
        for name in writers:
            say(sim, name, b"%s %d" % (name.encode(), number))
        # 0.3 s, a tick each for the announcement and the graft (a quarter of a second here, a tenth in a node), and
        # their ways.
        sim.run(0.3 + 2 * TICK + 0.02)
        for name in names:
            wanted = {b"%s %d" % (each.encode(), number) for each in writers if each != name}
            assert wanted <= set(heard(sim, name))


@over_seeds(15)
def test_broadcasts_reach_all_that_live_while_others_die(seed: int) -> None:
    sim, names = ready(Sim(seed, network=Network(longest=0.1, ordered=True)), (3, 14))
    for name in names[:4]:
        say(sim, name, b"forms the tree")
    sim.run(2)
    dead = sim.random.sample(names, sim.random.randint(1, (len(names) - 1) // 2))
    for name in dead:
        sim.crash(name)
    alive = [name for name in names if name not in dead]
    # The detector has noticed nothing yet: the first ones depend on grafts.
    said: dict[str, bytes] = {}
    for number in range(3):
        sender = sim.random.choice(alive)
        payload = b"after %d" % number
        said[payload.decode()] = sender.encode()
        say(sim, sender, payload)
        sim.run(sim.random.uniform(0, 6))
    sim.run(6)
    for text, sender_name in said.items():
        for name in alive:
            wanted = 0 if name == sender_name.decode() else 1
            assert heard(sim, name).count(text.encode()) == wanted, (text, name)


class Memory:
    """A stream that keeps everything."""

    def __init__(self) -> None:
        self.held: dict[tuple[int, int], bytes] = {}

    def is_seen(self, origin: int, number: int) -> bool:
        return (origin, number) in self.held

    def deliver(self, origin: int, number: int, payload: bytes) -> bool:
        self.held[origin, number] = payload
        return payload != b"old news"

    def payload(self, origin: int, number: int) -> bytes | None:
        return self.held.get((origin, number))


class One:
    """One node of plumtree, with what it sends."""

    def __init__(self, peers: str = "bcd", **options: int) -> None:
        self.outbox = Outbox()
        self.memory = Memory()
        chosen = replace(OPTIONS, **options)
        self.tree = Plumtree("a", {0: self.memory}, chosen, self.outbox)
        self.tree.set_peers(peers)

    def sent(self) -> list[tuple[str, object]]:
        sent: list[tuple[str, object]] = []
        for peer, found in self.outbox.messages.items():
            sent += [(peer, each) for each in found]
        self.outbox.messages = {}
        return sent


@pytest.fixture
def one() -> One:
    return One()


FIRST: MessageId = (0, 9, 1)
SECOND: MessageId = (0, 9, 2)


def test_what_comes_twice_is_answered_with_prune_and_announced_from_then_on(one: One) -> None:
    one.tree.on_gossip("b", Gossip(FIRST, b"x"))
    one.sent()
    one.tree.on_gossip("c", Gossip(FIRST, b"x"))
    assert one.sent() == [("c", Prune())]
    one.tree.on_gossip("b", Gossip(SECOND, b"y"))
    assert one.sent() == [("d", Gossip(SECOND, b"y"))]
    one.tree.tick(1.0)
    assert one.sent() == [("c", IHave([SECOND]))]
    one.tree.on_graft("c", Graft(SECOND))
    assert one.sent() == [("c", Gossip(SECOND, b"y"))]
    assert one.tree.eager == {"b", "c", "d"}


def test_old_news_is_not_passed_on(one: One) -> None:
    one.tree.on_gossip("b", Gossip(FIRST, b"old news"))
    assert one.sent() == []


def test_what_anti_entropy_brought_says_nothing_about_the_links(one: One) -> None:
    one.memory.held[9, 1] = b"x"
    one.tree.on_gossip("b", Gossip(FIRST, b"x"))
    assert one.sent() == []
    assert one.tree.eager == {"b", "c", "d"}


def test_who_announced_it_is_asked_in_turn_until_it_comes(one: One) -> None:
    one.tree.on_prune("c")
    for peer in "bcc":
        one.tree.on_i_have(peer, IHave([FIRST]), 0.0)
    one.tree.tick(0.4)
    assert one.sent() == []
    one.tree.tick(0.6)
    assert one.sent() == [("b", Graft(FIRST))]
    one.tree.tick(1.2)
    assert one.sent() == [("c", Graft(FIRST))]
    assert "c" in one.tree.eager
    one.tree.on_gossip("c", Gossip(FIRST, b"x"))
    one.sent()
    one.tree.tick(9.0)
    assert one.sent() == []
    assert one.tree.counters.given_up == 0


def test_what_nobody_has_any_more_is_given_up(one: One) -> None:
    one.tree.on_i_have("b", IHave([FIRST]), 0.0)
    for now in (1.0, 2.0, 3.0):
        one.tree.tick(now)
    assert [message for _, message in one.sent()] == [Graft(FIRST)]
    assert one.tree.counters.given_up == 1


def test_new_neighbours_hear_of_the_latest_broadcasts() -> None:
    """Their old ones may have died with them."""
    one = One(peers="b")
    one.tree.tick(100.0)
    one.tree.broadcast(FIRST, b"old")
    one.tree.tick(200.0)
    one.tree.broadcast(SECOND, b"new")
    one.sent()
    one.tree.set_peers("bc")
    one.tree.tick(201.0)
    assert one.sent() == [("c", IHave([SECOND]))]


def test_the_dead_are_not_asked(one: One) -> None:
    one.tree.on_i_have("b", IHave([FIRST]), 0.0)
    one.tree.set_peers("cd")
    one.tree.tick(1.0)
    assert one.sent() == []


def test_a_graft_for_what_is_gone_only_mends_the_link(one: One) -> None:
    one.tree.on_prune("b")
    one.tree.on_graft("b", Graft(FIRST))
    assert one.sent() == []
    assert "b" in one.tree.eager


def test_announcements_and_expectations_are_bounded() -> None:
    one = One(max_lazy=3, max_missing=2)
    one.tree.on_prune("b")
    for number in range(1, 6):
        one.tree.broadcast((0, 1, number), b"")
    assert one.tree.counters.lazy_dropped == 2
    one.sent()
    one.tree.tick(1.0)
    assert one.sent() == [("b", IHave([(0, 1, 1), (0, 1, 2), (0, 1, 3)]))]
    one.tree.on_i_have("c", IHave([(0, 9, number) for number in range(1, 6)]), 1.0)
    assert one.tree.counters.missing_dropped == 3
    one.tree.tick(2.0)
    assert len([message for _, message in one.sent() if isinstance(message, Graft)]) == 2


def test_the_memory_of_what_came_is_bounded() -> None:
    one = One(peers="b")
    for number in range(1, MAX_RECENT + 10):
        one.tree.on_gossip("b", Gossip((0, 9, number), b""))
    one.tree.on_gossip("b", Gossip(FIRST, b""))  # forgotten here, and known to the stream
    assert one.tree.counters.duplicates == 0
    one.tree.on_gossip("b", Gossip((0, 9, MAX_RECENT), b""))
    assert one.tree.counters.duplicates == 1


@pytest.mark.parametrize("unknown", [(7, 1, 1)])
def test_a_stream_that_does_not_exist_is_malformed(unknown: MessageId, one: One) -> None:
    with pytest.raises(MalformedError):
        one.tree.on_gossip("b", Gossip(unknown, b""))
    with pytest.raises(MalformedError):
        one.tree.on_i_have("b", IHave([unknown]), 0.0)
    with pytest.raises(MalformedError):
        one.tree.on_graft("b", Graft(unknown))


def test_a_peer_that_speaks_of_it_is_reported_and_the_node_goes_on() -> None:
    sim, names = ready(Sim(0), 2)
    machine = sim[names[0]]
    frame = Frame(1, names[1], sim[names[1]].identity.epoch, 10**6, [Graft((7, 1, 1))])
    effects = machine.receive(frame, sim.now)
    assert Misbehaved(names[1], "a broadcast of stream 7, which does not exist") in effects
