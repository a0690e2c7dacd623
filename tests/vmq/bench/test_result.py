"""What counts as a failure, and how it is put into words."""

import pytest

from vmq.bench.load.checks import Faults
from vmq.bench.load.histogram import LatencyHistogram
from vmq.bench.load.usage import Usage
from vmq.bench.result import BrokerCost, Connects, Latency, Result


@pytest.mark.parametrize(
    "fault",
    ["lost", "duplicates", "reordered", "damaged", "foreign", "protocol_errors", "disconnected"],
)
def test_any_fault_makes_a_result_unsound(fault: str) -> None:
    sound = Result("pair", "mqtt://h:1")
    assert sound.is_sound
    assert sound.faults_text() == "ok"
    result = Result("pair", "mqtt://h:1", **{fault: 1200})  # type: ignore[arg-type]
    assert not result.is_sound
    assert result.faults_text().startswith("1,200 ")


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


def test_faults_add_up() -> None:
    result = Result("pair", "mqtt://h:1")
    result.take_faults(Faults(lost=1, duplicates=2))
    result.take_faults(Faults(lost=3, reordered=4, damaged=5, foreign=6))
    counts = (result.lost, result.duplicates, result.reordered, result.damaged, result.foreign)
    assert counts == (4, 2, 4, 5, 6)


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


def test_a_cost_is_the_difference_of_two_readings() -> None:
    cost = BrokerCost.between(Usage(1.5, 100, 1, 1), Usage(2.0, 300, 2, 5), peak=400)
    assert (cost.cpu_seconds, cost.rss_start, cost.rss_end, cost.rss_peak) == (0.5, 100, 300, 400)
    assert (cost.processes, cost.threads) == (2, 5)
