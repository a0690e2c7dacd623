"""The judge: what is lost, repeated, out of order, damaged or foreign."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.bench.load.checks import MessageVerdict, Timeline, Track, judge
from vmq.bench.load.frames import LoadFrames
from vmq.bench.load.histogram import LatencyHistogram

TOPIC = b"bench/p0"


def track_of(sent: int, per_block: int = 16) -> Track:
    frames = LoadFrames(TOPIC, 0, 16, 0, per_block)
    timeline = Timeline()
    track = Track(frames, timeline)
    if sent:
        timeline.add(sent, 0)
    return track


def stream(track: Track, *sequences: int) -> memoryview:
    return memoryview(b"".join(track.frames.one(sequence) for sequence in sequences))


@pytest.mark.parametrize("good", range(17))
def test_a_run_ends_where_the_bytes_differ(good: int) -> None:
    track = track_of(1000)
    sequences = [*range(good), *(500 + index for index in range(20 - good))]
    assert track.match(stream(track, *sequences), 0, 20) == min(good, 16)


def test_a_run_ends_at_the_end_of_a_block_and_goes_on_in_the_next() -> None:
    track = track_of(1000)
    data = stream(track, *range(50))
    latency = LatencyHistogram()
    at = 0
    while at < 50:
        count = track.match(data, at * track.frames.length, 50 - at)
        assert count
        track.arrived(count, 7, latency)
        at += count
    assert (track.next, latency.count, track.missing(50)) == (50, 50, 0)


def test_what_was_not_sent_yet_cannot_come() -> None:
    track = track_of(3)
    assert track.match(stream(track, *range(10)), 0, 10) == 3


@given(st.lists(st.integers(0, 30), max_size=60))
def test_a_track_agrees_with_a_plain_count(arrivals: list[int]) -> None:
    track = track_of(31)
    latency = LatencyHistogram()
    seen: set[int] = set()
    highest = -1
    for sequence in arrivals:
        verdict, ahead = track.place(sequence, 1, latency)
        if sequence in seen:
            assert verdict is MessageVerdict.DUPLICATE
        elif sequence < highest:
            assert verdict is MessageVerdict.REORDERED
        else:
            assert (verdict, ahead) == (MessageVerdict.NEW, sequence - highest)
        seen.add(sequence)
        highest = max(highest, sequence)
        assert track.received() == len(seen)
        assert track.missing(31) == 31 - len(seen)
        assert track.skipped() == highest + 1 - len(seen)
    assert latency.count == len(seen)


def test_a_packet_is_judged_by_its_bytes() -> None:
    track = track_of(10)
    good = track.frames.one(4)
    assert judge(good, track, 10) == (MessageVerdict.NEW, 4)
    assert judge(good, track, 4) == (MessageVerdict.FOREIGN, -1)
    assert judge(good, None, 10) == (MessageVerdict.FOREIGN, -1)
    assert judge(good + b"x", track, 10) == (MessageVerdict.FOREIGN, -1)
    assert judge(good[:-1] + b"\0", track, 10) == (MessageVerdict.DAMAGED, 4)
    assert judge(b"\x31" + good[1:], track, 10) == (MessageVerdict.DAMAGED, 4)
    assert judge(good.replace(b"p0", b"p1"), track, 10) == (MessageVerdict.DAMAGED, 4)


def test_latency_is_counted_from_when_each_run_was_sent() -> None:
    timeline = Timeline()
    track = Track(LoadFrames(TOPIC, 0, 16, 0), timeline)
    timeline.add(10, 1000)
    timeline.add(30, 2000)
    latency = LatencyHistogram()
    track.arrived(5, 1100, latency)
    assert (latency.max, latency.count) == (100, 5)
    track.arrived(10, 2050, latency)  # five sent at 1000, five at 2000
    assert (latency.max, latency.count) == (1050, 15)
    assert latency.quantile(0.3) == 50
    assert track.place(29, 2060, latency)[0] is MessageVerdict.NEW
    assert track.place(20, 2070, latency)[0] is MessageVerdict.REORDERED
    assert latency.count == 17


def test_a_long_timeline_forgets_what_all_have_had() -> None:
    timeline = Timeline()
    tracks = [Track(LoadFrames(TOPIC, 0, 16, 0), timeline) for _ in range(2)]
    latency = LatencyHistogram()
    for end in range(1, 30_001):
        timeline.add(end, end)
        tracks[0].arrived(1, end + 1, latency)
        if end > 5000:
            tracks[1].arrived(1, end + 1, latency)
    assert len(timeline._ends) < 15_000
    tracks[1].arrived(5000, 30_001, latency)
    assert latency.count == 60_000
    assert latency.quantile(0.4) == 1
