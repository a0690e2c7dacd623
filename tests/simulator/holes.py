"""What nobody has any more: an operator gives it up, and the group has all its copies again."""

from unittest.mock import patch

from tests.simulator.groups import GROUP
from tests.simulator.segments import SimLog, is_blank
from tests.simulator.upheaval import Upheaval
from tests.simulator.verdict import Verdict


def has_whole(log: SimLog, first: int, end: int) -> bool:
    """Whether rows are there, and not what has their place."""
    here = [each for each in log.batches if first < each.end and each.offset < end]
    is_there = log.first <= first and end <= log.end
    is_damaged = any(begin < end and first < behind for begin, behind in log.damage)
    return is_there and not is_damaged and not is_blank(here)


class Holes(Upheaval):
    """Bits flip in the same batches everywhere, and an operator gives up whatever he is let."""

    #: How often something was given up.
    given_up = 0

    def rot(self) -> None:
        """The same batch is damaged on several disks."""
        sim = self.sim
        [one, *others] = self.random.sample(sorted(sim.nodes), self.random.choice((2, 3, 5, 7)))
        sim.flip(one)
        for name in others:
            log = sim.nodes[name].logs[GROUP]
            for first, end in sim.nodes[one].logs[GROUP].damage:
                whole = [(each.offset, each.end) for each in log.batches]
                if (first, end) in whole and end <= log.solid and has_whole(log, first, end):
                    log.damage.append((first, end))
            self._wake(name)

    def _wake(self, name: str) -> None:
        node = self.sim.nodes[name]
        if node.host is not None and node.busy <= self.sim.now:
            self.sim.do(name, lambda _: None)

    def give_up(self) -> None:
        leader = self.sim.leader()
        if leader and self.sim.nodes[leader].busy <= self.sim.now:
            self._give_up(leader)

    def _give_up(self, leader: str) -> str:
        """What an operator is let give up nobody has whom the leader reaches."""
        sim = self.sim
        replica = sim.group(leader).replica
        before = len(replica.state.holes)
        others = {*replica.members.all, *replica.state.former} - {leader}
        why: str = sim.do(leader, lambda group: group.give_up(sim.now))
        if why or sim.nodes[leader].host is None:
            return why
        for first, end, _ in replica.state.holes[before:]:
            self.given_up += 1
            for name in others:
                log = sim.nodes[name].logs[GROUP]
                is_there = sim.nodes[name].host is not None and replica.outlet.is_up(name)
                assert (
                    not is_there or not has_whole(log, first, end) or self._differs(name, first)
                ), f"{first} to {end} is given up, and {name} has it"
        return ""

    def _differs(self, name: str, offset: int) -> bool:
        """Whether what it has there was taken back by an unclean election."""
        history = self.sim.verdict.groups[GROUP]
        log = self.sim.nodes[name].logs[GROUP]
        own = next(each for each in log.batches if each.offset <= offset < each.end)
        return not any(
            each.offset <= offset < each.end and each.term == own.term for each in history.batches
        )

    def end(self) -> None:
        """An operator does what he can until all copies are there, and alike."""
        sim = self.sim
        sim.heal()
        until = sim.now + 600
        while not self._is_whole():
            sim.run(1)
            leader = sim.leader()
            if leader:
                self._give_up(leader)
                if not self._can_be_followed(leader):
                    with patch.object(Verdict, "_remember", lambda *_: False):  # by his word
                        sim.do(leader, lambda group: group.recover(sim.now))
                        sim.run(1)
            assert sim.now < until, "copies are still missing"
        sim.verdict.check()

    def _is_whole(self) -> bool:
        leader = self.sim.leader()
        return bool(leader) and not self.sim.nodes[leader].logs[GROUP].damage and self._is_done()


def go(seed: int, durability: str, steps: int, **faults: float) -> Holes:
    """Whatever a seed brings, and then peace. Raises `AssertionError` where a promise was broken."""
    holes = Holes(seed, durability, **{"rot": 0.08, "give_up": 0.1, **faults})
    holes.go(steps)
    holes.end()
    return holes
