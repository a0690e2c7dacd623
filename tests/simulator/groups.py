"""Nodes with the replicas of groups, their disks, the network between them, and producers that append."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from tests.simulator.clock import Clock
from tests.simulator.network import Network
from tests.simulator.segments import SimLog
from tests.simulator.verdict import Verdict
from vmq_cluster.detector import Detector
from vmq_cluster.effects import Outbox, PeerDown, PeerUp
from vmq_cluster.options import Options
from vmq_cluster.raft.effects import (
    Answered,
    Ballot,
    Committed,
    Effect,
    Failed,
    Led,
    Removed,
    Save,
    Send,
    Uncertain,
)
from vmq_cluster.raft.group import Group
from vmq_cluster.raft.host import Host
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import ROWS, STATE, Batch, Campaign, Envelope, Mark, decode, encode
from vmq_cluster.raft.options import RaftOptions
from vmq_cluster.raft.progress import AT_NO_TIME
from vmq_cluster.raft.routine import is_routine
from vmq_cluster.raft.state import GAP, genesis

TICK = 0.05
#: What was to happen at one time may differ by so much, as sums of fractions do.
MOMENT = 1e-6
LINK = Options(heartbeat_interval=0.5, heartbeat_timeout=1.5)
OPTIONS = RaftOptions(
    election_timeout=1.0, heartbeat=0.2, piece_bytes=150, append_bytes=800, unclean_wait=20.0
)
GROUP = "g"


@dataclass
class RaftNode:
    """One node, whether it runs or not."""

    name: str
    boot: int = 0
    life: int = 0
    host: Host | None = None
    detector: Detector | None = None
    heard: Outbox = field(default_factory=Outbox)
    logs: dict[str, SimLog] = field(default_factory=dict)
    ballots: dict[str, Ballot] = field(default_factory=dict)
    forgot: set[str] = field(default_factory=set)
    #: How long its disk takes for a sync, and until when it is busy.
    slow: float = 0.002
    busy: float = 0.0
    #: When it was last to tell what is committed.
    tells_at: float = 0.0
    syncing: set[str] = field(default_factory=set)

    @property
    def running(self) -> Host:
        assert self.host is not None, f"{self.name} does not run"
        return self.host


class Groups(Clock):
    """Everything of one run."""

    #: What replicas keep their logs in.
    make_log: type[SimLog] = SimLog

    def __init__(
        self,
        seed: int,
        durability: str = "fsync",
        options: RaftOptions = OPTIONS,
        network: Network | None = None,
    ) -> None:
        super().__init__()
        self.random = Random(seed)
        self.durability = durability
        self.options = options
        self.network = Network(shortest=0.0005, longest=0.01) if network is None else network
        self.nodes: dict[str, RaftNode] = {}
        self.verdict = Verdict(self)
        self.producers: dict[str, Producer] = {}
        self.answers: dict[tuple[str, int], Callable[[Answered], None]] = {}
        self.tickets = 0
        self.wire = seed % 8 == 0
        self.sent = 0
        #: Envelopes of which all was routine.
        self.routine = 0
        #: Frames that a test keeps back: for each, whether it passes.
        self.passes: Callable[[str, str, Envelope], bool] = lambda *_: True

    # --- nodes

    def begin(self, *names: str, group: str = GROUP) -> None:
        """Starts nodes, and a group of all of them."""
        members = Members(names)
        for name in names:
            self.nodes.setdefault(name, RaftNode(name))
            first = Batch(0, 1, 0, STATE, (), genesis(members))
            self.nodes[name].logs[group] = self.make_log(self.durability, [first])
        self.verdict.begin(group, self.nodes[names[0]].logs[group])
        for name in names:
            if self.nodes[name].host is None:
                self.start(name)

    def stage(self, **logs: list[int]) -> None:
        """Starts nodes whose logs have a row of each of these terms already; nothing of it is known to be committed."""
        names = tuple(logs)
        first = Batch(0, 1, 0, STATE, (), genesis(Members(names)))
        last = max(max(terms) for terms in logs.values())
        for name, terms in logs.items():
            batches = [first]
            for number, term in enumerate(terms):
                mark = Mark(f"t{term}", "b0", terms[:number].count(term), 1)
                batches.append(Batch(number + 1, 1, term, ROWS, (mark,), b""))
            self.nodes[name] = RaftNode(name)
            self.nodes[name].logs[GROUP] = SimLog(self.durability, batches)
            self.nodes[name].ballots[GROUP] = Ballot(last)
        self.verdict.begin(GROUP, SimLog(self.durability, [first]))
        for name in names:
            self.start(name)

    def campaign(self, name: str) -> None:
        """A node stands at once, as if its leader had asked it to; returns when it leads."""
        self.do(name, lambda group: group.receive("", Campaign(group.replica.term), self.now))
        self.until(lambda: name in self.leaders(), 1.0, 0.001)

    def put(self, name: str, store: str, first: int, count: int = 1, boot: str = "b0") -> list[str]:
        """Hands rows in at a node; what it answers is in the list when it does."""
        answers: list[str] = []
        mark = Mark(store, boot, first, count)
        self.take(name, mark, lambda what, _: answers.append(what))
        return answers

    def write(self, name: str, store: str, first: int, count: int = 1, boot: str = "b0") -> None:
        """The same, until they are acknowledged."""
        answers = self.put(name, store, first, count, boot)
        self.until(lambda: answers == ["done"], 5, 0.001)

    def cut_off(self, *names: str) -> None:
        """Nothing passes between these and the others."""
        self.network.split(names, [name for name in self.nodes if name not in names])

    def ends(self) -> dict[str, int]:
        """How far each node that runs knows the log to be committed."""
        return {name: self.group(name).replica.commit for name in self.running()}

    def add(self, name: str) -> None:
        """A new node, that has nothing yet."""
        self.nodes[name] = RaftNode(name)
        self.nodes[name].logs[GROUP] = self.make_log(self.durability)
        self.start(name)

    def start(self, name: str) -> None:
        node = self.nodes[name]
        assert node.host is None
        node.boot += 1
        node.host = Host(name, node.boot, self.options, Random(self.random.getrandbits(64)))
        node.heard = Outbox()
        node.detector = Detector(LINK, node.heard)
        node.busy = self.now
        node.syncing = set()
        for group, log in node.logs.items():
            node.life += 1
            ballot = node.ballots.get(group, Ballot())
            forgot = group in node.forgot
            node.running.open(group, log, ballot, node.life, self.now, forgot=forgot)
            self.verdict.opened(name, group)
        self.keep_forgotten(node)
        self.carry_out(node, node.running.finish())
        self.later(self.random.uniform(0, TICK), self._tick, node, node.host)

    def keep_forgotten(self, node: RaftNode) -> None:
        """That a log may have forgotten is known to the next life, too, until the ballots say it."""
        node.forgot -= {group for group, ballot in node.ballots.items() if ballot.abstains}

    def stop(self, name: str) -> None:
        """In order: everything is on disk."""
        for log in self.nodes[name].logs.values():
            log.clean()
        self.nodes[name].host = None

    def kill(self, name: str, power: bool = False) -> None:
        """The process dies, or with `power` the machine: what its disks had not written may be lost."""
        node = self.nodes[name]
        node.host = None
        for group, log in node.logs.items():
            if log.fail(self.random, power):
                node.forgot.add(group)

    def flip(self, name: str) -> None:
        """A bit of the log of a node flips, and is found."""
        node = self.nodes[name]
        log = node.logs[GROUP]
        if node.host is not None and node.busy >= self.now - MOMENT:
            # Who would find it waits for the disk, and then does all that waits with it.
            self.later(node.busy - self.now + 2 * MOMENT, self.flip, name)
            return
        if log.flip(self.random):
            if node.host is None:
                node.forgot.add(GROUP)
            else:
                node.life += 1
                group = node.host.groups[GROUP]
                if not group.replica.abstains:
                    node.forgot.add(GROUP)
                group.forget(node.life, self.now)
                self.verdict.opened(name, GROUP)
                self.carry_out(node, node.host.finish(group))
        elif node.host is not None and log.damage:
            group = node.host.groups[GROUP]
            self.carry_out(node, node.host.finish(group))

    def group(self, name: str, group: str = GROUP) -> Group:
        return self.nodes[name].running.groups[group]

    def do(self, name: str, what: Callable[[Group], Any]) -> Any:
        """Asks something of the group at a node."""
        node = self.nodes[name]
        group = self.group(name)
        answer = what(group)
        self.carry_out(node, node.running.finish(group))
        return answer

    def running(self) -> list[str]:
        return [name for name, node in self.nodes.items() if node.host is not None]

    def leaders(self) -> list[str]:
        """Who leads the group, as each that does thinks."""
        return [name for name in self.running() if self.group(name).leading is not None]

    def leader(self) -> str:
        """The leader of the highest term."""
        return max(self.leaders(), key=lambda name: self.group(name).replica.term, default="")

    def elect(self) -> str:
        """Waits for a leader that has committed something of its term."""
        self.until(self._is_led, 120, 0.05)
        return self.leader()

    def _is_led(self) -> bool:
        leading = self.group(self.leader()).leading if self.leaders() else None
        return leading is not None and leading.is_established

    # --- what passes between them

    def _tick(self, node: RaftNode, host: Host) -> None:
        if node.host is not host:
            return
        assert node.detector is not None
        others = [name for name in self.nodes if name != node.name]
        if set(node.detector.up) | set(node.detector.down) != set(others):
            node.detector.watch(others, self.now)
        if node.detector.tick(self.now):
            for name in others:
                self._transmit(node, name, Envelope(node.name, node.boot, []))
        self._links(node)
        self.carry_out(node, host.tick(self.now))
        self.later(TICK, self._tick, node, host)

    def _links(self, node: RaftNode) -> None:
        """Tells the host what the detector has found."""
        effects, node.heard.effects = node.heard.effects, []
        for effect in effects:
            if isinstance(effect, PeerUp):
                self.carry_out(node, node.running.peer_up(effect.peer, self.now))
            elif isinstance(effect, PeerDown):
                self.carry_out(node, node.running.peer_down(effect.peer, self.now))

    def carry_out(self, node: RaftNode, effects: list[Effect]) -> None:
        """In order: what is to be saved is on disk before what follows is done."""
        host = node.running
        for effect in effects:
            if isinstance(effect, Failed):
                if not isinstance(effect.error, OSError):
                    raise effect.error  # a mistake, and no disk's
                self._open_again(node, effect.group)
            if isinstance(effect, Save):
                node.busy = max(node.busy, self.now) + self.random.uniform(0, node.slow)
            if node.busy > self.now:
                self.later(node.busy - self.now, self._do, node, host, effect)
            else:
                self._do(node, host, effect)
        for group in host.groups:
            self._sync(node, group)
        if host.tells_at not in (AT_NO_TIME, node.tells_at):
            node.tells_at = host.tells_at
            self.later(max(0.0, node.tells_at - self.now), self._tell, node, host)

    def _tell(self, node: RaftNode, host: Host) -> None:
        if node.host is host:
            self.carry_out(node, host.tell(self.now))

    def _open_again(self, node: RaftNode, group: str) -> None:
        """The log of a group failed: it is opened in another life, which has forgotten what is not there any more."""
        log, ballot = node.logs[group], node.ballots.get(group, Ballot())
        node.life += 1
        if not log.end:
            node.forgot.add(group)
        node.running.open(group, log, ballot, node.life, self.now, forgot=not log.end)
        self.verdict.opened(node.name, group)
        self.carry_out(node, node.running.finish())

    def _sync(self, node: RaftNode, group: str) -> None:
        log = node.logs[group]
        if group not in node.syncing and log.durable < log.end:
            node.syncing.add(group)
            delay = self.random.uniform(0, node.slow)
            if self.durability != "fsync":
                delay *= 100
            self.later(delay, self._synced, node, node.host, group, log.end, log.cuts)

    def _synced(self, node: RaftNode, host: Host, group: str, end: int, cuts: int) -> None:
        if node.host is host:
            node.syncing.discard(group)
            if node.logs[group].flushed(end, cuts) and self.durability == "fsync":
                self.carry_out(node, host.on_safe(group, self.now))
            self._sync(node, group)

    def _do(self, node: RaftNode, host: Host, effect: Effect) -> None:
        if node.host is not host:
            return
        match effect:
            case Save():
                node.ballots[effect.group] = effect.ballot
                if effect.ballot.abstains:
                    node.forgot.discard(effect.group)
            case Send():
                if effect.envelope.items:  # the heartbeats of links are the words of groups, too
                    self._transmit(node, effect.peer, effect.envelope)
            case Committed():
                self.verdict.committed(node.name, effect.group, effect.end)
                for mark in effect.own:
                    if mark.store in self.producers:
                        self.producers[mark.store].on_committed(mark, effect.end)
            case Answered():
                answer = self.answers.pop((node.name, effect.ticket), None)
                if answer is not None:
                    answer(effect)
            case Led():
                self.verdict.led(node.name, effect)
            case Uncertain(given_up=False):
                self.verdict.uncertain(node.name, effect)
            case Removed() | Failed() | Uncertain():
                pass

    def _transmit(self, node: RaftNode, peer: str, envelope: Envelope) -> None:
        self.sent += len(envelope.items)
        if not self.passes(node.name, peer, envelope):
            return
        for delay in self.network.delays(self.random, self.now, node.name, peer):
            self.later(delay, self._arrive, node.name, peer, envelope)

    def _arrive(self, sender: str, name: str, envelope: Envelope) -> None:
        node = self.nodes.get(name)
        if node is None or node.host is None or (sender, name) in self.network.cuts:
            return
        if self.wire:
            envelope = decode(encode(envelope))
        assert node.detector is not None
        if envelope.boot >= self.nodes[sender].boot:
            node.detector.heard(sender, self.now)
            self._links(node)
        before = self._routine_logs(node, envelope)
        effects = node.running.receive(envelope, self.now)
        if before is not None:
            self.routine += 1
            assert all(isinstance(each, Send | Answered | Committed) for each in effects), effects
            assert before == self._routine_logs(node, envelope, is_done=True), "files are as before"
        self.carry_out(node, effects)

    @staticmethod
    def _routine_logs(
        node: RaftNode, envelope: Envelope, *, is_done: bool = False
    ) -> list[tuple[int, int]] | None:
        """Where the logs begin that an envelope is about, and how often they were cut; None: it is not all routine."""
        found = []
        for name, message in envelope.items:
            group = node.running.groups.get(name)
            if group is None or not (is_done or is_routine(group, envelope.sender, message)):
                return None
            log = node.logs[name]
            found.append((log.first, log.cuts))
        return found

    # --- appending

    def take(self, name: str, mark: Mark, answer: Callable[[str, int], None]) -> None:
        """A producer's rows arrive at a node; the answer is "done" with the commit index, "gap", or "ask again"."""
        node = self.nodes[name]
        if node.host is None:
            return
        group = self.group(name)
        leading = group.leading
        known = group.judge(mark)
        if leading is None:
            answer("ask again", 0)
        elif known == GAP:
            answer("gap", 0)
        else:
            self.tickets += 1
            ticket = self.tickets
            self.answers[name, ticket] = lambda done: answer(
                "done" if done.done else "ask again", done.end
            )
            fresh = Mark(mark.store, mark.boot, mark.first + known, mark.count - known)
            marks = [fresh] if fresh.count else []
            taken = group.append(marks, [b""] if marks else [], ticket, self.now)
            self.carry_out(node, node.host.finish(group))
            if not taken:
                answer("ask again", 0)

    def heal(self) -> None:
        """All reach all, quickly, and everybody runs."""
        self.network.heal()
        for name, node in self.nodes.items():
            node.slow = 0.002
            if node.host is None:
                self.start(name)


#: Batches that a producer has under way.
WINDOW = 3


def of_three(durability: str = "fsync", seed: int = 1) -> tuple[Groups, str, list[str]]:
    """Three nodes; the leader, and the others."""
    sim = Groups(seed, durability)
    sim.begin("a", "b", "c")
    leader = sim.elect()
    sim.run(2)
    return sim, leader, [name for name in "abc" if name != leader]


class Producer:
    """One store that hands in its rows, a few batches at a time, each until it knows that it is committed."""

    def __init__(self, sim: Groups, store: str) -> None:
        self.sim = sim
        self.store = store
        self.boot = "b000"
        self.next = 0
        #: What it has handed in and not had acknowledged, in order, and since when.
        self.waiting: dict[Mark, float] = {}

    def produce(self) -> None:
        """The next rows, if the window lets."""
        if len(self.waiting) < WINDOW:
            mark = Mark(self.store, self.boot, self.next, self.sim.random.randint(1, 3))
            self.next = mark.end
            self.waiting[mark] = self.sim.now
            self._try(mark)

    def on_committed(self, rows: Mark, end: int) -> None:
        """The replica of the node that has this store's name knows that these are committed."""
        for mark, since in list(self.waiting.items()):
            if mark.boot == rows.boot and rows.first <= mark.first and mark.end <= rows.end:
                self._answer_to(mark, since)("done", end)

    def lose(self) -> None:
        """The store lost its end: it counts anew."""
        self.boot = f"b{int(self.boot[1:]) + 1:03}"
        self.next = 0
        self.waiting = {}

    def _try(self, mark: Mark) -> None:
        """Hands it in at some node, and again somewhere when no answer comes."""
        sim = self.sim
        if mark not in self.waiting:
            return
        if sim.running():
            name = sim.leader() if sim.random.random() < 0.7 else ""
            name = name or sim.random.choice(sim.running())
            since = self.waiting[mark]
            sim.later(
                sim.random.uniform(0, 0.01), sim.take, name, mark, self._answer_to(mark, since)
            )
        sim.later(sim.random.uniform(0.3, 1.5), self._try, mark)

    def _answer_to(self, mark: Mark, since: float) -> Callable[[str, int], None]:
        def answer(what: str, end: int) -> None:
            if mark not in self.waiting:
                return
            if what == "done":
                del self.waiting[mark]
                self.sim.verdict.acknowledged(mark, since, end)
            elif what == "gap" and next(iter(self.waiting)) == mark:
                self.sim.verdict.gap(mark)

        return answer
