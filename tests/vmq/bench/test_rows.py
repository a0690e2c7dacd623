"""Named loads: each against the real broker, and what may be said of them."""

from dataclasses import replace

import pytest

from vmq.bench.load.address import parse_address
from vmq.bench.load.options import Scenario
from vmq.bench.rows import ROWS, USUAL, load_for, names, scenario_of
from vmq.bench.scenarios import run
from vmq.testing.process import BrokerProcess

ANYWHERE = parse_address("mqtt://user:secret@127.0.0.1:1883")

#: So much of each row is enough to see that it does what it says.
SMALL: dict[Scenario, dict[str, int | float]] = {
    Scenario.FAN_IN: {"pubs": 20, "count": 400},
    Scenario.PAIR: {"pubs": 5, "count": 400},
    Scenario.CONNECT: {"clients": 30, "hold": 0},
}


@pytest.mark.parametrize("name", ROWS)
def test_every_row_runs_and_loses_nothing(broker: BrokerProcess, name: str) -> None:
    host, port = broker.tcp
    options = load_for(
        name, parse_address(f"mqtt://user:secret@{host}:{port}"), SMALL[scenario_of(name)]
    )
    result = run(options)
    assert result.is_sound, result.faults_text()
    assert result.scenario == name
    if result.connects is None:
        assert result.received == 400
    else:
        assert result.connects.came == 30


def test_what_is_measured_without_a_name_is_a_fleet() -> None:
    options = load_for(USUAL, ANYWHERE, {})
    assert options.scenario is Scenario.FAN_IN
    assert (options.pubs, options.subs, options.credit, options.qos) == (2000, 1, 1, 0)


def test_what_is_given_counts_more_than_the_row() -> None:
    options = load_for("fleet1", ANYWHERE, {"pubs": 7, "qos": None})
    assert (options.pubs, options.qos, options.window) == (7, 1, 1)


def test_a_scenario_is_no_row_and_has_its_own_defaults() -> None:
    assert load_for("pair", ANYWHERE, {}).name == ""
    assert set(Scenario) <= set(names())


def test_what_a_row_cannot_use_is_refused() -> None:
    with pytest.raises(ValueError, match="--window means nothing to the scenario connect"):
        load_for("connects", ANYWHERE, {"window": 3})
    with pytest.raises(ValueError, match="no scenario 'frog'"):
        load_for("frog", ANYWHERE, {})
    with pytest.raises(ValueError, match="logins needs a user name and a password"):
        load_for("logins", replace(ANYWHERE, username=None, password=None), {})
