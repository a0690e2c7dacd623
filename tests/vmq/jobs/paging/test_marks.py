"""Marks of pages: whatever was added of a page is found as long as there is the page."""

from hypothesis import given, settings
from hypothesis import strategies as st

from vmq.jobs.paging.marks import PageMarks

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), st.integers(0, 600)),
        st.tuples(st.just("many"), st.integers(0, 2**32 - 1), st.integers(1, 300)),
        st.tuples(st.just("drop"), st.integers(1, 20), st.just(0)),
    ),
    max_size=60,
)


@settings(max_examples=50)
@given(STEPS)
def test_it_finds_what_a_dictionary_has(steps: list[tuple[str, int, int]]) -> None:
    alive: dict[int, set[int]] = {}
    marks = PageMarks(alive)
    last = 0
    for step, first, second in steps:
        if step == "drop":
            alive.pop(first, None)
            continue
        last += 1
        added = (
            [first * 64 + second] if step == "add" else [first ^ at * 64 for at in range(second)]
        )
        alive[last] = set(added)
        for mark in added:
            marks.add(mark, last)
    for mark in {each for marks_of in alive.values() for each in marks_of} | {7, 2**32 - 1}:
        wanted = {page for page, marks_of in alive.items() if mark in marks_of}
        assert wanted == {page for page in marks.pages(mark) if page in alive}


def test_what_is_of_no_page_any_more_takes_no_memory_for_long() -> None:
    alive: dict[int, None] = {}
    marks = PageMarks(alive)
    for page in range(1, 200):
        alive[page] = None
        for mark in range(500):
            marks.add(mark * 7919 + page, page)
        alive.pop(page - 2, None)
    assert marks.memory() < 200_000
