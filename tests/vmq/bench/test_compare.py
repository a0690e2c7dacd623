"""Comparisons: what is measured, and what becomes of the figures."""

import sys

import pytest

from vmq.bench.compare import (
    DEFAULT,
    Comparison,
    ComparisonRow,
    _relate,
    _summarise,
    compare,
    loads_for,
)
from vmq.bench.control import Control
from vmq.bench.load.options import Scenario
from vmq.bench.peers import BenchPeer, find_peers
from vmq.bench.result import BrokerCost, Result


def test_vmq_and_mosquitto_are_measured_side_by_side() -> None:
    found, missing = find_peers(["vmq", "mosquitto"])
    loads = loads_for(["pair", "pair:1"], {"count": 300, "pubs": 2, "warmup": 0})
    told: list[str] = []
    comparison = compare(loads, found, missing, 1, Control(), told.append)
    assert told == ["pair on vmq", "pair on mosquitto", "pair:1 on vmq", "pair:1 on mosquitto"]
    assert [(row.scenario, row.broker) for row in comparison.rows] == [
        ("pair", "vmq"),
        ("pair", "mosquitto"),
        ("pair:1", "vmq"),
        ("pair:1", "mosquitto"),
    ]
    assert comparison.is_complete
    assert comparison.is_sound
    for row in comparison.rows:
        assert row.is_sound
        assert row.rate > 0
        assert row.cpu_us > 0
        assert row.p99_us >= row.p50_us > 0
        assert row.runs[0].received == 300
        assert (row.rate_ratio is None) == (row.broker == "vmq")
        assert (row.cpu_ratio is None) == (row.broker == "vmq")


def test_loads_have_the_qos_that_their_name_says() -> None:
    loads = loads_for(["pair", "pair:2", "connect", "storm"], {"qos": 1, "seconds": 3})
    assert [load.options.qos for load in loads] == [1, 2, 0, 1]
    assert loads[0].options.seconds == 3
    assert loads[0].options.warmup == 0.5
    assert loads[3].options.seconds == 60  # until all are in
    assert loads_for(["wildcard"], {"wild_subs": 7})[0].options.wild_subs == 7


def test_by_default_every_scenario_is_compared() -> None:
    assert {load.options.scenario for load in loads_for(DEFAULT, {})} == set(Scenario)


@pytest.mark.parametrize("name", ["frog", "pair:3", "pair:x", "connect:1"])
def test_a_load_that_makes_no_sense_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"no scenario|--qos"):
        loads_for([name], {})


def result(rate: float, cpu: float, lost: int = 0) -> Result:
    broker = BrokerCost(1.0, 0, 0, 0, 1, 1, cpu_us_per_message=cpu)
    return Result("pair", "mqtt://h:1", receive_rate=rate, lost=lost, broker=broker)


def test_figures_are_medians_and_ratios_are_to_vmq() -> None:
    vmq = ComparisonRow("pair", "vmq", runs=[result(100, 4), result(300, 2), result(200, 3)])
    other = ComparisonRow("pair", "other", runs=[result(50, 9), result(50, 9)])
    loser = ComparisonRow("pair", "loser", runs=[result(500, 1), result(500, 1, lost=2)])
    for row in (vmq, other, loser):
        _summarise(row)
        _relate(row, vmq)
    assert (vmq.rate, vmq.cpu_us, vmq.rate_ratio, vmq.is_sound) == (200, 3, None, True)
    assert (other.rate_ratio, other.cpu_ratio) == (0.25, 3)
    assert (loser.is_sound, loser.problem) == (False, "2 lost")
    assert (loser.rate_ratio, loser.cpu_ratio) == (None, None), "a row counts with nothing lost"
    # What others lose is no failure of ours.
    assert Comparison({}, [], [vmq, loser]).is_sound
    vmq.is_sound = False
    assert not Comparison({}, [], [vmq, loser]).is_sound


def test_a_broker_that_cannot_do_it_is_shown_with_the_reason() -> None:
    frog = BenchPeer("frog", "1", lambda _folder, _port: [sys.executable, "-c", "exit('croak')"])
    loads = loads_for(["connect"], {"clients": 1})
    comparison = compare(loads, [frog], ["toad"], 2, Control(), lambda _what: None)
    (row,) = comparison.rows
    assert "croak" in row.problem
    assert (row.runs, row.is_sound, comparison.not_found) == ([], False, ["toad"])


def test_the_wish_to_stop_keeps_what_was_measured() -> None:
    found, _ = find_peers(["mosquitto"])
    control = Control()

    def told(what: str) -> None:
        if what.startswith("pair:1"):
            control.stop()

    loads = loads_for(["pair", "pair:1", "pair:2"], {"count": 50, "pubs": 1, "warmup": 0})
    comparison = compare(loads, found, [], 1, control, told)
    assert not comparison.is_complete
    assert [row.scenario for row in comparison.rows] == ["pair"]
