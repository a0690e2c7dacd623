import json
import struct
from array import array

from hypothesis import given
from hypothesis import strategies as st

from vmq.http.dashboard.history import ROWS, History
from vmq.http.dashboard.sampler import SERIES


def decoded(data: bytes) -> tuple[list[int], dict[str, list[float]]]:
    """What `encoded` gives, read with nothing of its own."""
    (size,) = struct.unpack_from("<I", data)
    head = json.loads(data[4 : 4 + size])
    place, rows = 4 + size, head["rows"]
    assert place % 4 == 0
    times = list(struct.unpack_from(f"<{rows}I", data, place))
    columns = {}
    for name in head["names"]:
        place += 4 * rows
        columns[name] = list(struct.unpack_from(f"<{rows}f", data, place))
    assert place + 4 * rows == len(data)
    return times, columns


@given(
    st.integers(1, 7),
    st.lists(
        st.tuples(st.integers(0, 2**32 - 1), st.floats(width=32, allow_nan=False)), max_size=30
    ),
)
def test_it_has_the_last_rows_in_their_order(most: int, rows: list[tuple[int, float]]) -> None:
    history = History(("a", "b"), most)
    for when, value in rows:
        history.add(when, (value, 7.0))
    times, columns = decoded(history.encoded())
    kept = rows[-most:]
    assert times == [when for when, _ in kept]
    assert columns == {"a": [value for _, value in kept], "b": [7.0] * len(kept)}
    assert len(history) == len(kept)


def test_an_hour_of_all_series_takes_less_than_two_mebibytes() -> None:
    history = History(SERIES)
    row = [1.5] * len(SERIES)
    for second in range(ROWS + 10):
        history.add(second, row)
    assert len(history) == 3600
    assert history.nbytes < 2 * 1024 * 1024
    assert array("f").itemsize == array("I").itemsize == 4, "what `encoded` promises"
