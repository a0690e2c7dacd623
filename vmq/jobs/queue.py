"""Jobs, and the queues that they wait in.

A queue gives the job of the highest priority first, and of those the oldest. A job that comes back, since its worker
gave it up or said nothing, is older than what was added meanwhile: it goes in between by its age. That order holds
among the jobs of one queue on one node.
"""

from array import array
from heapq import heappop, heappush, nlargest, nsmallest
from operator import attrgetter
from typing import Final

from mypy_extensions import i64, mypyc_attr

from vmq.jobs.rules import JobRules
from vmq.jobs.timers import Timed

#: States of a job. `WAITING`: not all the hosts that were asked for have a copy.
WAITING: Final = 0
ACTIVE: Final = 1
QUEUED: Final = 2
ACKED: Final = 3
STATE_NAMES: Final = ("wait-repl", "active", "queued", "acked")

#: Behind the name of a queue: the queue of its dead letters.
DEAD: Final = b"!dead"
#: What of a job's failures is remembered.
_HISTORY: Final = 20


class JobCopies:
    """Which nodes may have a job, of one that is or was with several."""

    def __init__(self, wanted: int, nodes: list[int]) -> None:
        #: On so many hosts it is to be; 0: nothing is known of it but that it is done.
        self.wanted = wanted
        #: Every node that may have it, this one included, rising.
        self.nodes = nodes
        #: Those of them that said so: that they have it, or know that it is done.
        self.confirmed: list[int] = []
        #: Another node has it queued or with a worker; this one looks at it again when it is due.
        self.is_away = False
        self.is_given = False  # to another, of which it has not heard that it came
        #: The others were asked whether they have it; of one that is done: this node tells them.
        self.is_asking = False
        self.is_sent_again = False  # one confirmed the first of several copies of it
        self.is_put_off = False  # it was due, and is to be asked for together with others
        self.tries: i64 = 0

    def add(self, nodes: list[int]) -> bool:
        """These may have it, too; whether that is new."""
        new = [node for node in nodes if node not in self.nodes]
        if new:
            self.nodes = sorted(self.nodes + new)
        return len(new) > 0

    def confirm(self, node: int) -> bool:
        """One says that it has it, or knows that it is done; whether that is new."""
        if node in self.confirmed:
            return False
        self.confirmed.append(node)
        return True


class Job(Timed):
    """One job. `due`: when it is given again, is due at all, or its time to live ends, whichever is first."""

    def __init__(self, job_id: bytes, queue: "JobQueue", body: bytes | None) -> None:
        super().__init__()
        self.id = job_id
        #: Where it is queued or is to be queued again; with its dead letters if it is one.
        self.queue = queue
        self.body = body  # None: it is on disk only
        self.size: i64 = 0 if body is None else len(body)
        self.state: i64 = ACTIVE
        #: When it was added: nanoseconds since 1970, and no two the same.
        self.created: i64 = 0
        #: When its time to live ends, by the clock of its deadlines.
        self.expires: float = 0.0
        #: Seconds until it is given again; 0: never; -1: as the rules of its queue say.
        self.retry: i64 = -1
        self.delay: i64 = 0
        self.ttl: i64 = 0
        self.priority: i64 = 0
        self.is_delayed = False  # it waits for its time, and was never queued yet
        self.is_aside = False  # if it is active: no worker has it, and it is queued when it is due
        #: Times that it was given to a worker, given up, and given again since nothing was heard.
        self.deliveries: i64 = 0
        self.nacks: i64 = 0
        self.repeats: i64 = 0
        #: Its neighbours in the order of adding.
        self.older: Job | None = None
        self.newer: Job | None = None
        self.is_returned = False
        #: Times and reasons of its failures, why it is dead, and its key.
        self.history: list[str] | None = None
        self.reason: str = ""
        self.key: bytes = b""
        self.holds_key = False  # it keeps others out still
        self.is_gone = False
        self.is_vouched = False  # somebody counts on it, though who added it gives up
        #: The id of another job that has its key, and is added in its place.
        self.twin: bytes = b""
        #: None: no other node knows of it.
        self.copies: JobCopies | None = None
        #: Where it lies on disk: its number there (0: nowhere), the segment, and the place of its body.
        self.serial: i64 = 0
        self.segment: i64 = -1
        self.offset: i64 = 0

    @property
    def generation(self) -> int:
        """How often it went back to its queue: of two nodes that have it queued, the higher one's is the newer."""
        return int(self.nacks + self.repeats)

    def note(self, event: str) -> None:
        """Remembers a failure."""
        history = self.history
        if history is None:
            self.history = [event]
            return
        if len(history) >= _HISTORY:
            del history[0]
        history.append(event)


class JobWaiter(Timed):
    """Somebody who waits for jobs. `due`: when that ends."""

    def __init__(self, queues: list["JobQueue"], count: int) -> None:
        super().__init__()
        #: In the order in which they are asked.
        self.queues = queues
        self.count = count
        #: Another node, which has workers.
        self.is_remote = False

    def serve(self, jobs: list[Job]) -> None:
        """There are jobs; it waits no more."""

    def give_up(self) -> None:
        """The time is over."""


@mypyc_attr(allow_interpreted_subclasses=True)
class JobHolder:
    """A worker whose connection shows that it lives; the machine asks and tells it of the jobs that it has."""

    def keeps(self, job: Job, now: float) -> bool:
        """Whether it is at it still: then RETRY begins anew."""
        return False

    def let_go(self, job: Job) -> None:
        """It has a job no more: that is done, gone, or given to others."""


#: What the jobs of a page are: next in their lane's order; such that came back; copies; gone, but for their keys.
IN_ORDER: Final = 0
STRAY: Final = 1
AWAY: Final = 2
GONE: Final = 3


class JobPage(Timed):
    """Jobs that are paged out (`vmq.jobs.paging`). `due`: when the first one's time ends, or copies are asked for."""

    def __init__(
        self,
        lane: "JobLane",
        ids: bytes,
        columns: "list[array[int]]",
        size: int,
    ) -> None:
        super().__init__()
        self.lane = lane
        self.ids = ids
        self.columns = columns
        self.kind: i64 = IN_ORDER
        #: No other has it; and the keys of its jobs, if they have some, which are packed once it is marked.
        self.number: int = 0
        self.keys = b""
        self.has_packed_keys = False
        self.vouched: int = 0  # jobs that are vouched for: a bit for each place
        #: Jobs that it was made of, and that it has still; the places of those that were taken out.
        self.size: int = size
        self.count: int = size
        self.taken: set[int] | None = None
        #: When the first and the last of them were added; the oldest segment in which one lies.
        self.first: int = 0
        self.last: int = 0
        self.segment: int = 0
        #: When the time of the first of them ends; how often one of them was named.
        self.ends: float = 0.0
        self.hits: i64 = 0
        #: Asked for: whose answers have not come, jobs that others serve.
        self.awaited: list[int] | None = None
        self.seen: set[bytes] | None = None


class LanePager:
    """Pages jobs out and in; this one has no pages."""

    def load(self, lane: "JobLane") -> None:
        """Has the jobs of the first page go next; without pages, those that came last."""

    def load_stray(self, lane: "JobLane") -> None:
        """Has the first page of strays queued by age."""

    def read(self, page: JobPage) -> list[Job]:
        """The jobs of a page, as they are; they stay in it."""
        return []


class LanePages:
    """What of a lane comes behind the jobs that go next: its pages, and the jobs that came last."""

    def __init__(self, pager: LanePager) -> None:
        self.pager = pager
        self.pages: list[JobPage] = []
        #: When the last job of the last page was added.
        self.newest: int = 0
        self.head: Job | None = None
        self.tail: Job | None = None
        self.count: i64 = 0
        #: Pages of jobs that came back, by their first ones.
        self.strays: list[JobPage] = []

    def has_next(self) -> bool:
        return bool(self.pages) or self.head is not None

    def append(self, job: Job) -> None:
        """Queues a job that is newer than all that were appended."""
        tail = self.tail
        job.older = tail
        if tail is None:
            self.head = job
        else:
            tail.newer = job
        self.tail = job
        self.count += 1


class JobLane:
    """The queued jobs of one priority: in the order of adding, and those that came back, by age."""

    def __init__(self, queue: "JobQueue", priority: int) -> None:
        self.queue = queue
        self.priority = priority
        self.head: Job | None = None
        self.tail: Job | None = None
        #: A heap; what was taken out of the middle is still in it.
        self.returned: list[tuple[int, int, Job]] = []
        self.returns: int = 0
        self.returned_now: i64 = 0
        #: If some of it is paged out, what comes behind.
        self.more: LanePages | None = None

    def append(self, job: Job) -> None:
        """Queues a job that is newer than all that were appended."""
        if self.more is not None:
            self.more.append(job)
            return
        tail = self.tail
        job.older = tail
        if tail is None:
            self.head = job
        else:
            tail.newer = job
        self.tail = job

    def give_back(self, job: Job) -> None:
        """Queues a job by its age."""
        job.is_returned = True
        self.returns += 1
        self.returned_now += 1
        heappush(self.returned, (job.created, self.returns, job))

    def first(self) -> Job | None:
        """The oldest job."""
        job = self.first_in_memory()
        more = self.more
        while more is not None and more.strays and is_before(more.strays[0], job):
            more.pager.load_stray(self)
            job = self.first_in_memory()
            more = self.more
        return job

    def first_in_memory(self) -> Job | None:
        job = self.head
        while job is None and self.more is not None and self.more.has_next():
            self.more.pager.load(self)
            job = self.head
        if not self.returned:
            return job
        back = self.first_returned()
        if back is None or (job is not None and job.created < back.created):
            return job
        return back

    def first_returned(self) -> Job | None:
        returned = self.returned
        while returned:
            job = returned[0][2]
            if self.has_returned(job):
                return job
            heappop(returned)
        return None

    def has_returned(self, job: Job) -> bool:
        """Whether an entry of the heap holds still."""
        return job.is_returned and job.state == QUEUED and job.queue is self.queue

    def remove(self, job: Job) -> None:
        """Takes a job out, wherever it is."""
        if job.is_returned:
            job.is_returned = False
            self.returned_now -= 1
            if not self.returned_now:
                self.returned.clear()
            elif self.returned[0][2] is job:
                heappop(self.returned)
            return
        older, newer = job.older, job.newer
        job.older = job.newer = None
        more = self.more
        if older is not None:
            older.newer = newer
        elif more is not None and more.head is job:
            more.head = newer
        else:
            self.head = newer
        if newer is not None:
            newer.older = older
        elif more is not None and more.tail is job:
            more.tail = older
        else:
            self.tail = older

    def oldest(self, count: int) -> list[Job]:
        """So many, the oldest first."""
        found = self.oldest_in_memory(count)
        more = self.more
        while more is not None and more.strays:
            if found[count - 1 :] and not is_before(more.strays[0], found[-1]):
                break
            more.pager.load_stray(self)
            found = self.oldest_in_memory(count)
            more = self.more
        return found

    def oldest_in_memory(self, count: int) -> list[Job]:
        found: list[tuple[int, int, Job]] = []
        job = self.head
        last: Job | None = None
        while len(found) < count:
            if job is not None:
                found.append((job.created, 0, job))
                last = job
                job = job.newer
            elif self.more is not None and self.more.has_next():
                self.more.pager.load(self)
                job = self.head if last is None else last.newer
            else:
                break
        if self.returned:
            found.extend(nsmallest(count, self.valid()))
            found.sort()
        return [each[2] for each in found[:count]]

    def newest(self, count: int) -> list[Job]:
        """So many, the newest first."""
        found: list[tuple[int, int, Job]] = []
        more = self.more
        if more is not None:
            job = more.tail
            while job is not None and len(found) < count:
                found.append((job.created, 0, job))
                job = job.older
            for page in reversed(more.pages):
                if len(found) >= count:
                    break
                for each in reversed(more.pager.read(page)):
                    found.append((each.created, 0, each))
        job = self.tail
        while job is not None and len(found) < count:
            found.append((job.created, 0, job))
            job = job.older
        if self.returned:
            found.extend(nlargest(count, self.valid()))
            found.sort(reverse=True)
        for page in (
            [] if more is None else sorted(more.strays, key=attrgetter("last"), reverse=True)
        ):
            if len(found) >= count and page.last < found[count - 1][0]:
                break
            assert more is not None
            found.extend([(int(each.created), 0, each) for each in more.pager.read(page)])
            found.sort(reverse=True)
        return [each[2] for each in found[:count]]

    def valid(self) -> list[tuple[int, int, Job]]:
        """The entries of those that came back and are here, one each."""
        found: dict[bytes, tuple[int, int, Job]] = {}
        for entry in self.returned:
            if self.has_returned(entry[2]):
                found[entry[2].id] = entry
        return list(found.values())


def is_before(page: JobPage, job: Job | None) -> bool:
    """Whether a page has a job that is older than this one, or there is no other."""
    return job is None or page.first < job.created


class JobQueue:
    """One queue."""

    def __init__(self, name: bytes, rules: JobRules, now: float) -> None:
        self.name = name
        self.rules = rules
        #: No other has it, and later ones have higher ones.
        self.number: int = 0
        self.maker: str | None = None  # who named it first; None: no user, or before this start
        #: Highest priority first.
        self.lanes: list[JobLane] = []
        #: Jobs that are queued, and all of them; those of which only this is left, that they are done.
        self.depth: i64 = 0
        self.jobs: i64 = 0
        self.done: i64 = 0
        self.paused_in = self.paused_out = False
        self.waiters: dict[JobWaiter, None] | None = None
        self.is_ready = False
        #: Jobs that came, each once, at the node where it was added; times that one was given to a worker.
        self.came: i64 = 0
        self.went: i64 = 0
        self.created = self.used = now
        #: How a reply of one of its jobs begins (`vmq.jobs.resp`); it costs too much to be made for each.
        self.reply_head: bytes = b""

    @property
    def is_dead(self) -> bool:
        """Whether it holds the dead letters of another one."""
        return self.name.endswith(DEAD)

    def lane(self, priority: int) -> JobLane:
        """That of a priority."""
        for at, lane in enumerate(self.lanes):
            if lane.priority == priority:
                return lane
            if lane.priority < priority:
                found = JobLane(self, priority)
                self.lanes.insert(at, found)
                return found
        found = JobLane(self, priority)
        self.lanes.append(found)
        return found

    def put(self, job: Job, back: bool) -> None:
        """Queues a job; `back`: it is older than others that were queued."""
        job.state = QUEUED
        lane = self.lane(job.priority)
        tail = lane.tail
        if (back and lane.more is not None) or (
            back and tail is not None and tail.created > job.created
        ):
            lane.give_back(job)
        else:
            lane.append(job)
        self.depth += 1

    def first(self) -> Job | None:
        """What goes next."""
        for lane in self.lanes:
            job = lane.first()
            if job is not None:
                return job
        return None

    def remove(self, job: Job) -> None:
        """Takes a queued job out; its state is the caller's."""
        self.lane(job.priority).remove(job)
        self.depth -= 1

    def oldest(self, count: int) -> list[Job]:
        """So many, as they would go."""
        found: list[Job] = []
        for lane in self.lanes:
            if len(found) >= count:
                break
            found.extend(lane.oldest(count - len(found)))
        return found

    def newest(self, count: int) -> list[Job]:
        """So many, the last to go first."""
        found: list[Job] = []
        for lane in reversed(self.lanes):
            if len(found) >= count:
                break
            found.extend(lane.newest(count - len(found)))
        return found
