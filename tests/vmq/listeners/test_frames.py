"""Where frames end, against frames whose places are known; whole messages, against the library's frames."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode

from tests.conformance.websocket_wire import BINARY, CONTINUATION, PING, TEXT, encode_frame
from tests.vmq.mqtt.strategies import cut
from vmq.listeners.frames import FrameCounter, message_head, take_messages

SIZES = st.sampled_from([0, 1, 125, 126, 127, 65_535, 65_536])


@given(
    st.lists(st.tuples(SIZES, st.booleans()), min_size=1, max_size=6),
    st.lists(st.integers(0, 70_000), max_size=6),
    st.integers(1, 3),
)
def test_a_piece_completes_so_many_frames_wherever_the_stream_is_cut(
    frames: list[tuple[int, bool]], places: list[int], most: int
) -> None:
    raw = [encode_frame(BINARY, b"x" * size, masked=masked) for size, masked in frames]
    ends = {sum(map(len, raw[: index + 1])) for index in range(len(raw))}
    cutter = FrameCounter()
    seen, done = 0, 0
    for chunk in cut(b"".join(raw), places):
        position = 0
        while position < len(chunk):
            end = cutter.cut(chunk, position, most)
            inside = sum(seen + position < each <= seen + end for each in ends)
            assert cutter.count == inside <= most
            assert end == len(chunk) or cutter.count == most
            assert end > position
            done += cutter.count
            position = end
        seen += len(chunk)
    assert done == len(frames)


def test_the_size_is_known_with_the_header() -> None:
    cutter = FrameCounter()
    assert cutter.cut(encode_frame(BINARY, b"x" * 70_000)[:14], 0, 1) == 14
    assert (cutter.size, cutter.count) == (70_000, 0)


OTHERS = [
    encode_frame(BINARY, b"not masked", masked=False),
    encode_frame(BINARY, b"more follows", fin=False),
    *(encode_frame(opcode, b"x") for opcode in (CONTINUATION, TEXT, PING)),
    encode_frame(BINARY, b"x" * 301),
    encode_frame(BINARY, b"x" * 65_536),
    encode_frame(BINARY, b"cut")[:-1],
    encode_frame(BINARY, b"x" * 200)[:5],
    b"\x82",
]


@given(
    st.lists(st.binary(max_size=300), max_size=6),
    st.sampled_from([*OTHERS, b""]),
    st.integers(1, 7),
    st.binary(max_size=3),
)
def test_messages_are_taken_up_to_what_is_no_whole_one(
    messages: list[bytes], other: bytes, most: int, before: bytes
) -> None:
    raw = [encode_frame(BINARY, each) for each in messages]
    data = before + b"".join(raw) + other
    end = len(before) + sum(map(len, raw[:most]))
    assert take_messages(data, len(before), most, 300) == (messages[:most], end)


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65_535, 65_536])
def test_the_head_of_a_message_is_that_of_the_library(size: int) -> None:
    payload = b"x" * size
    whole = Frame(Opcode.BINARY, payload).serialize(mask=False)
    assert message_head(size) + payload == whole
