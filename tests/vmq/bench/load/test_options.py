"""What may be asked of a scenario."""

import pytest

from vmq.bench.load.address import Address
from vmq.bench.load.options import APPLICABLE, MAX_COUNT, SECONDS, Scenario, options_for

HERE = Address("mqtt", "127.0.0.1", 1883)


@pytest.mark.parametrize("scenario", list(Scenario))
def test_every_scenario_ends_by_itself(scenario: Scenario) -> None:
    options = options_for(scenario, HERE, {})
    assert options.scenario is scenario
    assert options.count < MAX_COUNT or options.seconds <= 60 or options.clients


def test_a_pair_has_as_many_subscribers_as_publishers() -> None:
    assert options_for(Scenario.PAIR, HERE, {"pubs": 3}).subs == 3
    assert options_for(Scenario.FAN_IN, HERE, {"pubs": 3}).subs == 1
    assert options_for(Scenario.FAN_OUT, HERE, {"subs": 3}).pubs == 1


def test_a_count_replaces_the_default_time() -> None:
    assert options_for(Scenario.PAIR, HERE, {"count": None}).seconds == SECONDS
    assert options_for(Scenario.PAIR, HERE, {"count": 5}).seconds == 120
    assert options_for(Scenario.PAIR, HERE, {"count": 5, "seconds": 2}).seconds == 2


def test_acknowledged_messages_stay_within_the_queue_of_one_subscriber() -> None:
    fan_in = options_for(Scenario.FAN_IN, HERE, {"qos": 1, "pubs": 400})
    assert fan_in.credit == 2
    assert options_for(Scenario.PAIR, HERE, {"qos": 1}).credit == 100
    assert options_for(Scenario.PAIR, HERE, {"qos": 1, "credit": 7}).credit == 7


def test_ping_pong_has_one_message_under_way() -> None:
    assert options_for(Scenario.PING_PONG, HERE, {}).credit == 1
    assert "credit" not in APPLICABLE[Scenario.PING_PONG]


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"qos": 3}, "--qos must be from 0 to 2"),
        ({"size": 7}, "--size must be from 8"),
        ({"count": 0}, "--count"),
        ({"seconds": 100_000}, "--seconds"),
        ({"wild_subs": 5}, "--wild-subs means nothing to the scenario pair"),
    ],
)
def test_what_makes_no_sense_is_refused(given: dict[str, int], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        options_for(Scenario.PAIR, HERE, given)
