"""After everything at once some nodes never come back: an operator has what is left go on, whatever state it is in."""

from unittest.mock import patch

from tests.simulator.groups import GROUP
from tests.simulator.upheaval import Upheaval
from tests.simulator.verdict import Verdict


class Losses(Upheaval):
    """What is left either goes on by itself, or at the node that has most by the operator's word."""

    #: The nodes that are not lost.
    left: list[str]

    def lose(self) -> None:
        """Some nodes are lost with their disks; the others run, and hear each other."""
        sim = self.sim
        sim.network.heal()
        names = sorted(sim.nodes)
        lost = self.random.sample(names, self.random.randint(1, len(names) - 1))
        for name in lost:
            if sim.nodes[name].host is not None:
                sim.kill(name, power=True)
        self.left = [name for name in names if name not in lost]
        for name in self.left:
            sim.nodes[name].slow = 0.002
            if sim.nodes[name].host is None:
                sim.start(name)
        sim.run(self.random.choice((3, 12, 40)))

    def is_served(self) -> bool:
        """Whether the group takes rows."""
        leader = self.sim.leader()
        if not leader:
            return False
        answers = self.sim.put(leader, f"after {self.sim.now}", 0)
        self.sim.run(3)
        return answers == ["done"]

    def recover(self) -> str:
        """Asks one node after the other, again and again; returns the one that goes on, "" if it was not needed."""
        sim = self.sim
        until = sim.now + 4 * sim.options.unclean_wait
        said: dict[str, str] = {}
        while not self.is_served():
            for name in self.left:
                said[name] = sim.do(name, lambda group: group.recover(sim.now))
                if not said[name]:
                    assert self.is_served(), f"{name} goes on alone"
                    return name
            sim.run(5)
            assert sim.now < until, f"nothing goes on: {said}"
        return ""

    def gather(self, leader: str) -> None:
        """Who was recovered gets company, and all have the same."""
        sim = self.sim
        others = [name for name in self.left if name != leader][:2]
        sim.do(leader, lambda group: group.aim((leader, *others), sim.now))
        logs = [sim.nodes[name].logs[GROUP] for name in (leader, *others)]
        replica = sim.group(leader).replica

        def are_alike() -> bool:
            return (
                replica.members.all == (leader, *others)
                and len({log.end for log in logs}) == 1
                and not any(sim.group(name).replica.abstains for name in others)
            )

        sim.until(are_alike, 60.0, 0.2)
        first = max(log.first for log in logs)
        kept = [[each for each in log.batches if each.offset >= first] for log in logs]
        assert all(each == kept[0] for each in kept)

    def end(self) -> None:
        with patch.object(Verdict, "_remember", lambda *_: False):  # by the operator's word
            self.lose()
            if any(self.sim.nodes[name].logs[GROUP].end for name in self.left):
                leader = self.recover()
                if leader and not self.sim.nodes[leader].logs[GROUP].damage:
                    self.gather(leader)
        self.sim.verdict.check()
