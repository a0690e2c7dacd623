"""What a disk that does not give all records costs, and whom."""

import pytest

from tests.vmq.clustering.slots.test_owner import ORIGIN, SLOT, World, on_a_failing_disk
from vmq.clustering.messages import fronts
from vmq.clustering.messages.slots import AskFork, SlotView, StatePart
from vmq.clustering.slots.state import SlotState
from vmq.clustering.slots.words import incarnation_of
from vmq_cluster.errors import StorageError


def test_a_message_for_a_share_group_is_kept_while_the_disk_does_not_give_the_queue_of_its_member() -> (
    None
):
    world, disk, follower = on_a_failing_disk()
    world.subscribe("c")
    state = world.owner.state
    state.subscribe("c", "$share/g/s/#", 1, 0, has_forks=False)
    world.owner.attachments.subscribers.groups.joined("c", "$share/g/s/#", 1)
    world.flush()
    world.offer(1)
    world.confirm(follower, is_whole=True)
    assert "c" in state.cold, "it is away"
    world.sent(fronts.OfferTaken)
    disk.fails = True
    message = fronts.OfferedMessage((ORIGIN, 2), b"s/1", b"x", 1, "$share/g/s/#")
    world.receive(3, fronts.Offer(SLOT, world.lineage, 13, 1, [message]))
    world.confirm(follower, is_whole=True)
    assert [each.dots for each in world.sent(fronts.OfferTaken)] == [[(ORIGIN, 2)]]
    assert state.all_waiting() == 2
    world.tick()
    disk.fails = False
    world.tick()
    world.confirm(follower, is_whole=True)
    world.attach()
    assert sorted(world.to_client()[0]) == [(ORIGIN, 1), (ORIGIN, 2)]


def test_a_fork_that_cannot_be_joined_is_asked_for_again() -> None:
    world, disk, follower = on_a_failing_disk()
    world.subscribe("c")
    world.offer(1)
    world.confirm(follower, is_whole=True)
    other = 5 - follower
    world.beat(other, boot=2)
    world.tick()
    fork = SlotState()
    fork.begin((0, ORIGIN))
    fork.register("d").session = fork.stamp(0)
    disk.fails = True
    world.hand_in(other, fork)
    assert world.here.effects.unreadable == {SLOT: "no sector there"}
    world.sent(AskFork)
    world.tick()
    assert [each.slot for each in world.sent(AskFork, other)] == [SLOT]
    disk.fails = False
    world.hand_in(other, fork)
    assert "d" in world.owner.state.registers
    world.tick()
    assert world.here.effects.unreadable == {}


def test_an_offer_that_fails_half_way_is_to_be_offered_again() -> None:
    world = World()
    world.serve()
    world.attach()
    owner = world.owner
    messages = [fronts.OfferedMessage((ORIGIN, number), b"t", b"x", 1) for number in (1, 2)]
    offer = fronts.Offer(SLOT, world.lineage, 13, 0, messages)
    owner.state.subscribe("c", "#", 1, 0, has_forks=False)

    def fails() -> bool:
        raise StorageError("no sector there")

    with pytest.raises(StorageError):
        owner.on_offer(3, offer, fails)
    world.sent(fronts.OfferTaken)
    world.tick()
    (again,) = world.sent(fronts.OfferTaken, 3)
    assert (again.dots, again.again) == ([], True)
    world.receive(3, offer)
    world.confirm(owner.view.followers[0], is_whole=True)
    assert owner.state.context.runs == {ORIGIN: [1, 3]}
    # The other one flows to its client: it is told of when that has it.
    assert [each.dots for each in world.sent(fronts.OfferTaken, 3)] == [[(ORIGIN, 1)]]


def test_a_message_that_cannot_be_queued_is_not_seen() -> None:
    world = World()
    world.serve()
    world.subscribe("c")
    no_text = fronts.OfferedMessage((ORIGIN, 1), b"\xff", b"x", 2)
    with pytest.raises(UnicodeDecodeError):
        world.receive(3, fronts.Offer(SLOT, world.lineage, 13, 0, [no_text]))
    world.offer(1)
    assert world.owner.state.has("c", (ORIGIN, 1))


def test_a_fork_that_could_not_be_read_is_handed_in_when_it_can() -> None:
    """Who has asked for it waits, and does not ask again."""
    world, disk, follower = on_a_failing_disk()
    world.subscribe("c")
    world.offer(1)
    world.confirm(follower, is_whole=True)
    view = SlotView(world.owner.view.epoch + 1, incarnation_of(3, 1), 1, ())
    disk.fails = True
    world.receive(3, AskFork(SLOT, view, []))
    world.tick()
    assert world.sent(StatePart) == []
    disk.fails = False
    for expected in ([SLOT], []):
        world.here.effects.put(b"another", b"")  # it goes with a commit
        world.tick()
        assert [each.slot for each in world.sent(StatePart, 3) if each.is_last] == expected
    assert world.here.effects.unreadable == {}
