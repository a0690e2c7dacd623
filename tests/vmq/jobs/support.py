"""Machines and waiters for tests."""

import random
from collections.abc import Callable

from vmq.jobs.calls import CallWaiter
from vmq.jobs.ids import JobIds
from vmq.jobs.machine import JobMachine
from vmq.jobs.queue import Job, JobQueue
from vmq.jobs.rules import JobRules

#: Nanoseconds since 1970 at the zero of the tests' clocks.
WALL = 1_700_000_000 * 10**9


def rules(**changes: object) -> JobRules:
    """Rules with some changed."""
    found = JobRules()
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def machine_of(rules_of: Callable[[bytes], JobRules], seed: int = 1) -> JobMachine:
    """A machine with ids of a seed."""
    return JobMachine(JobIds(b"00000001", random.Random(seed).randbytes), rules_of, None, WALL)


class Got:
    """Somebody who waits, and remembers what came."""

    def __init__(self, queues: list[JobQueue], count: int) -> None:
        self.jobs: list[Job] = []
        self.waiter = CallWaiter(queues, count, self.jobs.extend)
