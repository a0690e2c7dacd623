"""Workers that are clients of MQTT: one a subscription to `$jobs/QUEUE`.

A job goes out at QoS 1 as any message does, marked as no session state (`vmq.mqtt.message.Transient`). It is the
client's until PUBACK, or with `/manual/+` until its id is published to `$jobs/QUEUE/ack`; its connection's end gives it
to others. While the connection answers its RETRY begins anew, for `max_run` seconds at most.
"""

import logging
from collections.abc import Callable
from typing import Any, Final

from vmq.core.queue import Queue
from vmq.jobs.calls import CallWaiter
from vmq.jobs.commit import JobCommit
from vmq.jobs.queue import Job, JobHolder
from vmq.jobs.queues import JobRefusedError
from vmq.mqtt.message import Message, Transient
from vmq.mqtt.special import MANUAL, JobTopic

log = logging.getLogger("vmq.jobs")

#: Jobs that a worker may have at a time.
MOST_PREFETCHED: Final = 1000

#: How the token of a delivery begins: PUBACK acknowledges its job, or only says that it came.
AUTOMATIC: Final = b"A"
BY_HAND: Final = b"M"


class MqttWorker(JobHolder):
    """One subscription that works.

    Args:
        commit: the jobs.
        client: the queue of the subscriber.
        name: of the queue of jobs, its mountpoint in front.
        topic: what the subscription's filter says.
        prefetch: jobs that it may have at a time.
        stalled: told when it cannot ask for jobs at present.
    """

    def __init__(
        self,
        commit: JobCommit,
        client: Queue,
        name: bytes,
        topic: JobTopic,
        prefetch: int,
        stalled: "Callable[[MqttWorker], None]",
    ) -> None:
        self.commit = commit
        self.machine = commit.machine
        self.client = client
        self.name = name
        self.prefetch = prefetch
        self.is_manual = topic.verb == MANUAL
        self.base = topic.canonical().encode()
        self.stalled = stalled
        #: When each job that it has was taken.
        self.held: dict[bytes, float] = {}
        self.waiter: CallWaiter | None = None
        self.is_over = False
        self.lives = shows_life(client.output)

    def ask(self) -> None:
        """Waits for as many jobs as there is room for."""
        room = self.prefetch - len(self.held)
        if self.is_over or self.waiter is not None or room <= 0:
            return
        client = self.client
        if client.output.blocked or not self.has_place():
            self.stalled(self)
            return
        now = self.commit.clock()
        try:
            queue = self.machine.queue(self.name, now, client.username or "")
        except JobRefusedError:
            self.stalled(self)
            return
        self.waiter = CallWaiter([queue], room, self.serve)
        self.machine.wait(self.waiter, float("inf"), now)
        self.commit.end_soon()

    def has_place(self) -> bool:
        """Whether there is a packet id for one more job."""
        return len(self.client.inflight) < self.client.most_transient()

    def serve(self, jobs: list[Job]) -> None:
        """Has these jobs from now on, but for those that have no place: its client has other workers."""
        self.waiter = None
        now = self.commit.clock()
        for job in jobs:
            if self.has_place():
                self.send(job, now)
            else:
                self.machine.give_back(job, now)
        self.ask()

    def send(self, job: Job, now: float) -> None:
        commit, client = self.commit, self.client
        try:
            body = commit.writer.body(job) if job.body is None else job.body
        except OSError as failure:
            # It is given again after its RETRY; until then the disk may be well.
            log.error("job %s cannot be read: %s", job.id.decode("latin-1"), failure)
            return
        topic = self.base
        token = AUTOMATIC
        if self.is_manual:
            topic += b"/manual/" + job.id
            token = BY_HAND
        self.held[job.id] = now
        self.machine.hold(job, self)
        output = client.output
        output.deliver_after(commit.stored, commit.barrier())
        client.send_transient(Transient(Message(topic, body, 1, False), token + job.id))

    # What the machine asks and tells

    def keeps(self, job: Job, now: float) -> bool:
        taken = self.held.get(job.id)
        if taken is None or not self.lives or not self.client.online:
            return False
        return now - taken < job.queue.rules.max_run

    def let_go(self, job: Job) -> None:
        self.held.pop(job.id, None)
        self.ask()

    # The end

    def follow(self, before: "MqttWorker") -> None:
        """Comes after a worker with the same filter, and has what that had: the connection has it still."""
        before.stop()
        for job_id, taken in before.held.items():
            if self.machine.holders.get(job_id) is before:
                self.machine.holders[job_id] = self
                self.held[job_id] = taken
        before.held.clear()

    def stop(self) -> None:
        """Takes no more; what it has it may still acknowledge."""
        self.is_over = True
        if self.waiter is not None:
            self.machine.stop_waiting(self.waiter)
            self.waiter = None

    def lose(self, now: float) -> None:
        """Its connection is gone."""
        self.stop()
        for job_id in list(self.held):
            job = self.machine.jobs.get(job_id)
            if job is not None and self.machine.holders.get(job_id) is self:
                self.machine.lose(job, now)
        self.held.clear()


def shows_life(output: Any) -> bool:
    """Whether a connection would end if its client were gone: it has a keep alive, or is inside this process."""
    session = getattr(output, "session", None)
    return session is not None and (session.is_ours or session.keep_alive > 0)
