"""The world: links between nodes, producers and workers, and what was promised to them."""

import random
from collections import defaultdict, deque
from pathlib import Path

from tests.simulator.jobs.node import PILE, QUEUE, Doomed, SimNode
from tests.simulator.jobs.promises import Promise, TakenKey, Worker
from tests.simulator.jobs.publishers import Publisher
from vmq.jobs.calls import CallWaiter
from vmq.jobs.queue import DEAD, WAITING, Job
from vmq.jobs.queues import JobRefusedError

STEP = 0.1
#: Seconds that nodes know each other again, after which no job is with two of them.
SETTLED = 12.0


class JobWorld:
    """Nodes, links, clients; one step is a tenth of a second."""

    def __init__(
        self, seed: int, folder: Path, hosts: list[str], queue: bytes = QUEUE, deliveries: int = 0
    ) -> None:
        self.random = random.Random(seed)
        self.now = 100.0
        self.queue = queue
        #: After so many a job is a dead letter, until somebody queues it again; 0: never.
        self.deliveries = deliveries
        self.revived = 0
        self.nodes: dict[str, SimNode] = {}
        for number, host in enumerate(hosts):
            name = f"n{number}"
            (folder / name).mkdir()
            self.nodes[name] = SimNode(name, host, folder / name, seed, deliveries)
        self.members = list(self.nodes)
        #: Messages under way, by pair, with the time at which they arrive.
        self.links: dict[tuple[str, str], deque[tuple[float, bytes | None]]] = defaultdict(deque)
        #: What a node sent before it died still arrives; behind it (None) the other hears that it died.
        self.is_late = False
        self.cut: set[frozenset[str]] = set()
        self.linked: set[frozenset[str]] = set()
        self.slow: set[str] = set()
        #: Pairs: what the first sends the second is lost, though their link is there.
        self.lost: set[tuple[str, str]] = set()
        self.promises: dict[bytes, Promise] = {}
        self.workers = [Worker(name) for name in self.nodes for _ in range(2)]
        self.rate = 0.12
        #: Nobody works: jobs pile up.
        self.is_idle = False
        self.troubled_at = 0.0
        self.together = 0
        self.returned = 0
        self.unexplained = 0
        #: Keys, disks that were lost, and jobs that were added though another had their key.
        self.keys: dict[bytes, TakenKey] = {}
        self.losses = 0
        self.doubled = 0
        #: Most jobs that were paged out at a time.
        self.paged = 0
        #: The same of copies that others served.
        self.paged_copies = 0
        self.lost_disks: set[str] = set()
        #: Nodes that left in order: what they had is with others.
        self.left: set[str] = set()
        #: Keys of jobs whose producers were not told anything yet: at which node, in which of its lives.
        self.untold: list[tuple[bytes, str, int]] = []
        #: Nodes that died by themselves, and when.
        self.killed: dict[str, float] = {}
        #: Those at QoS 2 that go from node to node, if there are any.
        self.publishers: list[Publisher] = []
        for name in self.nodes:
            self.start(name)

    # Nodes

    def alive(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.is_up]

    def start(self, name: str) -> None:
        node = self.nodes[name]
        for other in self.nodes:
            self.links[other, name].clear()
        node.start(self.now, self.members)
        if node.is_clock_set:
            node.is_clock_set = False
            self.losses += 2  # windows of keys end by it
        self.trouble()

    def crash(self, name: str) -> None:
        node = self.nodes[name]
        if node.is_up:
            node.crash()
        for other in [each for each in self.nodes if frozenset((name, each)) in self.linked]:
            if self.is_late:
                self._end_link(name, other)
            else:
                self.break_link(name, other)
        for worker in self.workers:
            if worker.node == name:
                self._excuse(worker)
        self.trouble()

    def lose_acknowledgements(self) -> None:
        """A disk is lost: what was acknowledged there lately, others may not know, and it is to be done again."""
        self.losses += 1
        for promise in self.promises.values():
            if promise.is_done and self.now - promise.done_at < SETTLED:
                promise.excused += 1
                promise.is_done = False

    def hold_up(self, name: str) -> None:
        """Nothing happens on a node for a while; others may do what its workers have."""
        self.nodes[name].held_up = True
        for worker in self.workers:
            if worker.node == name:
                for job_id in [worker.job] if worker.job else [job.id for job in worker.got]:
                    self.promises[job_id].excused += 1

    def trouble(self) -> None:
        self.troubled_at = self.now

    def is_settled(self) -> bool:
        return self.now - self.troubled_at > SETTLED and self._all_there()

    def _all_there(self) -> bool:
        names = self.members
        if self.cut or self.slow or self.lost:
            return False
        if any(not self.nodes[each].is_up or self.nodes[each].held_up for each in names):
            return False
        return len(self.linked) == len(names) * (len(names) - 1) // 2

    def may_be_lost(self, job_id: bytes) -> bool:
        """Whether a job that was on one host was on one whose disk was lost, or may have gone to such a one.

        When two sides of a split meet it goes for another with its key, which then stands for both.
        """
        promise = self.promises[job_id]
        return promise.copies == 1 and any(
            self._was_on_lost(each)
            for each_id, each in self.promises.items()
            if each is promise or (each_id < job_id and each.stands_for(promise))
        )

    def _was_on_lost(self, promise: Promise) -> bool:
        return promise.node in self.lost_disks or (
            promise.node in self.left and bool(self.lost_disks)
        )

    def remove(self, name: str) -> None:
        """A member goes for good."""
        self.members = [each for each in self.members if each != name]
        for node in self.nodes.values():
            node.set_members(self.members)

    # Links

    def break_link(self, one: str, other: str) -> None:
        self.linked.discard(frozenset((one, other)))
        self.links[one, other].clear()
        self.links[other, one].clear()
        for near, far in ((one, other), (other, one)):
            if self.nodes[near].is_up:
                self.nodes[near].replicas.on_down(far)
        self.trouble()

    def lose_sight(self, near: str, far: str) -> None:
        """A node hears nothing of another and takes it for down, which knows nothing of that."""
        self.lost.add((far, near))
        self.links[far, near].clear()
        self.nodes[near].replicas.on_down(far)

    def find_again(self) -> None:
        """All hear each other again."""
        lost, self.lost = self.lost, set()
        for far, near in lost:
            if frozenset((far, near)) in self.linked:
                self.nodes[near].post.greet(far)

    def _end_link(self, dead: str, other: str) -> None:
        """A node has died: the other hears of it behind what was under way, no two nodes at the same time."""
        self.linked.discard(frozenset((dead, other)))
        self.links[other, dead].clear()
        link = self.links[dead, other]
        link.append((max(self.now, link[-1][0] if link else 0.0) + self.random.random(), None))

    def _make_links(self) -> None:
        names = [each for each in self.members if self.nodes[each].is_up]
        for place, one in enumerate(names):
            for other in names[place + 1 :]:
                pair = frozenset((one, other))
                if pair in self.linked or pair in self.cut:
                    continue
                if self.nodes[one].held_up or self.nodes[other].held_up:
                    continue
                if self.links[one, other] or self.links[other, one]:
                    continue  # its end is under way
                self.linked.add(pair)
                self.trouble()
                for near, far in ((one, other), (other, one)):
                    if self.nodes[near].is_up:
                        self.nodes[near].post.greet(far)
                        self._send(near)

    def _send(self, name: str) -> None:
        node = self.nodes[name]
        try:
            sent = node.end_pass()
        except Doomed:
            sent, node.sent = node.sent, []
            self._transmit(name, sent)
            self.crash(name)
            self.killed[name] = self.now
            return
        self._transmit(name, sent)

    def _transmit(self, name: str, sent: list[tuple[str, bytes]]) -> None:
        for peer, data in sent:
            if frozenset((name, peer)) not in self.linked or (name, peer) in self.lost:
                continue
            link = self.links[name, peer]
            delay = self.random.uniform(0.0, 0.25)
            if name in self.slow or peer in self.slow:
                delay += self.random.uniform(0.5, 2.0)
            link.append((max(self.now + delay, link[-1][0] if link else 0.0), data))

    def _deliver(self) -> None:
        for (sender, name), link in list(self.links.items()):
            node = self.nodes[name]
            while link and link[0][0] <= self.now and node.is_up and not node.held_up:
                _, data = link.popleft()
                node.set_time(self.now)
                if data is None:
                    node.replicas.on_down(sender)
                    self.trouble()
                    continue
                node.post.receive(sender, data, node.clock_now)
                if self.random.random() < 0.5:
                    self._send(name)
            if node.is_up and not node.held_up:
                self._send(name)

    # Clients

    def ask_for_keys(self) -> None:
        """Each key that is known to all is added once more, at some node: it is told what was told before."""
        for key in list(self.keys):
            if self._keeps_out(key):
                self.add(self.random.choice(self.alive()), key)
        for _ in range(100):
            self.step(adds=False)

    def add(self, name: str, known: bytes = b"") -> None:
        """A producer adds a job at a node; `known`: with that key."""
        node = self.nodes[name]
        is_once = not known and self.random.random() < 0.1
        reach = node.replicas.peers.reachable_hosts()
        copies = 1 if is_once else self.random.choice((1, 2, 2, 3))
        if copies > reach:
            return
        queue = node.machine.queue(self.queue, node.clock_now)
        delay = self.random.choice((0, 0, 0, 3))
        retry = 0 if is_once else -1
        key = known or (b"" if is_once else self._key())
        try:
            job = node.machine.add(
                queue, b"x" * 50, node.clock_now, -1, retry, delay, key=key, replicate=copies
            )
        except JobRefusedError:
            return
        promise = Promise(copies, is_once, name, key, is_troubled=not self.is_settled())
        promise = self.promises.setdefault(job.id, promise)
        is_second = self._keeps_out(key)
        boot = node.boots
        waits = node.machine.waited_for()

        if key:
            self.untold.append((key, name, boot))

        def told(is_there: bool) -> None:
            if key and not is_there:
                self.untold.remove((key, name, boot))
            if is_there and node.boots == boot and node.is_up:
                node.told.append(on_told)

        def on_told() -> None:
            if key:
                self.untold.remove((key, name, boot))
            told_id = job.twin or job.id
            taken = self.keys.setdefault(key, TakenKey(copies, self.losses))
            is_other = told_id not in taken.ids and not self.promises[told_id].is_troubled
            self.doubled += is_second and self.is_settled() and is_other
            taken.ids.add(told_id)
            # Who is told of another's job counts on that, though its node died before it told anybody.
            self.promises[told_id].is_told = True
            if not job.twin:
                taken.copies = min(taken.copies, copies)

        if waits:
            node.replicas.wait(waits, node.clock_now + 5, told)
            self._send(name)
        else:
            told(job.state != WAITING)
            self._send(name)

    def _key(self) -> bytes:
        """Every third job has a key: a new one, that others use at the same time, or one that was used before."""
        chance = self.random.random()
        if chance < 0.1 and self.keys:
            return self.random.choice(list(self.keys))
        return b"%d %d" % (self.now // 4, self.random.randrange(2)) if chance < 0.35 else b""

    def _keeps_out(self, key: bytes) -> bool:
        """Whether a job with this key is known to all, whatever was lost since."""
        taken = self.keys.get(key) if key and self.is_settled() else None
        return taken is not None and self.losses - taken.losses < min(taken.copies, 2)

    def _ask_again(self) -> None:
        """A producer whose node died before it was told anything adds its job again, under its key, at another one."""
        for each in list(self.untold):
            key, name, boot = each
            node = self.nodes[name]
            if (not node.is_up or node.boots != boot) and self.random.random() < 0.2:
                self.untold.remove(each)
                up = [other for other in self.alive() if not self.nodes[other].held_up]
                if up:
                    self.add(self.random.choice(up), key)

    def pile(self, name: str) -> None:
        """A producer adds a job that is on one host."""
        node = self.nodes[name]
        queue = node.machine.queue(PILE, node.clock_now)
        try:
            job = node.machine.add(queue, b"x" * 50, node.clock_now, replicate=1)
        except JobRefusedError:
            return
        promise = self.promises[job.id] = Promise(1, False, name)
        self._send(name)
        promise.is_told = node.is_up

    def _work(self, worker: Worker) -> None:
        node = self.nodes[worker.node]
        if not node.is_up or node.held_up:
            return
        node.set_time(self.now)
        if worker.boot != node.boots:
            worker.boot, worker.waiter, worker.job = node.boots, None, b""
            worker.got = []
        if worker.got:
            (job,) = worker.got
            worker.got = []
            worker.waiter = None
            self._begin(worker, job)
        elif worker.job:
            if self.now >= worker.until:
                self._finish(worker)
        elif worker.waiter is None:
            queues = [node.machine.queue(each, node.clock_now) for each in (self.queue, PILE)]
            worker.waiter = CallWaiter(queues, 1, worker.got.extend)
            node.machine.wait(worker.waiter, node.clock_now + 5, node.clock_now)
            self._send(worker.node)
        elif worker.waiter.due <= node.clock_now:
            worker.waiter = None

    def _begin(self, worker: Worker, job: Job) -> None:
        worker.job = job.id
        length = self.random.choice((0.2, 0.5, 1.0, 4.0))
        worker.until = self.now + length
        promise = self.promises[job.id]
        promise.deliveries += 1
        others = [each for each in self.workers if each.job == job.id and each is not worker]
        others = [each for each in others if each.boot == self.nodes[each.node].boots]
        if self.is_settled() and not promise.is_doubled:
            self.together += len(others)
            if promise.is_done and self.now - promise.done_at > SETTLED:
                self.returned += 1
            if promise.deliveries > 1 + promise.excused:
                self.unexplained += 1
                promise.excused = promise.deliveries

    def _excuse(self, worker: Worker) -> None:
        """What it had is given again."""
        if worker.job:
            self.promises[worker.job].excused += 1
        for job in worker.got:
            self.promises[job.id].excused += 1
        worker.job, worker.got = b"", []

    def _finish(self, worker: Worker) -> None:
        node, promise = self.nodes[worker.node], self.promises[worker.job]
        chance = self.random.random()
        job = node.machine.jobs.get(worker.job)
        if chance < 0.05 and not promise.is_once:  # it says nothing
            self._excuse(worker)
        elif chance < (0.5 if self.deliveries else 0.1) and not promise.is_once:
            if job is not None:
                node.machine.nack(job, node.clock_now)
            self._excuse(worker)
        else:
            at = worker.node
            if chance > 0.8:  # acknowledged elsewhere
                up = [each for each in self.alive() if not self.nodes[each].held_up]
                at = self.random.choice(up)
            node = self.nodes[at]
            node.set_time(self.now)
            is_known = node.machine.acknowledge(worker.job)
            if not is_known:
                is_known = node.replicas.acknowledge_unknown(worker.job)
            self._send(at)
            if not node.is_up:
                self._excuse(worker)
            elif is_known or worker.job in node.machine.jobs or at == worker.node:
                promise.done_at = promise.done_at if promise.is_done else self.now
                promise.is_done = True
        worker.job = b""
        if self.nodes[worker.node].is_up:
            self._send(worker.node)

    # Time

    def step(self, adds: bool = True) -> None:
        """A tenth of a second."""
        self.now += STEP
        if self.cut or self.slow or self.lost:
            self.trouble()
        self._make_links()
        self._deliver()
        if adds:
            self._ask_again()
        for name in self.alive():
            node = self.nodes[name]
            if node.held_up:
                continue
            node.set_time(self.now)
            if adds and self.random.random() < self.rate and not node.replicas.is_leaving:
                self.add(name)
            if adds and self.is_idle and self.random.random() < 0.06 and node.is_up:
                if not node.replicas.is_leaving:
                    self.pile(name)
            if node.is_up:
                node.tick()
                self._send(name)
                pager = node.machine.pager
                self.paged = max(self.paged, int(pager.count))
                self.paged_copies = max(self.paged_copies, int(pager.count - pager.queued))
            if self.deliveries and node.is_up and self.random.random() < 0.05:
                self._revive_some(name)
        for worker in () if self.is_idle else self.workers:
            self._work(worker)
        for publisher in self.publishers:
            publisher.step(adds)

    def _revive_some(self, name: str) -> None:
        """Somebody queues dead letters again."""
        node = self.nodes[name]
        for queue in (self.queue, PILE):
            for job in node.machine.queue(queue + DEAD, node.clock_now).oldest(3):
                if node.machine.enqueue(job, node.clock_now):
                    self.revived += 1
                    self.promises[job.id].excused += 1
        self._send(name)

    def is_whole(self) -> bool:
        """Whether each node is there, reaches all others for a while, and has mended all copies."""
        return self.is_settled() and self.is_mended()

    def is_mended(self) -> bool:
        """Whether each node is there, reaches all others, and has mended all copies."""
        seen = [self.nodes[each].replicas for each in self.members]
        return self._all_there() and all(
            each.mender.is_over() and each.peers.are_all_up() for each in seen
        )

    def close(self) -> None:
        """All of it ends."""
        for name in self.alive():
            self.nodes[name].crash()
