"""Jobs at QoS 2 of durable sessions in slots: a session knows each by its id before its publisher is answered.

Wherever the publisher goes meanwhile, the node there is told the id when the PUBLISH comes again. It asks the others
for the job, and adds it under the same id if nobody has it: so the job is on its hosts before PUBREC, whatever became
of the node to which it came first. Then the session knows that it is, and nobody is asked any more.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from vmq.core.queue import Queue
from vmq.core.trie import Route
from vmq.jobs.commit import JobCommit
from vmq.jobs.ids import derived, is_repeated
from vmq.jobs.mqtt.asked import Asked
from vmq.jobs.options import options_from
from vmq.jobs.queue import Job
from vmq.jobs.queues import JobRefusedError
from vmq.jobs.stock import NO_HOSTS
from vmq.mqtt.special import JOB_ROW
from vmq.protocol.front_queue import FrontQueue

#: Adds a job under an id; what of it is not on its hosts yet. Raises `JobRefusedError`.
Adds = Callable[[bytes, bytes], list[Job]]


class JobArrival:
    """The jobs of one message, until they are on their hosts.

    Args:
        commit: the jobs.
        row: the message, as its session knows it (`vmq.clustering.running.rows.HandedRow`).
        when_stored: has something done once what was done is stored.
    """

    def __init__(
        self, commit: JobCommit, row: Any, when_stored: Callable[[Callable[[], None]], None]
    ) -> None:
        self.commit = commit
        self.machine = commit.machine
        self.row = row
        self.when_stored = when_stored
        self.deadline = 0.0
        self.ids: list[bytes] = []
        #: What is open still, this call among it until `end`; nothing matters any more.
        self.left = 1
        self.is_over = False
        #: Called with why it came to nothing for now.
        self.failed: Callable[[str], None] = _nothing

    def take(self, job_id: bytes, name: bytes, add: Adds) -> None:
        """The job of an id, or those of the groups of its queue, are to be on their hosts."""
        now = self.commit.clock()
        known = self.machine.queues.get(name)
        rules = self.machine.rules_of(name) if known is None else known.rules
        self.deadline = self.deadline or now + rules.refuse_after
        jobs = self.machine.arrived.get(job_id)
        if jobs is not None:
            self.ids.append(job_id)
            self.wait(jobs)
        elif self.row.is_new:
            if not self.is_here(job_id):
                self.add(job_id, name, add)
        else:
            self.find(job_id, name, rules.groups, add)

    def find(self, job_id: bytes, name: bytes, groups: list[bytes], add: Adds) -> None:
        """Looks for what another node may have added, or a part of it."""
        parts = [(job_id, name)]
        if groups:
            ids = [job_id, *(derived(job_id, each) for each in groups[1:])]
            parts = [(each, name + b"@" + group) for each, group in zip(ids, groups, strict=True)]
        for each, part in parts:
            if not self.is_here(each):
                self.left += 1
                told = partial(self.on_asked, each, part, add)
                self.machine.sharing.ask(each, self.deadline, told)

    def is_here(self, job_id: bytes) -> bool:
        """Whether this node has the job, which is then waited for."""
        job = self.machine.find(job_id)
        if job is None:
            return False
        self.wait([job])
        return True

    def on_asked(self, job_id: bytes, name: bytes, add: Adds, is_added: bool) -> None:
        """All that can be reached have answered. What may be given once only may have been, by a node that died."""
        if not self.is_over and not is_added and is_repeated(job_id):
            if self.row.publisher.closing:
                self.fail("another node asks")
            elif not self.is_here(job_id):
                self.add(job_id, name, add)
        self.one()

    def add(self, job_id: bytes, name: bytes, add: Adds) -> None:
        try:
            jobs = add(job_id, name)
        except JobRefusedError as refusal:
            self.fail(str(refusal))
            return
        self.ids.append(job_id)
        self.machine.arrive(job_id, jobs)
        self.wait(jobs)

    def wait(self, jobs: list[Job]) -> None:
        self.left += 1
        self.machine.sharing.when_there(jobs, self.deadline, self.on_there)

    def on_there(self, is_there: bool) -> None:
        if is_there:
            self.one()
        else:
            self.fail(NO_HOSTS)

    def one(self) -> None:
        """One of them is on its hosts."""
        self.left -= 1
        if not self.left and not self.is_over:
            self.is_over = True
            self.when_stored(lambda: self.row.done(self.forget))

    def forget(self) -> None:
        """Its publisher's session knows: nobody asks any more."""
        for each in self.ids:
            self.machine.arrived.pop(each, None)

    def fail(self, reason: str) -> None:
        if not self.is_over:
            self.is_over = True
            if not self.row.publisher.closing:
                self.failed(reason)
            self.row.drop(reason)


class JobArrivals:
    """Those of one node.

    Args:
        commit: the jobs.
        when_stored: has something done once what was done is stored.
    """

    def __init__(
        self, commit: JobCommit, when_stored: Callable[[Callable[[], None]], None]
    ) -> None:
        self.commit = commit
        self.machine = commit.machine
        self.when_stored = when_stored
        #: What clients asked for whose sessions do not know it yet, by connection and packet id.
        self.coming: dict[int, dict[int, tuple[Any, Asked]]] = {}
        #: Those that are not over.
        self.open: list[JobArrival] = []

    def register(self, client: Any, asked: Asked, job_id: bytes) -> None:
        """Has the session of a client know the id of its job, if it does not know another for the same message."""
        queue, message = client.queue_of(), asked.message
        self.coming.setdefault(queue.number, {})[asked.packet_id] = client, asked
        client.remember(Route(message.topic, asked.seen), asked.packet_id)
        queue.rows = [(JOB_ROW + job_id.decode(), 0)]
        queue.on_routed(message, client)

    def found(self, row: Any) -> tuple[Any, Asked] | None:
        """Who asked for a job that a session knows now; None: it is on its hosts, or he has gone."""
        who = self.coming.get(row.connection, {}).pop(row.packet, None)
        if row.is_done:
            row.confirm()
            return None
        if who is None or row.publisher is None:
            row.drop("its job is not known here")
            return None
        return who

    def begin(self, row: Any) -> JobArrival:
        """Has the jobs of a message on their hosts; `end` follows."""
        arrival = JobArrival(self.commit, row, self.when_stored)
        self.open.append(arrival)
        return arrival

    def end(self, arrival: JobArrival) -> None:
        """There are no more of them."""
        arrival.one()
        self.commit.wants_time = True
        self.commit.end_soon()

    def look(self, now: float) -> None:
        """Whoever has waited long enough is closed unanswered."""
        for each in self.open:
            if now >= each.deadline:
                each.fail(NO_HOSTS)
        self.open = [each for each in self.open if not each.is_over]

    def on_offline(self, queue: Queue) -> None:
        """A connection has ended."""
        if isinstance(queue, FrontQueue):
            self.coming.pop(queue.number, None)

    def new_id(self, asked: Asked) -> bytes:
        """An id for a job, should nobody know another."""
        topic = asked.topic
        try:
            options = asked.options or options_from(topic.queue, topic.options)
            rules = self.machine.queue(asked.name, self.commit.clock(), asked.user).rules
        except JobRefusedError:
            return self.machine.ids.new(0, True)
        retry = rules.retry_after(0) if options.retry < 0 else options.retry
        return self.machine.ids.new(rules.ttl if options.ttl < 0 else options.ttl, retry > 0)


def _nothing(reason: str) -> None:
    pass
