"""The jobs of one node: what is queued, what workers have, and what happens when a time is over.

Pure: the time is an argument (monotonic seconds), randomness was given to `JobIds`. A job is

    added -> [delayed ->] queued -> active (a worker has it) -> gone
                             ^           |
                             +-----------+  its RETRY is over, or its worker gives it up (NACK)

and a dead letter once it was delivered `max_deliveries` times or its time to live ends: the same job with the same
id, queued in `QUEUE!dead`.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from vmq.jobs import record
from vmq.jobs.ids import JobIds
from vmq.jobs.queue import ACTIVE, DEAD, QUEUED, Job, JobQueue, JobWaiter
from vmq.jobs.queues import JobQueues, JobRefusedError
from vmq.jobs.record import JobRecord
from vmq.jobs.rules import OFF, JobRules
from vmq.jobs.timers import JobTimers, Timed

#: Bytes that a job has in memory beside its body, as measured.
JOB_BYTES: Final = 480
#: The longest time to live and delay: some 136 years.
LONGEST: Final = 0xFFFF_FFFF


class JobKey(Timed):
    """A key keeps a second job out, until it is due."""

    def __init__(self, name: tuple[bytes, bytes], job: Job) -> None:
        super().__init__()
        self.name = name
        self.job = job


class JobMachine(JobQueues):
    """The jobs of one node.

    Args:
        ids: makes their ids.
        rules_of: the rules of a queue, by its name; asked once for each.
        log: keeps them.
        wall: nanoseconds since 1970 at the zero of the clock.
    """

    def __init__(
        self,
        ids: JobIds,
        rules_of: Callable[[bytes], JobRules],
        log: JobRecord | None = None,
        wall: int = 0,
    ) -> None:
        super().__init__(rules_of)
        self.ids = ids
        self.log = log or JobRecord()
        self.wall = wall
        self.jobs: dict[bytes, Job] = {}
        self.keys: dict[tuple[bytes, bytes], JobKey] = {}
        self.timers = JobTimers()
        #: Queues that have both jobs and waiters.
        self.ready: list[JobQueue] = []
        #: Above it nothing is added.
        self.max_memory: i64 = 1 << 60
        self.last_created: i64 = 0

    # Queues

    def pause(self, queue: JobQueue, is_in: bool, is_out: bool) -> None:
        """What a queue refuses from now on: jobs that are added, workers."""
        queue.paused_in = is_in
        queue.paused_out = is_out
        self.look_for_waiters(queue)

    def jobs_after(self, created: int, limit: int) -> list[Job]:
        """Jobs in the order of adding, those added later than this."""
        found: list[Job] = []
        for job in self.jobs.values():
            if job.created > created:
                found.append(job)
                if len(found) >= limit:
                    break
        return found

    # Adding

    def add(
        self,
        queue: JobQueue,
        body: bytes,
        now: float,
        ttl: int = -1,
        retry: int = -1,
        delay: int = 0,
        priority: int = -1,
        maxlen: int = -1,
        key: bytes = b"",
    ) -> Job:
        """Adds a job, and returns it, or the one that has its key; -1 stands for what the queue's rules say.

        Raises:
            JobRefusedError: the queue is paused or full, or memory is.
        """
        rules = queue.rules
        if key:
            known = self.keys.get((queue.name, key))
            if known is not None:
                self.counts.deduplicated += 1
                return known.job
        limit: i64 = rules.maxlen if maxlen < 0 else maxlen
        if queue.paused_in or (limit and queue.depth >= limit) or self.memory >= self.max_memory:
            self.refuse(queue, limit)
        if ttl < 0:
            ttl = rules.ttl
        if retry < 0:
            first = rules.retry_after(0)
            if first and ttl // 10 < first and len(rules.retry) == 1:
                retry = max(1, ttl // 10)  # as Disque does where a job lives shortly
            repeats = first > 0
        else:
            repeats = retry > 0
        job = Job(self.ids.new(ttl, repeats), queue, body)
        job.retry = 0 if not repeats else retry
        job.ttl = ttl
        job.delay = delay
        job.priority = rules.priority if priority < 0 else priority
        job.created = self.next_created(now)
        job.expires = now + delay + ttl
        self.jobs[job.id] = job
        queue.jobs += 1
        queue.used = now
        self.counts.added += 1
        self.memory += JOB_BYTES + job.size
        job.key = key
        if key:
            self.remember_key(job, now + rules.key_window, now)
        if delay:
            job.is_delayed = True
            self.timers.set(job, now + delay, now)
        else:
            self.put(job, now, False)
        if rules.persistence != OFF:
            self.log.note(record.ADDED, job)
        return job

    def next_created(self, now: float) -> i64:
        """When a job is added; no two have the same time."""
        created: i64 = self.wall + int(now * 1e9)
        if created <= self.last_created:
            created = self.last_created + 1
        self.last_created = created
        return created

    def refuse(self, queue: JobQueue, limit: i64) -> None:
        """Says why nothing can be added."""
        self.counts.refused += 1
        if queue.paused_in:
            raise JobRefusedError("PAUSED Queue paused in input, try later")
        if limit and queue.depth >= limit:
            raise JobRefusedError("MAXLEN Queue is already longer than the specified MAXLEN count")
        raise JobRefusedError("OOM command not allowed: jobs have all of limits.max_job_memory")

    def remember_key(self, job: Job, until: float, now: float) -> None:
        """Keeps out a second job with the key."""
        name = (job.queue.name.removesuffix(DEAD), job.key)
        job.holds_key = True
        known = JobKey(name, job)
        self.keys[name] = known
        self.memory += JOB_BYTES
        self.timers.set(known, until, now)

    def put(self, job: Job, now: float, back: bool) -> None:
        """Queues a job."""
        queue = job.queue
        queue.put(job, back)
        queue.came += 1
        self.timers.set(job, job.expires, now)
        if queue.waiters is not None and not queue.is_ready and not queue.paused_out:
            queue.is_ready = True
            self.ready.append(queue)

    # Workers

    def take(self, queue: JobQueue, now: float) -> Job | None:
        """Gives the next job of a queue to a worker, if there is one."""
        if not queue.depth or queue.paused_out:
            return None
        job = queue.first()
        assert job is not None
        queue.remove(job)
        job.state = ACTIVE
        job.deliveries += 1
        queue.went += 1
        queue.used = now
        self.counts.taken += 1
        due = job.expires
        retry: int = job.retry
        if retry < 0:
            retry = queue.rules.retry_after(job.deliveries)
        if retry and now + retry < due:
            due = now + retry
        self.timers.set(job, due, now)
        if job.serial:
            self.log.note(record.TAKEN, job)
        return job

    def wait(self, waiter: JobWaiter, until: float, now: float) -> None:
        """Somebody waits for jobs of his queues; an infinite `until` is for ever."""
        for queue in waiter.queues:
            if queue.waiters is None:
                queue.waiters = {}
            queue.waiters[waiter] = None
            queue.used = now
            self.look_for_waiters(queue)
        if until != float("inf"):
            self.timers.set(waiter, until, now)

    def stop_waiting(self, waiter: JobWaiter) -> None:
        """He waits no more."""
        self.timers.cancel(waiter)
        for queue in waiter.queues:
            if queue.waiters is not None:
                queue.waiters.pop(waiter, None)
                if not queue.waiters:
                    queue.waiters = None

    def look_for_waiters(self, queue: JobQueue) -> None:
        if queue.depth and queue.waiters is not None and not queue.is_ready:
            if not queue.paused_out:
                queue.is_ready = True
                self.ready.append(queue)

    def serve(self, now: float) -> None:
        """Gives what was queued to those who wait longest; to be called at the end of each pass."""
        ready, self.ready = self.ready, []
        for queue in ready:
            queue.is_ready = False
            while queue.depth and queue.waiters is not None and not queue.paused_out:
                waiter = next(iter(queue.waiters))
                jobs = self.take_some(waiter.queues, waiter.count, now)
                self.stop_waiting(waiter)
                waiter.serve(jobs)

    def take_some(self, queues: list[JobQueue], count: int, now: float) -> list[Job]:
        """Gives jobs of several queues: one of each in turn, from left to right, while there are any."""
        found: list[Job] = []
        while True:
            before = len(found)
            for queue in queues:
                job = self.take(queue, now)
                if job is not None:
                    found.append(job)
                    if len(found) >= count:
                        return found
            if len(found) == before:
                return found

    # What becomes of them

    def acknowledge(self, job_id: bytes) -> bool:
        """A job is done; whether it was known."""
        job = self.jobs.get(job_id)
        if job is None:
            return False
        self.counts.acknowledged += 1
        self.remove(job)
        return True

    def delete(self, job: Job) -> None:
        """An operator wants it gone."""
        self.counts.deleted += 1
        self.remove(job)

    def remove(self, job: Job) -> None:
        """A job is gone."""
        if job.state == QUEUED:
            job.queue.remove(job)
        del self.jobs[job.id]
        job.is_gone = True
        job.queue.jobs -= 1
        self.timers.cancel(job)
        self.memory -= JOB_BYTES
        if job.body is not None:
            self.memory -= job.size
        if job.serial:
            self.log.note(record.GONE, job)
            if not job.holds_key:
                self.log.forget(job)

    def nack(self, job: Job, now: float) -> bool:
        """Its worker gives it up: queued again at once, or after the queue's back-off. Whether a worker had it."""
        if job.state != ACTIVE or job.is_delayed or not job.retry:
            return False
        job.nacks += 1
        self.counts.nacked += 1
        job.note(self.stamp(now) + " nack")
        if self.is_worn(job, now):
            return True
        if job.serial:
            self.log.note(record.NACKED, job)
        ladder = job.queue.rules.retry
        if job.retry < 0 and len(ladder) > 1:
            after = job.queue.rules.retry_after(job.deliveries)
            self.timers.set(job, min(now + after, job.expires), now)
        else:
            self.come_back(job, now)
        return True

    def is_worn(self, job: Job, now: float) -> bool:
        """Whether a job was delivered too often. Then it is with the dead letters."""
        limit = job.queue.rules.max_deliveries
        if not limit or job.deliveries < limit or job.queue.is_dead:
            return False
        self.bury(job, "max_deliveries", now)
        return True

    def working(self, job: Job, now: float) -> int:
        """Its worker is at it still: given again only after another RETRY, in seconds.

        Raises:
            JobRefusedError: half of its time to live is over, or nobody has it.
        """
        if job.state != ACTIVE or job.is_delayed:
            raise JobRefusedError("NOJOB Job not known in the context of this node.")
        if now > job.expires - int(job.ttl) / 2:
            raise JobRefusedError(
                "TOOLATE Half of job TTL already elapsed, you are no longer allowed to postpone "
                "the next delivery."
            )
        retry: int = job.retry
        if retry < 0:
            retry = job.queue.rules.retry_after(job.deliveries)
        if retry:
            self.timers.set(job, min(now + retry, job.expires), now)
        return retry

    def enqueue(self, job: Job, now: float) -> bool:
        """Queues a job that a worker has or that is delayed; a dead letter goes back to its queue."""
        if job.queue.is_dead:
            self.revive(job, now)
            return True
        if job.state != ACTIVE or job.queue.paused_in:
            return False
        if job.is_delayed:
            job.is_delayed = False
        else:
            job.repeats += 1
        self.come_back(job, now)
        if job.serial:
            self.log.note(record.RETURNED, job)
        return True

    def dequeue(self, job: Job, now: float) -> bool:
        """Sets a queued job aside until it is queued again; whether it was queued."""
        if job.state != QUEUED:
            return False
        job.queue.remove(job)
        job.state = ACTIVE
        retry: int = job.retry
        if retry < 0:
            retry = job.queue.rules.retry_after(1)
        self.timers.set(job, min(now + retry, job.expires) if retry else job.expires, now)
        if job.serial:
            self.log.note(record.SET_ASIDE, job)
        return True

    def come_back(self, job: Job, now: float) -> None:
        if job.queue.paused_in:
            retry = max(1, job.queue.rules.retry_after(job.deliveries))
            self.timers.set(job, min(now + retry, job.expires), now)
        else:
            self.put(job, now, True)

    # Dead letters

    def bury(self, job: Job, reason: str, now: float) -> None:
        """A job goes to the dead letters of its queue."""
        self.counts.dead += 1
        queue = job.queue
        rules = queue.rules
        dead = self.queues.get(queue.name + DEAD)
        if dead is None:
            dead = self.make_queue(queue.name + DEAD, now)
        if job.state == QUEUED:
            queue.remove(job)
        job.reason = reason
        job.note(self.stamp(now) + " " + reason)
        self.move(job, dead, now + rules.dead_ttl, now)
        if job.serial:
            self.log.note(record.BURIED, job)
        if rules.dead_maxlen and dead.depth > rules.dead_maxlen:
            oldest = dead.oldest(1)[0]
            self.counts.dead_dropped += 1
            self.remove(oldest)

    def revive(self, job: Job, now: float) -> None:
        """A dead letter goes back to its queue, as if it were new."""
        if job.state == QUEUED:
            job.queue.remove(job)
        name = job.queue.name[: -len(DEAD)]
        job.deliveries = job.nacks = job.repeats = 0
        job.reason = ""
        job.note(self.stamp(now) + " revived")
        self.move(job, self.queue(name, now), now + int(job.ttl), now)
        if job.serial:
            self.log.note(record.REVIVED, job)

    def move(self, job: Job, queue: JobQueue, expires: float, now: float) -> None:
        job.queue.jobs -= 1
        job.queue = queue
        queue.jobs += 1
        queue.used = now
        job.is_delayed = False
        job.expires = expires
        self.put(job, now, True)

    def stamp(self, now: float) -> str:
        """The time of an event: seconds since 1970."""
        return str((self.wall + int(now * 1e9)) // 1_000_000_000)

    # Time

    def next_due(self) -> float:
        """When to call `tick`; infinity if nothing is to come."""
        return self.timers.next_due()

    def tick(self, now: float, limit: int = 1000) -> None:
        """Does what is due, at most so much of it; `next_due` tells whether there is more."""
        for timed in self.timers.expired(now, limit):
            if isinstance(timed, Job):
                self.on_due(timed, now)
            elif isinstance(timed, JobWaiter):
                self.stop_waiting(timed)
                timed.give_up()
            elif isinstance(timed, JobKey):
                self.end_key(timed)
        self.serve(now)

    def end_key(self, key: JobKey) -> None:
        """A key keeps nobody out any more."""
        del self.keys[key.name]
        self.memory -= JOB_BYTES
        job = key.job
        job.holds_key = False
        if job.serial and job.id not in self.jobs:
            self.log.forget(job)

    def on_due(self, job: Job, now: float) -> None:
        if now >= job.expires:
            self.expire(job, now)
        elif job.is_delayed:
            if job.queue.paused_in:
                self.timers.set(job, min(now + 1, job.expires), now)
                return
            job.is_delayed = False
            self.put(job, now, True)
            if job.serial:
                self.log.note(record.RETURNED, job)
        elif job.state == ACTIVE:
            job.repeats += 1
            self.counts.retried += 1
            job.note(self.stamp(now) + " retry")
            if not self.is_worn(job, now):
                self.come_back(job, now)
                if job.serial:
                    self.log.note(record.RETURNED, job)

    def expire(self, job: Job, now: float) -> None:
        """The time to live is over."""
        if job.queue.is_dead:
            self.counts.dead_dropped += 1
            self.remove(job)
        elif job.state == ACTIVE and job.retry == 0 and not job.is_delayed:
            self.counts.unconfirmed += 1  # at most once: a worker had it
            self.remove(job)
        else:
            self.counts.expired += 1
            self.bury(job, "expired", now)
