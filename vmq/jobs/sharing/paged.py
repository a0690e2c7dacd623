"""Copies that are paged out: other nodes are asked for many at once, and say of many at once that they serve them.

What is not as most of its page is is in memory for that, and goes the way of single jobs (`vmq.jobs.sharing.serving`).
"""

from collections.abc import Iterable
from typing import Final

from vmq.jobs.paging.columns import RETRY, split_ids
from vmq.jobs.paging.page import PagedGroup, numbers_of
from vmq.jobs.queue import AWAY, QUEUED, Job, JobPage
from vmq.jobs.sharing.context import SharingContext
from vmq.jobs.sharing.messages import Busy, Queued, QueuedAll, WillQueue, WillQueueAll
from vmq.jobs.sharing.outbox import milliseconds
from vmq.jobs.sharing.serving import ANSWER, JobServing

#: Pages that are asked for, or of which newcomers are told, in one tick; and seconds until the others are.
_MOST: Final = 2
_LATER: Final = 0.1


class PagedCopies:
    """Decides with the other nodes who serves jobs that are paged out."""

    def __init__(self, here: SharingContext, serving: JobServing) -> None:
        self.here = here
        self.machine = here.machine
        self.pager = here.machine.pager
        self.serving = serving
        #: When pages were looked at last, and how many then.
        self.looked_at = 0.0
        self.looks = 0
        #: Pages of which nodes that came up are to hear.
        self.untold: list[JobPage] = []

    def receive(self, sender: int, entry: WillQueueAll | QueuedAll, now: float) -> None:
        """Takes a message of another node."""
        if isinstance(entry, WillQueueAll):
            self.on_will_queue(sender, entry, now)
        else:
            self.on_queued(sender, entry, now)

    # Asking

    def look(self, page: JobPage, now: float) -> None:
        """Copies are due: the others are asked whether they serve them, or did not say so."""
        if now > self.looked_at:
            self.looked_at, self.looks = now, 0
        self.looks += 1
        if self.looks > _MOST:
            self.machine.timers.set(page, now + _LATER, now)
        elif page.seen is not None:
            self._end(page, now)
        else:
            self._ask(page, now)

    def _ask(self, page: JobPage, now: float) -> None:
        here = self.here
        page.seen = set()
        awaited: list[int] = []
        page.awaited = awaited
        for group in self.pager.groups(page):
            assert group.copies is not None
            nodes = here.others(group.copies.nodes)
            awaited += nodes
            asked = WillQueueAll(
                b"".join(group.ids),
                page.number,
                *history(page, group),
                group.copies.nodes,
            )
            here.tell(nodes, asked)
        if awaited:
            self.machine.timers.set(page, now + ANSWER, now)
        else:
            self._end(page, now)

    def _end(self, page: JobPage, now: float) -> None:
        """Whoever can has answered: what nobody serves is served here."""
        seen = page.seen
        assert seen is not None
        self.pager.now = now
        left = [job_id for job_id in self.pager.ids(page) if job_id not in seen]
        gathered: list[Job] = []
        self.serving.gathered = gathered
        for job in self.pager.take_some_out(page, left) if left else []:
            self.serving.look(job, now)
        self.serving.gathered = None
        self._tell_of(gathered)
        if page in self.pager.pages:
            self._put_off(page, self._retry(page), now)

    def _put_off(self, page: JobPage, after: float, now: float) -> None:
        """Copies are looked at again after so many seconds, unless their time ends before."""
        page.seen = page.awaited = None
        limit = max(page.ends, now) + self._grace(page)
        self.machine.timers.set(page, min(now + after + self._grace(page), limit), now)

    def _retry(self, page: JobPage) -> float:
        """Seconds until the first of them is given again by who serves it."""
        rules = page.lane.queue.rules
        return min(
            (rules.retry_after(0) if each < 0 else each) or 1 for each in numbers_of(page, RETRY)
        )

    def _grace(self, page: JobPage) -> float:
        """Seconds beyond that, so that not all ask at once."""
        return max(
            self.here.grace_of(each) for each in self.pager.shares_of(page) if each is not None
        )

    def _tell_of(self, jobs: list[Job]) -> None:
        """Others that may have these hear that they are queued here."""
        groups: dict[tuple[object, ...], list[Job]] = {}
        for job in jobs:
            if job.state == QUEUED and job.copies is not None:
                counters = int(job.deliveries), int(job.nacks), int(job.repeats)
                key = (job.queue.name, *counters, tuple(job.copies.nodes))
                groups.setdefault(key, []).append(job)
        for group in groups.values():
            job = group[0]
            assert job.copies is not None
            created = [int(each.created) for each in group]
            told = QueuedAll(
                b"".join([each.id for each in group]),
                0,
                job.queue.name,
                min(created),
                max(created),
                int(job.deliveries),
                int(job.nacks),
                int(job.repeats),
                b"",
            )
            self.here.tell(job.copies.nodes, told)

    # Answering

    def on_will_queue(self, sender: int, asked: WillQueueAll, now: float) -> None:
        """Another node is about to queue all of these."""
        job_ids = dict.fromkeys(split_ids(asked.jobs))  # in an order that is the same each time
        left = set(job_ids)
        queued: list[bytes] = []
        busy: list[bytes] = []
        having = self.pager.having(asked.queue, asked.first, asked.last, job_ids)
        for page, groups in having:
            if page.kind == AWAY and page.seen is not None:
                if self.here.me > sender:
                    for group in groups:
                        busy.extend(group.ids)
                        left.difference_update(group.ids)
                    continue
                self._put_off(page, 2 * ANSWER, now)  # both ask
            for group in groups:
                if page.kind == AWAY:
                    if is_known_to(group, {sender, *asked.nodes}):
                        left.difference_update(group.ids)
                elif group.copies is not None and sender in group.copies.nodes:
                    left.difference_update(group.ids)
                    if is_as(group, asked):
                        queued.extend(group.ids)
                    else:
                        self.here.send(sender, queued_all(page, group, sorted(group.ids)))
        for job_id in sorted(left):
            if self._is_queued_as(job_id, asked, sender):
                queued.append(job_id)
            else:
                self.serving.on_will_queue(sender, WillQueue(job_id, asked.nodes), now)
        self.here.send(
            sender,
            QueuedAll(
                b"".join(sorted(queued)),
                asked.number,
                asked.queue,
                asked.first,
                asked.last,
                asked.deliveries,
                asked.nacks,
                asked.repeats,
                b"".join(sorted(busy)),
            ),
        )

    def _is_queued_as(self, job_id: bytes, asked: WillQueueAll, sender: int) -> bool:
        """Whether a job is in memory and queued, and what the other node knows of it is all."""
        job = self.machine.jobs.get(job_id)
        if job is None or job.state != QUEUED or job.reason or job.copies is None:
            return False
        counters = job.deliveries, job.nacks, job.repeats
        is_same = counters == (asked.deliveries, asked.nacks, asked.repeats)
        return is_same and sender in job.copies.nodes

    def on_queued(self, sender: int, told: QueuedAll, now: float) -> None:
        """Another node has these queued."""
        left, busy = set(split_ids(told.jobs)), set(split_ids(told.busy))
        job_ids = dict.fromkeys(split_ids(told.jobs + told.busy))
        having = self.pager.having(told.queue, told.first, told.last, job_ids)
        for page, groups in having:
            for group in groups if page.kind == AWAY else ():
                if group.copies is None or sender not in group.copies.nodes:
                    continue
                own = left.intersection(group.ids)
                if told.nacks + told.repeats < group.nacks + group.repeats:
                    own = set()
                elif own and not is_as(group, told):
                    counters = told.deliveries, told.nacks, told.repeats
                    self.pager.raise_counters(page, own, *counters)
                left -= own
                own |= busy.intersection(group.ids)
                busy -= own
                if page.seen is not None:
                    page.seen |= own
        for job_id in sorted(left):
            queued = Queued(job_id, told.deliveries, told.nacks, told.repeats, "")
            self.serving.on_queued(sender, queued, now)
        for job_id in sorted(busy):
            counters = told.deliveries, told.nacks, told.repeats
            self.serving.on_busy(sender, Busy(job_id, milliseconds(2 * ANSWER), *counters), now)
        asking = self.pager.numbered.get(told.number)
        awaited = None if asking is None else asking.awaited
        if asking is not None and awaited is not None and sender in awaited:
            awaited.remove(sender)
            if not awaited:
                self._end(asking, now)

    # Nodes that came up

    def begin(self) -> None:
        """A node came up."""
        self.untold = [page for page in self.pager.pages if page.kind != AWAY]

    def tell(self, nodes: Iterable[int]) -> None:
        """Nodes that came up hear of some pages whose jobs they may have, too."""
        for _ in range(_MOST):
            if not self.untold:
                return
            page = self.untold.pop()
            for group in self.pager.groups(page) if page in self.pager.pages else []:
                copies = group.copies
                if copies is not None:
                    told = queued_all(page, group, group.ids)
                    self.here.tell([each for each in nodes if each in copies.nodes], told)


def queued_all(page: JobPage, group: PagedGroup, job_ids: list[bytes]) -> QueuedAll:
    """That some jobs of a group are queued here."""
    return QueuedAll(b"".join(job_ids), 0, *history(page, group), b"")


def history(page: JobPage, group: PagedGroup) -> tuple[bytes, int, int, int, int, int]:
    """Whose jobs they are, added from when to when, and what happened to them, as messages have it."""
    queue, happened = page.lane.queue, (group.deliveries, group.nacks, group.repeats)
    return (queue.name, page.first, page.last, *happened)


def is_known_to(group: PagedGroup, nodes: set[int]) -> bool:
    """Whether all that may have jobs are known to who asks for them."""
    return group.copies is not None and nodes.issuperset(group.copies.nodes)


def is_as(group: PagedGroup, told: WillQueueAll | QueuedAll) -> bool:
    """Whether the same happened to jobs as is told of them."""
    return (
        group.deliveries == told.deliveries
        and group.nacks == told.nacks
        and group.repeats == told.repeats
    )
