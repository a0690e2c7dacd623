"""What is left of a group goes on where an operator says so, whatever it is; and not where it might by itself."""

import pytest

from tests.simulator.groups import GROUP, Groups, RaftNode
from tests.simulator.segments import SimLog
from tests.simulator.verdict import Verdict
from vmq_cluster.raft.effects import Ballot, Uncertain
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import MEMBERS, STATE, Batch
from vmq_cluster.raft.state import encode_members, genesis


@pytest.fixture(autouse=True)
def _by_the_operators_word(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most may remember, and are not waited for."""
    monkeypatch.setattr(Verdict, "_remember", lambda *_: False)


def recover(sim: Groups, name: str) -> str:
    return str(sim.do(name, lambda group: group.recover(sim.now)))


def goes_on(sim: Groups, name: str, *others: str) -> None:
    """The group takes rows, led by this one, and gets company again."""
    assert sim.leader() == name
    sim.write(name, "new", 0)
    sim.do(name, lambda group: group.aim((name, *others), sim.now))
    members = sim.group(name).replica
    sim.until(lambda: members.members == Members((name, *others)), 30)
    sim.run(2)
    logs = [sim.nodes[each].logs[GROUP].batches for each in (name, *others)]
    assert all(each == logs[0] for each in logs)
    assert not any(sim.group(each).replica.abstains for each in (name, *others))


def of_three(seed: int = 1) -> tuple[Groups, str, str, str]:
    """Three replicas with some rows, the leader first."""
    sim = Groups(seed)
    sim.begin(*"abc")
    leader = sim.elect()
    sim.write(leader, "s", 0, 3)
    sim.run(2)
    one, other = sorted(set("abc") - {leader})
    return sim, leader, one, other


def staged(lost: str, **logs: tuple[list[Batch], bool]) -> Groups:
    """Nodes whose logs go on so from the first batch of `abc`, and whether they abstain; of these some never come."""
    sim = Groups(1)
    first = Batch(0, 1, 0, STATE, (), genesis(Members(("a", "b", "c"))))
    for name, (batches, abstains) in logs.items():
        sim.nodes[name] = RaftNode(name)
        sim.nodes[name].logs[GROUP] = SimLog("fsync", [first, *batches])
        sim.nodes[name].ballots[GROUP] = Ballot(2, "", abstains)
    sim.verdict.begin(GROUP, SimLog("fsync", [first]))
    for name in logs:
        if name not in lost:
            sim.start(name)
    return sim


def voters(offset: int, names: str, learners: str = "", term: int = 1) -> Batch:
    return Batch(
        offset, 1, term, MEMBERS, (), encode_members(Members(tuple(names), tuple(learners)))
    )


def test_what_most_nodes_took_with_them_is_given_up_where_an_operator_says_so() -> None:
    """Three of five are lost: one of the two that are left goes on alone, the one that has more."""
    sim = Groups(3)
    sim.begin(*"abcde")
    leader = sim.elect()
    sim.run(2)
    more, less, *lost = sorted(set("abcde") - {leader})
    sim.cut_off(less)
    sim.write(leader, "s", 0, 3)
    sim.run(1)

    assert "leads it" in recover(sim, more)
    for name in (leader, *lost):
        sim.kill(name)
    sim.run(0.1)  # what the dead have sent arrives, or does not
    sim.network.cuts.clear()
    sim.run(10)
    assert sim.leaders() == []
    assert f"{more} has more of it" in recover(sim, less)
    assert recover(sim, more) == ""
    assert sim.leader() == more
    assert sim.group(more).replica.members.voters == (more,)
    sim.write(more, "s", 3)
    assert sim.group(more).replica.state.uncertain
    sim.do(more, lambda group: group.aim((more, less), sim.now))
    sim.until(lambda: sim.group(more).replica.members.voters == (more, less), 10)
    for name in (leader, *lost):  # they were not lost after all, and do not know what has happened
        sim.start(name)
    sim.do(more, lambda group: group.aim((more, less, leader), sim.now))
    sim.until(lambda: len(sim.group(more).replica.members.voters) == 3, 30)
    sim.until(lambda: len({sim.nodes[n].logs[GROUP].end for n in (more, less, leader)}) == 1, 10)
    assert sim.leader() == more


def test_who_leads_and_has_lost_the_others_goes_on_alone_where_an_operator_says_so() -> None:
    """Before it has found out that it leads nobody: the operator knows, and asks for all groups at once."""
    sim, leader, *others = of_three(5)
    node = sim.nodes[leader]
    for name in others:
        sim.kill(name)
        sim.carry_out(node, node.running.peer_down(name, sim.now))  # its process has ended
    assert sim.group(leader).replica.leader == leader
    assert recover(sim, leader) == ""
    assert sim.group(leader).replica.members.voters == (leader,)
    sim.write(leader, "s", 3)
    assert "leads it" in recover(sim, leader)


def test_who_remembers_goes_on_where_one_is_lost_and_one_may_have_forgotten() -> None:
    """Most are in reach, and can elect nobody: the lost one might have had more than both."""
    sim, lost, one, other = of_three()
    sim.kill(lost)
    sim.kill(other)
    sim.nodes[other].logs[GROUP].cut_at(2)
    sim.nodes[other].forgot.add(GROUP)
    sim.start(other)
    sim.run(5)
    assert "most of its replicas are in reach, and may elect a leader yet" in recover(sim, one)
    assert f"{one} has more of it" in recover(sim, other)
    sim.run(sim.options.unclean_wait + 6 * sim.options.election_timeout)
    assert not sim.leaders()
    assert f"{one} has more of it" in recover(sim, other)
    assert recover(sim, one) == ""
    goes_on(sim, one, other)
    assert ("s", "b0", 2) in sim.verdict.groups[GROUP].rows


def test_replicas_that_each_take_others_for_the_members_are_recovered_at_the_one_that_has_most() -> (
    None
):
    """`a` has missed that its group has gone to `def`; `d`, which has most, knows that it was taken out again."""
    moved = [voters(1, "abc", "d"), voters(2, "abcd"), voters(3, "bcd")]
    sim = staged(
        "bcef",
        a=(moved[:2], False),
        b=(moved, False),
        c=(moved, False),
        d=([*moved, voters(4, "bcde"), voters(5, "bce"), voters(6, "cef")], False),
        e=(moved, False),
        f=(moved, False),
    )
    sim.run(5)
    assert "d has more of it" in recover(sim, "a"), "it stands by `abcd`, and was told"
    assert recover(sim, "d") == ""
    goes_on(sim, "d", "a")


def test_a_learner_goes_on_where_all_who_count_are_lost() -> None:
    sim, leader, _, _ = of_three()
    sim.add("d")
    sim.do(leader, lambda group: group.change(Members(("a", "b", "c"), ("d",)), sim.now))
    sim.run(3)
    for name in "abc":
        sim.kill(name)
    sim.run(5)
    assert sim.group("d").replica.members == Members(("a", "b", "c"), ("d",))
    assert recover(sim, "d") == ""
    goes_on(sim, "d")
    assert ("s", "b0", 2) in sim.verdict.groups[GROUP].rows


def test_who_was_taken_out_goes_on_where_the_others_are_lost_but_not_beside_them() -> None:
    sim, leader, one, other = of_three()
    sim.cut_off(one)
    sim.do(leader, lambda group: group.aim((leader, other), sim.now))
    sim.run(5)
    sim.heal()
    sim.until(lambda: sim.group(one).removed, 30)
    refusals = [recover(sim, one)]
    sim.run(sim.options.unclean_wait)
    assert sim.group(one).removed, "the leader has told it again"
    refusals.append(recover(sim, one))
    assert all(f"{leader} has more of it" in each for each in refusals)
    for name in (leader, other):
        sim.kill(name)
    sim.run(5)
    assert recover(sim, one) == ""
    goes_on(sim, one)


def test_a_leader_goes_on_alone_where_nobody_has_what_is_damaged_in_its_log() -> None:
    """The others have lost their disks: they can be given nothing that lies behind the damage."""
    sim, leader, one, other = of_three()
    for number in range(3, 33):
        sim.put(leader, "s", number)
        sim.run(0.1)
    log = sim.nodes[leader].logs[GROUP]
    assert recover(sim, leader) == f"{leader} leads it"
    for name in (one, other):
        sim.kill(name)
        sim.nodes[name].logs[GROUP].cut_at(1)
        sim.nodes[name].forgot.add(GROUP)
    log.damage.append((3, 4))
    for name in (one, other):
        sim.start(name)
    sim.run(10)
    assert sim.leader() == leader
    answers = sim.put(leader, "t", 0)
    sim.run(5)
    assert answers == []
    assert recover(sim, one) == f"{leader} leads it"
    assert recover(sim, leader) == ""
    sim.write(leader, "t", 0)
    assert sim.group(leader).replica.members.voters == (leader,)


def test_who_has_just_started_does_not_know_yet_whom_it_reaches() -> None:
    sim, leader, one, _ = of_three()
    sim.kill(one)
    sim.start(one)
    assert "this node has just started" in recover(sim, one)
    sim.run(3)
    assert recover(sim, one) == f"{leader} leads it"


def test_who_has_nothing_cannot_go_on() -> None:
    sim, *_ = of_three()
    sim.add("d")
    sim.run(5)
    assert recover(sim, "d") == "this node has nothing of it"


def test_where_each_side_of_a_split_is_recovered_their_terms_differ() -> None:
    """So the one gives way to the other where they meet."""
    sim, leader, one, other = of_three()
    sim.kill(leader)
    sim.cut_off(one)
    sim.run(5)
    assert [recover(sim, name) for name in (one, other)] == ["", ""]
    assert sim.group(one).replica.term != sim.group(other).replica.term


@pytest.mark.parametrize("forgot", [False, True])
def test_lost_voters_that_come_back_and_hear_its_term_elect_nobody_in_it(forgot: bool) -> None:
    """Both would lead in one term, by members of their own: rows of the same offset and term would differ."""
    sim, left, one, other = of_three()
    for name in (one, other):
        sim.kill(name)
    sim.run(10)
    assert recover(sim, left) == ""
    sim.write(left, "t", 0)
    sim.start(one)
    term = sim.group(left).replica.term
    sim.until(lambda: sim.group(one).replica.term == term, 10)
    sim.cut_off(left)
    sim.start(other)
    sim.until(lambda: sim.group(other).replica.term == term, 10)
    if forgot:  # it was of this epoch, which its ballot knows
        sim.kill(left)
        sim.nodes[left].logs[GROUP].cut_at(2)
        sim.nodes[left].forgot.add(GROUP)
        sim.start(left)
    sim.run(30)
    assert sim.leaders() == [left]
    if not forgot:
        sim.network.heal()
        goes_on(sim, left, one, other)


def test_a_majority_that_lived_on_beyond_a_split_says_what_it_takes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whom an operator had go on knows nothing of it."""
    sim, leader, one, other = of_three()
    sim.cut_off(one)
    first = sim.group(one).replica.commit
    sim.write(leader, "t", 0, 5)
    sim.run(5)
    end = sim.group(leader).replica.commit
    assert sim.group(other).replica.commit == end > first
    assert recover(sim, one) == ""
    told: list[tuple[str, int, int]] = []
    see = Verdict.uncertain

    def uncertain(verdict: Verdict, name: str, effect: Uncertain) -> None:
        told.append((name, effect.first, effect.end))
        see(verdict, name, effect)

    monkeypatch.setattr(Verdict, "uncertain", uncertain)
    sim.network.heal()
    goes_on(sim, one, leader, other)
    assert {(leader, first, end), (other, first, end)} <= set(told)


def test_what_may_be_lost_is_known_after_restarts_and_to_new_copies_until_retention_passes_it() -> (
    None
):
    sim, left, one, other = of_three()
    for name in (one, other):
        sim.kill(name)
    sim.run(10)
    assert recover(sim, left) == ""
    ranges = sim.group(left).replica.uncertain
    assert len(ranges) == 1
    sim.kill(left)
    sim.start(left)
    assert sim.group(left).replica.uncertain == ranges
    sim.elect()
    sim.add("d")
    sim.do(left, lambda group: group.aim((left, "d"), sim.now))
    sim.until(lambda: sim.group(left).replica.members == Members((left, "d")), 30)
    assert sim.group("d").replica.uncertain == ranges
    for number in range(30):
        sim.put(left, "t", number)
        sim.run(0.2)
    sim.do(left, lambda group: group.keep_from(group.replica.commit))
    sim.run(5)
    assert sim.group(left).replica.uncertain == sim.group("d").replica.uncertain == ()
    assert sim.group(left).replica.state.uncertain, "leaders ask others to give way to it yet"


def test_who_has_let_go_of_where_the_recovered_one_goes_another_way_begins_with_its_last_segment() -> (
    None
):
    """Its log begins behind where the other's went on, and that one has let go of the place, too."""
    sim, leader, less, more = of_three(2)
    sim.cut_off(less)
    for number in range(3, 60):
        sim.write(leader, "s", number)
    log, other = sim.nodes[less].logs[GROUP], sim.nodes[more].logs[GROUP]
    sim.do(leader, lambda group: group.keep_from(group.replica.commit))
    sim.until(lambda: other.first > log.end, 5)
    for name in (leader, more):
        sim.kill(name)
    sim.run(10)
    assert recover(sim, less) == ""
    number, begun = 0, log.starts[-1]
    while log.starts[-1] == begun:
        sim.write(less, "t", number)
        number += 1
    sim.do(less, lambda group: group.keep_from(log.starts[-1]))
    sim.run(1)
    assert log.first == log.loose < other.first
    sim.heal()
    goes_on(sim, less, more)


def test_who_has_more_is_not_recovered_a_moment_before_the_others_elect_one_without_it() -> None:
    """They wait since they have asked each other, and stand a moment after that: both would lead."""
    sim = staged("c", a=([], True), b=([], True), c=([], True), d=([voters(1, "abcd")], False))
    while not sim.leaders():
        assert recover(sim, "d") != ""
        sim.run(0.5)
    sim.run(10)
    assert len(sim.leaders()) == 1
