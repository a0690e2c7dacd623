from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from vmq.streams.log.index import SPACING, Index, load

BATCHES = st.lists(
    st.tuples(st.integers(1, 50), st.integers(1, SPACING * 2), st.integers(0, 1000)), max_size=30
)


def built(batches: list[tuple[int, int, int]]) -> tuple[Index, list[tuple[int, int, int, int]]]:
    """An index, and the naive list: position, first offset, offset behind, time of each batch."""
    index, plain = Index(100, 64), []
    for rows, size, time in batches:
        plain.append((index.size, index.end, index.end + rows, time))
        index.add(index.end, rows, rows - 1, size, time)
    return index, plain


def told(index: Index) -> list[object]:
    """All that an index has."""
    places = [index.offsets, index.positions, index.times]
    return [index.base, index.first_time, index.merged, index.mark(), *places]


@given(BATCHES)
def test_a_look_up_never_leads_beyond_what_is_sought(batches: list[tuple[int, int, int]]) -> None:
    index, plain = built(batches)
    starts = {(position, first) for position, first, _, _ in plain}
    for position, first, end, _ in plain:
        for offset in (first, end - 1):
            found = index.find(offset)
            assert found in starts
            assert found <= (position, first)
            assert position - found[0] < SPACING
    for time in (0, 1, 500, 1000, 1001):
        sought = next((each for each in plain if each[3] >= time), None)
        found = index.find_time(time)
        assert (found is None) == (not plain)
        if sought is not None:
            assert found is not None
            assert found <= sought[:2]


@given(BATCHES, BATCHES)
def test_a_reset_is_as_if_nothing_had_come(
    batches: list[tuple[int, int, int]], more: list[tuple[int, int, int]]
) -> None:
    index, _ = built(batches)
    mark = index.mark()
    for rows, size, time in more:
        index.add(index.end, rows, rows - 1, size, time)
    index.reset(mark)
    assert told(index) == told(built(batches)[0])


def test_a_saved_index_comes_back_for_its_own_file_only(tmp_path: Path) -> None:
    index, _ = built([(10, SPACING, 5), (20, SPACING, 9)])
    index.merged = True
    path = tmp_path / "x.index"
    index.save(path)
    again = load(path, 100, index.size)
    assert again is not None
    assert told(again) == told(index)
    assert load(path, 101, index.size) is None
    assert load(path, 100, index.size + 1) is None
    assert load(tmp_path / "other", 100, index.size) is None


def test_a_harmed_index_is_none(tmp_path: Path) -> None:
    index, _ = built([(10, SPACING, 5), (20, SPACING, 9)])
    path = tmp_path / "x.index"
    index.save(path)
    raw = path.read_bytes()
    for at in range(len(raw)):
        path.write_bytes(raw[:at] + bytes([raw[at] ^ 4]) + raw[at + 1 :])
        assert load(path, 100, index.size) is None
        path.write_bytes(raw[:at])
        assert load(path, 100, index.size) is None
