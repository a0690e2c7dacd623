"""A walk over the jobs that there are when it begins, some at a time."""

from vmq.jobs.machine import JobMachine
from vmq.jobs.queue import Job


class JobWalk:
    """Over the jobs of one machine."""

    def __init__(self, machine: JobMachine) -> None:
        self.machine = machine
        self._left: list[bytes] = []
        #: Another one is to follow, not before.
        self._again_at = float("inf")

    def begin(self) -> None:
        """From the first job on; that of a walk that is under way comes when it is over."""
        if self._left:
            self._again_at = 0.0
        else:
            self._left = list(reversed(self.machine.jobs))

    def begin_later(self, at: float) -> None:
        """Begins a walk from the first job on, not before a time."""
        self._again_at = min(self._again_at, at)

    def is_over(self) -> bool:
        """Whether there is nothing to look at."""
        return not self._left and self._again_at == float("inf")

    def next(self, now: float) -> Job | None:
        """The next job; None: there is none now."""
        if not self._left and now >= self._again_at:
            self._again_at = float("inf")
            self._left = list(reversed(self.machine.jobs))
        while self._left:
            job = self.machine.jobs.get(self._left.pop())
            if job is not None:
                return job
        return None
