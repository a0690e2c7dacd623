"""The queues of one node by their names: made when they are first named, forgotten when nobody uses them."""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from vmq.jobs.order import NameOrder
from vmq.jobs.queue import DEAD, Job, JobQueue
from vmq.jobs.rules import JobRules
from vmq.jobs.timers import JobTimers, Timed

#: Bytes that a job has in memory beside its body, as measured.
JOB_BYTES: Final = 480
#: Bytes that a queue has in memory beside its name, as measured.
QUEUE_BYTES: Final = 700
#: Seconds after which a queue without jobs and waiters is forgotten.
QUEUE_IDLE: Final = 300.0
#: The same where there is no room for others: whoever was given it in this moment may still use it.
QUEUE_UNUSED: Final = 1.0
#: Queues that one call looks at, whether they are idle; where a new one has no room.
MOST_SWEPT: Final = 10_000
FEW_SWEPT: Final = 1000
#: Jobs that are known to have come to this node whose publishers went before they were answered.
MOST_ARRIVED: Final = 50_000
#: How long an unreleased packet id of QoS 2 keeps a second job out: as long as dead letters are kept.
RECEIVED_WINDOW: Final = 14 * 86_400


class JobRefusedError(Exception):
    """Something is refused; the text begins with Disque's word for it."""


class Pause:
    """What a queue refuses, as an operator said.

    Args:
        is_in: jobs that are added.
        is_out: workers.
        at: when that was said: nanoseconds since 1970, later than all that was known to be said of the queue.
        is_everywhere: it was said to all nodes.
    """

    def __init__(self, is_in: bool, is_out: bool, at: int, is_everywhere: bool) -> None:
        self.is_in = is_in
        self.is_out = is_out
        self.at = at
        self.is_everywhere = is_everywhere


class JobKey(Timed):
    """A key keeps a second job out, until it is due."""

    def __init__(self, name: tuple[bytes, bytes], job: Job) -> None:
        super().__init__()
        self.name = name
        self.job = job


def workers_at(queue: JobQueue) -> int:
    """How many workers of this node wait for its jobs; another node's, which waits here for them, is counted there."""
    if queue.waiters is None:
        return 0
    return sum([not each.is_remote for each in queue.waiters])


class JobCounts:
    """What happened since the start."""

    def __init__(self) -> None:
        self.added: i64 = 0
        self.deduplicated: i64 = 0
        self.taken: i64 = 0
        self.acknowledged: i64 = 0
        self.deleted: i64 = 0
        self.retried: i64 = 0
        #: Taken from a worker whose connection ended.
        self.lost: i64 = 0
        self.nacked: i64 = 0
        self.dead: i64 = 0
        self.dead_dropped: i64 = 0
        self.expired: i64 = 0
        #: Of class at most once, taken, and never acknowledged.
        self.unconfirmed: i64 = 0
        self.refused: i64 = 0


class JobQueues:
    """The queues, and what is counted.

    Args:
        rules_of: the rules of a queue, by its name; asked once for each.
        wall: nanoseconds since 1970 at the zero of the clock.
    """

    def __init__(self, rules_of: Callable[[bytes], JobRules], wall: int = 0) -> None:
        self.rules_of = rules_of
        self.wall = wall
        #: The jobs that are in memory, and the order in which they were added.
        self.jobs: dict[bytes, Job] = {}
        self.job_order = NameOrder(self.jobs, self._created)
        self.timers = JobTimers()
        #: Keys that keep others out, of jobs that are in memory, or are gone.
        self.keys: dict[tuple[bytes, bytes], JobKey] = {}
        #: Jobs that came to this node at QoS 2, by the id of the first, until their publisher's session knows that they
        #: are on their hosts: it may go elsewhere before, and the job be done and forgotten.
        self.arrived: dict[bytes, list[Job]] = {}
        #: The queues, and the order in which they were made.
        self.queues: dict[bytes, JobQueue] = {}
        self.queue_order = NameOrder(self.queues, self._number)
        #: Those that are to be looked at, whether they are idle.
        self.unswept: list[JobQueue] = []
        self.queue_number: int = 0
        #: Queues that have both jobs and waiters.
        self.ready: list[JobQueue] = []
        #: What operators said that queues refuse, or do no more; some of it is not kept yet.
        self.pauses: dict[bytes, Pause] = {}
        self.has_new_pauses = False
        self.max_queues: i64 = 1_000_000
        #: How many of them each user has made, and may have made at most.
        self.made: dict[str, int] = {}
        self.max_queues_per_user: int = 1 << 60
        self.counts = JobCounts()
        #: Bytes of all jobs in memory, bodies that are on disk only not among them.
        self.memory: i64 = 0
        #: Above it not even a queue is made: what is there may be taken, acknowledged and deleted.
        self.full_memory: i64 = 1 << 60

    def arrive(self, job_id: bytes, jobs: list[Job]) -> None:
        """Jobs have come; the oldest of many are forgotten."""
        if len(self.arrived) >= MOST_ARRIVED:
            del self.arrived[next(iter(self.arrived))]
        self.arrived[job_id] = jobs

    def queue(self, name: bytes, now: float, user: str | None = None) -> JobQueue:
        """A queue, made when it is first named.

        `user`: whose client names it, "" if it has no user name; None: the broker itself does, or an operator.

        Raises:
            JobRefusedError: there are too many, or too many of the user's.
        """
        found = self.queues.get(name)
        if found is None:
            reason = self.why_no_more(user)
            if reason:
                self.drop_idle(now, QUEUE_UNUSED, FEW_SWEPT)
                reason = self.why_no_more(user)
            if not reason and self.memory >= self.full_memory:
                reason = "command not allowed: jobs have all of their memory"
            if reason:
                self.counts.refused += 1
                raise JobRefusedError("OOM " + reason)
            found = self.make_queue(name, now)
            found.maker = user
            if user is not None:
                self.made[user] = self.made.get(user, 0) + 1
        found.used = now
        return found

    def check_taken(self, name: bytes) -> None:
        """Refuses a worker that would wait for ever: what is added to a queue with groups goes to theirs.

        Jobs that came before there were groups are taken as any.

        Raises:
            JobRefusedError: it would.
        """
        queue = self.queues.get(name)
        rules = self.rules_of(name) if queue is None else queue.rules
        has_jobs = queue is not None and queue.jobs > queue.done
        if rules.groups and not has_jobs and not name.endswith(DEAD):
            shown = name.rpartition(b"\0")[2].decode("utf-8", "backslashreplace")
            groups = ", ".join([f"{shown}@{each.decode()}" for each in rules.groups])
            raise JobRefusedError(f"ERR the jobs of {shown} go to its groups: take from {groups}")

    def why_no_more(self, user: str | None) -> str:
        """Why there is no room for one more queue; nothing if there is."""
        if len(self.queues) >= self.max_queues:
            return "there are too many queues (limits.max_job_queues)"
        if user is None or self.made.get(user, 0) < self.max_queues_per_user:
            return ""
        whose = f"user {user!r} has" if user else "clients without a user name have"
        return f"{whose} made too many queues (limits.max_job_queues_per_user): one without jobs and workers makes room"

    def make_queue(self, name: bytes, now: float) -> JobQueue:
        self.queue_number += 1
        found = JobQueue(name, self.rules_of(name.removesuffix(DEAD)), now)
        found.number = self.queue_number
        self.memory += QUEUE_BYTES + len(name)
        self.queues[name] = found
        self.queue_order.add(name, self.queue_number)
        return found

    def queues_after(self, number: int, limit: int) -> list[JobQueue]:
        """Queues in the order of their making, those made after one with this number."""
        return [self.queues[name] for name in self.queue_order.after(number, limit)]

    def pause(
        self,
        queue: JobQueue,
        is_in: bool,
        is_out: bool,
        now: float = 0.0,
        is_everywhere: bool = False,
    ) -> None:
        """An operator says what a queue refuses from now on: jobs that are added, workers."""
        known = self.pauses.get(queue.name)
        at = self.wall + int(now * 1e9)
        at = at if known is None else max(at, known.at + 1)
        self.heed(queue, Pause(is_in, is_out, at, is_everywhere))

    def heed(self, queue: JobQueue, said: Pause) -> None:
        """An operator said that, here or to another node; what was said before is over."""
        queue.paused_in = said.is_in
        queue.paused_out = said.is_out
        self.pauses[queue.name] = said
        self.has_new_pauses = True
        self.look_for_waiters(queue)

    def look_for_waiters(self, queue: JobQueue) -> None:
        if queue.depth and queue.waiters is not None and not queue.is_ready:
            if not queue.paused_out:
                queue.is_ready = True
                self.ready.append(queue)

    def enter(self, job: Job) -> None:
        """A job is in memory from now on."""
        self.jobs[job.id] = job
        self.job_order.add(job.id, int(job.created))

    def in_memory_after(self, created: int, limit: int) -> list[Job]:
        """Jobs that are in memory, in the order of adding, those added later than this."""
        return [self.jobs[job_id] for job_id in self.job_order.after(created, limit)]

    def _created(self, job_id: bytes) -> int:
        return int(self.jobs[job_id].created)

    def _number(self, name: bytes) -> int:
        return self.queues[name].number

    def tidy(self) -> bool:
        """Has the orders forget some of what is gone; whether more is left."""
        has_more = self.job_order.tidy()
        return self.queue_order.tidy() or has_more

    def drop_idle(self, now: float, idle: float = QUEUE_IDLE, most: int = MOST_SWEPT) -> bool:
        """Forgets queues that nobody used for so many seconds, looking at some; whether others are left."""
        if not self.unswept:
            self.unswept = list(self.queues.values())
        for _ in range(min(most, len(self.unswept))):
            queue = self.unswept.pop()
            if not queue.jobs and queue.waiters is None and now - queue.used > idle:
                if not queue.paused_in and not queue.paused_out:
                    del self.queues[queue.name]
                    if queue.maker is not None:
                        self.made[queue.maker] -= 1
                        if not self.made[queue.maker]:
                            del self.made[queue.maker]
                    self.memory -= QUEUE_BYTES + len(queue.name)
        return bool(self.unswept)

    def remember_key(self, job: Job, until: float, now: float) -> None:
        """Keeps out a second job with the key, unless another one does, which was added on another side of a split."""
        name = key_name(job.queue.name.removesuffix(DEAD), job.key)
        if name in self.keys:
            return
        job.holds_key = True
        known = JobKey(name, job)
        self.keys[name] = known
        self.memory += JOB_BYTES
        self.timers.set(known, until, now)


def key_name(queue: bytes, key: bytes) -> tuple[bytes, bytes]:
    """Under which a key is known: it counts for one queue, but a packet id for the session that its bytes name."""
    return (b"", key) if key[:1] == b"\0" else (queue, key)


def window_of(key: bytes, rules: JobRules) -> int:
    """Seconds that a key keeps a second job out."""
    return RECEIVED_WINDOW if key[:1] == b"\0" else rules.key_window
