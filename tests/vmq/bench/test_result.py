"""What counts as a failure, and how it is put into words."""

import pytest

from vmq.bench.load.histogram import LatencyHistogram
from vmq.bench.result import Connects, Latency, Result


@pytest.mark.parametrize(
    ("end", "is_sound"),
    [("complete", True), ("time", True), ("interrupted", True), ("stalled", False)],
)
def test_how_it_ended_counts_too(end: str, is_sound: bool) -> None:
    assert Result("pair", "mqtt://h:1", end=end).is_sound is is_sound


def test_who_was_not_let_in_counts_unless_we_stopped_asking() -> None:
    crowd = Connects(asked=10, came=8, held=8, seconds=1.0, rate=8.0)
    assert not Result("connect", "mqtt://h:1", connects=crowd).is_sound
    interrupted = Result("connect", "mqtt://h:1", end="interrupted", connects=crowd)
    assert interrupted.is_sound
    assert interrupted.faults_text() == "ok"


def test_what_is_unacknowledged_counts_unless_we_did_not_wait() -> None:
    assert not Result("pair", "mqtt://h:1", unacknowledged=1).is_sound
    assert Result("pair", "mqtt://h:1", unacknowledged=1, end="interrupted").is_sound


def test_latencies_are_microseconds() -> None:
    histogram = LatencyHistogram()
    assert Latency.of(histogram) is None
    histogram.add(1_000_000, 99)
    histogram.add(50_000_000)
    found = Latency.of(histogram)
    assert found is not None
    assert (found.count, found.max) == (100, 50_000)
    assert found.p50 == pytest.approx(1000, rel=0.01)
    assert found.p999 == pytest.approx(50_000, rel=0.01)
