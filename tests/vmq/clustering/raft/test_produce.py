"""Rows of several producers in one batch: each row once, in its producer's order, none without those before it."""

from hypothesis import given
from hypothesis import strategies as st

from vmq.clustering.raft.produce import Take, arrange
from vmq.streams.log.gathering import Gathering
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
