"""Nodes of the simulator whose clients add jobs with one key."""

from pathlib import Path

from tests.simulator.jobs.node import QUEUE, SimNode
from tests.simulator.jobs.world import JobWorld
from vmq.jobs.queue import ACKED, WAITING, Job

HOSTS = ["a", "b", "c"]


class World:
    """Nodes of the simulated world, who know each other."""

    def __init__(self, folder: Path) -> None:
        self.world = JobWorld(1, folder, HOSTS)
        self.world.is_idle = True
        self.nodes: list[SimNode] = list(self.world.nodes.values())
        self.passes(3)

    def passes(self, seconds: float) -> None:
        for _ in range(round(seconds * 10)):
            self.world.step(adds=False)


class Keys(World):
    """Of which clients add jobs with one key."""

    def begin(self, node: SimNode, token: bytes, replicate: int = 2) -> Job:
        queue = node.machine.queue(QUEUE, node.clock_now)
        job_id = b"D-00000000-%s-05a1" % (token * 24)
        now = node.clock_now
        job = node.machine.add(queue, b"x", now, key=b"k", replicate=replicate, job_id=job_id)
        self.world._send(node.name)
        return job

    def until_copied(self, job: Job) -> None:
        """Waits until copies of a job are under way."""
        while job.copies is None:
            self.passes(0.1)

    def told(self, job: Job) -> bytes:
        """The id that who adds a job is told."""
        while job.state == WAITING and not job.is_gone:
            self.passes(0.1)
        return job.twin or job.id

    def told_at(self, node: SimNode, job: Job) -> bytes:
        """The same of a job that has the key already, once its node says so."""
        told: list[bool] = []
        node.replicas.wait(node.machine.waited_for(), float("inf"), told.append)
        while not told:
            self.passes(0.1)
        assert told == [True]
        return job.twin or job.id

    def hosts(self, job_id: bytes) -> set[str]:
        """Those that are up and have a job that is not done."""
        found = [(each, each.machine.find(job_id)) for each in self.nodes if each.is_up]
        return {each.host for each, job in found if job is not None and job.state != ACKED}

    def die_while_copying(self, node: SimNode, token: bytes) -> bytes:
        """A node dies while it adds a job to two hosts, of which another has it by then; the job's id."""
        lost = self.begin(node, token)
        self.until_copied(lost)
        self.world.is_late = True
        self.world.crash(node.name)
        while not self.hosts(lost.id):
            self.passes(0.1)
        return lost.id
