"""Tables of results."""

from vmq.bench.compare import Comparison, ComparisonRow
from vmq.bench.report import COMPARE_HEADERS, compare_rows, duration, rows_of
from vmq.bench.result import BrokerCost, Connects, Latency, LoaderCost, Result

LATENCY = Latency(count=10, p50=12.3, p90=100.0, p99=1500.0, p999=20_000.0, max=3_000_000.0)


def test_durations_have_the_unit_that_suits_them() -> None:
    found = [duration(us) for us in (0.4, 12.3, 1500, 20_000, 3_000_000)]
    assert found == ["0 µs", "12 µs", "1.5 ms", "20 ms", "3 s"]


def test_a_flow_shows_rate_latency_costs_and_check() -> None:
    result = Result("pair", "mqtt://h:1", qos=1, size=64, pubs=2, subs=2)
    result.sent = result.received = 2000
    result.seconds, result.send_rate, result.receive_rate = 2.0, 1000.0, 1000.0
    result.latency_us = LATENCY
    result.broker = BrokerCost(0.1, 0, 2**20, 2**21, 1, 1, cpu_us_per_message=50.0)
    result.loader = LoaderCost(0.5, 0.25, 10, 10)
    result.lost = 3
    assert dict(rows_of(result)) == {
        "scenario": "pair at mqtt://h:1, QoS 1, 64 bytes, 2 to 2 clients",
        "received": "1,000 msg/s (2,000 in 2.00 s)",
        "latency": "p50 12 µs  p99 1.5 ms  p99.9 20 ms  max 3 s",
        "broker CPU": "50 µs a message",
        "broker memory": "1.0 MiB (peak 2.0)",
        "load generator": "25% of a core",
        "end": "complete",
        "check": "3 lost",
    }


def test_a_storm_shows_the_crowd_and_the_messages_meanwhile() -> None:
    result = Result("storm", "mqtt://h:1", sent=10, received=10)
    result.latency_us = result.quiet_latency_us = LATENCY
    result.connects = Connects(100, 90, 80, 2.0, 45.0, LATENCY)
    result.broker = BrokerCost(0.1, 0, 0, 0, 1, 1, None, 40.0, 2000.0)
    result.loader = LoaderCost(0.5, 0.25, 10, 10, LATENCY)
    rows = dict(rows_of(result))
    assert rows["accepted"] == "45/s (90 of 100 in 2.00 s)"
    assert rows["still connected"] == "80"
    assert rows["before the storm"] == rows["latency"] == rows["connect latency"]
    assert rows["broker CPU"] == "40 µs a connection"
    assert rows["broker memory"].endswith("2,000 bytes a connection")
    assert rows["load generator"].endswith("behind its schedule by 1.5 ms (p99)")
    assert rows["check"] == "10 not let in"


def test_a_comparison_names_each_scenario_once() -> None:
    rows = [
        ComparisonRow("pair", "vmq", 1000.0, 2.0, 10.0, 2000.0, 0.5, is_sound=True),
        ComparisonRow("pair", "mosquitto", 500.0, 8.0, 20.0, 0.0, 0.5, True, 0.5, 4.0),
        ComparisonRow("pair:2", "vmq", problem="no such QoS"),
        ComparisonRow("pair:2", "mosquitto", 900.0, 1.0, 2.0, 3.0, 0.5, False, problem="2 lost"),
    ]
    found = list(compare_rows(Comparison({"vmq": "1", "mosquitto": "2"}, [], rows)))
    assert found == [
        ("pair", "vmq", "1,000", "", "2", "", "10 µs", "2 ms", "50%", "ok"),
        ("", "mosquitto", "500", "0.50", "8", "4", "20 µs", "-", "50%", "ok"),
        ("pair:2", "vmq", *("-",) * 7, "no such QoS"),
        ("", "mosquitto", *("-",) * 7, "2 lost"),
    ]
    assert all(len(row) == len(COMPARE_HEADERS) for row in found)
