"""Copies of sessions: what is acknowledged survives, whatever fails, as long as one that has it does not."""

import pytest

from tests.support.stored import records_of
from tests.vmq.clustering.replica_run import NAMES, Run, check_counts, purge, texts


@pytest.mark.parametrize("count", [2, 3, 4])
@pytest.mark.parametrize("seed", range(12))
def test_what_was_acknowledged_survives_as_many_failures_as_there_are_other_copies(
    seed: int, count: int
) -> None:
    run = Run(seed, count)
    world = run.world
    world.loss = 0.1 if seed % 2 else 0.0
    world.write_failures = 0.1 if seed % 3 == 0 else 0.0
    run.traffic(30)
    # All but one of those with the copies die, the owner among them, at moments of their own.
    victims = run.random.sample(NAMES[1:], count - 2)
    for victim in victims:
        world.kill(victim)
        run.traffic(run.random.randrange(20))
    world.kill("a")
    world.loss = world.write_failures = 0.0
    for client in run.clients:
        new = run.random.choice(sorted(world.nodes))
        assert world.take_over(client, "a", new), client
        assert run.missing(client, new) == set()
        names = world.nodes[new].names(client)
        assert len(names) == len(set(names))
    assert any(run.acknowledged.values())


@pytest.mark.parametrize("seed", range(10))
def test_nodes_come_and_go_for_long_and_nothing_is_lost(seed: int) -> None:
    """Replicas die, come back, are cut off and replaced; whenever all copies are there, the owner may die."""
    run = Run(seed, 2)
    world, chance = run.world, run.random
    world.loss = 0.05
    for _ in range(6):
        other = chance.choice(NAMES[1:])
        what = chance.randrange(3)
        if what == 0:
            world.kill(other)
        elif what == 1:
            world.split("a", other)
        run.traffic(chance.choice([5, 60, 300]))
        if what == 0:
            world.start(other)
        world.heal()
        run.traffic(chance.randrange(30))
        world.settle(world.is_safe)
        run.traffic(chance.randrange(10))
    world.kill("a")
    world.loss = 0.0
    for client in run.clients:
        new = chance.choice(sorted(world.nodes))
        assert world.take_over(client, "a", new)
        assert run.missing(client, new) == set()
        names = world.nodes[new].names(client)
        assert len(names) == len(set(names))


@pytest.mark.parametrize("seed", range(10))
def test_an_owner_that_starts_again_has_its_copies_made_anew(seed: int) -> None:
    run = Run(seed, 2, NAMES[:3])
    world = run.world
    run.traffic(40)
    world.settle(world.is_safe)
    world.kill("a")
    if seed % 2:  # its copies there are of no use once there are others
        world.kill("b")
    world.start("a")
    run.traffic(run.random.randrange(10))
    world.settle(world.is_safe)
    if seed % 2:
        world.start("b")
        world.settle(lambda: all(peer.is_swept for peer in world.nodes["a"].replicas.peers()))
    run.traffic(10)
    world.settle(world.is_safe)
    copies = [copy for node in world.nodes.values() for copy in node.copies]
    assert len(copies) == len(run.clients), "those of the earlier life are gone"
    world.kill("a")
    for client in run.clients:
        assert world.take_over(client, "a", "b")
        assert run.missing(client, "b") == set()


@pytest.mark.parametrize("seed", range(20))
def test_an_owner_that_dies_while_its_copies_are_made_anew_loses_nothing_older(seed: int) -> None:
    run = Run(seed, 2, NAMES[:3])
    world = run.world
    run.traffic(40)
    world.settle(world.is_safe)
    safe = {client: set(names) for client, names in run.acknowledged.items()}
    for _ in range(run.random.randrange(1, 4)):
        world.kill("a")
        world.start("a")
        for _ in range(run.random.randrange(40)):
            world.step()
    world.kill("a")
    for client in run.clients:
        assert world.take_over(client, "a", "b")
        names = world.nodes["b"].names(client)
        assert safe[client] <= set(names) | set(run.taken[client])


@pytest.mark.parametrize("seed", range(30))
def test_an_owner_that_comes_back_has_what_only_it_had_and_no_more(seed: int) -> None:
    run = Run(seed, 2, NAMES[:3])
    world, chance = run.world, run.random
    run.traffic(20)
    is_alone = seed % 3 == 0
    is_new_life = seed % 3 == 1
    if is_alone:  # for a while nobody else has what it acknowledges
        world.settle(world.is_quiet)
        world.split("a", "b")
        world.split("a", "c")
        run.traffic(chance.randrange(1, 30))
    elif is_new_life:  # what it acknowledges then is not in the copies that were made before
        world.settle(world.is_safe)
        world.kill("a")
        world.cut |= {frozenset(("a", other)) for other in chance.choice(["b", "c", "bc"])}
        world.start("a")
        run.traffic(chance.randrange(40))
    world.kill("a")
    world.heal()
    for client in run.clients:
        assert world.take_over(client, "a", "b")
        if not is_alone and not is_new_life:
            assert run.missing(client, "b") == set()
    world.start("a")
    for client in run.clients:
        more = world.only_there(client, "a", "b")
        assert run.missing(client, "b", more) == set()
        # What is in its store counts as taken, whether it was acknowledged before the end or not.
        there = set(world.nodes["b"].names(client))
        if not is_new_life:
            only_here = set(world.nodes["a"].names(client)) - there - set(run.taken[client])
            assert only_here <= set(more)
            # What waited in the copy may be in flight there.
            assert set(more) & there <= set(world.nodes["a"].names(client, (1 << 60, 0)))


def test_who_goes_on_with_a_copy_takes_what_its_client_publishes_again() -> None:
    """The owner may have died before anybody else had the message, and not have answered."""
    run = Run(1, 2, NAMES[:3])
    world = run.world
    owner = world.nodes["a"]
    for client in run.clients:
        owner.store.put_received(owner.sessions[client].number, 7)
    world.settle(world.is_quiet)
    world.kill("a")
    for client in run.clients:
        assert world.take_over(client, "a", "b")
        node = world.nodes["b"]
        world.settle(lambda node=node: not node.store.dirty and not node.committing)  # type: ignore[misc]
        assert node.store.load_received(node.sessions[client].number) == []


@pytest.mark.parametrize("seed", range(6))
def test_an_owner_that_comes_back_hands_over_what_came_before_it_had_copies_again(
    seed: int,
) -> None:
    """Though it has them when it asks who has its sessions, and where there were copies of the life before."""
    run = Run(seed, 2, NAMES[:3])
    world, chance = run.world, run.random
    run.traffic(20)
    world.settle(world.is_safe)
    world.kill("a")
    for client in run.clients:
        assert world.take_over(client, "a", "b")
    world.cut |= {frozenset(("a", other)) for other in "bc"}
    world.start("a")
    run.traffic(chance.randrange(5, 20))
    world.heal()
    world.settle(world.is_safe)
    for client in run.clients:
        more = world.only_there(client, "a", "b")
        assert run.missing(client, "b", more) == set()


@pytest.mark.parametrize("seed", range(12))
def test_after_a_split_the_old_owner_knows_what_the_new_one_lacks(seed: int) -> None:
    """Though the copies that the new one made its sessions of were made anew before anybody asked."""
    run = Run(seed, 2, NAMES[:3])
    world, chance = run.world, run.random
    run.traffic(20)
    world.settle(world.is_quiet)
    world.split("a", "b")
    world.split("a", "c")
    run.traffic(chance.randrange(1, 20))
    for client in run.clients:
        assert world.take_over(client, "a", "b")
    run.traffic(chance.randrange(1, 20))
    world.heal()
    world.settle(world.is_quiet)
    run.traffic(chance.randrange(1, 20))
    world.settle(world.is_quiet)
    for client in run.clients:
        more = world.only_there(client, "a", "b")
        assert run.missing(client, "b", more) == set()
        inflight = set(world.nodes["a"].names(client, (1 << 60, 0)))
        assert set(more) & set(world.nodes["b"].names(client)) <= inflight


@pytest.mark.parametrize("seed", range(12))
def test_after_a_split_so_long_that_other_nodes_have_the_copies_the_old_owner_knows_it_still(
    seed: int,
) -> None:
    """Though the node with the copy that was taken has confirmed, before anybody asks, that it keeps none any more."""
    run = Run(seed, 2)
    world, chance = run.world, run.random
    run.traffic(20)
    world.settle(world.is_quiet)
    for other in NAMES[1:]:
        world.split("a", other)
    run.traffic(chance.randrange(1, 20))
    for client in run.clients:
        assert world.take_over(client, "a", "b")
    run.traffic(220)
    for other in chance.sample(NAMES[1:], 3):
        world.mend("a", other)
        run.traffic(chance.randrange(5, 50))
    for client in run.clients:
        more = world.only_there(client, "a", "b")
        assert run.missing(client, "b", more) == set()
        inflight = set(world.nodes["a"].names(client, (1 << 60, 0)))
        assert set(more) & set(world.nodes["b"].names(client)) <= inflight


@pytest.mark.parametrize("seed", range(12))
def test_a_copy_that_was_taken_though_its_owner_reached_it_still_costs_nothing(seed: int) -> None:
    """Each sees for itself who is down: the owner goes on sending what nobody keeps there."""
    run = Run(seed, 2, NAMES[:3])
    world, chance = run.world, run.random
    world.loss = 0.1 if seed % 2 else 0.0
    run.traffic(20)
    world.settle(world.is_quiet)
    for client in run.clients:
        assert world.take_over(client, "a", "b")
    run.traffic(chance.randrange(1, 40))
    for client in run.clients:
        more = world.only_there(client, "a", "b")
        assert run.missing(client, "b", more) == set()


@pytest.mark.parametrize("seed", range(12))
def test_no_slow_or_silent_node_holds_up_what_is_acknowledged(seed: int) -> None:
    run = Run(seed, 2, NAMES[:3])
    world = run.world
    run.traffic(10)
    world.settle(world.is_safe)
    # `b` takes no part and is not known to be down.
    world.nodes["b"].receive = lambda peer, message: None  # type: ignore[method-assign]
    run.traffic(10)
    held = sum(map(len, run.acknowledged.values()))
    world.settle(lambda: not world.nodes["a"].waiting)
    assert world.nodes["a"].replicas.left_out == 1
    assert sum(map(len, run.acknowledged.values())) > held
    run.traffic(400)
    world.settle(
        lambda: not world.nodes["a"].store.dirty and not world.nodes["a"].replicas.lagging()
    )
    assert {
        name
        for each in world.nodes["a"].sessions.values()
        for name in world.nodes["a"].replicas.holders(each.number)
    } == {"c"}


@pytest.mark.parametrize("seed", range(6))
def test_a_keeper_that_starts_again_is_sent_only_what_it_missed(seed: int) -> None:
    run = Run(seed, 2, NAMES[:3])
    world = run.world
    run.traffic(20)
    world.settle(world.is_quiet)
    owner = world.nodes["a"]
    before = owner.replicas.filled
    world.kill("b")
    here = [
        name for name in run.clients if owner.replicas.holders(owner.sessions[name].number) == ["b"]
    ]
    for _ in range(3):
        owner.publish(here[:1], 10_000 + run.random.randrange(1000), 10)
        world.step()
    world.start("b")
    world.settle(world.is_quiet)
    assert owner.replicas.left_out == 1
    assert owner.replicas.filled - before == len(here[:1])
    for copy in world.nodes["b"].copies:
        assert texts(world.nodes["b"], copy.number) == texts(owner, copy.head.session)


def test_ended_sessions_leave_no_copies() -> None:
    run = Run(1, 2, NAMES[:3])
    world = run.world
    run.traffic(20)
    owner = world.nodes["a"]
    world.split("a", "b")
    for client in run.clients:
        owner.store.end_session(client, owner.sessions.pop(client).number)
    world.settle(lambda: not owner.store.dirty and not owner.committing)
    world.heal()
    world.settle(
        lambda: (
            not owner.replicas.lagging()
            and all(not len(each.copies) for each in world.nodes.values())
        )
    )
    for node in world.nodes.values():
        purge(node)
        kinds = {key[:1] for key in node.db.records}
        assert not kinds & {b"k", b"a"}
        if node is not owner:
            assert not kinds & {b"q", b"i", b"m", b"c", b"g"}


@pytest.mark.parametrize("seed", range(10))
def test_a_stale_copy_is_not_taken_for_a_good_one(seed: int) -> None:
    """A node that comes back is said at once which of its copies missed something."""
    run = Run(seed, 3, NAMES[:3])
    world = run.world
    run.traffic(10)
    world.settle(world.is_safe)
    world.split("a", "b")
    run.traffic(10)
    world.heal()
    # The new copies are not made before the owner dies.
    world.idle.add("a")
    run.traffic(run.random.randrange(1, 30))
    world.kill("a")
    for client in run.clients:
        assert world.take_over(client, "a", "b")
        assert run.missing(client, "b") == set()


@pytest.mark.parametrize("seed", range(10))
def test_copies_leave_nothing_behind(seed: int) -> None:
    """Messages that several entries name are stored once, counted right, and go with the last of them."""
    run = Run(seed, 2)
    world = run.world
    world.loss, world.write_failures = 0.1, 0.2
    run.traffic(60)
    world.kill("b")
    run.traffic(30)
    world.start("b")
    run.traffic(300)
    world.loss = world.write_failures = 0.0
    world.settle(world.is_quiet)
    owner = world.nodes["a"]
    number = {client: session.number for client, session in owner.sessions.items()}
    for node in world.nodes.values():
        purge(node)
        check_counts(node)
        for copy in node.copies:
            assert number[copy.head.scoped_id] == copy.head.session
            assert texts(node, copy.number) == texts(owner, copy.head.session)
    assert sum(len(node.copies) for node in world.nodes.values()) == len(run.clients)
    for client, session in owner.sessions.items():
        while owner.deliver(client) is not None:
            pass
        for order in range(1, session.next_order):
            owner.acknowledge(client, order)
    world.settle(world.is_quiet)
    for node in world.nodes.values():
        assert not any(records_of(node.db, kind) for kind in (b"q", b"i", b"m", b"c"))
