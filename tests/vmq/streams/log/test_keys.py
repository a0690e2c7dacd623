import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vmq.streams.support import options
from vmq.streams.log.keys import Keys, level_of

WORDS = st.lists(st.sampled_from(["a", "bc", "", "ü"]), min_size=1, max_size=5).map("/".join)


@given(
    st.lists(st.tuples(WORDS, st.sampled_from(["c1", "c2", ""])), max_size=20),
    st.sampled_from(["topic", "client_id", "level:1", "level:3"]),
)
def test_the_column_holds_the_key_of_each_row(rows: list[tuple[str, str]], key: str) -> None:
    keys = Keys(options(key=key))
    topics = pa.array([topic for topic, _ in rows], pa.string())
    clients = pa.array([client for _, client in rows], pa.string())
    column = keys.column(topics, clients)
    assert column.type == pa.binary()
    assert column.to_pylist() == [keys.of(topic.encode(), client) for topic, client in rows]


@pytest.mark.parametrize(
    ("level", "word"), [(1, b"plant"), (2, b""), (3, b"temp"), (4, b""), (128, b"")]
)
def test_levels_count_from_one_and_may_be_missing(level: int, word: bytes) -> None:
    assert level_of(b"plant//temp", level) == word


def test_partitions_of_keys_never_change() -> None:
    """Data on disks depends on them."""
    keys = Keys(options(partitions=8))
    assert [keys.partition(key) for key in (b"", b"a", b"client-17", b"plant/1")] == PARTITIONS


PARTITIONS = [0, 0, 0, 7]
