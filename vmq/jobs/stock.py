"""What there is: jobs, keys and deadlines, and how a job gets to its queue.

Pure, as all of the machine (`vmq.jobs.machine`).
"""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

from mypy_extensions import i64

from vmq.jobs import record
from vmq.jobs.ids import JobIds, derived
from vmq.jobs.paging.pager import JobPager
from vmq.jobs.queue import ACTIVE, DEAD, WAITING, Job, JobCopies, JobHolder, JobQueue
from vmq.jobs.queues import JOB_BYTES, JobKey, JobQueues, JobRefusedError, key_name, window_of
from vmq.jobs.record import JobRecord
from vmq.jobs.rules import OFF, JobRules
from vmq.jobs.sharing_port import JobSharing
from vmq.jobs.timers import Timed

#: Why a job of class at most once is refused that several hosts would have.
ONE_HOST: Final = (
    "ERR With RETRY set to 0 please explicitly set REPLICATE to 1 (at-most-once delivery)"
)
#: Why a job is refused that too few hosts would have.
NO_HOSTS: Final = (
    "NOREPL Not enough reachable nodes for the requested replication level "
    "(REPLICATE, or replicate and when_split of the queue, say what is asked for)"
)
#: The longest time to live and delay: some 136 years.
LONGEST: Final = 0xFFFF_FFFF
#: In the place of a limit: it was looked at already whether there is room.
_ADMITTED: Final = -2


class JobStock(JobQueues):
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
        super().__init__(rules_of, wall)
        self.ids = ids
        self.log = log or JobRecord()
        self.pager = JobPager(self, wall)
        #: Who has which job, of those who are told.
        self.holders: dict[bytes, JobHolder] = {}
        #: Above it nothing is added.
        self.max_memory: i64 = 1 << 60
        self.last_created: i64 = 0
        #: When a failure was noted last, in seconds since 1970, and as it is written.
        self.noted_at = -1
        self.noted_as = ""
        #: The other nodes.
        self.sharing = JobSharing()
        #: What was here at the start and others may serve: they are asked once all of them can be reached.
        self.unasked: list[Timed] = []
        #: The jobs of the last addition that are not on their hosts yet.
        self.unsettled: list[Job] = []

    # Queues

    def jobs_after(self, created: int, limit: int) -> list[Job]:
        """Jobs in the order of adding, those added later than this."""
        found = self.in_memory_after(created, limit)
        if self.pager.count:
            found += self.pager.after(created, limit)
            found.sort(key=added)
        return found[:limit]

    def find(self, job_id: bytes, created: int = -1) -> Job | None:
        """A job by its id; `created`: when it was added, if that is known."""
        job = self.jobs.get(job_id)
        return self.pager.find(job_id, created) if job is None and self.pager.count else job

    def count(self) -> int:
        """How many there are."""
        return len(self.jobs) + int(self.pager.count)

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
        replicate: int = -1,
        job_id: bytes = b"",
    ) -> Job:
        """Adds a job, and returns it, or the one that has its key; -1 stands for what the queue's rules say.

        `replicate`: on so many hosts it is to be; what is not there yet is `unsettled`.

        Raises:
            JobRefusedError: the queue is paused or full, memory is, or there are too few hosts.
        """
        if self.unsettled:
            self.unsettled = []
        return self.add_one(
            queue, body, now, ttl, retry, delay, priority, maxlen, key, replicate, job_id
        )

    def add_one(
        self,
        queue: JobQueue,
        body: bytes,
        now: float,
        ttl: int,
        retry: int,
        delay: int,
        priority: int,
        maxlen: int,
        key: bytes,
        replicate: int,
        job_id: bytes,
    ) -> Job:
        """Adds a job, or one of a group.

        Raises:
            JobRefusedError: the queue is paused or full, or memory is.
        """
        rules = queue.rules
        if rules.groups:
            how = ttl, retry, delay, priority, replicate
            return self.add_to_groups(queue, body, now, how, maxlen, key, job_id)
        known = self.with_key(queue, key, now) if key else None
        if known is not None:
            self.unsettled.append(known)
            return known
        limit: i64 = rules.maxlen if maxlen < 0 else maxlen
        if queue.paused_in or (limit and queue.depth >= limit) or self.memory >= self.max_memory:
            if maxlen != _ADMITTED:
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
        wanted = 1
        if self.sharing.is_on or replicate > 1:
            wanted = self.hosts_for(rules, replicate, repeats)
        job = Job(job_id or self.ids.new(ttl, repeats), queue, body)
        job.retry = 0 if not repeats else retry
        job.ttl = ttl
        job.delay = delay
        job.priority = rules.priority if priority < 0 else priority
        job.key = key
        self.take_in(job, wanted, now)
        return job

    def take_in(self, job: Job, wanted: int, now: float) -> None:
        """A new job is here: it goes to other hosts, waits for its time, or is queued."""
        queue = job.queue
        rules = queue.rules
        job.created = self.next_created(now)
        job.expires = now + int(job.delay) + int(job.ttl)
        self.enter(job)
        queue.jobs += 1
        queue.used = now
        self.counts.added += 1
        self.memory += JOB_BYTES + job.size
        if job.key:
            self.remember_key(job, now + window_of(job.key, rules), now)
        job.is_delayed = job.delay > 0
        is_claimed = len(job.key) > 0 and self.sharing.asks_for(job.key)
        is_shared = wanted > 1 or is_claimed
        if is_shared:
            job.state = WAITING
            self.timers.set(job, job.expires, now)
            self.unsettled.append(job)
        else:
            queue.came += 1
            if job.is_delayed:
                self.timers.set(job, now + int(job.delay), now)
            else:
                self.put(job, now, False)
        if not is_claimed:
            self.keep(job)
        if is_shared:
            self.sharing.begin(job, wanted, now)

    def keep(self, job: Job) -> None:
        """Has a new job on disk. One whose key is asked for is there once nobody else has that and it is on its hosts:
        else who dies before that comes back with a job of which nobody was told, and takes the key from another.
        """
        if not job.serial and job.queue.rules.persistence != OFF:
            self.log.note(record.ADDED, job)
            if job.copies is not None:
                self.log.note(record.SHARED, job)

    def hosts_for(self, rules: JobRules, replicate: int, repeats: bool) -> int:
        """On how many hosts a job is to be.

        Raises:
            JobRefusedError: so many cannot be reached, or it is delivered at most once.
        """
        if not repeats:
            if replicate > 1:
                raise JobRefusedError(ONE_HOST)
            return 1
        hosts = self.sharing.hosts()
        wanted = replicate if replicate > 0 else min(rules.replicate, hosts)
        if wanted > 1 and self.sharing.reachable_hosts() < wanted:
            if wanted > hosts or not rules.may_have_fewer:
                self.counts.refused += 1
                raise JobRefusedError(NO_HOSTS)
        return wanted

    def settle(self, job: Job, now: float) -> None:
        """A job is on its hosts: it waits for its time, or is queued."""
        if job.state != WAITING:
            return
        job.queue.came += 1
        self.keep(job)
        due = job.expires - int(job.ttl)
        if job.is_delayed and due > now:
            job.state = ACTIVE
            self.timers.set(job, due, now)
        else:
            if job.is_delayed:
                job.is_delayed = False
                if job.serial:
                    self.log.note(record.RETURNED, job)
            self.put(job, now, True)

    def share(self, job: Job, wanted: int, nodes: list[int]) -> JobCopies:
        """Other nodes may have a job from now on."""
        copies = job.copies
        if copies is None:
            job.copies = copies = JobCopies(wanted, sorted(nodes))
        elif not copies.add(nodes):
            return copies
        self.note_shared(job)
        return copies

    def note_shared(self, job: Job) -> None:
        """Others may have a job: that is kept."""
        if job.serial:
            self.log.note(record.SHARED, job)

    def add_to_groups(
        self,
        queue: JobQueue,
        body: bytes,
        now: float,
        how: tuple[int, int, int, int, int],
        maxlen: int,
        key: bytes,
        job_id: bytes,
    ) -> Job:
        """Adds a job for each group, or none if one of them cannot have it; returns the first one's.

        Raises:
            JobRefusedError: the queue, or that of a group, is paused or full, or memory is.
        """
        names = queue.rules.groups
        queues = [self.queue(queue.name + b"@" + name, now) for name in names]
        known = self.with_key(queues[0], key, now) if key else None
        if known is not None:
            self.unsettled.append(known)
            return known
        if queue.paused_in:
            self.refuse(queue, 0)
        for each in queues:
            limit: i64 = each.rules.maxlen if maxlen < 0 else maxlen
            if each.paused_in or (limit and each.depth >= limit) or self.memory >= self.max_memory:
                self.refuse(each, limit)
        # All of them now, also if one takes what was left of the memory: they have one body.
        room = _ADMITTED
        ttl, retry, delay, priority, replicate = how
        first = self.add_one(
            queues[0], body, now, ttl, retry, delay, priority, room, key, replicate, job_id
        )
        others = (
            key if key and self.sharing.asks_for(key) else b""
        )  # each group's is asked for by itself
        for place in range(1, len(queues)):
            other = derived(first.id, names[place])
            self.add_one(
                queues[place],
                body,
                now,
                ttl,
                retry,
                delay,
                priority,
                room,
                others,
                replicate,
                other,
            )
        return first

    def add_failed(self, queue: JobQueue, body: bytes, now: float) -> Job:
        """Adds what can never be done as it was asked for; the caller has it buried.

        Raises:
            JobRefusedError: there is no memory.
        """
        rules = queue.rules
        if self.memory >= self.max_memory:
            self.refuse(queue, 0)
        job = Job(self.ids.new(rules.ttl, True), queue, body)
        job.ttl = rules.ttl
        job.created = self.next_created(now)
        job.expires = now + rules.ttl
        self.enter(job)
        queue.jobs += 1
        self.memory += JOB_BYTES + job.size
        if rules.persistence != OFF:
            self.log.note(record.ADDED, job)
        return job

    def bring(self, job: Job, due: float, now: float) -> bool:
        """Takes a job that was taken out of another broker, with all that happened to it; whether it is new here.

        Args:
            job: with everything but state and deadlines; `expires` by this clock.
            due: until then it is delayed.
            now: by this clock.

        Raises:
            JobRefusedError: there is no memory.
        """
        if self.find(job.id) is not None:
            return False
        if self.memory >= self.max_memory:
            self.refuse(job.queue, 0)
        self.enter(job)
        job.queue.jobs += 1
        job.queue.came += 1
        self.counts.added += 1
        self.memory += JOB_BYTES + job.size
        if job.key:
            self.bring_key(job, now)
        if due > now:
            job.is_delayed = True
            self.timers.set(job, due, now)
        else:
            self.put(job, now, True)
        if job.queue.rules.persistence != OFF:
            self.log.note(record.ADDED, job)
        return True

    def bring_key(self, job: Job, now: float) -> None:
        """The key of a job that was added elsewhere keeps others out for what is left of its window."""
        until = self.pager.key_until(job)
        name = key_name(job.queue.name.removesuffix(DEAD), job.key)
        if until > now and self.find_key(name, now) is None:
            self.remember_key(job, until, now)

    def eldest(self, queue: JobQueue) -> Job | None:
        """The job of a queue that was added first, whatever its priority."""
        found: Job | None = None
        for lane in queue.lanes:
            job = lane.first()
            if job is not None and (found is None or job.created < found.created):
                found = job
        return found

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

    def put(self, job: Job, now: float, back: bool) -> None:
        """Queues a job. The others are told of it, but for a new one: their copies came with that."""
        queue = job.queue
        is_new = job.state == WAITING
        queue.put(job, back)
        self.timers.set(job, job.expires, now)
        copies = job.copies
        if copies is not None:
            copies.is_away = copies.is_asking = copies.is_given = False
            if not is_new:
                self.sharing.queued(job, now)
        if self.memory > self.pager.above:
            self.pager.offer(job)
        if queue.waiters is not None and not queue.is_ready and not queue.paused_out:
            queue.is_ready = True
            self.ready.append(queue)

    # Keys

    def with_key(self, queue: JobQueue, key: bytes, now: float) -> Job | None:
        """The job that has a key and keeps others out, which is counted."""
        known = self.find_key(key_name(queue.name, key), now)
        if known is None:
            return None
        self.counts.deduplicated += 1
        return known.job

    def waited_for(self) -> list[Job]:
        """Jobs that were just asked for and may not be on their hosts: whoever asked is told when they are.

        Somebody counts on the others from now on.
        """
        found: list[Job] = []
        for job in self.unsettled:
            if job.state == WAITING or not self.sharing.is_sure(job):
                found.append(job)
            else:
                job.is_vouched = True
        return found

    def find_key(self, name: tuple[bytes, bytes], now: float) -> JobKey | None:
        """A key that keeps others out; its job is in memory from now on."""
        known = self.keys.get(name)
        if known is None and self.pager.keyed:
            self.pager.find_key(name)
            known = self.keys.get(name)
            if known is not None and known.job.is_gone:
                self.pager.offer_gone(known.job)
        if known is not None and self.pager.key_until(known.job) <= now:
            # A page of the job came back since, or the time is not looked at yet; a newer one may be paged out.
            self.timers.cancel(known)
            self.end_key(known)
            return self.find_key(name, now)
        return known

    def end_key(self, key: JobKey) -> None:
        """A key keeps nobody out any more."""
        del self.keys[key.name]
        self.memory -= JOB_BYTES
        job = key.job
        job.holds_key = False
        if job.serial and job.is_gone:
            self.log.forget(job)

    def release_key(self, key: bytes) -> bool:
        """A publisher releases a packet id: whatever comes under it next is new. Whether there was one."""
        known = self.keys.get(key_name(b"", key))
        if known is None:
            return False
        job = known.job
        self.timers.cancel(known)
        if job.serial:
            self.log.note(record.RELEASED, job)
        self.end_key(known)
        job.key = b""
        return True

    def note(self, job: Job, failure: str, now: float) -> None:
        """Remembers a failure of a job, with its time for people."""
        second = int(self.wall / 1e9 + now)
        if second != self.noted_at:  # to write a time costs more than all else of a NACK
            self.noted_at = second
            self.noted_as = f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%SZ} "
        job.note(self.noted_as + failure)
        if job.serial:
            self.log.note(record.NOTED, job)


def added(job: Job) -> tuple[int, bytes]:
    """When a job was added, for the order of several."""
    return int(job.created), job.id
