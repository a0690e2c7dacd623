"""Everything at once: random work on a group, and faults, several at a time."""

from collections.abc import Callable
from typing import Any

from tests.simulator.groups import GROUP, OPTIONS, Groups, Producer
from tests.simulator.network import Network
from vmq_cluster.raft.members import Members

NAMES = "abcdefg"
#: Some are of nodes that have replicas, and may see by themselves what is committed.
STORES = ("a", "b", "r")

#: What happens a step, and how often.
FAULTS: dict[str, float] = {
    "kill": 0.03,
    "fail_power": 0.02,
    "revive": 0.12,
    "cut": 0.04,
    "split": 0.02,
    "mend": 0.05,
    "slow": 0.02,
    "flip": 0.02,
    "aim": 0.03,
    "hand_over": 0.02,
    "keep": 0.02,
    "lose_store": 0.005,
}


class Upheaval:
    """One run: three or five replicas among seven nodes."""

    options = OPTIONS

    def __init__(self, seed: int, durability: str, **faults: float) -> None:
        network = Network(
            shortest=0.0005,
            longest=(0.01, 0.05, 0.3)[seed % 3],
            loss=(0.0, 0.05, 0.2)[seed // 3 % 3],
            duplicate=(0.0, 0.1)[seed % 2],
        )
        self.calm = (network.loss, network.duplicate)
        self.sim = sim = Groups(seed, durability, self.options, network)
        self.random = sim.random
        sim.begin(*NAMES[: 3 if seed % 4 else 5])
        for name in NAMES:
            if name not in sim.nodes:
                sim.add(name)
        sim.producers = {store: Producer(sim, store) for store in STORES}
        self.faults = {**FAULTS, **faults}

    def go(self, steps: int) -> None:
        acts: dict[Callable[[], Any], float] = {
            getattr(self, name): often for name, often in self.faults.items()
        }
        quiet = max(0.0, 1.0 - sum(acts.values()))
        for _ in range(steps):
            for producer in self.sim.producers.values():
                producer.produce()
            [act] = self.random.choices([*acts, None], [*acts.values(), quiet])
            if act is not None:
                act()
            self.sim.run(self.random.choice((0.01, 0.05, 0.2, 0.6)))

    def end(self) -> None:
        """All is well again: the group works, and all its replicas are alike."""
        sim = self.sim
        sim.heal()
        sim.until(self._is_done, 200.0, 0.2)
        sim.verdict.check()

    def _is_done(self) -> bool:
        sim = self.sim
        leader = sim.leader()
        if not leader:
            return False
        replica = sim.group(leader).replica
        names = replica.members.all
        if not self._can_be_followed(leader):
            return True
        if any(producer.waiting for producer in sim.producers.values()):
            return False
        if self._is_mended_by_nobody(leader):
            return True  # who lacks it waits; the others are served
        if sim.group(leader).leading.wanted is not None:  # type: ignore[union-attr]
            return False
        logs = [sim.nodes[name].logs[GROUP] for name in names]
        return all(log.end == replica.commit and not log.damage for log in logs) and not any(
            sim.group(name).is_awake for name in names
        )

    def _is_mended_by_nobody(self, leader: str) -> bool:
        """Whether there is damage in the leader's log, and nobody has anything of that."""
        replica = self.sim.group(leader).replica
        logs = [
            self.sim.nodes[name].logs[GROUP]
            for name in {*replica.members.all, *replica.state.former} - {leader}
        ]
        return bool(replica.log.damage) and not any(
            log.first <= first
            and end <= log.end
            and not any(begin < end and first < behind for begin, behind in log.damage)
            for first, end in replica.log.damage
            for log in logs
        )

    def _can_be_followed(self, leader: str) -> bool:
        """Whether most can have what the leader writes: who lacks what nobody has can be given nothing behind it."""
        replica = self.sim.group(leader).replica
        if not self._is_mended_by_nobody(leader):
            return True
        ends = {name: self.sim.nodes[name].logs[GROUP].end for name in replica.members.voters}
        first = max(begin for begin, _ in replica.log.damage)
        return replica.members.has_majority(
            name for name, end in ends.items() if name == leader or end > first
        )

    # --- what happens

    def kill(self) -> None:
        self._fail(False)

    def fail_power(self) -> None:
        self._fail(True)

    def _fail(self, power: bool) -> None:
        if self.sim.running():
            self.sim.kill(self.random.choice(self.sim.running()), power)

    def revive(self) -> None:
        dead = [name for name, node in self.sim.nodes.items() if node.host is None]
        if dead:
            self.sim.start(self.random.choice(dead))

    def cut(self) -> None:
        """One way between two nodes."""
        one, other = self.random.sample(sorted(self.sim.nodes), 2)
        self.sim.network.cuts.add((one, other))

    def split(self) -> None:
        names = sorted(self.sim.nodes)
        side = self.random.sample(names, self.random.randint(1, len(names) - 1))
        self.sim.network.split(side, [each for each in names if each not in side])

    def mend(self) -> None:
        self.sim.network.cuts.clear()

    def slow(self) -> None:
        self.sim.nodes[self.random.choice(sorted(self.sim.nodes))].slow = self.random.choice(
            (0.002, 0.1, 1.0)
        )

    def flip(self) -> None:
        self.sim.flip(self.random.choice(sorted(self.sim.nodes)))

    def aim(self) -> None:
        """The meta group wants other members."""
        leader = self.sim.leader()
        if leader:
            count = self.random.choice((1, 2, 3, 3, 3, 4, 5))
            names = tuple(self.random.sample(sorted(self.sim.nodes), count))
            self.sim.do(leader, lambda group: group.aim(names, self.sim.now))

    def hand_over(self) -> None:
        leader = self.sim.leader()
        if leader:
            self.sim.do(leader, lambda group: group.transfer("", self.sim.now))

    def keep(self) -> None:
        """Retention: the leader lets go of what is old."""
        leader = self.sim.leader()
        # While its disk takes a ballot, what is committed is not told yet, and its thread does nothing else.
        if leader and self.sim.nodes[leader].busy <= self.sim.now:
            commit = self.sim.group(leader).replica.commit
            self.sim.do(leader, lambda group: group.keep_from(commit - self.random.randint(20, 60)))

    def lose_store(self) -> None:
        self.sim.producers[self.random.choice(STORES)].lose()

    def members(self) -> Members:
        return self.sim.group(self.sim.leader()).replica.members


def go(seed: int, durability: str, steps: int, **faults: float) -> Upheaval:
    """Whatever a seed brings, and then peace. Raises `AssertionError` where a promise was broken."""
    upheaval = Upheaval(seed, durability, **faults)
    upheaval.go(steps)
    upheaval.end()
    return upheaval
