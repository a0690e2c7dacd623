"""Share groups in a slot: what was chosen for a member that goes is another's."""

import pytest

from tests.vmq.clustering.slots.test_clocks import HOUR, Clocks
from tests.vmq.clustering.slots.test_owner import ORIGIN, SLOT, World, on_a_failing_disk
from vmq.clustering.messages import fronts
from vmq.clustering.slots.words import Dot

GROUP = "$share/g/s/#"


def join(world: World, *clients: str) -> None:
    """These are members, and away."""
    for client in clients:
        world.subscribe(client)
        world.owner.state.subscribe(client, GROUP, 1, 0, has_forks=False)
        world.owner.attachments.subscribers.groups.joined(client, GROUP, 1)
    world.flush()


def offer(world: World, *numbers: int) -> None:
    """Messages for one member each, the first that is offered."""
    found = [fronts.OfferedMessage((ORIGIN, each), b"s/1", b"x", 1, GROUP) for each in numbers]
    world.receive(3, fronts.Offer(SLOT, world.lineage, 13, 0, found))


def shared(world: World) -> dict[str, list[Dot]]:
    return {client: list(dots) for client, dots in world.owner.state.shared.items()}


@pytest.mark.parametrize("is_last", [False, True])
def test_what_a_session_leaves_that_expires_is_for_other_members(is_last: bool) -> None:
    clocks = Clocks()
    join(clocks, "c")
    clocks.show(0.5, 0.5, 0.5)
    if not is_last:
        join(clocks, "d")
        clocks.show(0.5, 0.5, 0.5)
    offer(clocks, 1, 2, 3)
    assert "c" in shared(clocks)
    clocks.show(1.2, 1.2, 1.2)
    assert not clocks.has_session
    assert {each: sorted(dots) for each, dots in shared(clocks).items()} == (
        {} if is_last else {"d": [(ORIGIN, 1), (ORIGIN, 2), (ORIGIN, 3)]}
    )


@pytest.mark.parametrize("is_over", [False, True], ids=["unsubscribes", "begins anew"])
def test_what_a_member_leaves_is_kept_while_the_disk_gives_no_next_queue(is_over: bool) -> None:
    world, disk, follower = on_a_failing_disk()
    join(world, "d")
    offer(world, 1)
    world.confirm(follower, is_whole=True)
    join(world, "c")
    world.offer(2, index=1)
    world.confirm(follower, is_whole=True)
    state = world.owner.state
    assert shared(world) == {"d": [(ORIGIN, 1)]}
    assert "c" in state.cold
    disk.fails = True
    if is_over:
        world.receive(3, fronts.Attach(SLOT, "d", 8, 0, world.lineage, 13, [], is_clean=True))
    else:
        world.owner.attachments.subscribers.unsubscribe("d", [GROUP], world.flush)
    disk.fails = False
    world.tick()
    assert shared(world) == {"c": [(ORIGIN, 1)]}


def test_what_waits_for_a_group_without_members_is_too_old_as_soon_as_for_a_member() -> None:
    clocks = Clocks()
    clocks.here.limits.all.expiry = 0
    clocks.here.limits.all.age = HOUR
    offer(clocks, 1)
    clocks.show(0.5, 0.5, 0.5)
    assert list(shared(clocks).values()) == [[(ORIGIN, 1)]]
    clocks.show(1.1, 1.1, 1.1)
    assert shared(clocks) == {}
    assert [each[:2] for each in clocks.here.effects.dropped] == [(GROUP, "expired")]


def test_a_group_that_a_fork_has_ended_hides_no_other_whose_members_do_not_come() -> None:
    world, other = World(), "$share/h/s/#"
    world.deny(2, 3)
    join(world, "c", "d")
    world.attach()
    for client, topic_filter, qos in (("c", GROUP, -1), ("d", GROUP, -1), ("d", other, 1)):
        world.owner.state.subscribe(client, topic_filter, qos, 0)
    world.owner.attachments.on_merge()
    for _ in range(12):
        world.tick()
    assert world.here.effects.presence == [(SLOT, GROUP, True), (SLOT, other, False)]
