"""Machines and waiters for tests."""

import random
from collections.abc import Callable
from typing import Any

from vmq.jobs.calls import CallWaiter
from vmq.jobs.ids import JobIds
from vmq.jobs.machine import JobMachine
from vmq.jobs.queue import Job, JobQueue
from vmq.jobs.rules import JobRules

#: Nanoseconds since 1970 at the zero of the tests' clocks.
WALL = 1_700_000_000 * 10**9


def rules(**changes: object) -> JobRules:
    found = JobRules()
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def machine_of(rules_of: Callable[[bytes], JobRules], seed: int = 1) -> JobMachine:
    """A machine with ids of a seed."""
    return JobMachine(JobIds(b"00000001", random.Random(seed).randbytes), rules_of, None, WALL)


class House:
    """A machine with a clock that the test sets."""

    def __init__(self, **changes: object) -> None:
        self.rules = rules(**changes)
        self.machine = machine_of(lambda _name: self.rules)
        self.now = 1000.0

    def queue(self, name: bytes = b"q") -> JobQueue:
        return self.machine.queue(name, self.now)

    def add(self, body: bytes = b"x", **options: Any) -> Job:
        return self.machine.add(self.queue(), body, self.now, **options)

    def take(self, name: bytes = b"q") -> Job | None:
        return self.machine.take(self.queue(name), self.now)

    def passes(self, seconds: float) -> None:
        self.now = passed(self.machine, self.now, seconds)


def passed(machine: JobMachine, now: float, seconds: float) -> float:
    """Time goes by, in steps as a broker looks at it; returns what it is then."""
    end = now + seconds
    while machine.next_due() <= end:
        now = max(now, machine.next_due())
        machine.tick(now)
    machine.tick(end)
    return end


def taken(house: House) -> Job:
    job = house.take()
    assert job is not None
    return job


class Got:
    """Somebody who waits, and remembers what came."""

    def __init__(self, queues: list[JobQueue], count: int) -> None:
        self.jobs: list[Job] = []
        self.waiter = CallWaiter(queues, count, self.jobs.extend)
