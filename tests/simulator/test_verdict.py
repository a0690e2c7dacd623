"""What is said to be lost, where whoever says it dies, or loses more, before anybody is told."""

from tests.simulator.groups import GROUP, Groups
from vmq_cluster.raft.messages import Campaign


def alone_and_untold() -> Groups:
    """A group's only replica lost its rows to the power, leads, and its disk takes the ballot for long."""
    sim = Groups(1, "os")
    sim.begin("a")
    sim.elect()
    sim.write("a", "s", 0, 3)
    sim.kill("a", power=True)
    sim.nodes["a"].logs[GROUP].cut_at(2)
    sim.nodes["a"].slow = 100.0
    sim.start("a")
    sim.until(sim.leaders, 30, 0.01)
    sim.put("a", "t", 0)
    assert sim.group("a").replica.state.last_unclean[0] == 2
    assert not sim.verdict.groups[GROUP].uncertain
    sim.nodes["a"].slow = 0.002
    return sim


def test_what_its_log_says_counts_where_a_leader_died_before_it_told() -> None:
    sim = alone_and_untold()
    sim.kill("a")
    sim.start("a")
    sim.elect()
    sim.run(1)
    history = sim.verdict.groups[GROUP]
    ranges = sim.group("a").replica.state.uncertain
    assert len(ranges) == 2
    assert ranges[1][0] > ranges[0][0] == 2
    assert history.uncertain == [2]
    assert history.first == 2


def test_what_damage_takes_before_it_is_told_the_next_leader_says() -> None:
    sim = alone_and_untold()
    log = sim.nodes["a"].logs[GROUP]
    log.cut_at(1)
    sim.nodes["a"].life += 1
    sim.do("a", lambda group: group.forget(sim.nodes["a"].life, sim.now))
    sim.run(200)
    assert sim.leader() == "a"
    history = sim.verdict.groups[GROUP]
    assert history.uncertain == [1]
    assert history.first == 1


def test_who_says_late_that_it_leads_need_not_have_what_a_later_leader_committed() -> None:
    """Its disk takes the next ballot for long when it is elected, and another is elected meanwhile."""
    sim = Groups(1)
    sim.begin(*"abc")
    leader = sim.elect()
    sim.run(2)
    late, other = sorted(set("abc") - {leader})
    node = sim.nodes[late]
    sim.do(late, lambda group: group.receive("", Campaign(group.replica.term), sim.now))
    sim.until(lambda: sim.nodes[other].ballots[GROUP].vote == late, 1, 0.0001)
    node.busy = sim.now + 20
    sim.until(lambda: sim.group(late).leading is not None, 1, 0.001)
    term = sim.group(late).replica.term
    sim.cut_off(late)
    sim.until(lambda: set(sim.leaders()) - {late}, 15)
    sim.write(sim.leader(), "s", 0)
    assert term not in sim.verdict.groups[GROUP].leaders
    sim.run(20)
    assert sim.verdict.groups[GROUP].leaders[term] == late
