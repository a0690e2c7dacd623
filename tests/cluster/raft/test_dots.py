"""Which rows with dots a log knows; what it forgets, it forgets to the safe side."""

from hypothesis import given
from hypothesis import strategies as st

from vmq_cluster.raft.dots import DOTTED, MOST_BOOTS, MOST_RUNS, Dot, RowDots, marks_of
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import RETIRED, ROWS, STATE, Batch, Mark
from vmq_cluster.raft.state import LogState, encode_stores, genesis

dots = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("12"), st.integers(1, 12)))


@given(dots, dots)
def test_a_row_is_known_that_was_added_and_no_other(added: list[Dot], asked: list[Dot]) -> None:
    known = RowDots()
    for mark in marks_of(added):
        known.add(mark)
    for dot in asked:
        assert known.has(dot) == (dot in added)
    for mark in marks_of(asked):
        store = mark.store.removeprefix(DOTTED)
        numbers = range(mark.first, mark.end)
        assert known.known(mark) == sum((store, mark.boot, each) in added for each in numbers)


@given(dots)
def test_marks_say_the_rows_in_their_order(given_dots: list[Dot]) -> None:
    said = [
        (mark.store.removeprefix(DOTTED), mark.boot, number)
        for mark in marks_of(given_dots)
        for number in range(mark.first, mark.end)
    ]
    assert said == given_dots


def test_what_there_is_of_it_is_bounded_and_the_oldest_goes() -> None:
    known = RowDots()
    for number in range(1, 2 * MOST_RUNS + 3, 2):
        known.add(Mark(DOTTED + "a", "1", number, 1))
    assert not known.has(("a", "1", 1))
    assert known.has(("a", "1", 3))
    for boot in range(MOST_BOOTS):
        known.add(Mark(DOTTED + "b", str(boot), 1, 1))
    assert not known.has(("a", "1", 3))
    assert known.has(("b", "0", 1))


def test_a_segment_begins_with_the_dots_and_stores_that_are_retired_keep_theirs() -> None:
    state = LogState()
    marks = (Mark(DOTTED + "a", "1", 4, 2), Mark(DOTTED + "b", "2", 1, 1), Mark("a", "1", 0, 1))
    for batch in (
        Batch(0, 1, 0, STATE, (), genesis(Members(("a", "b")))),
        Batch(1, 4, 1, ROWS, marks, b""),
        Batch(5, 1, 1, RETIRED, (), encode_stores(["a"])),
    ):
        state.add(batch)
    again = LogState.of([Batch(6, 1, 1, STATE, (), state.encode(0))])
    for each in (state, again):
        assert each.producers.next == {}
        assert all(map(each.producers.dots.has, [("a", "1", 4), ("a", "1", 5), ("b", "2", 1)]))
        assert each.producers.place(Mark(DOTTED + "a", "1", 3, 2)) == 1
        assert each.producers.place(Mark("a", "1", 0, 1)) == 0
