"""What an owner sends its followers."""

from vmq.clustering.messages.slots import SlotRecords, SlotStored, SlotView, StatePart
from vmq.clustering.slots.followers import ALL_LOGS, OVERHEAD, FollowerSet, cut
from vmq.clustering.slots.here import LocalNode
from vmq.clustering.slots.reach import Reach
from vmq.clustering.slots.words import NO_LINEAGE, Lineage, incarnation_of

VIEW = SlotView(2, incarnation_of(1, 1), 1, (2,))
BASE: tuple[Lineage, int] = ((1, incarnation_of(2, 1)), 40)
STATE = {b"h": b"head", **{b"m" + bytes([0] * 15 + [n]): b"x" * 50 for n in range(20)}}
STATE |= {b"q" + bytes([0] * 15 + [n]) + client: b"2" for n in range(20) for client in (b"c", b"d")}


def followers(unsafe: set[bytes] | None = None) -> tuple[FollowerSet, LocalNode]:
    here = LocalNode(VIEW.owner, Reach(1, "a", 1000, 100), part_bytes=100)
    here.reach.set_members({1: "a", 2: "b"})
    return FollowerSet(here, 7, BASE, set() if unsafe is None else unsafe), here


def sent(here: LocalNode) -> list[object]:
    messages, here.effects.sent = here.effects.sent, []
    return [message for _, message in messages]


def change(there: FollowerSet, *versions: int, key: bytes = b"") -> None:
    for version in versions:
        there.publish(VIEW, version, [(key or b"m" + bytes(16), b"new")])


def test_who_has_what_the_owner_began_from_gets_the_changes() -> None:
    there, here = followers()
    change(there, 1, 2)
    there.begin(VIEW, 2, BASE, 2, lambda: STATE)
    (message,) = sent(here)
    assert isinstance(message, SlotRecords)
    assert (message.after, message.version, message.base) == (0, 2, BASE)
    change(there, 3)
    (message,) = sent(here)
    assert isinstance(message, SlotRecords)
    assert (message.after, message.version, message.base) == (2, 3, None)


def test_what_a_follower_says_of_a_transfer_that_was_given_up_counts_no_more() -> None:
    """It said meanwhile that it had a whole copy, and is sent what came since."""
    there, _ = followers()
    change(there, 1, 2, 3, 4)
    there.begin(VIEW, 2, (NO_LINEAGE, 0), 4, lambda: STATE)
    there.begin(VIEW, 2, (VIEW.lineage, 2), 4, lambda: STATE)
    there.on_stored(2, SlotStored(7, VIEW.lineage, 4, False))
    assert there.confirmed((2,)) == 2
    there.on_stored(2, SlotStored(7, VIEW.lineage, 4, True))
    assert there.confirmed((2,)) == 4


def test_what_a_follower_says_of_a_copy_that_it_had_before_makes_no_transfer_whole() -> None:
    there, _ = followers()
    change(there, 1, 2, 3, 4)
    there.begin(VIEW, 2, (NO_LINEAGE, 0), 4, lambda: {b"h": b"head"})
    there.on_stored(2, SlotStored(7, VIEW.lineage, 3, True))
    assert not there.are_whole((2,))
    there.on_stored(2, SlotStored(7, VIEW.lineage, 4, True))
    assert there.are_whole((2,))


def test_who_has_something_else_gets_everything_in_parts_one_after_the_other() -> None:
    there, here = followers()
    change(there, 1)
    there.begin(VIEW, 2, (NO_LINEAGE, 0), 1, lambda: STATE)
    records: dict[bytes, bytes | None] = {}
    for index in range(1000):
        (part,) = sent(here)
        assert isinstance(part, StatePart)
        assert part.index == index
        records.update(part.records)
        assert not there.are_whole((2,))
        there.on_stored(2, SlotStored(7, VIEW.lineage, 1, part.is_last))
        if part.is_last:
            break
    assert records == STATE
    assert there.are_whole((2,))
    assert sent(here) == []


def test_who_confirms_the_first_part_has_all_that_was_not_safe() -> None:
    """A message that waits for a follower is acknowledged when the next follower has it, not only a part of others."""
    early, late = b"m" + bytes([0] * 15 + [18]), b"m" + bytes([0] * 15 + [19])
    there, here = followers({early})
    change(there, 1)
    there.safe = 1
    change(there, 2, key=late)
    there.begin(VIEW, 2, (NO_LINEAGE, 0), 2, lambda: STATE)
    (part,) = sent(here)
    assert isinstance(part, StatePart)
    keys = [key for key, _ in part.records]
    assert {b"h", early, late} <= set(keys)
    assert len(keys) < len(STATE)


def test_when_nobody_knows_what_was_safe_the_first_copies_have_to_be_whole() -> None:
    there, _ = followers()
    there = FollowerSet(there._here, 7, BASE, None)
    change(there, 1)
    there.begin(VIEW, 2, (NO_LINEAGE, 0), 1, lambda: STATE)
    there.on_stored(2, SlotStored(7, VIEW.lineage, 1, False))
    assert there.confirmed((2,)) == -1
    there.progress[2].parts.clear()
    there.on_stored(2, SlotStored(7, VIEW.lineage, 1, True))
    assert there.confirmed((2,)) == 1


def test_what_a_dropped_follower_confirmed_counts_no_more() -> None:
    there, _ = followers()
    there.begin(VIEW, 2, BASE, 1, lambda: STATE)
    there.on_stored(2, SlotStored(7, VIEW.lineage, 1, True))
    assert there.confirmed((2,)) == 1
    there.keep_only((3,))
    assert there.confirmed((2,)) == -1
    assert there.confirmed((2, 3)) == -1


def test_queues_come_before_messages() -> None:
    """Of an unfinished copy messages count: they would else seem finished for clients that are missing."""
    parts = list(cut(7, VIEW, VIEW.lineage, 1, STATE, 1, set()))
    assert len(parts) > 10
    keys = [key for part in parts for key, _ in part.records]
    assert [key[:1] for key in keys] == [b"h", *[b"q"] * 40, *[b"m"] * 20]
    assert set(keys) == set(STATE)


def test_where_owners_together_keep_much_for_followers_each_keeps_little() -> None:
    """A node alone may own a thousand slots."""
    there, here = followers()
    other = FollowerSet(here, 8, BASE, set())
    there.are_safe(1000)
    other.are_safe(1000)
    value = bytes(1 << 16)
    for version in range(1, 9):
        there.publish(VIEW, version, [(b"m", value)])
    assert here.logged > 8 << 16
    here.logged += ALL_LOGS
    other.publish(VIEW, 1, [(b"m", value)])
    there.publish(VIEW, 9, [(b"m", value)])
    assert here.logged == ALL_LOGS
    there.publish(VIEW, 10, [(b"m", bytes(100))])
    assert here.logged == ALL_LOGS + OVERHEAD + 101
    there.end()
    assert here.logged == ALL_LOGS


def test_who_has_no_peers_keeps_nothing_for_followers() -> None:
    there, here = followers()
    here.reach.set_members({})
    change(there, 1)
    assert here.logged, "it is not safe yet"
    there.are_safe(1)
    assert not here.logged


def test_changes_that_are_not_safe_are_kept_however_many() -> None:
    there, here = followers()
    for version in range(1, 5):
        there.publish(VIEW, version, [(b"m" + bytes([version] * 16), b"x" * (1 << 20))])
    there.begin(VIEW, 2, BASE, 4, lambda: STATE)
    (message,) = sent(here)
    assert isinstance(message, SlotRecords)
    assert len(message.records) == 4
    there.safe = 4
    change(there, 5)
    sent(here)
    there.begin(VIEW, 2, BASE, 5, lambda: STATE)
    assert isinstance(sent(here)[0], StatePart)
