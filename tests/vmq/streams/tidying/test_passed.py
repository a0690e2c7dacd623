"""Retention by age where the clock is set: by what has passed, as far as that can be known."""

import json
from pathlib import Path

import pytest

from tests.vmq.streams.support import Clock, make, put, row
from vmq.streams.tidying.janitor import Janitor
from vmq.streams.tidying.passed import PassedTime

HOUR = 3600
YEARS = 10 * 365 * 24 * HOUR


class Machine:
    """Its clocks, a life of its broker, and a stream that keeps two hours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.up = 1000.0
        self.clock = Clock()
        self.boot = "one"
        self.partition = make(folder / "0", self.clock, retention_age="2h")
        self.start()

    def start(self) -> None:
        passed = PassedTime(
            self.folder / ".clock",
            lambda: int(self.up * 1e9),
            lambda: int((self.clock.now - self.up) * 1e9),
            self.boot,
        )
        self.janitor = Janitor(lambda: [self.partition])
        self.janitor.passed = passed.now

    def passes(self, seconds: int) -> None:
        self.up += seconds
        self.clock.now += seconds

    def write(self) -> None:
        put(self.partition, [row(self.partition.end, time=int(self.clock.now * 1e6))])
        self.partition.roll()

    def left(self) -> int:
        self.janitor.tidy()
        return len(self.partition.sealed)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("back", [0, YEARS])
def test_what_a_clock_is_set_ahead_by_makes_nothing_older(
    machine: Machine, restarts: bool, back: int
) -> None:
    machine.write()
    machine.passes(HOUR)
    assert machine.left() == 1
    machine.clock.now += YEARS
    if restarts:
        machine.start()
    assert machine.left() == 1
    machine.clock.now -= back
    machine.write()
    machine.start()
    assert machine.left() == 2
    machine.passes(HOUR + 1)
    assert machine.left() == 1
    machine.passes(HOUR)
    assert machine.left() == 0


def test_of_a_machine_that_was_off_the_clock_knows(machine: Machine) -> None:
    machine.write()
    machine.boot, machine.up = "two", 10
    machine.clock.now += HOUR
    machine.start()
    assert machine.left() == 1
    machine.clock.now += HOUR + 1
    machine.boot, machine.up = "three", 10
    machine.start()
    assert machine.left() == 0


def test_of_many_steps_none_makes_anything_older(machine: Machine) -> None:
    machine.write()
    for _ in range(110):
        machine.clock.now += HOUR
        assert machine.left() == 1
    assert len(json.loads((machine.folder / ".clock").read_text())[2]) == 100
    machine.passes(2 * HOUR + 1)
    assert machine.left() == 0
