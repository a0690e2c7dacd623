"""Strikes at a driver that comes up: SIGKILL for broker, driver or Spark's Python workers before both queries run.

Each strike starts a driver anew, waits until it has reached a stage (`STAGES`), goes on for a part of the time that
the next stage has taken so far, and strikes. Stages, parts and targets come from the seed.
"""

import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from random import Random
from typing import Final

from tests.spark.driver_process import STAGES, UP, DriverProcess, end

#: Seconds for a driver to come up: far more than it takes.
PATIENCE: Final = 180.0
#: Seconds that a stage is taken to last before one was seen.
GUESS: Final = 1.0
WORKERS: Final = "workers"
#: What ends a query when Spark's Python is killed: Spark does not plan again, so the application starts anew.
OF_SPARK: Final = (
    "Python worker exited unexpectedly",
    "Python worker failed to connect back",
    "java.io.",
    "java.net.",
)


@dataclass(frozen=True)
class Strike:
    """One strike, and how the driver ended by itself, if it did."""

    target: str
    stage: str
    part: float
    ended: str | None

    def problem(self) -> str | None:
        """What is wrong with that end, in words."""
        if self.ended is None:
            return None
        if not self.ended:
            return "nothing tells why the driver ended"
        if self.target == WORKERS:
            return None if any(each in self.ended for each in OF_SPARK) else self.ended
        return f"a query ended for what passes: {self.ended}"

    def __str__(self) -> str:
        told = "" if self.ended is None else f": the driver ended: {self.ended}"
        return f"{self.target} at {self.stage} + {self.part:.2f}{told}"


@dataclass
class Early:
    """A series of strikes.

    Args:
        seed: what they come from.
        strikes: target -> strikes it, the driver aside.
        restart: kills the driver and starts the next one.
        driver: the one that runs.
        say: is told of each.
    """

    seed: int
    strikes: Mapping[str, Callable[[], None]]
    restart: Callable[[], None]
    driver: Callable[[], DriverProcess]
    say: Callable[[str], None]
    done: list[Strike] = field(default_factory=list)
    lasted: dict[str, list[float]] = field(default_factory=dict)

    def go(self, count: int) -> None:
        """Strikes so many times; each target comes about as often."""
        random = Random(self.seed)
        targets = [*self.strikes, "driver"]
        for number in range(count):
            if number % len(targets) == 0:
                random.shuffle(targets)
            at = random.randrange(len(STAGES) - 1)
            strike = self.strike(targets[number % len(targets)], at, random.random())
            self.done.append(strike)
            self.say(f"strike {number + 1} of {count}: {strike}")

    def strike(self, target: str, at: int, part: float) -> Strike:
        """One strike behind a stage of a driver that is started for it."""
        self.restart()
        driver = self.driver()
        if driver.wait(STAGES[at], PATIENCE):
            driver.wait(STAGES[at + 1], part * self.usual(at))
        if target == "driver":
            driver.kill()
        else:
            self.strikes[target]()
            assert driver.wait(UP, PATIENCE) or not driver.is_running(), (
                "the driver does not come up"
            )
        self.learn(driver)
        ended = None if target == "driver" or driver.is_running() else driver.failure
        return Strike(target, STAGES[at], part, ended)

    def usual(self, at: int) -> float:
        """Seconds from a stage to the next, as seen so far."""
        return statistics.median(self.lasted.get(STAGES[at], [GUESS]))

    def learn(self, driver: DriverProcess) -> None:
        for stage, following in pairwise(STAGES):
            if stage in driver.reached and following in driver.reached:
                seconds = driver.reached[following] - driver.reached[stage]
                self.lasted.setdefault(stage, []).append(max(0.0, seconds))


def kill_python(driver: DriverProcess) -> None:
    """All Python processes of Spark's that there are at this moment."""
    for each in driver.workers():
        end(each)
