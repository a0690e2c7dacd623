"""Batches of few rows that are written here say the same as those that Arrow writes."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import ipc

from tests.support.present import present
from tests.vmq.streams.support import options
from vmq.streams.log.frame import END, BadFrameError, check, parse
from vmq.streams.log.gathering import Gathering
from vmq.streams.log.keys import Keys
from vmq.streams.log.segment import Header
from vmq.streams.log.small import FEW, FewRows

HEADER = Header("s", 3)
RECEIPT = "0123456789abcdef" + "7" * 20
ROW = st.tuples(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    st.binary(max_size=40),
    st.sampled_from([0, 1, 2, 4, 5, 6]),
    st.integers(-(2**50), 2**50),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
)


def gathered(rows: list[tuple[str, bytes, int, int, str]]) -> Gathering:
    made = Gathering()
    for topic, payload, flags, time, client in rows:
        made.add_run(topic.encode(), [payload], flags, client, time)
    return made


def read(raw: bytes) -> tuple[pa.RecordBatch, dict[bytes, bytes]]:
    with ipc.open_stream(HEADER.raw + raw + END) as reader:
        batch, told = reader.read_next_batch_with_custom_metadata()
    batch.validate(full=True)
    return batch, dict(told)


def check_whole(raw: bytes) -> None:
    view = memoryview(raw)
    frame = present(parse(view, 0))
    check(view, 0, frame)


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(ROW, min_size=1, max_size=FEW - 1),
    key=st.sampled_from(["client_id", "topic", "level:2"]),
    offset=st.integers(0, 2**60),
    receipt=st.sampled_from(["", RECEIPT]),
    raft=st.text("abcXYZ012+/", max_size=70),
)
def test_arrow_reads_what_it_would_have_written(
    rows: list[tuple[str, bytes, int, int, str]], key: str, offset: int, receipt: str, raft: str
) -> None:
    keys = Keys(options(key=key))
    made = gathered(rows)
    few = present(FewRows.of(made, keys))
    head, body = few.message(offset, receipt, raft)
    assert len(head) % 8 == len(body) % 8 == 0
    batch, told = read(head + body)
    assert batch == made.rows(keys)[0].replace_schema_metadata(HEADER.schema.metadata)
    view = memoryview(head + body)
    frame = present(parse(view, 0))
    check(view, 0, frame)
    assert (frame.offset, frame.rows, frame.size) == (offset, len(rows), len(view))
    assert (frame.time, frame.receipt) == (max(0, *(each[3] for each in rows)), receipt)
    assert frame.raft == raft.encode()
    assert set(told) == {b"vmq"} | ({b"receipt"} if receipt else set()) | (
        {b"raft"} if raft else set()
    )


def test_any_flipped_bit_is_found() -> None:
    few = present(FewRows.of(gathered([("t", b"payload", 1, 5, "c")]), Keys(options())))
    raw = b"".join(few.message(9, "", "abc"))
    for place in range(0, len(raw) * 8, 37):
        bad = bytearray(raw)
        bad[place // 8] ^= 1 << place % 8
        with pytest.raises(BadFrameError):
            check_whole(bytes(bad))


@pytest.mark.parametrize("what", ["headers", "many", "no text", "none"])
def test_what_is_not_common_goes_the_long_way(what: str) -> None:
    made = gathered([("t", b"p", 1, 5, "c")] * (FEW if what == "many" else what != "none"))
    if what == "headers":
        made.headers[0] = [("a", "b")]
    if what == "no text":
        made.topics[0] = b"\xff"
    assert FewRows.of(made, Keys(options())) is None


def test_a_batch_of_one_row_takes_little_beside_it() -> None:
    """Where columns and buffers are takes 616 bytes in Arrow's form, and our mark 128."""
    rows = gathered([("sensors/1/temp", b"x" * 20, 1, 5, "client-1")])
    few = present(FewRows.of(rows, Keys(options())))
    assert sum(map(len, few.message(7))) - 42 - 8 <= 1000
