"""What a node has of a slot that it does not own."""

import pytest

from tests.support.present import present
from tests.vmq.clustering.slots.test_owner import FailingDisk
from vmq.clustering.messages.slots import SlotView
from vmq.clustering.slots.copies import RecentKeys, SlotCopy, load_copies
from vmq.clustering.slots.effects import Effects
from vmq.clustering.slots.followers import cut
from vmq.clustering.slots.queued import StoredMessage
from vmq.clustering.slots.records import all_records, load_state, take_changes
from vmq.clustering.slots.state import SlotState
from vmq_cluster.errors import StorageError
from vmq_cluster.storage import MemoryStorage

OWNER = 5 << 24 | 1
ME = 6 << 24 | 1
VIEW = SlotView(1, OWNER, 1, (6,))
SLOT = 3


class Follower:
    """A copy and its disk, with an owner beside it."""

    def __init__(self) -> None:
        self.owner = SlotState()
        self.owner.begin(VIEW.lineage)
        register = self.owner.register("c")
        register.session = self.owner.stamp(0)
        self.owner.subscribe("c", "#", 2, 0)
        self.disk = MemoryStorage()
        self.effects = Effects(self.disk)
        self.copy = SlotCopy(SLOT)

    def take(self, number: int, size: int = 50) -> list[tuple[bytes, bytes | None]]:
        """The owner takes a message; what changed."""
        dot = OWNER, number
        self.owner.see(dot)
        message = StoredMessage(self.owner.stamp(0), b"t", b"x" * size, 2, "")
        self.owner.put("c", dot, 2, message)
        self.owner.close()
        return take_changes(self.owner)

    def transfer(self, parts: int = 1000) -> None:
        """The owner's state comes, or its first parts."""
        version = self.owner.version
        self.copy.begin(VIEW.lineage, version)
        records = all_records(self.owner)
        for part in list(cut(SLOT, VIEW, VIEW.lineage, version, records, 100, set()))[:parts]:
            self.copy.add_part(self.effects, part.records)
            if part.is_last:
                self.copy.finish(self.effects, VIEW)

    def change(self, records: list[tuple[bytes, bytes | None]], safe: int = 0) -> bool:
        version = self.owner.version
        return self.copy.change(self.effects, VIEW.lineage, version - 1, version, records, safe)

    def restart(self) -> SlotCopy:
        """What the disk has of it."""
        number, writes, _ = self.effects.begin_commit()
        self.disk.write(writes, sync=False)
        self.effects.end_commit(number)
        _, found = load_copies(self.disk)
        return found[SLOT]


def follower(messages: int = 10) -> Follower:
    found = Follower()
    for number in range(1, messages + 1):
        found.take(number)
    return found


def test_parts_and_changes_make_the_owners_state() -> None:
    there = follower()
    there.transfer()
    assert there.change(there.take(11))
    assert there.copy.whole is not None
    assert there.copy.whole.read(there.effects) == all_records(there.owner)
    whole = present(there.restart().whole)
    assert whole.read(there.effects) == all_records(there.owner)


def test_a_change_while_parts_come_is_newer_than_they_are() -> None:
    there = follower()
    parts = list(cut(SLOT, VIEW, VIEW.lineage, 11, all_records(there.owner), 100, set()))
    assert len(parts) > 3
    there.copy.begin(VIEW.lineage, there.owner.version)
    there.copy.add_part(there.effects, parts[0].records)
    there.owner.done("c", (OWNER, 10))
    there.owner.close()
    assert there.change(take_changes(there.owner))
    for part in parts[1:]:
        there.copy.add_part(there.effects, part.records)
    there.copy.finish(there.effects, VIEW)
    assert there.copy.whole is not None
    assert there.copy.whole.read(there.effects) == all_records(there.owner)


def test_of_what_is_unfinished_only_messages_count_and_what_was_whole_stays() -> None:
    there = follower(2)
    there.transfer()
    for number in range(3, 13):
        there.take(number)
    there.transfer(parts=3)
    restarted = there.restart()
    for found, effects in ((there.copy, there.effects), (restarted, Effects(there.disk))):
        found.settle(effects, ME, VIEW)
        state = found.state(effects)
        assert {(OWNER, 1), (OWNER, 2)} < set(state.queues["c"])
        # The context says no more than what is there: the owner can hand in the rest.
        for number in range(1, 13):
            assert ((OWNER, number) in state.context) == ((OWNER, number) in state.queues["c"])


def test_a_transfer_that_the_owner_gave_up_stands_in_no_ones_way() -> None:
    there = follower()
    there.transfer()
    there.transfer(parts=1)
    version = there.owner.version
    there.owner.close()
    records = take_changes(there.owner)
    built = present(there.copy.building)
    built.version = version - 1  # it was begun a while ago
    assert there.change(records)
    assert there.copy.building is not built
    assert there.restart().remains == []


def test_a_change_that_follows_nothing_is_refused() -> None:
    there = follower()
    there.transfer()
    there.take(11)
    assert not there.change(there.take(12))


def test_what_is_deleted_is_gone_from_disk() -> None:
    there = follower()
    there.transfer(parts=2)
    there.transfer()
    there.restart()
    there.copy.delete(there.effects, VIEW)
    there.effects.put(b"Vother", None)
    _, writes, must_sync = there.effects.begin_commit()
    left = {key for key, _ in there.disk.scan(b"S", b"T") if writes.get(key, b"") is not None}
    assert left == set()
    assert must_sync


def test_an_unfinished_copy_that_the_disk_has_is_no_part_of_what_the_owner_includes() -> None:
    there = follower()
    there.transfer(parts=1)
    found = there.restart()
    assert not found.is_included({VIEW.lineage: there.owner.version - 1})
    assert found.is_included({VIEW.lineage: there.owner.version})


def test_the_head_of_a_state_says_what_it_is() -> None:
    there = follower()
    there.transfer()
    assert there.copy.base() == (VIEW.lineage, there.owner.version)
    assert there.copy.whole is not None
    assert load_state(there.copy.whole.read(there.effects)).version == there.owner.version


def test_recent_keys_are_those_behind_what_is_safe() -> None:
    recent = RecentKeys()
    assert recent.keys() is None
    recent.add(5, [b"a"], 3)
    assert recent.keys() is None  # of what came before, nothing is known
    recent.add(6, [b"b"], 5)
    assert recent.keys() == {b"b"}
    recent.adopt()
    recent.add(1, [b"c"], 0)
    assert recent.keys() == {b"b", b"c"}
    recent.add(2, [b"d"], 1)
    assert recent.keys() == {b"d"}


def test_a_transfer_begins_with_all_that_is_not_safe() -> None:
    recent = RecentKeys()
    recent.begin(9, [b"a"])
    assert recent.keys() == {b"a"}
    recent.add(10, [b"b"], 9)
    assert recent.keys() == {b"b"}


def test_a_change_follows_what_is_whole_and_what_came_anew_when_the_owner_knows_of_one_only() -> (
    None
):
    """It asked again while parts were under way: which of the two it goes on with, it alone knows."""
    there = Follower()
    for number in (1, 2, 3):
        there.take(number)
    there.transfer()
    there.transfer(1)
    assert there.copy.building is not None
    assert there.copy.is_exact()
    assert there.change(there.take(4))
    assert there.copy.is_exact()
    for each in (there.copy.whole, there.copy.building):
        assert each is not None
        assert each.version == there.owner.version
    assert set(there.copy.state(there.effects).messages) == {
        (OWNER, number) for number in (1, 2, 3, 4)
    }


def on_a_failing_disk() -> tuple[Follower, FailingDisk]:
    there, disk = Follower(), FailingDisk()
    there.disk = there.effects.disk = disk
    for number in range(1, 11):
        there.take(number)
    return there, disk


def test_records_that_the_disk_does_not_list_go_another_time() -> None:
    """The copy that stands in their place is whole all the same, on disk as well."""
    there, disk = on_a_failing_disk()
    there.transfer()
    there.restart()
    disk.fails = True
    there.transfer()
    disk.fails = False
    found = there.restart()
    assert present(found.whole).number == present(there.copy.whole).number == 2
    assert [each.number for each in found.remains] == [1]
    there.transfer()
    assert there.restart().remains == []


def test_what_cannot_be_settled_goes_on_being_built() -> None:
    there, disk = on_a_failing_disk()
    parts = list(cut(SLOT, VIEW, VIEW.lineage, 10, all_records(there.owner), 100, set()))
    there.copy.begin(VIEW.lineage, there.owner.version)
    for part in parts[:-1]:
        there.copy.add_part(there.effects, part.records)
    there.restart()
    disk.fails = True
    with pytest.raises(StorageError):
        there.copy.settle(there.effects, ME, VIEW)
    disk.fails = False
    there.copy.add_part(there.effects, parts[-1].records)
    there.copy.finish(there.effects, VIEW)
    whole = present(there.restart().whole)
    assert whole.read(there.effects) == all_records(there.owner)
