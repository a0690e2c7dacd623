"""Workers on one node, jobs on another: who has workers and no jobs asks, and who has jobs gives him some.

A question is a waiter in the queues of the others, in line with their own workers, until its lease is over; it is
renewed the more seldom, the longer nothing comes.
"""

from heapq import heappop, heappush
from typing import Final

from vmq.jobs.ids import is_repeated
from vmq.jobs.queue import Job, JobQueue
from vmq.jobs.sharing.context import SharingContext
from vmq.jobs.sharing.messages import JobNeed
from vmq.jobs.sharing_port import RemoteWaiter

#: Seconds that a question holds at first, doubled while nothing comes, up to the last.
_FIRST: Final = 1.0
_LAST: Final = 30.0
#: Beyond the time at which it is renewed.
_SLACK: Final = 1.0
#: Jobs, and bytes of them, that one question gets.
_MOST: Final = 100
_MOST_BYTES: Final = 1 << 20
#: Seconds after which a job that was given away is asked for, unless it came.
_COMES: Final = 3.0


class Hunger:
    """A queue here that has workers and no jobs."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.pause = _FIRST
        #: 0: at once.
        self.asks_again = 0.0


class Federation:
    """Asks for jobs, and gives some."""

    def __init__(self, here: SharingContext) -> None:
        self.here = here
        self.machine = here.machine
        self.hungry: dict[bytes, Hunger] = {}
        self.order: list[tuple[float, bytes]] = []
        self.waiters: dict[tuple[int, bytes], RemoteWaiter] = {}

    # Asking

    def starve(self, queue: JobQueue, now: float) -> None:
        """Somebody waits here."""
        name = queue.name
        if name.rpartition(b"\0")[2][:1] == b"$" or not self.here.peers.up:
            return
        hunger = self.hungry.get(name)
        if hunger is None:
            hunger = self.hungry[name] = Hunger(name)
        if not hunger.asks_again:
            self._ask(hunger, now)

    def came(self, name: bytes) -> None:
        """A job of a queue came: the others are asked again as soon as somebody waits, or if somebody still does."""
        hunger = self.hungry.get(name)
        if hunger is not None:
            hunger.pause = _FIRST
            hunger.asks_again = 0.0
            heappush(self.order, (0.0, name))

    def _ask(self, hunger: Hunger, now: float) -> None:
        queue = self.machine.queues.get(hunger.name)
        own = 0
        for waiter in () if queue is None or queue.waiters is None else queue.waiters:
            own += 0 if waiter.is_remote else waiter.count
            if own >= _MOST:
                break
        if not own or queue is None or queue.paused_out:
            self.hungry.pop(hunger.name, None)
            return
        lease = int((hunger.pause + _SLACK) * 1000)
        self.here.tell(list(self.here.peers.all), JobNeed(hunger.name, min(own, _MOST), lease))
        hunger.asks_again = now + hunger.pause
        hunger.pause = min(2 * hunger.pause, _LAST)
        heappush(self.order, (hunger.asks_again, hunger.name))

    def tick(self, now: float) -> None:
        """Renews questions."""
        while self.order and self.order[0][0] <= now:
            due, name = heappop(self.order)
            hunger = self.hungry.get(name)
            if hunger is not None and hunger.asks_again == due:
                self._ask(hunger, now)

    def on_up(self, now: float) -> None:
        """Another node is there, which was not asked."""
        for hunger in list(self.hungry.values()):
            hunger.pause = _FIRST
            self._ask(hunger, now)

    # Giving

    def on_need(self, sender: int, need: JobNeed, now: float) -> None:
        """Another node has workers."""
        queue = self.here.queue(need.queue, now)
        if queue is None:
            return
        self.stop(sender, need.queue)
        if need.count:
            waiter = RemoteWaiter(sender, queue, min(need.count, _MOST), self.ended)
            self.waiters[sender, need.queue] = waiter
            self.machine.wait(waiter, now + need.lease / 1000, now)

    def stop(self, node: int, name: bytes) -> None:
        """A node does not wait any more."""
        waiter = self.waiters.pop((node, name), None)
        if waiter is not None:
            self.machine.stop_waiting(waiter)

    def ended(self, waiter: RemoteWaiter) -> None:
        """The lease of a node is over."""
        key = waiter.node, waiter.queues[0].name
        if self.waiters.get(key) is waiter:
            del self.waiters[key]

    def on_down(self, node: int) -> None:
        """A node cannot be reached: it gets nothing."""
        for key in [each for each in self.waiters if each[0] == node]:
            self.stop(*key)

    def serve(self, waiter: RemoteWaiter, jobs: list[Job], now: float) -> None:
        """A node gets jobs."""
        self.ended(waiter)
        left = _MOST_BYTES
        for place, job in enumerate(jobs):
            left -= int(job.size)
            if (left < 0 and place) or not self.give(job, waiter.node, now):
                self.machine.put_back(job, now)

    def give(self, job: Job, node: int, now: float, wake: float = 0.0) -> bool:
        """A job that is queued nowhere goes to another node, which serves it from now on; False: it cannot be read.

        A job of the class at most once is not here any more: if it does not arrive it is lost.
        """
        here, machine = self.here, self.machine
        if here.body(job) is None:
            return False
        here.counts.federated += 1
        if is_repeated(job.id):
            had_one = job.copies is not None and node in job.copies.nodes
            copies = machine.share(
                job, 1 if job.copies is None else job.copies.wanted, [here.me, node]
            )
            copies.is_away = True
            if node in copies.confirmed:
                copies.confirmed.remove(node)
            elif had_one:
                copies.is_sent_again = True
        here.offer([node], job, wake, True, now)
        if is_repeated(job.id):
            here.set_away(job, _COMES, now)
            if job.copies is not None:
                job.copies.is_given = True
        else:
            machine.remove(job)
        return True
