"""The jobs of one node: what is queued, what workers have, and what happens when a time is over.

Pure: the time is an argument (monotonic seconds), randomness was given to `JobIds`. A job is

    added -> [delayed ->] queued -> active (a worker has it) -> gone
                             ^           |
                             +-----------+  its RETRY is over, or its worker gives it up (NACK)

and a dead letter once it was delivered `max_deliveries` times or its time to live ends: the same job with the same
id, queued in `QUEUE!dead`.
"""

from vmq.jobs import record
from vmq.jobs.queue import (
    ACKED,
    ACTIVE,
    AWAY,
    DEAD,
    GONE,
    QUEUED,
    WAITING,
    Job,
    JobHolder,
    JobPage,
    JobQueue,
    JobWaiter,
)
from vmq.jobs.queues import JOB_BYTES, JobKey, JobRefusedError, key_name
from vmq.jobs.sharing_port import RemoteWaiter
from vmq.jobs.stock import JobStock


class JobMachine(JobStock):
    """The jobs of one node: what becomes of them."""

    # Workers

    def take(self, queue: JobQueue, now: float) -> Job | None:
        """Gives the next job of a queue to a worker, if there is one."""
        if not queue.depth or queue.paused_out:
            return None
        job = queue.first()
        assert job is not None
        queue.remove(job)
        job.state, job.is_aside = ACTIVE, False
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
            if self.sharing.is_on and not queue.depth and not waiter.is_remote:
                self.sharing.starve(queue, now)
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

    def serve(self, now: float) -> None:
        """Gives what was queued to those who wait longest; to be called at the end of each pass."""
        ready, self.ready = self.ready, []
        for queue in ready:
            queue.is_ready = False
            while queue.depth and queue.waiters is not None and not queue.paused_out:
                waiter = next(iter(queue.waiters))
                if isinstance(waiter, RemoteWaiter):
                    self.stop_waiting(waiter)
                    self.sharing.serve(waiter, self.hand_out(queue, waiter.count), now)
                    continue
                jobs = self.take_some(waiter.queues, waiter.count, now)
                self.stop_waiting(waiter)
                waiter.serve(jobs)

    def hand_out(self, queue: JobQueue, count: int) -> list[Job]:
        """Jobs of a queue for another node: no worker has them."""
        found: list[Job] = []
        while queue.depth and len(found) < count:
            job = queue.first()
            assert job is not None
            self.set_aside(job)
            found.append(job)
        return found

    def set_aside(self, job: Job) -> None:
        """A queued job is so no more; who has it is the caller's to say."""
        job.queue.remove(job)
        job.state, job.is_aside = ACTIVE, True
        if job.serial:
            self.log.note(record.SET_ASIDE, job)

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
        if job is None and self.pager.count:
            job = self.pager.find(job_id)
        if job is None or job.state == ACKED:
            return False
        self.counts.acknowledged += 1
        self.end(job)
        return True

    def delete(self, job: Job) -> None:
        """An operator wants it gone."""
        if job.state != ACKED:
            self.counts.deleted += 1
            self.end(job)

    def end(self, job: Job) -> None:
        """A job is done, or is to be taken for that: it goes once all nodes that may have it know."""
        if job.copies is None or not self.sharing.is_on:
            self.remove(job)
            return
        self.entomb(job)
        self.sharing.ended(job)

    def entomb(self, job: Job) -> None:
        """Of a job only this is left: that it is done."""
        self.keep(job)
        if job.state == QUEUED:
            job.queue.remove(job)
        elif self.holders:
            self.let_go(job)
        if job.state != ACKED:
            job.queue.done += 1
        job.state = ACKED
        job.is_delayed = False
        self.timers.cancel(job)
        if job.body is not None:
            self.memory -= job.size
            job.body = None
        if job.serial:
            self.log.note(record.DONE, job)

    def abandon(self, job: Job) -> None:
        """A job that could not be added as it was to be: whoever adds it again adds another."""
        self.release(job)
        self.remove(job)

    def release(self, job: Job) -> None:
        """The key of a job keeps nobody out any more."""
        if job.holds_key:
            known = self.keys.get(key_name(job.queue.name.removesuffix(DEAD), job.key))
            if known is not None and known.job is job:
                self.timers.cancel(known)
                if job.serial:
                    self.log.note(record.RELEASED, job)
                self.end_key(known)
                job.key = b""

    def remove(self, job: Job) -> None:
        """A job is gone."""
        if job.state == QUEUED:
            job.queue.remove(job)
        elif self.holders:
            self.let_go(job)
        del self.jobs[job.id]
        job.is_gone = True
        job.queue.jobs -= 1
        if job.state == ACKED:
            job.queue.done -= 1
        self.timers.cancel(job)
        self.memory -= JOB_BYTES
        if job.body is not None:
            self.memory -= job.size
            if job.holds_key:
                job.body = None
        if job.serial:
            self.log.note(record.GONE, job)
            if not job.holds_key:
                self.log.forget(job)
            else:
                self.pager.offer_gone(job)

    def nack(self, job: Job, now: float) -> bool:
        """Its worker gives it up: queued again at once, or after the queue's back-off. Whether a worker had it."""
        if job.state != ACTIVE or job.is_delayed or not job.retry:
            return False
        job.nacks += 1
        self.counts.nacked += 1
        self.note(job, "nack", now)
        if self.is_worn(job, now):
            return True
        if self.holders:
            self.let_go(job)
        if job.serial:
            self.log.note(record.NACKED, job)
        ladder = job.queue.rules.retry
        if job.retry < 0 and len(ladder) > 1:
            if job.serial:
                self.log.note(record.SET_ASIDE, job)
            self.rest(job, job.queue.rules.retry_after(job.deliveries), now)
        else:
            self.come_back(job, now)
        return True

    def hold(self, job: Job, holder: JobHolder) -> None:
        """A worker that is asked before a job is given again has it now."""
        self.holders[job.id] = holder

    def let_go(self, job: Job) -> None:
        holder = self.holders.pop(job.id, None)
        if holder is not None:
            holder.let_go(job)

    def lose(self, job: Job, now: float) -> None:
        """The connection of the worker that has it is gone: to another at once, or after 1, 2, 4 ... s if it was given
        before, so that a job which crashes its workers does not end all of them in no time.
        """
        if job.state != ACTIVE or job.is_delayed:
            return
        if self.holders:
            self.let_go(job)
        self.counts.lost += 1
        self.note(job, "connection lost", now)
        if not job.retry:
            self.counts.unconfirmed += 1
            self.remove(job)
        elif job.deliveries > 1:
            self.rest(job, min(1 << min(int(job.deliveries) - 2, 30), self.retry_of(job)), now)
        else:
            self.come_again(job, now)

    def come_again(self, job: Job, now: float) -> None:
        """A job that a worker had is given again, or dead if that was too often."""
        job.repeats += 1
        if not self.is_worn(job, now):
            self.come_back(job, now)
            if job.serial:
                self.log.note(record.RETURNED, job)

    def retry_of(self, job: Job) -> int:
        """Seconds until it is given again; 0 is never."""
        return job.queue.rules.retry_after(job.deliveries) if job.retry < 0 else job.retry

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
        retry = self.retry_of(job)
        if retry:
            self.timers.set(job, min(now + retry, job.expires), now)
        if job.copies is not None:
            self.sharing.working(job)
        return retry

    def enqueue(self, job: Job, now: float) -> bool:
        """Queues a job that a worker has or that is delayed; a dead letter goes back to its queue.

        Raises:
            JobRefusedError: the queue of a dead letter is no more, and cannot be made.
        """
        if job.state == ACKED:
            return False  # it is done: of its body, too, nothing is left
        if job.queue.is_dead:
            self.revive(job, now)
            return True
        if job.state != ACTIVE or job.queue.paused_in or was_given(job):
            return False
        if job.is_delayed:
            job.is_delayed = False
        else:
            job.repeats += 1
        self.come_back(job, now)
        if job.serial:
            self.log.note(record.RETURNED, job)
        return True

    def give_back(self, job: Job, now: float) -> None:
        """A worker got a job and did not look at it: it is queued again where it was, and was not delivered."""
        job.deliveries -= 1
        self.come_back(job, now)
        if job.serial:
            self.log.note(record.GIVEN_BACK, job)

    def put_back(self, job: Job, now: float) -> None:
        """A job that was set aside for another node did not go there: it is queued again where it was."""
        self.put(job, now, True)
        if job.serial:
            # There is no record of that alone; these two together say no more.
            self.log.note(record.TAKEN, job)
            self.log.note(record.GIVEN_BACK, job)

    def dequeue(self, job: Job, now: float) -> bool:
        """Sets a queued job aside until it is queued again; whether it was queued."""
        if job.state != QUEUED:
            return False
        self.set_aside(job)
        retry: int = job.retry
        if retry < 0:
            retry = job.queue.rules.retry_after(1)
        self.timers.set(job, min(now + retry, job.expires) if retry else job.expires, now)
        return True

    def come_back(self, job: Job, now: float) -> None:
        if self.holders:
            self.let_go(job)
        if job.queue.paused_in:
            self.rest(job, max(1, job.queue.rules.retry_after(job.deliveries)), now)
        else:
            self.put(job, now, True)

    def rest(self, job: Job, seconds: int, now: float) -> None:
        """No worker has it until so many seconds are over."""
        job.is_aside = True
        self.timers.set(job, min(now + seconds, job.expires), now)

    # Dead letters

    def bury(self, job: Job, reason: str, now: float) -> None:
        """A job goes to the dead letters of its queue."""
        self.keep(job)
        self.counts.dead += 1
        queue = job.queue
        rules = queue.rules
        dead = self.queues.get(queue.name + DEAD)
        if dead is None:
            dead = self.make_queue(queue.name + DEAD, now)
        if job.state == QUEUED:
            queue.remove(job)
        elif self.holders:
            self.let_go(job)
        job.reason = reason
        self.note(job, reason, now)
        self.move(job, dead, now + rules.dead_ttl, now)
        if job.serial:
            self.log.note(record.BURIED, job)
        if rules.dead_maxlen and dead.depth > rules.dead_maxlen:
            oldest = self.eldest(dead)
            assert oldest is not None
            self.counts.dead_dropped += 1
            self.end(oldest)

    def revive(self, job: Job, now: float) -> None:
        """A dead letter goes back to its queue, as if it were new, but in a later generation than all its copies.

        Raises:
            JobRefusedError: that is no more, and cannot be made.
        """
        queue = self.queue(job.queue.name[: -len(DEAD)], now)
        if job.state == QUEUED:
            job.queue.remove(job)
        elif self.holders:
            self.let_go(job)
        job.deliveries, job.nacks, job.repeats = 0, 0, job.generation + 1
        job.reason = ""
        self.note(job, "revived", now)
        self.move(job, queue, now + int(job.ttl), now)
        if job.serial:
            self.log.note(record.REVIVED, job)

    def move(self, job: Job, queue: JobQueue, expires: float, now: float) -> None:
        job.queue.jobs -= 1
        job.queue = queue
        queue.jobs += 1
        queue.came += 1
        queue.used = now
        job.is_delayed = False
        job.expires = expires
        self.put(job, now, True)

    # Time

    def next_due(self) -> float:
        """When to call `tick`; infinity if nothing is to come."""
        return self.timers.next_due()

    def tick(self, now: float, limit: int = 1000) -> None:
        """Does what is due, at most so much of it; `next_due` tells whether there is more."""
        for _ in range(limit):
            timed = self.timers.expired(now)
            if timed is None:
                break
            if isinstance(timed, Job):
                self.on_due(timed, now)
            elif isinstance(timed, JobWaiter):
                self.stop_waiting(timed)
                timed.give_up()
            elif isinstance(timed, JobKey):
                self.end_key(timed)
            elif isinstance(timed, JobPage):
                if timed.kind == AWAY and self.sharing.is_on:
                    self.sharing.look_at_page(timed, now)
                elif self.pager.end(timed, now) and timed.kind == GONE:
                    self.end_keys(timed)
        self.serve(now)

    def end_keys(self, page: JobPage) -> None:
        """The keys of jobs that are gone keep nobody out any more."""
        for job in self.pager.take_apart(page):
            if job.holds_key:
                known = self.keys[key_name(job.queue.name, job.key)]
                self.timers.cancel(known)
                self.end_key(known)
            elif job.serial:
                self.log.forget(job)

    def on_due(self, job: Job, now: float) -> None:
        copies = job.copies
        if copies is not None and (copies.is_away or job.state == ACKED or job.state == WAITING):
            if self.sharing.is_on:
                self.sharing.look(job, now)
                return
            if job.state == ACKED:  # this node has no others any more
                self.remove(job)
                return
            copies.is_away = False
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
            holder = self.holders.get(job.id) if self.holders else None
            if holder is not None and holder.keeps(job, now):
                self.timers.set(job, min(now + self.retry_of(job), job.expires), now)
                return
            self.counts.retried += 1
            self.note(job, "retry", now)
            self.come_again(job, now)

    def expire(self, job: Job, now: float) -> None:
        """The time to live is over."""
        if job.queue.is_dead:
            self.counts.dead_dropped += 1
            self.remove(job)
        elif job.state == ACTIVE and was_given(job):
            self.counts.unconfirmed += 1
            self.remove(job)
        else:
            self.counts.expired += 1
            self.bury(job, "expired", now)


def was_given(job: Job) -> bool:
    """Whether a job of class at most once went to a worker: nobody gets it again."""
    return job.retry == 0 and job.deliveries > 0 and not job.is_delayed
