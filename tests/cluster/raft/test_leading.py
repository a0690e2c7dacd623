"""What a leader may commit, and how it ceases to be one."""

from collections.abc import Callable

import pytest

from tests.simulator import segments
from tests.simulator.ablations import SCRIPTED, without
from tests.simulator.groups import GROUP, Groups, of_three
from vmq_cluster.raft.effects import Answered
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import Ack, Append, Campaign, Envelope


def figure_8() -> Groups:
    """Raft, figure 8 (c): a leads again, and gets a row of its earlier term to a majority, but none of its new one."""
    sim = Groups(3)
    sim.stage(a=[1, 2], b=[1, 2], c=[1], d=[1], e=[1, 3])

    def passes(sender: str, peer: str, envelope: Envelope) -> bool:
        for _, each in envelope.items:
            if isinstance(each, Append) and sender == "a":
                each.batches[:] = [batch for batch in each.batches if batch.term < 4]
        return True

    sim.passes = passes
    sim.cut_off("e")
    sim.campaign("a")
    sim.run(2)
    leading = sim.group("a").leading
    assert leading is not None
    assert sorted(each.match for each in leading.progress.values()) == [0, 3, 3, 3]
    return sim


def e_is_back(sim: Groups) -> None:
    """a is gone, and e, which was away, has learned of a's term."""
    sim.kill("a")
    sim.passes = lambda *_: True
    sim.network.cuts.clear()
    sim.nodes["e"].running.groups[GROUP].replica.set_term(4)


def test_a_row_of_an_earlier_term_is_not_committed_by_being_counted() -> None:
    sim = figure_8()
    assert sim.ends()["a"] == 0
    e_is_back(sim)
    sim.campaign("e")
    sim.run(3)
    assert sim.nodes["c"].logs[GROUP].batches[2].term == 3, "what e has is what counts"


def test_without_that_rule_it_would_be_committed_and_lost() -> None:
    with SCRIPTED["own term"].off():
        sim = figure_8()
        assert sim.ends()["a"] == 3
        e_is_back(sim)
        with pytest.raises(AssertionError, match="is committed"):
            lead_and_tell(sim)


def lead_and_tell(sim: Groups) -> None:
    sim.campaign("e")
    sim.run(0.5)


def test_a_leader_that_hears_no_majority_gives_up_and_its_rows_are_taken_back() -> None:
    sim, old, _ = of_three()
    sim.cut_off(old)
    lost = sim.put(old, "old", 0)
    sim.until(lambda: sim.group(old).leading is None, 10)
    assert lost == ["ask again"]
    sim.until(lambda: sim.leader() not in ("", old), 10)
    assert sim.put(sim.leader(), "new", 0) == []
    sim.run(2)
    sim.heal()
    sim.run(5)
    rows = sim.verdict.groups[GROUP].rows
    assert ("new", "b0", 0) in rows
    assert ("old", "b0", 0) not in rows
    assert ("old", "b0") not in sim.group(old).replica.state.producers.next


def test_a_follower_that_falls_silent_is_replaced_by_the_one_that_waited_for_rows() -> None:
    """Only so many are sent rows at once as make a majority: who does not answer holds up one batch, and briefly."""
    sim, leader, others = of_three("os")
    sim.network.longest = 0.001
    got: list[str] = []
    silent = ""

    def passes(sender: str, peer: str, envelope: Envelope) -> bool:
        if any(isinstance(each, Append) and each.batches for _, each in envelope.items):
            got.append(peer)
        return sender != silent

    def put(number: int) -> float:
        """Returns how long it takes."""
        answers, begun = sim.put(leader, "s", number), sim.now
        sim.until(lambda: answers == ["done"], 0.1, 0.001)
        return sim.now - begun

    sim.passes = passes
    put(0)
    assert sorted(got) == others, "after a rest all get rows"
    put(1)
    (silent,) = got[2:]
    put(2)
    assert put(3) < sim.options.spare_within, "the other one gets rows at once by now"
    assert got[-1] != silent


def test_a_leader_that_is_heard_and_hears_nobody_gives_up() -> None:
    sim, old, others = of_three()
    sim.network.cuts |= {(name, old) for name in others}
    sim.until(lambda: sim.leader() not in ("", old), 20)
    assert sim.group(old).leading is None


def test_no_members_change_before_the_leader_has_committed_in_its_term() -> None:
    sim, old, (one, other) = of_three()
    sim.kill(old)
    sim.passes = lambda sender, peer, envelope: (
        not any(isinstance(each, Append) and each.batches for _, each in envelope.items)
    )
    sim.until(lambda: sim.leader() not in ("", old), 10)
    leader = sim.leader()
    change = Members((one, other))
    assert not sim.do(leader, lambda group: group.change(change, sim.now))
    sim.passes = lambda *_: True
    sim.elect()
    leader = sim.leader()
    assert sim.do(leader, lambda group: group.change(change, sim.now))
    assert not sim.do(leader, lambda group: group.change(Members(("a", "b", "c")), sim.now)), (
        "one at a time"
    )


def test_a_question_is_answered_when_a_majority_still_follows() -> None:
    sim, old, _ = of_three()
    answers: list[Answered] = []
    sim.answers[old, 7] = answers.append
    assert sim.do(old, lambda group: group.ask(7, sim.now))
    sim.until(lambda: answers, 1, 0.01)
    assert answers[0].done
    sim.cut_off(old)
    sim.answers[old, 8] = answers.append
    assert sim.do(old, lambda group: group.ask(8, sim.now))
    sim.run(5)
    assert [each.done for each in answers] == [True, False], (
        "a leader that was replaced answers nothing old"
    )


def test_the_leadership_is_handed_over_at_once_and_nothing_is_lost() -> None:
    sim, leader, (one, _) = of_three()
    answers = sim.put(leader, "s", 0)
    assert sim.do(leader, lambda group: group.transfer(one, sim.now))
    assert sim.put(leader, "s", 1) == ["ask again"]
    sim.until(lambda: sim.leader() == one, 0.5, 0.01)
    sim.run(1)
    assert answers in (["done"], ["ask again"])
    assert not sim.do(leader, lambda group: group.transfer("", sim.now))


def has_word(envelope: Envelope) -> bool:
    return any(isinstance(message, Campaign) for _, message in envelope.items)


def test_the_word_to_stand_is_said_again_and_to_one_alone() -> None:
    sim, leader, (one, other) = of_three()
    words = iter([False])  # the first is lost
    sim.passes = lambda *said: not has_word(said[2]) or next(words, True)
    assert sim.do(leader, lambda group: group.transfer(one, sim.now))
    assert not sim.do(leader, lambda group: group.transfer(other, sim.now)), "one stands already"
    sim.until(lambda: sim.leader() == one, 0.9, 0.01)
    assert next(words, True), "it was said twice"
    sim.run(2)
    sim.cut_off(leader)
    sim.put(one, "s", 0)
    assert sim.do(one, lambda group: group.transfer(leader, sim.now))
    assert sim.do(one, lambda group: group.transfer(other, sim.now)), "nobody stands yet"
    sim.until(lambda: sim.leader() == other, 0.9, 0.01)


def test_a_leader_that_is_to_go_hands_over_first() -> None:
    sim, leader, (one, other) = of_three()
    sim.add("d")
    sim.run(2)
    sim.do(leader, lambda group: group.aim((one, other, "d"), sim.now))
    sim.until(lambda: sim.leader() not in ("", leader), 20)
    sim.do(sim.leader(), lambda group: group.aim((one, other, "d"), sim.now))
    sim.until(lambda: sim.group(sim.leader()).replica.members == Members((one, other, "d")), 20)


def early_ack() -> bool:
    """A replica forgets, and then arrives what it had confirmed before; whether that commits a row."""
    sim, leader, (one, other) = of_three("memory")
    sim.cut_off(other)
    term = sim.group(leader).replica.term
    sim.kill(one, power=True)
    sim.start(one)
    sim.run(0.3)
    sim.passes = lambda *_: False
    sim.put(leader, "s", 0)
    end = sim.nodes[leader].logs[GROUP].end
    commit = sim.ends()[leader]
    early = Ack(term, True, end, end, 99, 1, True, False)
    sim.do(leader, lambda group: group.receive(one, early, sim.now))
    return sim.ends()[leader] > commit


def elected_by_who_got_back_a_part() -> list[str]:
    """Rows are committed by two; one forgets them, and has got back whole segments of them when the other dies."""
    sim, leader, (one, other) = of_three("memory")
    sim.cut_off(other)
    for number in range(60):
        sim.put(leader, "s", number)
        sim.run(0.02)
    sim.kill(one)
    sim.nodes[one].logs[GROUP].cut_at(5)
    committed = sim.ends()[leader]
    sim.passes = lambda _sender, _peer, envelope: (
        not any(isinstance(each, Append) and each.batches for _, each in envelope.items)
    )
    sim.start(one)
    sim.run(1)
    assert 5 < sim.nodes[one].logs[GROUP].end < committed
    sim.kill(leader)
    sim.passes = lambda *_: True
    sim.network.cuts.clear()
    sim.run(10)
    return sim.leaders()


def told_by_a_new_leader() -> list[int]:
    """A leader commits a row, and dies before it has said so; up to where the log is committed, as the next one says.

    What that one writes reaches nobody yet.
    """
    sim, old, _ = of_three()
    before = sim.ends()[old]

    def passes(_sender: str, _peer: str, envelope: Envelope) -> bool:
        for _, each in envelope.items:
            if isinstance(each, Append):
                each.commit, each.safe = min(each.commit, before), 0
                each.batches[:] = [batch for batch in each.batches if batch.term == term]
        return True

    term = sim.group(old).replica.term
    sim.passes = passes
    sim.write(old, "s", 0)
    assert sim.ends()[old] == before + 1
    sim.kill(old)
    sim.until(lambda: sim.leader() not in ("", old), 10)
    answers: list[Answered] = []
    sim.answers[sim.leader(), 7] = answers.append
    assert sim.do(sim.leader(), lambda group: group.ask(7, sim.now))
    sim.run(1)
    return [each.end - before for each in answers if each.done]


def acknowledged_with_a_learner_away() -> list[str]:
    """A group is to get a member that nobody reaches, and then one of its three is gone."""
    sim, leader, (one, other) = of_three()
    sim.add("d")
    sim.cut_off("d")
    sim.do(leader, lambda group: group.aim((leader, one, other, "d"), sim.now))
    sim.run(3)
    sim.kill(other)
    answers = sim.put(leader, "s", 0)
    sim.run(3)
    return answers


def decided_by_one() -> tuple[int, int]:
    """What a leader that nobody hears has done that it decides alone."""
    sim, leader, _ = of_three()
    for number in range(5):
        sim.put(leader, "s", number)
    sim.run(1)
    sim.cut_off(leader)
    assert sim.do(leader, lambda group: group.compact(3, 7, sim.now))
    return sim.group(leader).compaction


def two_with_a_flipped_bit() -> tuple[int, int]:
    """The leader is gone, and each of the other two has a batch that cannot be read, in another segment.

    How many lead then, and how many batches nobody has mended.
    """
    sim, leader, others = of_three()
    for number in range(60):
        sim.put(leader, "s", number)
        sim.run(0.02)
    sim.run(2)
    sim.kill(leader)
    for name, place in zip(others, (5, 20), strict=True):
        log = sim.nodes[name].logs[GROUP]
        batch = log.batches[place]
        assert batch.end <= log.starts[-2]
        log.damage.append((batch.offset, batch.end))
    sim.run(10)
    damaged = (sim.nodes[name].logs[GROUP].damage for name in sim.running())
    return len(sim.leaders()), sum(map(len, damaged))


def test_without_check_quorum_a_leader_that_hears_nobody_leads_for_ever() -> None:
    with SCRIPTED["check-quorum"].off():
        sim, old, others = of_three()
        sim.network.cuts |= {(name, old) for name in others}
        sim.run(20)
        assert sim.leaders() == [old]


def late_row_of_an_ended_boot() -> list[str]:
    """A producer began anew, and what it sent before is still under way."""
    sim, leader, _ = of_three()
    for boot in ("b0", "b1"):
        done = sim.put(leader, "s", 0, boot=boot)
        sim.run(1)
        assert done == ["done"]
    late = sim.put(leader, "s", 0, boot="b0")
    sim.run(1)
    return late


def deletes_what_is_not_committed() -> bool:
    """A leader that nobody hears is told by its retention to let go of all it has."""
    sim, leader, _ = of_three()
    sim.cut_off(leader)
    for number in range(60):
        sim.put(leader, "s", number)
    log = sim.nodes[leader].logs[GROUP]
    sim.do(leader, lambda group: group.keep_from(log.end))
    sim.run(0.1)
    return log.first > sim.ends()[leader]


def changed_before_its_term() -> bool:
    """Of a, b, c and d: a makes e a voter, which only e hears; b, elected by c and d, removes a, which only c hears.

    Then a or e leads, by d and one another: whether b could change the members (Ongaro's correction of 2015).
    """
    sim = Groups(1)
    sim.begin(*"abcd")
    sim.add("e")
    sim.elect()
    sim.campaign("a")
    sim.run(2)
    assert sim.do("a", lambda group: group.change(Members((*"abcd",), ("e",)), sim.now))
    sim.run(2)
    sim.cut_off("a", "e")
    assert sim.do("a", lambda group: group.change(Members((*"abcde",)), sim.now))
    sim.until(lambda: sim.group("e").replica.members.voters == (*"abcde",), 1, 0.001)
    sim.passes = lambda sender, peer, envelope: (
        (sender, peer) != ("b", "d")
        or not any(isinstance(each, Append) for _, each in envelope.items)
    )
    sim.campaign("b")
    changed = sim.do("b", lambda group: group.change(Members((*"bcd",), ("e",)), sim.now))
    sim.run(0.3)
    sim.network.cuts.clear()
    sim.cut_off("b", "c")
    sim.run(10)
    return bool(changed)


#: Schedules, what each comes to, the rule that sees to it, and what it comes to without: or what the verdict says.
RULES = [
    (early_ack, False, "life", True),
    (elected_by_who_got_back_a_part, [], "enough", "leads without all"),
    (told_by_a_new_leader, [], "established", [0]),
    (acknowledged_with_a_learner_away, ["done"], "lag", ["ask again"]),
    (decided_by_one, (0, 0), "compaction", (3, 7)),
    (two_with_a_flipped_bit, (1, 0), "range", (0, 2)),
    (late_row_of_an_ended_boot, ["done"], "late boot", "is there twice"),
    (deletes_what_is_not_committed, False, "uncommitted", True),
    (changed_before_its_term, False, "own term first", "is committed"),
]


@pytest.mark.parametrize(("schedule", "kept", "rule", "broken"), RULES)
def test_what_a_rule_is_for(
    schedule: Callable[[], object], kept: object, rule: str, broken: object
) -> None:
    assert schedule() == kept
    without(rule, schedule, broken)


def led_after_a_disk_was_lost(name: str) -> list[str]:
    """Two of three have a row that is committed; one loses its disk, comes back as `name`, and the other is gone."""
    sim, leader, (one, other) = of_three()
    sim.cut_off(other)
    sim.write(leader, "s", 0)
    sim.kill(one)
    sim.kill(leader)
    del sim.nodes[one]
    sim.network.cuts.clear()
    sim.add(one if name == "same" else name)
    sim.run(10)
    return sim.leaders()


def test_a_disk_that_was_lost_comes_back_as_another_member() -> None:
    """The node's name in groups has the identity of its disk."""
    assert led_after_a_disk_was_lost("another") == []


def test_under_its_old_name_it_would_elect_who_lacks_what_it_had() -> None:
    with pytest.raises(AssertionError, match="is committed"):
        led_after_a_disk_was_lost("same")


def test_who_lacks_much_gets_little_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A leader that sent all of it at once would do nothing else meanwhile, and others would stand."""
    monkeypatch.setattr(segments, "FULL", 1000)
    sim, leader, (away, _) = of_three()
    sim.cut_off(away)
    for number in range(60):
        sim.put(leader, "p", number)
        sim.run(0.01)
    flying: list[int] = []
    most: list[int] = []

    def passes(sender: str, peer: str, envelope: Envelope) -> bool:
        for _, each in envelope.items:
            if isinstance(each, Append) and (sender, peer) == (leader, away) and each.batches:
                flying.append(each.batches[-1].end)
                most.append(len(flying))
            elif isinstance(each, Ack) and sender == away:
                flying[:] = [end for end in flying if each.agreed and end > each.end]
        return True

    sim.passes = passes
    sim.network.cuts.clear()
    sim.network.longest = sim.network.shortest
    sim.run(3)
    assert sim.ends()[away] == sim.ends()[leader]
    assert len(most) > 3, "it got them in many messages"
    assert max(most) <= sim.options.catch_up_window
