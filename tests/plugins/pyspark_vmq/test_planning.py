from hypothesis import given
from hypothesis import strategies as st
from pyspark_vmq.offsets import Offsets
from pyspark_vmq.planning import Range, falling_back, limited, no_earlier, ranges_between, tasks_of


@st.composite
def spans(draw: st.DrawFn) -> tuple[Offsets, Offsets]:
    """Two positions, the second not before the first."""
    start: Offsets = {}
    end: Offsets = {}
    for stream in draw(st.lists(st.sampled_from("abc"), unique=True, min_size=1)):
        start[stream], end[stream] = {}, {}
        for number in range(draw(st.integers(1, 4))):
            begin = draw(st.integers(0, 50))
            start[stream][number] = begin
            end[stream][number] = begin + draw(st.integers(0, 40))
    return start, end


def messages(ranges: list[Range]) -> list[tuple[str, int, int]]:
    """Every message of some ranges, one by one: the oracle's view."""
    return [(r.stream, r.partition, place) for r in ranges for place in range(r.start, r.end)]


@given(spans())
def test_ranges_hold_every_message_between_two_positions_once(
    span: tuple[Offsets, Offsets],
) -> None:
    start, end = span
    wanted = [
        (stream, number, place)
        for stream in sorted(end)
        for number in sorted(end[stream])
        for place in range(start[stream][number], end[stream][number])
    ]
    assert messages(ranges_between(start, end)) == wanted


def test_falling_back_is_an_end_before_its_start() -> None:
    assert falling_back({"a": {0: 3}}, {"a": {0: 3, 1: 7}}) == {}
    assert falling_back({"a": {0: 3, 1: 4}}, {"a": {0: 9, 1: 3}}) == {"a": {1: 4}}
    assert falling_back({"a": {0: 3, 1: 4}}, {"a": {0: 3}}) == {"a": {1: 4}}
    assert falling_back({"a": {0: 3}}, {}) == {}
    found = no_earlier({"a": {0: 3, 1: 4}}, {"a": {0: 9, 1: 3}, "b": {0: 1}})
    assert found == {"a": {0: 9, 1: 4}, "b": {0: 1}}


def test_ranges_and_tasks_know_whose_they_are() -> None:
    ranges = ranges_between({}, {"a": {0: 4}, "b": {0: 4}}, {"a": "x"})
    assert [each.stream_id for each in ranges] == ["x", ""]
    found = [[(r.stream_id, r.start, r.end) for r in task] for task in tasks_of(ranges, 3)]
    assert found == [[("x", 0, 3)], [("x", 3, 4), ("", 0, 2)], [("", 2, 4)]]


def test_a_partition_that_has_not_been_read_begins_at_its_first_message() -> None:
    assert ranges_between({}, {"a": {0: 3}}) == [Range("a", 0, 0, 3)]


@given(spans(), st.integers(1, 100))
def test_tasks_hold_the_ranges_in_order_and_evenly(
    span: tuple[Offsets, Offsets], wanted: int
) -> None:
    ranges = ranges_between(*span)
    tasks = tasks_of(ranges, wanted)
    assert [each for task in tasks for each in messages(task)] == messages(ranges)
    total = len(messages(ranges))
    share = -(-total // max(1, min(wanted, total or 1)))
    assert all(0 < sum(r.size for r in task) <= share for task in tasks)
    assert len(tasks) <= wanted


@given(spans(), st.integers(1, 60))
def test_a_limit_is_kept_and_used_up(span: tuple[Offsets, Offsets], most: int) -> None:
    start, end = span
    total = sum(each.size for each in ranges_between(start, end))
    taken = ranges_between(start, limited(start, end, most))
    assert sum(each.size for each in taken) == min(most, total)
    for each in taken:
        assert each.end <= end[each.stream][each.partition]


def test_a_small_partition_is_not_starved_by_a_large_one() -> None:
    start: Offsets = {"a": {0: 0, 1: 0}}
    end: Offsets = {"a": {0: 1_000_000, 1: 1}}
    assert limited(start, end, 10) == {"a": {0: 9, 1: 1}}


@given(spans(), st.integers(1, 30))
def test_going_on_from_limit_to_limit_reads_everything_once(
    span: tuple[Offsets, Offsets], most: int
) -> None:
    start, end = span
    seen: list[tuple[str, int, int]] = []
    place = start
    while place != end:
        following = limited(place, end, most)
        assert following != place
        seen += messages(ranges_between(place, following))
        place = following
    assert sorted(seen) == sorted(messages(ranges_between(start, end)))
