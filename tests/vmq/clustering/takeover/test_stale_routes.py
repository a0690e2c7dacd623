"""From whom a session takes messages, and who is asked."""

from tests.vmq.clustering.world import World
from tests.vmq.clustering.world_node import FILTERS, WHO, Published, Stamped
from vmq.clustering.directory.records import Record
from vmq.clustering.messages.takeover import RouteMarker, SessionMoved
from vmq.clustering.takeover.stale_routes import ASK_AFTER, ASK_AGAIN


def taken() -> World:
    """`a`, which has the session, is cut off from `b`, which takes it, and `c`."""
    world = World(1, nodes=3, others=True)
    world.cuts = {frozenset("ab"), frozenset("ac")}
    for one, other in ("ab", "ba", "ac", "ca"):
        world.notice(one, other)
    world.connect("b")
    return world


def asked(world: World, peer: str) -> list[SessionMoved]:
    return [each for each, _ in world.outboxes["b", peer] if isinstance(each, SessionMoved)]


def test_a_session_takes_nothing_from_who_routes_it_elsewhere() -> None:
    world = taken()
    b = world.nodes["b"]
    assert b.elsewhere(WHO) == {"a", "c"}
    for name in "ac":
        world.nodes[name].publish()
    world.run_lane("c", "b")
    assert not b.sessions[WHO].waiting
    index = next(at for at, each in enumerate(world.gossip) if each[1] == "c")
    world.run_gossip(index)
    world.run_lane("c", "b")  # the mark
    assert b.elsewhere(WHO) == {"a"}
    world.nodes["c"].publish()
    world.run_lane("c", "b")
    assert list(b.sessions[WHO].waiting) == [("c", 2)]
    b.moving.receive("c", RouteMarker(*WHO, 300, "a", "b", FILTERS), 0.0)
    assert b.elsewhere(WHO) == {"a", "c"}
    world.finish()
    assert sorted(world.client.log) == sorted(world.mids)


def test_who_is_up_and_does_not_say_is_asked_until_it_does() -> None:
    world = taken()
    takings = world.nodes["b"].moving.takings
    takings.tick(ASK_AFTER - 0.1)
    assert not asked(world, "c")
    for now in (ASK_AFTER, ASK_AFTER + 1, ASK_AFTER + ASK_AGAIN):
        takings.tick(now)
    assert len(asked(world, "c")) == 2
    assert not asked(world, "a")
    world.cuts = set()
    world.notice("b", "a")
    takings.peer_up("a", 500.0)
    takings.tick(500.0)
    assert not asked(world, "a")
    takings.tick(500.0 + ASK_AFTER)
    assert asked(world, "a") == [SessionMoved(*WHO, world.nodes["b"].view.stamp[0], "b")]


def test_a_restart_forgets_nothing_but_who_is_gone() -> None:
    world = taken()
    b = world.nodes["b"]
    world.crash("b")
    world.revive("b")
    assert b.elsewhere(WHO) == {"a", "c"}
    world.crash("b")
    del world.nodes["c"]
    world.revive("b")
    assert b.elsewhere(WHO) == {"a"}
    b.moving.peer_gone("a", 0.0)
    assert not b.elsewhere(WHO)
    b.moving.takings.tick(1000.0)
    assert not asked(world, "a")


def test_what_is_over_is_not_asked_about() -> None:
    world = taken()
    b = world.nodes["b"]
    del b.sessions[WHO]
    b.view = Stamped(b.view.stamp, None)
    b.moving.on_owner(WHO, Record("b", 1, False, {}), None, 0.0)
    b.moving.takings.tick(1000.0)
    assert not asked(world, "c")
    assert not [each for each, _ in world.outboxes["b", "c"] if not isinstance(each, Published)]
