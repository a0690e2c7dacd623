"""Whoever is told that a job with his key was added counts on its copies: it is made sure first that they are there.

A copy says where others are to be. Whoever gave it may have died before it had the job on its own disk, and before any
other node got one: then nobody was told of it, and this copy is the only one. As long as another node serves the job
that is not known here, so the holders are given it once more, and say that they have it.
"""

from typing import Final

from vmq.jobs.queue import ACKED, Job
from vmq.jobs.sharing.context import SharingContext
from vmq.jobs.sharing_port import Told

#: Seconds until a host that does not answer is asked again, and one more; doubled each time, up to the last.
FIRST_RETRY: Final = 0.2
_LAST_RETRY: Final = 5.0


class AskedCopies:
    """Copies of a job that hosts are asked for again and again; `next_try`: from then on."""

    def __init__(self, next_try: float) -> None:
        self.pause = FIRST_RETRY
        self.next_try = next_try
        #: Who is to be told, and until when that is worth something to him.
        self.told: list[tuple[float, Told]] = []

    def put_off(self, now: float) -> None:
        """They were asked now, and are given longer than the last time."""
        self.next_try = now + self.pause
        self.pause = min(2 * self.pause, _LAST_RETRY)

    def tell(self, is_there: bool) -> None:
        """Tells all who wait."""
        for _, told in self.told:
            told(is_there)

    def give_up(self, now: float) -> None:
        """Whose time is over is told that it is not there."""
        for each in [each for each in self.told if now >= each[0]]:
            self.told.remove(each)
            each[1](False)


class CopyCheck(AskedCopies):
    """A job that is here and may be nowhere else."""

    def __init__(self, heard: list[int], now: float) -> None:
        super().__init__(now)
        #: The nodes that said that they have it.
        self.heard = heard


class JobVouching:
    """Asks for the copies of jobs of which somebody is to be told."""

    def __init__(self, here: SharingContext) -> None:
        self.here = here
        self.machine = here.machine
        self.peers = here.peers
        self.checks: dict[bytes, CopyCheck] = {}

    def is_sure(self, job: Job) -> bool:
        """Whether a job that does not wait for its copies is known to have them."""
        copies = job.copies
        if job.is_vouched or job.is_gone or copies is None or job.state == ACKED:
            return True
        return not copies.is_away and self._is_kept([self.here.me, *copies.confirmed], job)

    def _is_kept(self, heard: list[int], job: Job) -> bool:
        """Whether the nodes that said that they have it are enough, without those that are gone."""
        kept = [each for each in heard if not self.peers.is_gone(each)]
        return self.peers.spread(kept) >= self._needed(job)

    def _needed(self, job: Job) -> int:
        """On how many hosts it has to be, of those that can be reached."""
        assert job.copies is not None
        return min(job.copies.wanted, self.peers.reachable_hosts())

    def wait(self, job: Job, deadline: float, told: Told, now: float) -> None:
        """Has somebody told when it is sure, or is not to be until a deadline."""
        if self.is_sure(job):
            told(True)
            return
        check = self.checks.get(job.id)
        if check is None:
            check = self.checks[job.id] = CopyCheck([self.here.me], now)
        check.told.append((deadline, told))
        self._look_at(job, check, now)

    def _look_at(self, job: Job, check: CopyCheck, now: float) -> None:
        """All have it, or those that did not say so are given it again, when it is time, and one more."""
        if self.is_sure(job) or self._is_kept(check.heard, job):
            job.is_vouched = True
            self._end(job.id, check, True)
        elif now >= check.next_try:
            self._offer(job, check, now)
            check.put_off(now)

    def _offer(self, job: Job, check: CopyCheck, now: float) -> None:
        here, copies = self.here, job.copies
        assert copies is not None
        near = here.others(copies.nodes)
        is_again = check.pause > FIRST_RETRY
        if is_again or self.peers.spread([here.me, *near]) < self._needed(job):
            more = self.peers.choose(1, copies.nodes)
            near = here.others(self.machine.share(job, copies.wanted, more).nodes)
        nodes = [each for each in near if each not in check.heard]
        wake = job.expires - int(job.ttl) - now if job.is_delayed else 0.0
        if nodes and here.offer(nodes, job, wake, False, now):
            here.counts.mended += len(nodes)

    def _end(self, job_id: bytes, check: CopyCheck, is_sure: bool) -> None:
        self.checks.pop(job_id, None)
        check.tell(is_sure)

    def on_stored(self, sender: int, jobs: list[bytes], now: float) -> None:
        """A node has these."""
        for job_id in jobs if self.checks else ():
            check = self.checks.get(job_id)
            job = None if check is None else self.machine.find(job_id)
            if check is not None and job is not None and sender not in check.heard:
                check.heard.append(sender)
                self._look_at(job, check, now)

    def tick(self, now: float) -> None:
        """Asks again, or gives up."""
        for job_id, check in list(self.checks.items()):
            job = self.machine.find(job_id)
            if job is None:  # dropped, or done and forgotten: whoever asks again finds its key
                self._end(job_id, check, False)
                continue
            check.give_up(now)
            if check.told:
                self._look_at(job, check, now)
            else:
                del self.checks[job_id]
