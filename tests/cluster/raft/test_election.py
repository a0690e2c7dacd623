"""Who leads, and who must not."""

from collections.abc import Callable

import pytest

from tests.simulator.ablations import without
from tests.simulator.groups import GROUP, Groups, RaftNode, of_three
from tests.simulator.segments import SimLog
from vmq_cluster.raft.effects import Ballot
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import LEADER, MEMBERS, STATE, Append, Ask, Batch, Envelope, Vote
from vmq_cluster.raft.state import encode_members, genesis


def cut_off_and_back() -> tuple[bool, bool]:
    """A follower cannot be reached for long: whether its term rose, and whether its return deposed the leader."""
    sim, leader, (one, _) = of_three()
    term = sim.group(leader).replica.term
    sim.cut_off(one)
    sim.run(30)
    rose = sim.group(one).replica.term > term
    sim.heal()
    sim.run(3)
    return rose, sim.group(sim.leader()).replica.term > term


def test_a_vote_is_given_once_a_term_also_across_a_restart() -> None:
    sim, leader, (one, other) = of_three()
    sim.kill(leader)
    sim.kill(other)
    replica = sim.group(one).replica
    term = replica.term + 1
    votes: list[Vote] = []

    def watch(sender: str, peer: str, envelope: Envelope) -> bool:
        votes.extend(each for _, each in envelope.items if isinstance(each, Vote))
        return True

    sim.run(5)
    sim.passes = watch
    ask = Ask(term, replica.last_term, replica.log.end, pre=False)
    sim.do(one, lambda group: group.receive(leader, ask, sim.now))
    sim.run(0.1)
    sim.kill(one)
    ballot = sim.nodes[one].ballots[GROUP]
    assert (ballot.term, ballot.vote) == (term, leader)
    sim.start(one)
    sim.do(one, lambda group: group.receive(other, ask, sim.now))
    sim.run(0.1)
    assert [vote.granted for vote in votes] == [True, False]


def test_a_removed_node_disturbs_nobody_and_is_told() -> None:
    sim, leader, (one, other) = of_three()
    sim.cut_off(one)
    sim.do(leader, lambda group: group.aim((leader, other), sim.now))
    sim.run(3)
    assert sim.group(leader).replica.members.voters == (leader, other)
    sim.heal()
    term = sim.group(leader).replica.term
    sim.run(10)
    assert sim.leader() == leader
    assert sim.group(leader).replica.term == term
    assert sim.group(one).removed


def test_who_may_have_forgotten_does_not_elect_without_what_was_committed() -> None:
    """e is committed on A and B; B is killed and forgets e; A is killed: B and C must not go on without e."""
    sim, a, (b, c) = of_three("memory")
    sim.cut_off(c)
    sim.write(a, "s", 0)
    sim.kill(b, power=True)
    sim.kill(a)
    sim.nodes[a].forgot.clear()  # its log is whole, as after an end in order
    sim.nodes[a].logs[GROUP].clean()
    sim.network.cuts.clear()
    sim.start(b)
    assert sim.group(b).replica.abstains
    sim.run(40)
    assert sim.leaders() == []
    sim.start(a)
    sim.elect()
    sim.run(5)
    assert not sim.group(b).replica.abstains
    assert ("s", "b0", 0) in sim.verdict.groups[GROUP].rows


def test_where_a_majority_may_have_forgotten_the_longest_log_leads_after_the_wait() -> None:
    sim, a, (b, c) = of_three("memory")
    sim.write(a, "s", 0)
    sim.run(0.2)
    sim.kill(a)
    for name in (b, c):
        sim.kill(name, power=True)
        sim.start(name)
    sim.run(sim.options.unclean_wait - 5)
    assert sim.leaders() == []
    ends = {name: sim.nodes[name].logs[GROUP].end for name in (b, c)}
    sim.until(sim.leader, 30)
    assert ends[sim.leader()] == max(ends.values())
    assert sim.group(sim.leader()).replica.state.uncertain != []
    sim.start(a)
    sim.run(10)
    assert len({sim.nodes[name].logs[GROUP].end for name in "abc"}) == 1
    assert not any(sim.group(name).replica.abstains for name in "abc")


def test_who_was_elected_though_it_may_have_forgotten_abstains_until_that_is_committed() -> None:
    """Else others count it among those who remember, and nothing that it leads by is agreed on yet."""
    sim, a, (b, c) = of_three("memory")
    sim.kill(a)
    for name in (b, c):
        sim.kill(name, power=True)
        sim.start(name)
    sim.passes = lambda sender, peer, envelope: (
        not any(isinstance(message, Append) for _, message in envelope.items)
    )
    sim.until(sim.leader, 120, 0.01)
    leader = sim.leader()
    assert sim.group(leader).replica.abstains
    sim.passes = lambda *_: True
    sim.elect()
    assert not sim.group(sim.leader()).replica.abstains


def lose_power(sim: Groups, name: str) -> None:
    """A node's machine stops: its log has what was synced, and nothing else."""
    log, durable = sim.nodes[name].logs[GROUP], sim.nodes[name].logs[GROUP].durable
    sim.kill(name, power=True)
    log.cut_at(durable)


def moved_and_forgotten() -> None:
    """Two of three replicas are replaced; the old ones forget all that their disks need not have, and are cut off."""
    sim, leader, (one, other) = of_three("memory")
    for name in "abc":
        sim.nodes[name].syncing.add(GROUP)  # its log's disk never gets there
    sim.add("d")
    sim.add("e")
    sim.run(2)
    sim.do(leader, lambda group: group.aim((leader, "d", "e"), sim.now))
    members = sim.group(leader).replica
    sim.until(lambda: members.members.voters == (leader, "d", "e"), 30)
    sim.run(1)
    for name in (leader, one, other):
        lose_power(sim, name)
    sim.cut_off(*"abc")
    for name in (leader, one, other):
        sim.start(name)
    sim.run(10)
    [leader] = sim.leaders()
    assert leader in {"d", "e"}, "they forgot nothing, and are most of the members"
    assert not sim.verdict.groups[GROUP].uncertain


def grown_and_damaged() -> None:
    """The log of who was the only member once is damaged from there on, while it is cut off."""
    sim = Groups(1)
    sim.begin("a")
    sim.elect()
    sim.add("b")
    sim.add("c")
    sim.do("a", lambda group: group.aim(("a", "b", "c"), sim.now))
    sim.until(lambda: sim.group("c").replica.members.voters == ("a", "b", "c"), 30)
    sim.run(1)
    sim.cut_off("a")
    sim.kill("a")
    sim.nodes["a"].logs[GROUP].cut_at(1)
    sim.nodes["a"].forgot.add(GROUP)
    sim.start("a")
    sim.run(40)
    [leader] = sim.leaders()
    assert leader in {"b", "c"}, "who lost the end of its log knows the members by its ballot"
    sim.heal()
    sim.run(5)
    replica = sim.group("a").replica
    assert replica.state.members.voters == ("a", "b", "c")
    assert not replica.abstains
    assert not sim.verdict.groups[GROUP].uncertain


def test_who_leads_by_the_members_of_its_ballot_writes_them_into_its_log() -> None:
    """All have lost the end of their logs, and with it that there is more than one."""
    sim = Groups(1)
    sim.begin("a")
    sim.elect()
    sim.add("b")
    sim.do("a", lambda group: group.aim(("a", "b"), sim.now))
    sim.until(lambda: sim.group("b").replica.members.voters == ("a", "b"), 30)
    sim.run(1)
    for name in "ab":
        sim.kill(name)
        sim.nodes[name].logs[GROUP].cut_at(2)
        sim.nodes[name].forgot.add(GROUP)
    sim.start("a")
    sim.run(60)
    assert not sim.leaders(), "it knows of the other"
    sim.start("b")
    sim.elect()
    sim.run(5)
    for name in "ab":
        assert sim.group(name).replica.state.members.voters == ("a", "b")
        assert not sim.group(name).replica.abstains
    assert sim.put(sim.leader(), "s", 0) == []
    sim.run(1)
    assert ("s", "b0", 0) in sim.verdict.groups[GROUP].rows


def missed_two_unclean_elections() -> None:
    """A leader is cut off with what the others forget, twice: what it knows to be committed is so no more."""
    sim, leader, others = of_three("memory")
    for name in others:
        sim.nodes[name].slow = 100.0
    sim.write(leader, "s", 0, 5)
    sim.cut_off(leader)
    for count in (1, 2):
        for name in others:
            lose_power(sim, name)
            sim.nodes[name].slow = 0.002
            sim.start(name)
        sim.until(lambda: set(sim.leaders()) & set(others), 60)
        sim.run(2)
        other = sim.leader()
        assert len(sim.group(other).replica.state.uncertain) == count
        sim.put(other, "t", count - 1)
        sim.run(1)
    sim.heal()
    sim.run(5)
    logs = [sim.nodes[name].logs[GROUP].batches for name in "abc"]
    assert logs[0] == logs[1] == logs[2], "all have the same"
    assert sim.verdict.groups[GROUP].rows.keys() == {("t", "b0", 0), ("t", "b0", 1)}


def test_who_has_deleted_what_an_unclean_election_goes_on_from_begins_anew() -> None:
    sim, leader, others = of_three("memory")
    sim.run(1)
    for name in others:
        sim.nodes[name].slow = 100.0
    for number in range(40):
        sim.put(leader, "s", number)
        sim.run(0.1)
    sim.cut_off(leader)
    sim.do(leader, lambda group: group.keep_from(30))
    sim.run(0.5)
    assert sim.nodes[leader].logs[GROUP].first > 20
    for name in others:
        lose_power(sim, name)
        sim.nodes[name].slow = 0.002
        sim.start(name)
    sim.until(lambda: set(sim.leaders()) & set(others), 60)
    assert sim.nodes[others[0]].logs[GROUP].end < 20
    sim.heal()
    sim.run(10)
    logs = [sim.nodes[name].logs[GROUP].batches for name in "abc"]
    assert logs[0] == logs[1] == logs[2], "all have the same"
    assert not sim.group(leader).replica.abstains


def died_before_it_said_that_it_forgot() -> None:
    """One of two that have a row loses it to the power, and its process dies before the ballots say so."""
    sim, leader, (one, other) = of_three("os")
    sim.cut_off(other)
    log = sim.nodes[one].logs[GROUP]
    before = log.end
    sim.write(leader, "s", 0)
    sim.kill(one, power=True)
    log.cut_at(before)
    sim.start(one)
    sim.kill(one)
    sim.kill(leader)
    sim.network.heal()
    sim.start(one)
    sim.run(10)
    assert not sim.leaders(), "only who is down is known to have all"
    sim.start(leader)
    sim.elect()
    assert sim.verdict.groups[GROUP].rows


def left_in_a_change(deaf: float = 0.0) -> None:
    """`d` was to become a voter; it has what a leader wrote who did not know, and `a` that leader's end no more.

    For a while nobody hears what `d` asks.
    """
    sim = Groups(1)
    first = Batch(0, 1, 0, STATE, (), genesis(Members(("a", "b", "c"))))
    learns = Batch(1, 1, 1, MEMBERS, (), encode_members(Members(("a", "b", "c"), ("d",))))
    votes = Batch(2, 1, 1, MEMBERS, (), encode_members(Members(("a", "b", "c", "d"))))
    later = Batch(2, 1, 2, LEADER, (), b"")
    logs = {"a": [learns], "b": [learns, votes], "c": [], "d": [learns, later]}
    for name, batches in logs.items():
        sim.nodes[name] = RaftNode(name)
        sim.nodes[name].logs[GROUP] = SimLog("fsync", [first, *batches])
        sim.nodes[name].ballots[GROUP] = Ballot(2, "", name == "a")
    sim.verdict.begin(GROUP, SimLog("fsync", [first]))
    sim.passes = lambda sender, _, envelope: (
        sender != "d"
        or sim.now >= deaf
        or not any(isinstance(message, Ask) for _, message in envelope.items)
    )
    for name in logs:
        sim.start(name)
    sim.elect()
    sim.run(10)
    assert sim.leader() in {"a", "b", "c"}, "only until they have it, too"
    assert sim.group(sim.leader()).replica.members == Members(("a", "b", "c"), ("d",))
    assert not sim.group("a").replica.abstains


def test_who_has_more_stands_again_where_nobody_heard_it() -> None:
    left_in_a_change(deaf=10.0)


def test_nothing_is_waited_for_where_all_are_there() -> None:
    sim, *_ = of_three("memory")
    for name in "abc":
        sim.kill(name, power=True)
    for name in "abc":
        sim.start(name)
    sim.until(sim.leader, 12)


def test_a_single_replica_goes_on_with_what_it_has() -> None:
    sim = Groups(1, "memory")
    sim.begin("a")
    sim.elect()
    sim.kill("a")
    sim.start("a")
    sim.until(sim.leader, 8)


@pytest.mark.parametrize("seed", range(5))
def test_the_first_that_is_left_stands_first(seed: int) -> None:
    sim, leader, _ = of_three(seed=seed)
    sim.kill(leader)
    sim.until(lambda: sim.leader() not in ("", leader), 10, 0.01)
    assert sim.leader() == min(set("abc") - {leader})


def forgotten_by_all_who_vote() -> tuple[Groups, list[str], Batch]:
    """The voters lose their power at once, and with it what they have committed last; a learner has it."""
    sim, leader, others = of_three("memory")
    sim.add("d")
    voters = sim.group(leader).replica.members.voters
    assert sim.do(leader, lambda group: group.change(Members(voters, ("d",)), sim.now))
    sim.run(2)
    for node in sim.nodes.values():
        node.slow = 100.0
    sim.write(leader, "s", 0, 3)
    sim.run(0.1)
    for name in (leader, *others):
        lose_power(sim, name)
    for node in sim.nodes.values():
        node.slow = 0.002
    return sim, [leader, *others], sim.nodes["d"].logs[GROUP].batches[-1]


def kept_by_a_learner() -> bool:
    """Whether they have it again."""
    sim, voters, last = forgotten_by_all_who_vote()
    for name in voters:
        assert last not in sim.nodes[name].logs[GROUP].batches
        sim.start(name)
    sim.elect()
    sim.run(5)
    assert sim.leader() in voters, "a learner leads until they have what it has"
    assert not any(sim.group(name).replica.abstains for name in voters)
    assert not sim.group("d").replica.members.has_majority(["d"])
    return all(last in sim.nodes[name].logs[GROUP].batches for name in (*voters, "d"))


#: Schedules, what each comes to, the rule that sees to it, and what it comes to without: or what the verdict says.
RULES = [
    (cut_off_and_back, (False, False), "pre-vote", (True, True)),
    (moved_and_forgotten, None, "ballot", "both lead in term"),
    (grown_and_damaged, None, "ballot", "both lead in term"),
    (missed_two_unclean_elections, None, "yield", ""),
    (missed_two_unclean_elections, None, "all yields", ""),
    (died_before_it_said_that_it_forgot, None, "forgotten", "is committed"),
    (left_in_a_change, None, "has more", "not so after"),
    (kept_by_a_learner, True, "learners", False),
]


@pytest.mark.parametrize(("schedule", "kept", "rule", "broken"), RULES)
def test_what_a_rule_is_for(
    schedule: Callable[[], object], kept: object, rule: str, broken: object
) -> None:
    assert schedule() == kept
    without(rule, schedule, broken)


def test_a_learner_that_may_have_more_is_waited_for_as_long_as_a_voter_is() -> None:
    sim, voters, last = forgotten_by_all_who_vote()
    sim.cut_off("d")
    for name in voters:
        sim.start(name)
    sim.run(sim.options.unclean_wait - 5)
    assert sim.leaders() == []
    sim.until(sim.leader, 30)
    sim.network.cuts.clear()
    sim.run(5)
    assert last not in sim.nodes["d"].logs[GROUP].batches
    assert len({sim.nodes[name].logs[GROUP].end for name in (*voters, "d")}) == 1
