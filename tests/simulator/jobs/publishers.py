"""Publishers at QoS 2 that go from node to node before they are answered; their sessions know the ids of their jobs."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from tests.simulator.jobs.promises import Promise
from vmq.jobs.mqtt.arriving import JobArrival
from vmq.jobs.queue import Job
from vmq.jobs.queues import JobRefusedError

if TYPE_CHECKING:
    from tests.simulator.jobs.world import JobWorld


class Connection:
    """A publisher at one node, and its message as its session knows it."""

    def __init__(self, told: Callable[[], None], is_new: bool) -> None:
        self.closing = False
        self.publisher = self
        self.is_new = is_new
        self._told = told

    def done(self, then: Callable[[], None]) -> None:
        if not self.closing:  # else nobody tells the session
            then()
            self._told()

    def drop(self, reason: str) -> None:
        self.closing = True


class Publisher:
    """Adds one job after the other."""

    def __init__(self, world: "JobWorld", seed: str) -> None:
        self.world = world
        self.random = Random(seed)
        self.job_id = b""
        self.node, self.boot = "", 0
        self.connection: Connection | None = None
        self.arrival: JobArrival | None = None
        #: Where it added the present job, and in which lives of these.
        self.came_to: list[tuple[str, int]] = []

    def step(self, adds: bool) -> None:
        """A tenth of a second: begins, waits, or goes elsewhere."""
        world, chance = self.world, self.random.random()
        names = [each for each in world.alive() if not world.nodes[each].held_up]
        names = [each for each in names if not world.nodes[each].replicas.is_leaving]
        if not names:
            return
        name = self.random.choice(names)
        if not self.job_id:
            if adds and chance < 0.1:
                self.begin(name)
            return
        node = world.nodes[self.node]
        if self.node in names and node.boots == self.boot:
            assert self.arrival is not None
            if self.arrival.left and node.clock_now >= self.arrival.deadline:
                self.arrival.fail("in time")
        assert self.connection is not None
        if chance < (0.15 if self.node in names and not self.connection.closing else 0.2):
            self.connection.closing = True
            self.come(name, False)

    def begin(self, name: str) -> None:
        """A new job comes to a node, which adds it and has the session know it."""
        node = self.world.nodes[name]
        self.copies, self.came_to = self.random.choice((1, 2, 2, 3)), []
        try:
            jobs = self.add(name, node.machine.ids.new(600, True), self.world.queue)
        except JobRefusedError:
            return
        for job in jobs:
            job.is_vouched = True
        node.machine.arrive(self.job_id, jobs)
        self.come(name, True)

    def add(self, name: str, job_id: bytes, queue: bytes) -> list[Job]:
        node, now = self.world.nodes[name], self.world.nodes[name].clock_now
        queue_of = node.machine.queue(queue, now)
        node.machine.add(queue_of, b"x" * 50, now, replicate=self.copies, job_id=job_id)
        promise = self.world.promises.setdefault(job_id, Promise(self.copies, False, name))
        promise.node, self.job_id = name, job_id
        promise.is_doubled |= bool(self.came_to) and (
            self.has_died() or not self.world.is_settled()
        )
        self.came_to.append((name, node.boots))
        return node.machine.waited_for()

    def has_died(self) -> bool:
        """Whether a node at which it added this job has."""
        nodes = self.world.nodes
        return any(
            not nodes[name].is_up or nodes[name].boots != boot for name, boot in self.came_to
        )

    def come(self, name: str, is_new: bool) -> None:
        """Its PUBLISH comes to a node, maybe again."""
        world, node = self.world, self.world.nodes[name]
        self.node, self.boot = name, node.boots
        self.connection = Connection(self.on_told, is_new)
        self.arrival = JobArrival(node.commit, self.connection, node.told.append)
        self.arrival.take(self.job_id, world.queue, partial(self.add, name))
        self.arrival.one()
        world._send(name)

    def on_told(self) -> None:
        """PUBREC."""
        self.world.promises[self.job_id].is_told = True
        self.job_id = b""
