"""The jobs of one node among those of others: every message and every moment goes through here."""

from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Final

from vmq.jobs.ids import is_job_id, is_repeated
from vmq.jobs.machine import JobMachine
from vmq.jobs.paging.columns import split_ids
from vmq.jobs.queue import ACKED, Job, JobPage, JobQueue
from vmq.jobs.queues import Pause
from vmq.jobs.sharing.adding import CopyAdder
from vmq.jobs.sharing.asking import AddedQuestions
from vmq.jobs.sharing.context import SharingContext
from vmq.jobs.sharing.ending import JobEnding
from vmq.jobs.sharing.federation import Federation
from vmq.jobs.sharing.keys import KeyClaims
from vmq.jobs.sharing.mending import CopyMender
from vmq.jobs.sharing.messages import (
    Added,
    AnyEntry,
    Busy,
    Claim,
    Claimed,
    Copies,
    Done,
    Drop,
    Fired,
    Forget,
    Heard,
    Holders,
    IsAdded,
    JobNeed,
    KeyHeld,
    Lacks,
    Paused,
    Present,
    Queued,
    QueuedAll,
    Stored,
    WillQueue,
    WillQueueAll,
    Working,
)
from vmq.jobs.sharing.outbox import JobOutbox
from vmq.jobs.sharing.paged import PagedCopies
from vmq.jobs.sharing.peers import JobPeer, JobPeers
from vmq.jobs.sharing.serving import JobServing
from vmq.jobs.sharing.walk import JobWalk
from vmq.jobs.sharing_port import UNKNOWN, JobSharing, RemoteWaiter, Told

#: Minutes that an id says at most, in seconds: the job may live longer.
_LONGEST: Final = 0xFFFF * 60
#: Jobs that a node that came up is told of in one tick.
_TOLD: Final = 5000


class JobReplicas(JobSharing):
    """One node's part.

    Args:
        machine: its jobs.
        me: this node.
        clock: monotonic seconds.
        shuffle: puts nodes that are alike into any order.
        outbox: has messages go to nodes once what was done is safe; they may be lost.
    """

    def __init__(
        self,
        machine: JobMachine,
        me: JobPeer,
        clock: Callable[[], float],
        shuffle: Callable[[list[int]], None],
        outbox: JobOutbox,
    ) -> None:
        super().__init__()
        self.is_on = True
        self.machine = machine
        self.peers = JobPeers(me, shuffle)
        self.here = here = SharingContext(machine, self.peers, clock, outbox)
        self.counts = here.counts
        self.adder = CopyAdder(here)
        self.keys = KeyClaims(here, self.adder)
        self.questions = AddedQuestions(here, self.adder, self.keys)
        self.ending = JobEnding(here)
        self.serving = JobServing(here, self.ending)
        self.paged = PagedCopies(here, self.serving)
        self.federation = Federation(here)
        self.mender = CopyMender(here, self.federation, self.ending)
        #: Told that another node saw to a time of a schedule.
        self.on_fired: Callable[[str, float], None] = lambda schedule, tick: None
        #: Told of a node that came up.
        self.on_newcomer: Callable[[], None] = lambda: None
        #: Nodes that came up and are to hear of what is queued or done here.
        self.newcomers: set[int] = set()
        self.resuming = JobWalk(machine)
        machine.sharing = self

    # What the machine tells

    def asks_for(self, key: bytes) -> bool:
        if key[:1] == b"\0":
            return False
        return bool(self.peers.up) or self.keys.is_meeting(self.here.clock())

    def hosts(self) -> int:
        return self.peers.hosts()

    def reachable_hosts(self) -> int:
        return self.peers.reachable_hosts()

    def begin(self, job: Job, wanted: int, now: float) -> None:
        self.adder.begin(job, wanted, now)

    def queued(self, job: Job, now: float) -> None:
        self.serving.queued(job)

    def look(self, job: Job, now: float) -> None:
        if job.state == ACKED:
            self.ending.look(job, now)
        else:
            self.serving.look(job, now)

    def look_at_page(self, page: JobPage, now: float) -> None:
        self.paged.look(page, now)

    def ended(self, job: Job) -> None:
        self.ending.ended(job)

    def starve(self, queue: JobQueue, now: float) -> None:
        self.federation.starve(queue, now)

    def serve(self, waiter: RemoteWaiter, jobs: list[Job], now: float) -> None:
        self.federation.serve(waiter, jobs, now)

    # What clients ask

    def is_sure(self, job: Job) -> bool:
        return self.adder.vouching.is_sure(job)

    def wait(self, jobs: list[Job], deadline: float, told: Told) -> None:
        if not jobs:
            told(True)
        if len(jobs) == 1:
            self.adder.wait(jobs[0], deadline, told)
            return
        left = list(jobs)
        is_over = False

        def on_one(job: Job, is_there: bool) -> None:
            nonlocal is_over
            left.remove(job)
            if is_over:
                return
            if not is_there:
                is_over = True
                for each in jobs:
                    if not each.is_vouched:
                        self.adder.abandon(each)
                told(False)
            elif not left:
                is_over = True
                told(True)

        for job in jobs:
            self.adder.wait(job, deadline, partial(on_one, job))

    def when_there(self, jobs: list[Job], deadline: float, told: Told) -> None:
        self.questions.when_there(jobs, deadline, told)

    def ask(self, job_id: bytes, deadline: float, told: Told) -> None:
        self.questions.ask(job_id, deadline, told, self.here.clock())

    def acknowledge_unknown(self, job_id: bytes, queue: bytes = UNKNOWN) -> bool:
        if not self.peers.members or not is_job_id(job_id):
            return False
        if self.machine.find(job_id) is not None:
            return False
        if not is_repeated(
            job_id
        ):  # it is on one node, and never given again: no tombstone is needed
            self.here.tell(list(self.peers.all), Drop(job_id))
            return True
        minutes = int(job_id[36:40], 16)
        lives = float(min(minutes * 60, _LONGEST))
        return self.ending.acknowledge_unknown(job_id, queue, lives, self.here.clock())

    def working(self, job: Job) -> None:
        if job.copies is not None:
            self.here.tell(job.copies.nodes, Working(job.id))

    def paused(self, queue: JobQueue) -> None:
        self.tell_pauses(list(self.peers.all), [queue.name])

    def tell_pauses(self, nodes: list[int], names: list[bytes]) -> None:
        """Tells nodes what operators said to all of them of queues."""
        for name in names:
            said = self.machine.pauses[name]
            if said.is_everywhere:
                self.here.tell(nodes, Paused(name, said.is_in, said.is_out, said.at))

    def on_paused(self, entry: Paused, now: float) -> None:
        """An operator said something of a queue to all nodes, maybe long ago: what was said last holds."""
        known = self.machine.pauses.get(entry.queue)
        if known is None or known.at < entry.at:
            queue = self.here.queue(entry.queue, now)
            if queue is not None:
                self.machine.heed(queue, Pause(entry.is_in, entry.is_out, entry.at, True))

    def has_new_queues(self) -> bool:
        """Whether a copy came into one of the broker's own queues since this was asked."""
        found, self.adder.has_own = self.adder.has_own, False
        return found

    def fired(self, schedule: str, tick: float) -> None:
        """A time of a schedule was seen to here."""
        self.here.tell(list(self.peers.all), Fired(schedule, tick))

    def rank(self, name: str) -> int:
        """How many nodes in reach come before this one in the order for a name, in which all of them agree."""
        me = self.here.me

        def place(node: int) -> bytes:
            return sha256(f"{name} {node}".encode()).digest()

        return sum(place(each) < place(me) for each in self.peers.up)

    def set_leaving(self, is_leaving: bool) -> None:
        """This node takes no copies any more, and what it serves goes to others; or all that is over."""
        self.peers.me.is_leaving = self.is_leaving = is_leaving
        self.introduce(sorted(self.peers.up), False)
        self.mender.is_handing = is_leaving
        self.ending.watch(is_leaving)
        if is_leaving:
            self.mender.hand_over(self.here.clock())

    def set_short(self, is_short: bool) -> None:
        """Memory is scarce here, or is so no more: the others hear of it when that is new."""
        me = self.peers.me
        if me.is_short != is_short:
            me.is_short = is_short
            self.introduce(sorted(self.peers.up), False)

    # Other nodes

    def introduce(self, nodes: list[int], asks: bool) -> None:
        """Tells nodes who this one is."""
        self.here.tell(nodes, self.present(asks))

    def present(self, asks: bool) -> Present:
        """Who this node is."""
        me = self.peers.me
        return Present(
            me.number,
            me.node_id,
            me.host,
            me.address,
            me.port,
            me.boot,
            me.is_leaving,
            asks,
            me.is_short,
            list(self.peers.lost),
        )

    def set_members(self, names: list[str]) -> None:
        """These are the other members of the cluster."""
        before = self.peers.members
        self.peers.set_members(names)
        if before != self.peers.members:
            self.mender.restart()

    def on_present(self, name: str, present: Present, now: float) -> None:
        """A member says who it is; by its name the driver knows where messages go."""
        peer = JobPeer(present.node, present.host, present.name)
        peer.address, peer.port = present.address, present.port
        peer.boot, peer.is_leaving = present.boot, present.is_leaving
        peer.is_short = present.is_short
        known = self.peers.all.get(present.node)
        was_up = present.node in self.peers.up
        is_new_life = self.peers.learn(name, peer)
        if self.peers.lose_disks(present.lost):
            self.mender.restart()
        if known is not None and is_new_life:
            self.mender.lost_memory(present.node)
        if present.asks or not was_up:
            # What it was greeted with may have been less than is known now; and what follows is dropped by who does
            # not know this node.
            self.introduce([present.node], False)
        # Who asks did not know this node, and has dropped what it was told before.
        if not was_up or is_new_life or present.asks:
            self.newcomers.add(present.node)
            self.keys.on_newcomer(present.node)
            self.resuming.begin()
            self.ending.watch(self.is_leaving)
            self.paged.begin()
            self.mender.restart()
            self.federation.on_up(now)
            self.tell_pauses([present.node], list(self.machine.pauses))
            self.on_newcomer()
        if self.machine.unasked and self.peers.are_all_up():
            self.serving.ask_all(now)

    def on_down(self, name: str) -> None:
        """A member cannot be reached any more."""
        node = self.peers.lose(name)
        self.federation.on_down(node)
        self.newcomers.discard(node)
        self.keys.on_down(node, self.here.clock())
        self.questions.on_down(node, self.here.clock())
        self.mender.restart()

    def receive(self, sender: int, entry: AnyEntry, now: float) -> None:
        """Takes a message of another node."""
        if isinstance(entry, Copies):
            done = self.adder.on_copies(sender, entry, now)
            for job in done:
                self.ending.say(sender, job)
            if entry.serves and len(done) < len(entry.bodies):
                self.federation.came(entry.queue)
        elif isinstance(entry, Stored):
            jobs = split_ids(entry.jobs)
            self.mender.on_stored(jobs)
            self.adder.on_stored(sender, jobs, now)
        elif isinstance(entry, Done):
            jobs = split_ids(entry.jobs)
            self.mender.on_stored(jobs)
            self.ending.on_done(sender, entry, jobs, now)
        elif isinstance(entry, Heard):
            self.ending.on_heard(sender, entry.nodes, split_ids(entry.jobs))
        elif isinstance(entry, Forget):
            self.ending.on_forget(split_ids(entry.jobs))
        elif isinstance(entry, Queued):
            self.serving.on_queued(sender, entry, now)
        elif isinstance(entry, WillQueue):
            self.serving.on_will_queue(sender, entry, now)
        elif isinstance(entry, Holders):
            self.serving.on_holders(entry, now)
        elif isinstance(entry, Busy):
            self.serving.on_busy(sender, entry, now)
        elif isinstance(entry, Lacks):
            self.adder.on_lacks(sender, entry.job, now)
            self.mender.restart_later(now)
        elif isinstance(entry, Drop):
            self.ending.on_drop(entry.job)
        elif isinstance(entry, Working):
            self.serving.on_working(entry.job, now)
        elif isinstance(entry, JobNeed):
            self.federation.on_need(sender, entry, now)
        elif isinstance(entry, Paused):
            self.on_paused(entry, now)
        elif isinstance(entry, WillQueueAll | QueuedAll):
            self.paged.receive(sender, entry, now)
        elif isinstance(entry, Claim | Claimed | KeyHeld):
            self.keys.receive(sender, entry, now)
        elif isinstance(entry, IsAdded | Added):
            self.questions.receive(sender, entry, now)
        elif isinstance(entry, Fired):
            self.on_fired(entry.schedule, entry.tick)

    # Time

    def tick(self, now: float) -> None:
        """To be called every tenth of a second."""
        self.here.outbox.flush()
        self.adder.tick(now)
        self.keys.tick(now)
        self.questions.tick(now)
        self.federation.tick(now)
        self.mender.tick(now)
        for _ in range(_TOLD):
            job = self.resuming.next(now)
            if job is None:
                break
            self.serving.resume(job, self.newcomers)
        self.paged.tell(self.newcomers)
        if self.resuming.is_over() and not self.paged.untold:
            self.newcomers.clear()
