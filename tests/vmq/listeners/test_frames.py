"""Where frames end, against frames whose places are known."""

from hypothesis import given
from hypothesis import strategies as st

from tests.conformance.websocket_wire import BINARY, encode_frame
from tests.vmq.mqtt.strategies import cut
from vmq.listeners.frames import FrameCounter

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
