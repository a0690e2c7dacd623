"""What a log says beside its rows."""

from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import MEMBERS, RETIRED, ROWS, STATE, UNCLEAN, Batch, Mark
from vmq_cluster.raft.state import (
    FORMER,
    GAP,
    MOST_RANGES,
    LogState,
    Producers,
    Terms,
    encode_members,
    encode_range,
    encode_stores,
    genesis,
)


def rows(offset: int, term: int, mark: Mark) -> Batch:
    return Batch(offset, mark.count, term, ROWS, (mark,), b"")


def test_a_producer_hands_in_each_number_once_and_in_order() -> None:
    producers = Producers()
    assert producers.place(Mark("s", "b", 0, 3)) == 0
    producers.add(Mark("s", "b", 0, 3))
    assert producers.place(Mark("s", "b", 0, 3)) == 3
    assert producers.place(Mark("s", "b", 1, 4)) == 2
    assert producers.place(Mark("s", "b", 4, 1)) == GAP
    assert producers.place(Mark("s", "b", 3, 1)) == 0


def test_another_boot_of_a_store_is_another_producer() -> None:
    producers = Producers()
    producers.add(Mark("s", "b", 0, 10))
    assert producers.place(Mark("s", "c", 0, 10)) == 0
    producers.add(Mark("s", "c", 0, 10))
    assert producers.next == {("s", "c"): 10}
    assert producers.place(Mark("s", "b", 10, 5)) == 5, "an earlier boot hands in nothing more"


def test_terms_are_found_by_offset_also_before_what_is_kept() -> None:
    terms = Terms([(0, 0), (1, 1), (5, 3), (9, 4)])
    assert [terms.at(offset) for offset in (0, 1, 4, 5, 8, 9, 20)] == [0, 1, 1, 3, 3, 4, 4]
    assert [terms.begin(offset) for offset in (0, 4, 8)] == [0, 1, 5]
    terms.trim(6)
    assert terms.starts == [(5, 3), (9, 4)]
    terms.trim(9)
    assert terms.at(8) == 3, "who has all before the first offset is asked for its last term"


def test_a_segment_begins_with_all_that_was_said_before_it() -> None:
    state = LogState()
    members = Members(("a",), ("c",))
    for batch in (
        Batch(0, 1, 0, STATE, (), genesis(Members(("a", "b")))),
        rows(1, 1, Mark("s", "b", 0, 2)),
        Batch(3, 1, 1, MEMBERS, (), encode_members(members)),
        rows(4, 2, Mark("t", "b", 0, 1)),
        Batch(5, 1, 3, UNCLEAN, (), encode_range(4, 9, 3)),
        rows(6, 3, Mark("u", "b", 7, 1)),
        Batch(7, 1, 3, RETIRED, (), encode_stores(["t"])),
    ):
        state.add(batch)
    assert state.members_end == 4
    again = LogState.of([Batch(8, 1, 3, STATE, (), state.encode(0))])
    assert again.members == members
    assert again.terms.starts == state.terms.starts == [(0, 0), (1, 1), (4, 2), (5, 3)]
    assert again.producers.next == {("s", "b"): 2, ("u", "b"): 8}
    assert again.uncertain == [(4, 9, 3)]
    assert again.last_unclean == (4, 3)
    assert again.former == ("a", "b"), "one of them may have what is damaged elsewhere"


def test_who_missed_several_unclean_elections_gives_way_to_each() -> None:
    """What was committed before the first stays committed; the term tells whether the last one is known."""
    state = LogState()
    state.add(Batch(0, 1, 0, STATE, (), genesis(Members(("a", "b")))))
    state.add(Batch(1, 1, 5, UNCLEAN, (), encode_range(69, 69, 5)))
    state.add(Batch(2, 1, 6, UNCLEAN, (), encode_range(78, 80, 6)))
    assert state.last_unclean == (69, 6)


def test_of_many_ranges_that_may_be_lost_the_first_are_known_as_one() -> None:
    state = LogState.of([Batch(0, 1, 0, STATE, (), genesis(Members(("a",))))])
    for number in range(1, MOST_RANGES + 11):
        body = encode_range(10 * number, 10 * number + 1, number)
        state.add(Batch(number, 1, number, UNCLEAN, (), body))
    assert len(state.uncertain) == MOST_RANGES
    assert state.uncertain[:2] == [(10, 111, 11), (120, 121, 12)]
    assert state.last_unclean == (10, MOST_RANGES + 10)


def test_who_was_a_member_is_known_after_others_have_gone_too() -> None:
    state = LogState(Members(("a", "b", "c")))
    for number, names in enumerate((("a", "b"), ("a", "b", "d"), ("a", "d"), ("d",)), 1):
        state.add(Batch(number, 1, 1, MEMBERS, (), encode_members(Members(names))))
    assert state.former == ("a", "d", "b", "c")
    for number in range(5, 50, 2):
        for count, names in enumerate((("d", f"n{number}"), ("d",))):
            body = encode_members(Members(names))
            state.add(Batch(number + count, 1, 1, MEMBERS, (), body))
    assert len(state.former) == FORMER
    assert state.former[:2] == ("d", "n49")
