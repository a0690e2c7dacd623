"""One group: rows come once, whoever leads."""

from tests.simulator.groups import GROUP, of_three


def test_a_retry_counts_though_an_old_leader_had_it_in_what_was_cut() -> None:
    """An old leader's uncommitted batch set the table at a follower; the retry must not be dropped there."""
    sim, old, (one, other) = of_three(seed=4)
    sim.network.cuts |= {(old, other), (one, old)}
    assert sim.put(old, "s", 0) == []
    sim.until(lambda: ("s", "b0") in sim.group(one).replica.state.producers.next, 1, 0.001)
    sim.cut_off(old, one)
    sim.kill(old)
    sim.kill(one)
    sim.start(old)
    sim.network.cuts.clear()
    sim.cut_off(one)
    log = sim.nodes[old].logs[GROUP]
    log.cut(log.end - 1)  # its disk never had the row
    sim.kill(old)
    sim.start(old)
    sim.elect()
    sim.put(sim.leader(), "t", 0)
    sim.run(1)
    sim.start(one)
    sim.network.cuts.clear()
    sim.run(3)
    assert ("s", "b0") not in sim.group(one).replica.state.producers.next
    sim.campaign(one)
    sim.write(one, "s", 0)
    assert ("s", "b0", 0) in sim.verdict.groups[GROUP].rows


def test_who_does_not_lead_takes_nothing() -> None:
    sim, leader, (one, _) = of_three(seed=4)
    assert sim.put(one, "s", 0) == ["ask again"]
    assert not sim.do(one, lambda group: group.ask(1, sim.now))
    assert sim.group(one).replica.leader == leader


def test_a_retired_store_is_forgotten_by_all() -> None:
    sim, leader, _ = of_three(seed=4)
    sim.put(leader, "s", 0)
    sim.run(1)
    assert sim.do(leader, lambda group: group.retire(["s"], sim.now))
    sim.run(1)
    assert all(not sim.group(name).replica.state.producers.next for name in "abc")
