"""Damage that nobody can mend is given up by an operator's word, and by nothing else."""

from functools import partial

import pytest

from tests.cluster.raft.test_following import grown
from tests.simulator.groups import GROUP, OPTIONS, Groups
from tests.simulator.segments import is_blank
from vmq_cluster.raft.group import Group
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import HOLE, STATE, Batch, Envelope, Mended
from vmq_cluster.raft.state import LogState, encode_hole, genesis


def damage(sim: Groups, *names: str, index: int = 3) -> Batch:
    """The same batch of some replicas."""
    for name in names:
        log = sim.nodes[name].logs[GROUP]
        batch = log.batches[index]
        log.damage.append((batch.offset, batch.end))
        if sim.nodes[name].host is not None:
            sim.do(name, lambda _: None)
    return batch


def give_up(sim: Groups, name: str) -> str:
    said: str = sim.do(name, lambda group: group.give_up(sim.now))
    return said


def given_up(sim: Groups, name: str) -> str:
    """What is said once all have answered."""
    for _ in range(10):
        said = give_up(sim, name)
        sim.run(0.3)
    return said


def is_whole(sim: Groups) -> bool:
    return not any(sim.nodes[name].logs[GROUP].damage for name in sim.nodes)


def test_a_learner_gets_all_but_what_nobody_has() -> None:
    sim, leader = grown()
    batch = damage(sim, *"abc")
    sim.add("d")
    wanted = (leader, *(name for name in "abc" if name != leader), "d")
    sim.do(leader, lambda group: group.aim(wanted, sim.now))
    sim.run(30)
    assert not sim.nodes["d"].logs[GROUP].end, "it can be given nothing"
    assert "is asked whether it has" in give_up(sim, leader)
    assert given_up(sim, leader) == ""
    sim.until(lambda: is_whole(sim), 5)
    sim.until(lambda: sim.group(leader).replica.members == Members(wanted), 30)
    logs = [sim.nodes[name].logs[GROUP].batches for name in wanted]
    # A blank says who the members were when it was written, each in its own time.
    kept = [[each for each in log if not is_blank([each])] for log in logs]
    assert kept.count(kept[0]) == 4
    here = [each for each in logs[-1] if batch.offset <= each.offset < batch.end]
    assert is_blank(here)
    assert (here[0].offset, here[-1].end) == (batch.offset, batch.end)
    assert {each.term for each in here} == {batch.term}
    for name in wanted:
        assert sim.group(name).replica.given_up == ((batch.offset, batch.end),)
    sim.verdict.check()


def test_what_somebody_has_is_not_given_up() -> None:
    """Though it does not come through."""
    sim, leader = grown()
    one, other = (name for name in "abc" if name != leader)
    damage(sim, leader, one)

    def passes(sender: str, _peer: str, envelope: Envelope) -> bool:
        return sender != other or not any(isinstance(each, Mended) for _, each in envelope.items)

    sim.passes = passes
    for _ in range(200):
        assert "is asked whether it has what is damaged here" in give_up(sim, leader)
        sim.run(0.5)
    sim.passes = lambda *_: True
    sim.until(lambda: is_whole(sim), 5)
    assert sim.group(leader).replica.given_up == ()


def test_who_cannot_be_reached_is_waited_for_and_keeps_what_it_has() -> None:
    sim, leader = grown()
    one, other = (name for name in "abc" if name != leader)
    batch = damage(sim, leader, one)
    sim.kill(other)
    sim.run(3)
    assert given_up(sim, leader).startswith(f"{other} cannot be reached, and may have what")
    sim.run(OPTIONS.unclean_wait)
    assert given_up(sim, leader) == ""
    sim.until(lambda: is_whole(sim), 5)
    assert batch not in sim.nodes[leader].logs[GROUP].batches
    sim.start(other)
    sim.until(lambda: sim.group(other).replica.commit == sim.group(leader).replica.commit, 10)
    assert batch in sim.nodes[other].logs[GROUP].batches
    damage(sim, leader)
    sim.until(lambda: is_whole(sim), 5)
    assert sim.group(leader).replica.given_up == ((batch.offset, batch.end),)
    sim.do(other, lambda group: group.give_up(sim.now))
    sim.write(leader, "t", 0)


def test_who_was_a_member_is_asked_as_well() -> None:
    sim, leader = grown()
    one, gone = (name for name in "abc" if name != leader)
    sim.do(leader, lambda group: group.aim((leader, one), sim.now))
    sim.until(lambda: sim.group(one).replica.members.voters == (leader, one), 10)
    sim.kill(gone)
    sim.run(3)
    damage(sim, leader, one)
    assert f"{gone} cannot be reached" in given_up(sim, leader)


def test_it_is_given_up_where_it_is_led() -> None:
    sim, leader = grown()
    one = next(name for name in "abc" if name != leader)
    damage(sim, *"abc")
    assert give_up(sim, one) == f"{leader} leads it"
    sim.kill(leader)
    sim.run(0.1)
    assert give_up(sim, one) in ("nobody leads it", f"{leader} leads it")


def test_an_answer_that_does_not_say_to_what_denies_nothing() -> None:
    """Nodes of an earlier version give such."""
    sim, leader = grown()
    others = [name for name in "abc" if name != leader]
    damage(sim, *"abc")
    sim.cut_off(leader)
    give_up(sim, leader)
    for name in others:
        sim.do(leader, partial(Group.receive, sender=name, message=Mended(1, 0, []), now=sim.now))
    assert "is asked" in give_up(sim, leader)


def test_it_is_decided_once() -> None:
    sim, leader = grown()
    damage(sim, *"abc")
    for _ in range(100):
        give_up(sim, leader)
        sim.run(0.02)
    assert len(sim.group(leader).replica.given_up) == 1


def test_a_segment_begins_with_what_was_given_up_before_it() -> None:
    """And where that was said: else each would tell of it again."""
    begun = Batch(0, 1, 0, STATE, (), genesis(Members(("a",))))
    state = LogState.of([begun, Batch(1, 1, 1, HOLE, (), encode_hole(0, 1))])
    assert state.holes == [(0, 1, 2)]
    segment = Batch(2, 1, 1, STATE, (), state.encode(0))
    state.add(segment)
    assert state.holes == [(0, 1, 2)]
    assert LogState.of([segment]).holes == [(0, 1, 3)]
    state.encode(1)
    assert not state.holes, "retention has passed it"


@pytest.mark.parametrize("power", [True, False])
def test_who_misses_the_decision_learns_of_it_by_the_log(power: bool) -> None:
    sim, leader = grown()
    one, other = (name for name in "abc" if name != leader)
    damage(sim, *"abc")
    sim.kill(one, power)
    sim.run(3)
    given_up(sim, leader)
    sim.run(OPTIONS.unclean_wait)
    assert given_up(sim, leader) == ""
    sim.until(lambda: not sim.nodes[leader].logs[GROUP].damage, 5)
    sim.start(one)
    sim.until(lambda: is_whole(sim), 10)
    state = LogState.of(sim.nodes[one].logs[GROUP].replay(sim.nodes[one].logs[GROUP].end))
    assert len(state.holes) == 1
    assert sim.nodes[other].logs[GROUP].damage == []
