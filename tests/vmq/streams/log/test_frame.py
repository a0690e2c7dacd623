import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import ipc

from tests.support.present import present
from tests.vmq.streams.support import batch_of, plain, rows_from
from vmq.streams.log.frame import (
    END,
    BadFrameError,
    ShortFrameError,
    check,
    encode,
    parse,
    write_options,
)
from vmq.streams.log.schema import STORED

SCHEMA = STORED.serialize().to_pybytes()


def message(count: int = 3, offset: int = 7, compression: str = "none") -> bytes:
    rows = batch_of(rows_from(0, count))
    head, body = encode(rows, offset, 1234, len(SCHEMA), write_options(compression))
    return head + bytes(body)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_a_message_says_what_it_holds_and_is_plain_arrow(compression: str) -> None:
    raw = message(5, 12, compression)
    frame = present(parse(memoryview(raw), 0))
    assert (frame.offset, frame.rows, frame.time, frame.end) == (12, 5, 1234, 17)
    assert frame.size == len(raw)
    check(memoryview(raw), 0, frame)
    with ipc.open_stream(SCHEMA + raw + END) as reader:
        batch, metadata = reader.read_next_batch_with_custom_metadata()
        assert plain(batch) == rows_from(0, 5)
        assert metadata[b"vmq"].startswith(b"offset=00000000000000000012 rows=0000000005")


def parse_and_check(raw: bytes) -> None:
    frame = present(parse(memoryview(raw), 0))
    check(memoryview(raw), 0, frame)


def test_the_mark_of_the_end_is_no_frame() -> None:
    assert parse(memoryview(END), 0) is None


def test_every_flipped_bit_is_found() -> None:
    raw = message(2)
    for index in range(len(raw)):
        for bit in (1, 16, 128):
            harmed = bytearray(raw)
            harmed[index] ^= bit
            with pytest.raises(BadFrameError):
                parse_and_check(bytes(harmed))


def test_every_cut_is_found_to_be_short() -> None:
    raw = message(1)
    for length in range(len(raw)):
        with pytest.raises(ShortFrameError):
            parse_and_check(raw[:length])


@given(st.binary(max_size=200))
def test_other_bytes_are_no_frame(raw: bytes) -> None:
    for data in (raw, b"\xff\xff\xff\xff" + raw):
        try:
            assert parse(memoryview(data), 0) is None
            assert data.startswith(END)
        except BadFrameError:
            pass
