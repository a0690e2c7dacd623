"""One node of the simulation: the broker's own machines, log and messages; only links and time are the world's."""

import random
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from vmq.jobs.commit import JobCommit
from vmq.jobs.ids import JobIds, is_repeated
from vmq.jobs.machine import JobMachine
from vmq.jobs.queue import ACKED
from vmq.jobs.rules import OFF, JobRules
from vmq.jobs.sharing.outbox import JobOutbox
from vmq.jobs.sharing.peers import JobPeer, number_of
from vmq.jobs.sharing.post import JobPost
from vmq.jobs.sharing.replicas import JobReplicas
from vmq.jobs.storage.journal import JobJournal
from vmq.jobs.storage.restoring import JobRestore
from vmq.jobs.storage.segments import JobSegments

#: Seconds until a job is given again, and that it lives.
RETRY = 6
TTL = 20 * 86_400
QUEUE = b"work"
#: Jobs that have no copies are added to it where jobs pile up: they are paged out, some at a time.
PILE = b"pile"
PAGE = 2
#: Its jobs are in memory only.
VOLATILE = b"volatile"


def rules_of(name: bytes, deliveries: int = 0) -> JobRules:
    rules = JobRules()
    rules.retry = [RETRY]
    rules.ttl = TTL
    rules.max_deliveries = deliveries
    if name == VOLATILE:
        rules.persistence = OFF
    return rules


class Doomed(Exception):  # noqa: N818 - it is no error
    """A node dies between what it did and the disk."""


class SimNode:
    """A node, up or not."""

    def __init__(self, name: str, host: str, folder: Path, seed: int, deliveries: int = 0) -> None:
        self.name = name
        self.host = host
        self.folder = folder
        self.random = random.Random(f"{seed} {name}")
        self.is_up = False
        #: Its monotonic clock is another's plus this, its wall clock set by that.
        self.offset = self.random.uniform(0, 10_000)
        self.wall_offset = 0.0
        self.boots = 0
        #: How often a job of its is given until it is a dead letter; 0: it never is.
        self.deliveries = deliveries
        self.store = 0
        #: What arrives and waits for it, while it is held up.
        self.held_up = False
        #: Its clock will be another when it starts.
        self.is_clock_set = False
        #: It dies at its next commit, before anything of that is written.
        self.is_doomed = False
        self.sent: list[tuple[str, bytes]] = []
        #: Called once what a pass did is on the disk: what producers are told leaves then.
        self.told: list[Callable[[], None]] = []

    def start(self, now: float, members: list[str]) -> None:
        """Begins another life, with what is on the disk."""
        self.boots += 1
        self.is_up = True
        self.is_doomed = False
        self.segments = JobSegments(self.folder)
        node = self.folder / "node"
        if not node.exists():
            node.write_bytes(b"%040x" % self.random.getrandbits(160))
        node_id = node.read_bytes()
        self.clock_now = now + self.offset
        wall = int((1_700_000_000 + now + self.wall_offset - self.clock_now) * 1e9)
        ids = JobIds(node_id[:8], self.random.randbytes)
        self.machine = JobMachine(ids, partial(rules_of, deliveries=self.deliveries), None, wall)
        self.machine.pager.size = PAGE
        self.machine.pager.above = 0
        restore = JobRestore(self.machine, self.segments, self.clock_now)
        restore.run()
        self.journal = JobJournal(self.segments, wall, restore.next_serial)
        self.journal.segment_size = 20_000
        self.machine.log = self.journal
        self.commit = JobCommit(self.machine, self.journal, lambda: self.clock_now)
        outbox = JobOutbox(self.commit, lambda peer, data: self.sent.append((peer, data)))
        self.post = JobPost(outbox)
        me = JobPeer(number_of(node_id), self.host, node_id)
        me.boot = self.boots
        self.replicas = JobReplicas(
            self.machine, me, lambda: self.clock_now, self.random.shuffle, outbox
        )
        self.post.replicas = self.replicas
        self.set_members(members)

    @property
    def number(self) -> int:
        return self.replicas.here.me

    def set_members(self, members: list[str]) -> None:
        if self.is_up:
            self.replicas.set_members([each for each in members if each != self.name])

    def set_time(self, now: float) -> None:
        self.clock_now = now + self.offset

    def end_pass(self) -> list[tuple[str, bytes]]:
        """Writes; what leaves then.

        Raises:
            Doomed: it dies before.
        """
        if self.is_doomed and self.journal.events:
            raise Doomed
        self.commit.end_pass(self.clock_now)
        told, self.told = self.told, []
        for each in told:
            each()
        sent, self.sent = self.sent, []
        return sent

    def tick(self) -> None:
        """A tenth of a second is over."""
        if self.machine.next_due() <= self.clock_now:
            self.machine.tick(self.clock_now)
        self.replicas.tick(self.clock_now)
        if self.journal.is_wasteful():
            oldest = self.segments.oldest()
            if oldest is not None:
                jobs = self.machine.jobs.values()
                self.journal.clean([each for each in jobs if each.segment == oldest.number])
                page = self.machine.pager.in_segment(oldest.number)
                if page is not None:
                    self.machine.pager.scatter(page)

    def crash(self) -> None:
        self.is_up = False
        self.sent = []
        self.told = []
        self.segments.close()

    def wipe(self) -> None:
        shutil.rmtree(self.folder)
        self.folder.mkdir()

    def undone(self) -> int:
        """Jobs that are here and not known to be done."""
        jobs = self.machine.jobs.values()
        here = sum(job.state != ACKED and is_repeated(job.id) for job in jobs)
        return here + int(self.machine.pager.count)

    def left(self) -> int:
        """Jobs that are here, done or not; of one that is delivered at most once nobody has to hear that it is done."""
        here = sum(is_repeated(job.id) for job in self.machine.jobs.values())
        return here + int(self.machine.pager.count)
