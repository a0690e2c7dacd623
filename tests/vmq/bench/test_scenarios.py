"""Every scenario against the real broker, and the checks against a bad one."""

from dataclasses import replace
from time import monotonic_ns
from unittest.mock import patch

import msgspec
import pytest

from tests.vmq.bench.bad_broker import BadBroker, every
from tests.vmq.bench.support import flow_options
from vmq.bench import stage, subscribing
from vmq.bench.control import Control, Interrupted
from vmq.bench.load.options import BenchError, Scenario
from vmq.bench.result import Result
from vmq.bench.scenarios import run
from vmq.bench.subscribing import WildcardSubscribers
from vmq.testing.process import BrokerProcess

FAULTS = ("lost", "duplicates", "reordered", "damaged", "foreign", "protocol_errors")


def faults(result: Result) -> dict[str, int]:
    return {name: count for name in FAULTS if (count := getattr(result, name))}


def url_of(broker: BrokerProcess) -> str:
    host, port = broker.tcp
    return f"mqtt://{host}:{port}"


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    ("scenario", "given", "fan"),
    [
        (Scenario.PAIR, {"pubs": 3}, 1),
        (Scenario.FAN_IN, {"pubs": 12}, 1),
        (Scenario.FAN_OUT, {"subs": 5}, 5),
        (Scenario.PING_PONG, {"pubs": 2}, 1),
        (Scenario.WILDCARD, {"pubs": 2, "clients": 2, "wild_subs": 330}, 1),
    ],
)
def test_a_flow_arrives_once_and_in_order(
    broker: BrokerProcess, scenario: Scenario, given: dict[str, int], fan: int, qos: int
) -> None:
    options = flow_options(url_of(broker), scenario, qos=qos, count=500, size=40, **given)
    result = run(replace(options, pid=broker.pid))
    assert result.end == "complete"
    assert (result.sent, result.expected, result.received) == (500, 500 * fan, 500 * fan)
    assert result.is_sound, result.faults_text()
    assert result.latency_us is not None
    assert result.latency_us.count == 500 * fan
    assert result.broker is not None
    assert result.broker.cpu_us_per_message is not None
    assert result.broker.rss_peak > 1_000_000
    assert result.loader is not None
    assert result.filters == given.get("wild_subs", 0)
    assert msgspec.json.decode(msgspec.json.encode(result), type=Result) == result


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_retained_messages_come_once_and_are_cleared(broker: BrokerProcess, qos: int) -> None:
    options = flow_options(url_of(broker), Scenario.RETAINED, qos=qos, count=250)
    for _ in range(2):
        result = run(options)
        assert (result.sent, result.received) == (250, 250)
        assert result.is_sound, result.faults_text()
        assert result.store_rate > 0


def test_a_crowd_connects(broker: BrokerProcess) -> None:
    options = flow_options(url_of(broker), Scenario.CONNECT, clients=120, hold=0)
    result = run(replace(options, pid=broker.pid))
    assert result.connects is not None
    assert (result.connects.came, result.connects.held) == (120, 120)
    assert result.connects.latency_us is not None
    assert result.connects.latency_us.count == 120
    assert result.is_sound
    assert result.broker is not None
    assert result.broker.cpu_us_per_connection is not None


def test_messages_are_measured_in_a_storm(broker: BrokerProcess) -> None:
    options = flow_options(url_of(broker), Scenario.STORM, clients=200, pubs=2, rate=2000.0, qos=1)
    # Hardly time for one message: it is waited for.
    result = run(replace(options, quiet=0.001, pid=broker.pid))
    assert result.connects is not None
    assert result.connects.came == 200
    assert result.latency_us is not None
    assert result.quiet_latency_us is not None
    # What was under way when the storm began is received in it.
    assert result.received >= result.sent > 0
    assert result.is_sound, result.faults_text()


def test_others_subscribe_beside_a_fan_out(broker: BrokerProcess) -> None:
    options = flow_options(
        url_of(broker), Scenario.SUBSCRIBING, subs=5, count=200, rate=1000.0, sub_rate=500.0
    )
    result = run(replace(options, pid=broker.pid))
    assert (result.sent, result.received) == (200, 1000)
    assert result.is_sound, result.faults_text()
    # The flow lasts 0.2 s at least, and each filter that was asked for is granted.
    assert result.filters >= 99
    assert result.filter_rate > 0
    assert run(replace(options, sub_rate=0.0)).filters == 0


@pytest.mark.parametrize(
    "scenario", [Scenario.PAIR, Scenario.CONNECT, Scenario.RETAINED, Scenario.STORM]
)
@patch.object(stage, "_SAMPLE", 0)
@patch.object(stage, "resident", lambda _pid: 1 << 50)
def test_the_memory_in_between_counts(broker: BrokerProcess, scenario: Scenario) -> None:
    given = {"clients": 5} if scenario in {Scenario.CONNECT, Scenario.STORM} else {"count": 50}
    options = replace(flow_options(url_of(broker), scenario, **given), hold=0.0, quiet=0.001)
    result = run(replace(options, pid=broker.pid))
    assert result.broker is not None
    assert result.broker.rss_peak == 1 << 50


def test_filters_that_are_refused_are_not_held() -> None:
    limit = {"VMQ_LIMITS__MAX_SUBSCRIPTIONS_PER_CLIENT": "10"}
    with BrokerProcess.start(env=limit) as broker:
        for scenario, given in (
            (Scenario.WILDCARD, {"clients": 2, "wild_subs": 330}),
            (Scenario.SUBSCRIBING, {"clients": 1, "rate": 1000.0, "sub_rate": 500.0}),
        ):
            with pytest.raises(BenchError, match=r"granted as \[0, 128\]"):
                run(flow_options(url_of(broker), scenario, count=200, **given))


def test_filters_count_for_the_time_that_they_took(
    broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = 0

    def confirmed(self: WildcardSubscribers) -> int:
        nonlocal late
        # The messages are through, and an hour later all are confirmed.
        known, late = late, 3600 * 10**9
        return self.sent if known else -1

    monkeypatch.setattr(WildcardSubscribers, "confirmed", confirmed)
    monkeypatch.setattr(subscribing, "monotonic_ns", lambda: monotonic_ns() + late)
    options = flow_options(
        url_of(broker), Scenario.SUBSCRIBING, count=200, rate=1000.0, sub_rate=500.0
    )
    result = run(options)
    assert result.filters >= 99
    assert result.filter_rate < 1


def test_a_rate_is_kept_and_lateness_told(broker: BrokerProcess) -> None:
    result = run(flow_options(url_of(broker), pubs=4, count=200, rate=1000.0))
    assert result.sent == 200
    assert result.is_sound
    assert result.seconds >= 0.19
    assert result.loader is not None
    assert result.loader.late_us is not None
    assert result.loader.late_us.count == 200


def test_time_ends_a_flow_and_warming_up_does_not_count(broker: BrokerProcess) -> None:
    result = run(flow_options(url_of(broker), pubs=2, seconds=0.2, warmup=0.1))
    assert result.end == "complete"
    assert result.is_sound
    assert result.latency_us is not None
    assert result.latency_us.count == result.received > 0
    result = run(flow_options(url_of(broker), pubs=1, rate=100.0, count=10_000, seconds=0.1))
    assert result.end == "time"
    assert result.is_sound


@pytest.mark.parametrize("scenario", [Scenario.PAIR, Scenario.CONNECT])
def test_a_websocket_will_do(broker: BrokerProcess, scenario: Scenario) -> None:
    given = {"count": 300, "pubs": 2, "qos": 1} if scenario is Scenario.PAIR else {"clients": 5}
    result = run(flow_options(broker.ws, scenario, **given))
    assert result.is_sound, result.faults_text()


# The checks, against a broker that breaks its promises


@pytest.mark.parametrize("qos", [0, 2])
@pytest.mark.parametrize(
    ("fault", "found"),
    [
        ("", {}),
        ("lose", {"lost": 40}),
        ("twice", {"duplicates": 40}),
        ("swap", {"reordered": 40}),
        ("damage", {"damaged": 40}),
        ("rename", {"damaged": 40}),
        ("invent", {"foreign": 40}),
        ("chatter", {"protocol_errors": 40}),
    ],
)
def test_what_a_broker_does_wrong_is_counted(fault: str, found: dict[str, int], qos: int) -> None:
    with BadBroker(every(50, fault)) as bad:
        result = run(flow_options(bad.url, pubs=2, count=2000, qos=qos, size=32))
    assert faults(result) == found
    assert result.is_sound == (not found)
    assert (result.faults_text() == "ok") == (not found)


@pytest.mark.parametrize(("qos", "found"), [(1, {"duplicates": 20}), (2, {})])
def test_a_repetition_of_a_qos_2_message_is_none(qos: int, found: dict[str, int]) -> None:
    with BadBroker(every(50, "again")) as bad:
        result = run(flow_options(bad.url, pubs=1, count=1000, qos=qos, window=5))
    # At QoS 1 the same packet id comes again before it was acknowledged, or after: not ours to tell.
    assert {name: n for name, n in faults(result).items() if name != "protocol_errors"} == found


def test_a_broker_that_stops_is_given_up() -> None:
    with BadBroker(every(1000, "stop")) as bad:
        result = run(replace(flow_options(bad.url, pubs=1, count=2000), stall=0.3))
    assert result.end == "stalled"
    assert result.lost > 0
    assert not result.is_sound


def test_a_connection_that_breaks_ends_the_run() -> None:
    with BadBroker(every(1000, "close")) as bad:
        result = run(flow_options(bad.url, pubs=1, count=100_000))
    assert result.end == "disconnected"
    assert result.disconnected == 1
    assert "closed by the broker" in result.faults_text() or "lost" in result.faults_text()
    assert not result.is_sound


def test_who_is_refused_hears_why() -> None:
    with BadBroker(refuse=5) as bad:
        with pytest.raises(BenchError, match=r"not authorized \(code 5\)"):
            run(flow_options(bad.url, count=10))
        result = run(flow_options(bad.url, Scenario.CONNECT, clients=3, hold=0))
    assert result.connects is not None
    assert result.connects.came == 0
    assert not result.is_sound
    assert "3 not let in" in result.faults_text()


# The wish to stop


def stopping_after(messages: int) -> Control:
    """A control that wants to stop once so much was done."""
    control = Control(lambda _what, done, _total: control.stop() if done >= messages else None)
    return control


def test_an_interrupted_flow_tells_what_was_measured(broker: BrokerProcess) -> None:
    control = stopping_after(20)
    result = run(flow_options(url_of(broker), pubs=2, rate=200.0, count=100_000), control)
    assert result.end == "interrupted"
    assert 20 <= result.received == result.sent < 100_000
    assert result.is_sound


def test_a_scenario_interrupted_too_early_has_nothing_to_tell(broker: BrokerProcess) -> None:
    control = Control()
    control.stop()
    with pytest.raises(Interrupted):
        run(flow_options(url_of(broker), count=10), control)


def test_an_interrupted_crowd_is_no_failure(broker: BrokerProcess) -> None:
    control = stopping_after(1)
    result = run(flow_options(url_of(broker), Scenario.CONNECT, clients=3000), control)
    assert result.connects is not None
    assert result.end == "interrupted" or result.connects.came == 3000
    assert result.is_sound
