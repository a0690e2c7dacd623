"""Rows of several producers in one batch: each row once, in its producer's order, none without those before it."""

from hypothesis import given
from hypothesis import strategies as st

from vmq.clustering.raft.produce import Take, arrange
from vmq.streams.log.gathering import Gathering
from vmq_cluster.raft.dots import DOTTED, Dot, marks_of
from vmq_cluster.raft.messages import Mark
from vmq_cluster.raft.state import Producers


def take_of(store: str, first: int, count: int) -> Take:
    rows = Gathering()
    rows.add_run(b"t", [b"%s %d" % (store.encode(), first + n) for n in range(count)], 1, "c", 0)
    return Take("g", Mark(store, "b", first, count), rows, count, False, lambda _status: None)


@given(
    st.lists(st.tuples(st.sampled_from("xyz"), st.integers(0, 12), st.integers(1, 5)), max_size=12),
    st.dictionaries(st.sampled_from("xyz"), st.integers(0, 8)),
)
def test_each_row_is_taken_once_and_in_order(
    asked: list[tuple[str, int, int]], known: dict[str, int]
) -> None:
    producers = Producers()
    for store, number in known.items():
        producers.add(Mark(store, "b", 0, number))
    takes = [take_of(*each) for each in asked]
    made, missing, there = arrange(takes, producers)
    ends = {store: known.get(store, 0) for store in "xyz"}
    wanted: list[bytes] = []
    gaps = []
    for take in takes:
        mark = take.mark
        if mark.first > ends[mark.store]:
            gaps.append(take)
            continue
        wanted += [
            b"%s %d" % (mark.store.encode(), number) for number in range(ends[mark.store], mark.end)
        ]
        ends[mark.store] = max(ends[mark.store], mark.end)
    assert [payload for each in made for payload in each.rows.payloads] == wanted
    assert missing == gaps
    assert sorted(map(id, (*gaps, *there, *(t for m in made for t in m.takes)))) == sorted(
        map(id, takes)
    )
    for each in made:
        for mark in each.marks.values():
            assert producers.place(mark) == 0
            producers.add(mark)
        assert sum(mark.count for mark in each.marks.values()) == len(each.rows.payloads)


def test_a_batch_has_so_many_rows() -> None:
    takes = [take_of("x", number * 5000, 5000) for number in range(5)]
    made, missing, there = arrange(takes, Producers())
    assert [len(each.rows.payloads) for each in made] == [15_000, 10_000]
    assert (missing, there) == ([], [])


def dotted(*dots: Dot) -> Take:
    rows = Gathering()
    for dot in dots:
        rows.add_run(b"t", [b"%s %d" % (dot[0].encode(), dot[2])], 2, "c", 0)
    rows.dots = list(dots)
    return Take("g", Mark(DOTTED + "x", "b", 0, len(dots)), rows, 1, False, lambda _status: None)


dots_of_rows = st.tuples(st.sampled_from("xy"), st.sampled_from("bc"), st.integers(1, 6))


@given(st.lists(st.lists(dots_of_rows, min_size=1, max_size=4), max_size=8), st.lists(dots_of_rows))
def test_rows_with_dots_are_taken_once_whoever_hands_them_in(
    asked: list[list[Dot]], known: list[Dot]
) -> None:
    producers = Producers()
    for mark in marks_of(known):
        producers.add(mark)
    takes = [dotted(*each) for each in asked]
    made, missing, there = arrange([*takes, take_of("z", 0, 2)], producers)
    fresh = dict.fromkeys(dot for each in asked for dot in each)
    wanted = [dot for dot in fresh if dot not in known]
    rows = [payload for each in made for payload in each.rows.payloads]
    assert rows == [*(b"%s %d" % (store.encode(), n) for store, _, n in wanted), b"z 0", b"z 1"]
    assert not missing
    assert [dot for each in made for dot in each.dots] == wanted
    assert len(there) + sum(len(each.takes) for each in made) == len(takes) + 1
    for each in made:
        marks = each.all_marks()
        assert not any(map(producers.place, marks))
        assert sum(mark.count for mark in marks) == len(each.rows.payloads)
        for mark in marks:
            producers.add(mark)
    assert all(
        producers.place(mark) == mark.count for each in takes for mark in marks_of(each.rows.dots)
    )
