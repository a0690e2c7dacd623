"""What a disk that does not give all records costs, and whom."""

from tests.vmq.clustering.slots.test_owner import ORIGIN, SLOT, on_a_failing_disk
from vmq.clustering.messages import fronts


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
