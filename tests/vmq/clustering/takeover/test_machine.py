"""The machine that moves sessions: by seeds, and what seeds do not come to."""

from collections import Counter

import pytest

from tests.vmq.clustering.world import World
from tests.vmq.clustering.world_node import FILTERS, NOTHING, WHO, Stamped, entry_of
from vmq.clustering.directory.records import Record
from vmq.clustering.messages.takeover import ClaimSession, RouteMarker, SessionBatch, SessionMoved
from vmq.clustering.takeover.machine import CLAIM_PATIENCE, MAX_HOPS
from vmq.clustering.takeover.sending import PATIENCE

SEEDS = range(100)


def act(world: World, connects: float, publishes: float) -> None:
    choice = world.random.random()
    names = [name for name, node in world.nodes.items() if node.is_alive]
    # Nobody lets clients in before it has heard what the others know.
    heard = [name for name in names if world.nodes[name].view.record is not None]
    if choice < connects and heard:
        world.connect(world.random.choice(heard))
    elif choice < connects + publishes and names:
        world.nodes[world.random.choice(names)].publish()
    else:
        world.work()


def check_owner(world: World) -> None:
    """One session in the whole cluster, where its record says, and nothing of it anywhere else."""
    owners = [name for name, node in world.nodes.items() if WHO in node.sessions]
    assert len(owners) == 1
    for node in world.nodes.values():
        assert node.view.record is not None
        assert node.view.record.node == owners[0]
        assert not node.ghosts
        assert not node.moving.outgoing
        assert not node.moving.incoming
        assert not node.moving.claims
        assert not node.moving.marking.owed


def check_none_lost(world: World) -> None:
    assert sorted(set(world.mids) - set(world.client.log) - world.lost - world.unrouted) == []


def check_none_twice(world: World) -> None:
    assert [mid for mid, count in Counter(world.client.log).items() if count > 1] == []


def check_order(world: World) -> None:
    for name in world.nodes:
        numbers = [number for node, number in world.client.log if node == name]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("others", [False, True])
def test_a_client_that_goes_from_node_to_node_gets_everything_though_outboxes_are_full(
    others: bool,
) -> None:
    for seed in SEEDS:
        world = World(seed, nodes=2 + seed % 4, others=others, tight=True)
        speed = world.random.choice([0.02, 0.1, 0.3])
        for _ in range(300):
            if world.random.random() < 0.4:
                act(world, speed * 0.3, 0.4)
            else:
                world.step()
        world.finish()
        try:
            check_owner(world)
            check_none_lost(world)
            check_none_twice(world)
            check_order(world)
            session = world.at()
            assert session is not None
            assert session.received == world.client.received
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error


def check_all(world: World, seed: int) -> None:
    """Each message has come, and none twice, wherever the client was."""
    world.finish()
    try:
        check_owner(world)
        check_none_lost(world)
        check_none_twice(world)
        assert not any(session.elsewhere for session in world.at_all())
        assert not any(node.moving.takings.waits for node in world.nodes.values())
    except AssertionError as error:
        raise AssertionError(f"seed {seed}") from error


def fault(world: World, choice: float, crashes: bool) -> bool:
    """Parts the network or joins it, or ends or starts a node; or nothing of it."""
    if choice < 0.01:
        world.split()
    elif choice < 0.02:
        world.cuts = set()
    elif crashes and choice < 0.03:
        world.crash(world.random.choice(sorted(world.nodes)))
    elif crashes and choice < 0.05:
        world.revive(world.random.choice(sorted(world.nodes)))
    else:
        return False
    return True


@pytest.mark.parametrize("crashes", [False, True])
def test_a_session_that_begins_in_a_split_is_one_session_when_it_is_over(crashes: bool) -> None:
    """Also where a node lets its client in that has heard nothing."""
    for seed in SEEDS:
        world = World(seed, nodes=2 + seed % 4, others=True)
        world.forget_all()
        world.split()
        for _ in range(400):
            choice = world.random.random()
            if fault(world, choice, crashes):
                continue
            if choice < 0.07:
                world.connect_somewhere()
            elif choice < 0.4:
                act(world, 0.0, 0.4)
            else:
                world.step()
        check_all(world, seed)


@pytest.mark.parametrize("others", [False, True])
def test_lost_disks_lose_what_was_on_them_and_nothing_else(others: bool) -> None:
    """What waits on other nodes' disks for a node that lost its own, or is taken out, finds the session."""
    taken_out = 0
    for seed in SEEDS:
        world = World(seed, nodes=3 + seed % 3, others=others)
        for _ in range(400):
            choice = world.random.random()
            dead = sorted(name for name, node in world.nodes.items() if not node.is_alive)
            if choice < 0.01 and len(dead) < len(world.nodes) - 1:
                alive = set(world.nodes).difference(dead)
                world.crash(world.random.choice(sorted(alive)))
            elif choice < 0.02 and dead:
                world.revive(world.random.choice(dead))
            elif choice < 0.03 and len(dead) == 1:
                world.wipe(dead[0])
            elif choice < 0.034 and len(dead) == 1 and len(world.nodes) > 2:
                world.remove(dead[0])
                taken_out += 1
            elif choice < 0.4:
                act(world, 0.08, 0.4)
            else:
                world.step()
        try:
            world.settle()
            world.adopt()
            world.settle()
            world.settle_estates()
            world.finish()
            check_owner(world)
            check_none_lost(world)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
    assert taken_out > 10


def test_an_owner_that_says_nothing_is_waited_for_no_longer_than_that() -> None:
    world = World(1, nodes=2, others=False)
    world.nodes["a"].publish()
    world.connect("b")
    world.outboxes["b", "a"].clear()  # as if it hung
    world.now += CLAIM_PATIENCE - 1
    world.tick()
    assert world.at() is None
    world.now += 1
    world.tick()
    assert world.at() is world.nodes["b"].sessions[WHO]
    # When it goes on, it finds that it has lost the session, and hands it over.
    world.finish()
    check_owner(world)
    check_none_lost(world)


def test_a_node_that_never_marks_is_not_waited_for_forever() -> None:
    world = World(2, nodes=3, others=True)
    world.nodes["c"].moving.on_owner = lambda *_args: None  # type: ignore[method-assign]
    world.nodes["c"].moving.receive = lambda *_args: None  # type: ignore[method-assign]
    world.connect("b")
    while events := world.events():
        world.random.choice(events)()
    assert world.at() is not None  # nor does the client wait for it
    assert world.nodes["a"].moving.outgoing[WHO].awaited == {"c"}
    world.nodes["b"].publish()
    for _ in range(2):
        world.now += PATIENCE
        world.tick()
        while events := world.events():
            world.random.choice(events)()
    assert not world.nodes["a"].ghosts
    assert not world.nodes["b"].moving.incoming


@pytest.mark.parametrize("others", [False, True])
def test_what_a_node_publishes_that_has_just_heard_of_a_session_on_its_way_comes(
    others: bool,
) -> None:
    world = World(9, nodes=3, others=others)
    world.connect("b")
    while world.outboxes["b", "a"]:
        world.run_lane("b", "a")
    while world.outboxes["a", "b"]:
        world.run_lane("a", "b")
    assert world.at() is not None
    assert world.nodes["b"].moving.incoming  # there is no mark of the third node
    world.join("d")
    world.change(world.nodes["d"], world.nodes["b"].view)
    world.nodes["d"].publish()
    for outbox in (("d", "b"), ("d", "a")):
        while world.outboxes[outbox]:
            world.run_lane(*outbox)
    world.finish()
    assert world.client.log == [("d", 1)]


def test_a_node_that_hears_of_a_session_that_came_long_ago_tells_nobody() -> None:
    world = World(10, nodes=2, others=False)
    node = world.nodes["b"]
    node.view = NOTHING
    node.is_recent = lambda record: False  # type: ignore[method-assign]
    world.change(node, Stamped((200, "a"), Record("a", 200, False, FILTERS, source="b")))
    world.change(node, Stamped((201, "a"), Record("a", 201, False, FILTERS, source="b")))
    assert not world.outboxes["b", "a"]


def test_a_mark_that_is_asked_of_a_node_without_the_record_waits_for_it() -> None:
    world = World(11, nodes=3, others=False)
    moving = world.nodes["c"].moving
    world.nodes["c"].view = NOTHING
    moving.receive("a", SessionMoved(*WHO, 200, "b"), 0.0)
    moving.tick(PATIENCE - 1)
    assert not world.outboxes["c", "a"]
    moving.tick(PATIENCE)  # there is none any more
    [(mark, _)] = world.outboxes["c", "a"]
    assert mark == RouteMarker(*WHO, 200, "b", "a", {}, again=True)
    assert not moving.marking.owed


def test_a_mark_that_comes_late_begins_no_session_that_is_over() -> None:
    world = World(12, nodes=3, others=False)
    node, other = world.nodes["b"], world.nodes["c"]
    there = Stamped((200, "b"), Record("b", 200, False, FILTERS, source="a"))
    world.change(node, there)
    world.change(other, there)
    over = Stamped((201, ""), None)
    node.sessions.clear()
    node.moving.incoming.clear()
    world.change(node, over)
    [(mark, _)] = world.outboxes["c", "b"]
    assert mark == RouteMarker(*WHO, 200, "b", "a", FILTERS)
    world.run_lane("c", "b")
    assert not node.sessions
    node.moving.receive("c", RouteMarker(*WHO, 202, "b", "a", FILTERS), 1.0)  # it began anew
    assert node.sessions


def test_who_has_to_mark_and_knows_no_session_begins_none() -> None:
    world = World(13, nodes=3, others=False)
    for name in "bc":
        world.nodes[name].view = NOTHING
    asked = world.nodes["c"].moving
    asked.receive("a", SessionMoved(*WHO, 200, "b"), 0.0)
    asked.tick(PATIENCE)
    world.run_lane("c", "b")
    assert not world.nodes["b"].sessions


def test_nobody_marks_where_a_clean_session_goes() -> None:
    world = World(14, nodes=3, others=False)
    world.change(world.nodes["c"], Stamped((200, "b"), Record("b", 200, True, {})))
    assert not any(world.outboxes.values())


def test_of_two_clients_on_one_node_the_later_one_waits_on() -> None:
    world = World(3, nodes=2, others=False)
    refused = world.nodes["b"].refused
    for ticket in ("first", "second"):
        assert not world.nodes["b"].moving.connect(WHO, clean=False, ticket=ticket, now=0.0)
    assert refused == ["first"]
    world.nodes["b"].moving.cancel(WHO, "first")
    assert list(world.nodes["b"].moving.claims) == [WHO]
    world.nodes["b"].moving.cancel(WHO, "second")
    assert not world.nodes["b"].moving.claims
    world.settle()
    check_owner(world)  # what was asked for comes all the same


def test_a_claim_that_finds_no_owner_is_sent_on_only_so_often() -> None:
    world = World(4, nodes=2, others=False)
    node = world.nodes["b"]
    node.moving.receive("x", ClaimSession(*WHO, "x", clean=False, hops=MAX_HOPS - 1), 0.0)
    node.moving.receive("x", ClaimSession(*WHO, "x", clean=False, hops=MAX_HOPS), 0.0)
    [(message, _)] = world.outboxes["b", "a"]
    assert message == ClaimSession(*WHO, "x", clean=False, hops=MAX_HOPS)


def test_a_mark_is_owed_only_for_a_while() -> None:
    world = World(5, nodes=2, others=False)
    moving = world.nodes["b"].moving
    moving.receive("a", SessionMoved(*WHO, 1000, "b"), 0.0)
    moving.tick(PATIENCE - 1)
    assert moving.marking.owed
    moving.tick(PATIENCE)
    assert not moving.marking.owed


def test_batches_that_will_never_arrive_are_in_the_session_again() -> None:
    world = World(6, nodes=3, others=False)
    for _ in range(10):
        world.nodes["a"].publish()
    a = world.nodes["a"]
    a.moving.hand_over(WHO, "b", 0.0)
    assert a.moving.outgoing[WHO].open == 2
    del world.nodes["b"]
    for node in (a, world.nodes["c"]):
        node.reachable.discard("b")
        node.moving.peer_down("b", 0.0)
    for message, done in world.outboxes["a", "b"]:
        if isinstance(message, SessionBatch):
            assert done is not None
            done(False)
    for node in (a, world.nodes["c"]):
        node.moving.peer_gone("b", 0.0)
    c = world.nodes["c"]
    while events := [each for each in world.gossip if each[1] == "c"]:
        world.run_gossip(world.gossip.index(events[0]))
    record = c.view.record
    assert record is not None
    assert record.node == "b"
    c.moving.adopt(WHO, record)
    c.write(Record("c", record.since + 1, False, record.subscriptions))
    world.gossip = [each for each in world.gossip if each[1] in world.nodes]
    world.outboxes = {pair: outbox for pair, outbox in world.outboxes.items() if "b" not in pair}
    world.finish()
    check_owner(world)
    check_none_lost(world)
    check_none_twice(world)


def test_what_comes_for_a_node_that_is_gone_for_good_waits_for_the_next_owner() -> None:
    world = World(7, nodes=3, others=False)
    gone = Stamped((200, "z"), Record("z", 200, False, FILTERS))
    c = world.nodes["c"]
    c.view = gone
    c.moving.receive("b", SessionBatch(*WHO, [entry_of(("b", 1))]), 0.0)
    assert list(c.ghosts[WHO].waiting) == [("b", 1)]
    world.nodes["a"].view = world.nodes["b"].view = gone
    world.nodes["a"].write(Record("a", 201, False, FILTERS))
    world.mids.append(("b", 1))
    world.finish()
    check_owner(world)
    check_none_lost(world)


def test_a_claim_ends_no_session_whose_record_is_not_known() -> None:
    world = World(8, nodes=2, others=False)
    a = world.nodes["a"]
    a.view = Stamped((0, ""), None)
    a.moving.receive("b", ClaimSession(*WHO, "b", clean=False), 0.0)
    assert list(a.sessions) == [WHO]
    assert not world.outboxes["a", "b"]
