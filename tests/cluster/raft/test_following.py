"""How a replica gets what it lacks."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from tests.simulator.ablations import without
from tests.simulator.groups import GROUP, Groups, Producer, of_three
from vmq_cluster.raft.messages import Ack, Append, Envelope, Files, Mark, Mended, Piece


def grown(batches: int = 60) -> tuple[Groups, str]:
    """Three nodes with several segments; and their leader."""
    sim = Groups(2)
    sim.begin("a", "b", "c")
    leader = sim.elect()
    for number in range(batches):
        sim.write(leader, "s", number)
    sim.run(2)
    return sim, leader


def add(sim: Groups, leader: str) -> None:
    """A fourth node gets all, and is a voter."""
    sim.add("d")
    sim.run(2)
    sim.do(leader, lambda group: group.aim(("a", "b", "c", "d"), sim.now))
    sim.until(lambda: "d" in sim.group(leader).replica.members.voters, 30)


def pieces(sim: Groups) -> list[Piece]:
    seen: list[Piece] = []

    def watch(sender: str, peer: str, envelope: Envelope) -> bool:
        seen.extend(each for _, each in envelope.items if isinstance(each, Piece))
        return True

    sim.passes = watch
    return seen


def test_a_new_replica_gets_sealed_files_and_then_batches() -> None:
    sim, leader = grown()
    seen = pieces(sim)
    add(sim, leader)
    sim.run(2)
    assert seen
    assert sim.nodes["d"].logs[GROUP].batches == sim.nodes[leader].logs[GROUP].batches
    assert sim.group("d").replica.state.producers.next == {("s", "b0"): 60}


def test_a_new_replica_of_a_log_that_has_only_its_last_segment_begins_with_that() -> None:
    """Retention has deleted all the others: there is no file that could be fetched."""
    sim, leader = grown()
    log = sim.nodes[leader].logs[GROUP]
    log.batches, log.starts = log.batches[log._at(log.starts[-1]) :], log.starts[-1:]
    log.base = log.first
    assert log.first == log.loose > 0
    assert not log.files(0)
    add(sim, leader)
    sim.run(2)
    assert sim.nodes["d"].logs[GROUP].batches == log.batches
    assert sim.group("d").replica.state.producers.next == {("s", "b0"): 60}


def test_a_log_that_goes_another_way_where_the_leader_has_no_file_any_more_begins_with_its_last_segment() -> (
    None
):
    """Where they parted is gone there: no place that the leader names is one where they agree."""
    sim, former = grown()
    sim.cut_off(former)
    for number in range(60, 100):
        sim.put(former, "t", number - 60)
    sim.until(lambda: sim.leader() not in ("", former), 30)
    leader = sim.elect()
    for number in range(60, 85):
        sim.write(leader, "s", number)
    log, behind = sim.nodes[leader].logs[GROUP], sim.nodes[former].logs[GROUP]
    sim.do(leader, lambda group: group.keep_from(log.starts[-1]))
    sim.run(1)
    assert sim.group(former).replica.commit < log.first == log.loose < behind.end
    sim.heal()
    sim.until(lambda: behind.end == log.end and behind.first == log.first, 10)
    sim.run(2)
    assert behind.batches == log.batches
    assert not sim.group(leader).is_awake


def test_files_are_fetched_one_after_the_other_without_a_pause() -> None:
    sim, leader = grown(200)
    assert len(sim.nodes[leader].logs[GROUP].files(0)) > 5
    sim.add("d")
    sim.run(2)
    since = sim.now
    sim.do(leader, lambda group: group.aim(("a", "b", "c", "d"), sim.now))
    sim.until(lambda: "d" in sim.group(leader).replica.members.voters, 30, 0.01)
    files = len(sim.nodes[leader].logs[GROUP].files(0))
    assert sim.now - since < files * sim.options.heartbeat / 2


def test_a_log_does_not_begin_behind_the_leader_s() -> None:
    """The leader guesses what a replica has, and may name files that lie too far behind."""
    sim, leader = grown()
    sim.add("d")
    sim.do(leader, lambda group: group.aim(("a", "b", "c", "d"), sim.now))
    sim.until(lambda: sim.group("d").replica.leader == leader, 5, 0.001)
    replica = sim.group(leader).replica
    files = replica.log.files(replica.log.loose // 2)
    assert files[0].first > sim.nodes["d"].logs[GROUP].end
    guess = Files(replica.term, files, replica.commit, 0, (0, 0), replica.log.first)

    def is_piece(_sender: str, peer: str, envelope: Envelope) -> bool:
        return peer != "d" or all(isinstance(each, Piece) for _, each in envelope.items)

    sim.passes = is_piece
    sim.do("d", lambda group: group.receive(leader, guess, sim.now))
    sim.run(1)
    assert sim.nodes["d"].logs[GROUP].first == 0
    sim.passes = lambda *_: True
    sim.until(lambda: "d" in sim.group(leader).replica.members.voters, 30)
    sim.run(2)
    assert sim.nodes["d"].logs[GROUP].batches == sim.nodes[leader].logs[GROUP].batches


def test_a_file_goes_on_where_it_broke_off() -> None:
    sim, leader = grown()
    seen = pieces(sim)
    sim.add("d")
    sim.run(2)
    sim.do(leader, lambda group: group.aim(("a", "b", "c", "d"), sim.now))
    sim.until(lambda: seen and seen[-1].position > 0, 10, 0.002)
    sim.kill("d")
    here = seen[-1]
    del seen[:]
    sim.run(1)
    sim.start("d")
    sim.until(lambda: any(each.data for each in seen), 10, 0.01)
    assert (seen[0].file, seen[0].position) == (here.file, here.position)


def test_what_retention_has_deleted_is_not_asked_for() -> None:
    sim, leader = grown()
    sim.do(leader, lambda group: group.keep_from(40))
    sim.run(1)
    logs = {name: node.logs[GROUP] for name, node in sim.nodes.items()}
    first = logs[leader].first
    assert 0 < first <= 40
    assert {log.first for log in logs.values()} == {first}, "the leader decides for all"
    add(sim, leader)
    assert sim.nodes["d"].logs[GROUP].first == first
    assert sim.group("d").replica.state.producers.next == {("s", "b0"): 60}, (
        "rows go, who wrote them stays"
    )


def test_damage_below_the_commit_index_costs_a_fetch_and_no_vote() -> None:
    """Two of three replicas have a flipped bit each, in different segments: the group goes on."""
    sim, leader = grown()
    one, other = (name for name in "abc" if name != leader)
    for name, index in ((one, 3), (other, 16)):
        batch = sim.nodes[name].logs[GROUP].batches[index]
        sim.nodes[name].logs[GROUP].damage.append((batch.offset, batch.end))
    sim.kill(leader)
    asked: list[Envelope] = []

    def watch(_sender: str, _peer: str, envelope: Envelope) -> bool:
        asked.append(envelope)
        return True

    sim.passes = watch
    sim.elect()
    assert sim.leader() in (one, other)
    assert not any(sim.group(name).replica.abstains for name in (one, other))
    sim.run(2)
    assert sim.nodes[one].logs[GROUP].damage == sim.nodes[other].logs[GROUP].damage == []
    assert any(isinstance(each, Mended) for envelope in asked for _, each in envelope.items)


def test_what_nobody_has_whole_is_fetched_when_somebody_is_back() -> None:
    sim, leader = grown()
    one, other = (name for name in "abc" if name != leader)
    batch = sim.nodes[one].logs[GROUP].batches[3]
    for name in (one, other):
        sim.nodes[name].logs[GROUP].damage.append((batch.offset, batch.end))
    sim.kill(leader)
    sim.elect()
    sim.run(5)
    assert sim.nodes[one].logs[GROUP].damage != []
    sim.start(leader)
    sim.run(5)
    assert sim.nodes[one].logs[GROUP].damage == sim.nodes[other].logs[GROUP].damage == []


def test_who_went_is_asked_for_what_is_damaged_also_after_a_restart() -> None:
    sim, leader = grown()
    one = next(name for name in "abc" if name != leader)
    sim.do(leader, lambda group: group.aim((leader, one), sim.now))
    sim.until(lambda: sim.group(one).replica.members.voters == (leader, one), 10)
    for number in range(60, 90):
        sim.put(leader, "s", number)
        sim.run(0.1)
    for name in (leader, one):
        log = sim.nodes[name].logs[GROUP]
        sim.stop(name)
        log.damage.append((log.batches[3].offset, log.batches[3].end))
        sim.start(name)
    sim.elect()
    sim.until(lambda: not any(sim.nodes[name].logs[GROUP].damage for name in (leader, one)), 10)


def test_damage_in_the_tail_is_forgetting() -> None:
    sim, leader = grown()
    one = next(name for name in "abc" if name != leader)
    log = sim.nodes[one].logs[GROUP]
    log.cut_at(log.end - 3)
    sim.nodes[one].life += 1
    sim.do(one, lambda group: group.forget(sim.nodes[one].life, sim.now))
    assert sim.group(one).replica.abstains
    sim.until(lambda: not sim.group(one).replica.abstains, 10)
    assert log.end == sim.nodes[leader].logs[GROUP].end


@pytest.mark.parametrize("leads", [True, False])
def test_a_quiet_group_mends_what_is_damaged_whoever_has_it(leads: bool) -> None:
    """Nothing else happens in the group: that is no reason for the leader to sleep on its damage."""
    sim, leader = grown()
    sim.run(10)
    assert not any(sim.group(name).is_awake for name in "abc")
    name = next(each for each in "abc" if (each == leader) is leads)
    batch = sim.nodes[name].logs[GROUP].batches[3]
    log = sim.nodes[name].logs[GROUP]
    sim.do(name, lambda _: log.damage.append((batch.offset, batch.end)))
    sim.until(lambda: not log.damage, 5)
    sim.until(lambda: not sim.group(name).is_awake, 10)


def test_a_piece_of_another_history_is_passed_over() -> None:
    """An unclean election elsewhere took something back, of which nobody here knows yet."""
    sim, leader = grown()
    one = next(name for name in "abc" if name != leader)
    log = sim.nodes[one].logs[GROUP]
    batch = log.batches[3]
    log.damage.append((batch.offset, batch.end))
    sim.cut_off(one)
    mended = Mended(sim.group(one).replica.term, 0, [replace(batch, term=batch.term + 1)])
    sim.do(one, lambda group: group.receive(leader, mended, sim.now))
    assert log.damage == [(batch.offset, batch.end)]
    sim.heal()
    sim.until(lambda: not log.damage, 10)


@pytest.mark.parametrize("knows", [True, False])
def test_what_is_damaged_is_fetched_from_who_was_taken_out_before_others_were(knows: bool) -> None:
    """It has it whole, and may not have heard that it is committed: offset and term say that it is the same."""
    sim, leader = grown()
    gone, next_, stays = [name for name in "abc" if name != leader] + [leader]
    sim.cut_off(gone)

    def move(*names: str) -> None:
        sim.do(leader, lambda group: group.aim(names, sim.now))
        sim.until(lambda: sim.group(leader).replica.members.all == names, 30)

    move(next_, stays)
    move(stays)
    sim.kill(next_)
    batch = next(each for each in sim.nodes[leader].logs[GROUP].batches if each.offset > 20)
    sim.kill(gone)
    if not knows:
        sim.nodes[gone].logs[GROUP].committed = batch.offset
    sim.start(gone)
    sim.run(1)
    assert (sim.group(gone).replica.commit > batch.offset) is knows
    sim.nodes[leader].logs[GROUP].damage.append((batch.offset, batch.end))
    sim.do(leader, lambda group: group.peer_up(gone, sim.now))
    sim.network.cuts.clear()
    sim.until(lambda: not sim.nodes[leader].logs[GROUP].damage, 10)


def test_what_nobody_has_keeps_nothing_else_from_being_mended() -> None:
    sim, leader = grown()
    first, second = [
        (each.offset, each.end) for each in sim.nodes[leader].logs[GROUP].batches[20:30:5]
    ]
    for name in "abc":
        damage = sim.nodes[name].logs[GROUP].damage
        damage += [first, second] if name == leader else [first]
        sim.do(name, lambda group: group.peer_up("", sim.now))
    assert sim.group(leader).is_awake
    sim.until(lambda: sim.nodes[leader].logs[GROUP].damage == [first], 30)


@pytest.mark.parametrize(("names", "knows"), [("abc", True), ("abcde", False)])
def test_a_follower_knows_that_its_rows_are_committed_where_it_and_the_leader_are_most(
    names: str, knows: bool
) -> None:
    """Its producers are answered a round trip before the leader could say so."""
    sim = Groups(1, "os")
    sim.begin(*names)
    leader = sim.elect()
    sim.run(2)
    own, begun = next(name for name in names if name != leader), sim.ends()[leader]
    sim.producers[own] = producer = Producer(sim, own)
    mark = Mark(own, producer.boot, 0, 1)
    producer.waiting[mark] = sim.now
    sim.passes = lambda _, peer, __: peer != leader
    sim.put(leader, own, 0, boot=producer.boot)
    sim.run(0.1)
    assert sim.ends()[own] - begun == knows
    assert bool(producer.waiting) == (not knows)
    assert sim.ends()[leader] == begun, "nobody has answered it"
    sim.kill(leader)
    sim.passes = lambda *_: True
    sim.elect()
    sim.until(lambda: set(sim.ends().values()) >= {begun + 2}, 5)
    sim.verdict.check()


@pytest.mark.parametrize("is_own", [True, False])
def test_what_a_replica_had_when_it_was_opened_anew_it_knows_for_its_node_s(is_own: bool) -> None:
    sim, leader, (own, _) = of_three("os")
    sim.producers[own] = producer = Producer(sim, own)
    mark = Mark(own, producer.boot, 0, 1)
    producer.waiting[mark] = sim.now

    def passes(_sender: str, peer: str, envelope: Envelope) -> bool:
        for _, each in envelope.items:
            if isinstance(each, Append):
                each.safe = 0
        return peer == own

    sim.passes = passes
    sim.put(leader, own if is_own else "s", 0, boot=producer.boot)
    sim.run(0.1)
    sim.kill(own)
    sim.start(own)
    assert producer.waiting
    sim.passes = lambda *_: True
    sim.until(lambda: sim.ends()[own] == sim.nodes[leader].logs[GROUP].end, 5)
    assert bool(producer.waiting) != is_own


def test_what_is_not_on_a_disk_yet_is_confirmed_once_it_is() -> None:
    sim, leader, _ = of_three()
    acks: list[Ack] = []

    def passes(_sender: str, _peer: str, envelope: Envelope) -> bool:
        acks.extend(each for _, each in envelope.items if isinstance(each, Ack))
        return True

    sim.passes = passes
    sim.write(leader, "s", 0)
    assert acks
    assert all(each.safe == each.end for each in acks)


def rows_of_an_earlier_term() -> bool:
    """Raft, figure 8, with three; whether b takes a's row of an earlier term for committed."""
    sim = Groups(3)
    sim.stage(a=[1, 2], b=[1], c=[1, 3])

    def passes(sender: str, _peer: str, envelope: Envelope) -> bool:
        for _, each in envelope.items:
            if isinstance(each, Append) and sender == "a":
                each.batches[:] = [batch for batch in each.batches if batch.term < 4]
        return True

    sim.passes = passes
    sim.cut_off("c")
    sim.campaign("a")
    sim.run(2)
    is_committed = sim.ends()["b"] > 0
    sim.kill("a")
    sim.passes = lambda *_: True
    sim.network.cuts.clear()
    sim.nodes["c"].running.groups[GROUP].replica.set_term(4)
    sim.campaign("c")
    sim.run(3)
    return is_committed


def rows_that_its_disk_has_not() -> bool:
    """A follower's machine loses its power, and the leader is killed, when the leader alone has a row on its disk."""
    sim, leader, (own, other) = of_three()
    begun = sim.ends()[own]
    sim.cut_off(other)
    sim.nodes[own].slow = 1e6
    sim.put(leader, "s", 0)
    sim.run(0.4)
    is_committed = sim.ends()[own] > begun
    sim.kill(own, power=True)
    sim.kill(leader)
    sim.network.cuts.clear()
    sim.nodes[own].slow = 0.002
    sim.start(own)
    sim.elect()
    sim.run(3)
    return is_committed


def rows_that_were_taken_back() -> bool:
    """A row of t2's node is in its log, and not in the new leader's, which gives it nothing in its place yet."""
    sim = Groups(3)
    sim.stage(t2=[1, 2], b=[1, 3], c=[1, 3])
    sim.producers["t2"] = producer = Producer(sim, "t2")
    producer.waiting[Mark("t2", "b0", 0, 1)] = sim.now
    producer.boot = "b0"

    def passes(_sender: str, peer: str, envelope: Envelope) -> bool:
        for _, each in envelope.items:
            if isinstance(each, Append) and peer == "t2":
                each.batches.clear()
        return True

    sim.passes = passes
    sim.campaign("b")
    sim.run(1)
    sim.passes = lambda *_: True
    sim.run(3)
    assert sim.ends()["t2"] == sim.ends()["b"] > 3
    return not producer.waiting


ALONE = [
    (rows_of_an_earlier_term, "follower's own term", "is committed"),
    (rows_that_its_disk_has_not, "follower's disk", "is committed"),
    (rows_that_were_taken_back, "agreed", "is acknowledged, and not committed"),
]


@pytest.mark.parametrize(("schedule", "rule", "broken"), ALONE)
def test_what_a_follower_must_not_take_for_committed(
    schedule: Callable[[], bool], rule: str, broken: str
) -> None:
    assert not schedule()
    without(rule, schedule, broken)
