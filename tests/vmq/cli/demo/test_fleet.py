import json
import random

from hypothesis import given
from hypothesis import strategies as st

from vmq.cli.demo.fleet import FAULTY, NORMAL, PERIOD, DemoTally, Device, Fleet


def nowhere(_number: int) -> object:
    return lambda: ("127.0.0.1", 1)


@given(st.lists(st.integers(1, 12), max_size=40), st.integers(0, 1))
def test_the_tally_tells_what_is_lost_and_what_came_twice(numbers: list[int], index: int) -> None:
    """Against sets, in whatever order they come."""
    tally = DemoTally()
    for number in numbers:
        tally.take(index, number, 1.0)
    seen = set(numbers)
    assert tally.repeated == len(numbers) - len(seen)
    assert tally.received == len(seen)
    assert tally.lost == (max(seen) - len(seen) if seen else 0)


def test_who_was_heard_is_told_once() -> None:
    tally = DemoTally()
    tally.take(3, 1, 20.5)
    assert tally.heard() == {3: 20.5}
    assert tally.heard() == {}


def test_what_is_faulty_begins_hot_and_cools() -> None:
    device = Device(FAULTY - 1, nowhere(0), random.Random(1))  # type: ignore[arg-type]
    assert device.is_faulty
    assert device.value(0, 0) > NORMAL + 10
    assert device.value(PERIOD / 2, 0) < NORMAL + 3


def test_readings_and_alerts_are_told_apart() -> None:
    fleet = Fleet(2, nowhere)  # type: ignore[arg-type]
    fleet.devices[1].read(0.0, 0.0, 1.0)
    assert fleet.sent == 1
    fleet.on_message(fleet.devices[1].topic, json.dumps({"value": 1.0, "number": 1}).encode())
    fleet.on_message("alerts/site-01/device-001", json.dumps({"average": 31.0}).encode())
    assert (fleet.tally.received, fleet.alert_count, fleet.alerts[0].average) == (1, 1, 31.0)
