"""All groups of a node: what idle ones cost, and how they are woken."""

from random import Random
from unittest.mock import patch

import pytest

from tests.simulator.groups import GROUP, Groups, of_three
from tests.simulator.segments import SimLog
from vmq_cluster.errors import MalformedError
from vmq_cluster.raft.dots import DOTTED
from vmq_cluster.raft.effects import Ballot, Effect, Failed, Send
from vmq_cluster.raft.host import Host
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import STATE, Append, Batch, Envelope, Mark, Nudge, decode, encode
from vmq_cluster.raft.options import RaftOptions
from vmq_cluster.raft.progress import AT_NO_TIME
from vmq_cluster.raft.state import genesis

NAMES = ("a", "b", "c")
GROUPS = 500


class Hosts:
    """Nodes with many groups, whose envelopes arrive at once."""

    def __init__(self, groups: int, names: tuple[str, ...] = NAMES, after: float = 0.0) -> None:
        """As they are so many seconds after their start."""
        self.now = 0.0
        self.hosts = {name: Host(name, 1, RaftOptions(), Random(1)) for name in names}
        self.sent = 0
        for host in self.hosts.values():
            for number in range(groups):
                order = names[number % 3 :] + names[: number % 3]
                first = Batch(0, 1, 0, STATE, (), genesis(Members(order)))
                host.open(f"g{number}", SimLog("os", [first]), Ballot(), 1, 0.0)
            for peer in names:
                if peer != host.name:
                    self.carry(host.name, host.peer_up(peer, 0.0))
        self.run(after)

    def carry(self, name: str, effects: list[Effect]) -> None:
        waiting = [effect for effect in effects if isinstance(effect, Send)]
        while waiting:
            send = waiting.pop(0)
            if send.peer not in self.hosts:
                continue
            self.sent += bool(send.envelope.items)
            answer = self.hosts[send.peer].receive(send.envelope, self.now)
            waiting += [effect for effect in answer if isinstance(effect, Send)]

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while self.now < end:
            self.now += 0.05
            for name, host in list(self.hosts.items()):
                self.carry(name, host.tick(self.now))

    def led(self) -> dict[str, int]:
        return {
            name: sum(group.leading is not None for group in host.groups.values())
            for name, host in self.hosts.items()
        }


@pytest.fixture(scope="module")
def quiet() -> Hosts:
    return Hosts(GROUPS, after=6)


def test_groups_in_which_nothing_happens_say_nothing(quiet: Hosts) -> None:
    assert sum(quiet.led().values()) == GROUPS
    assert [len(host.awake) for host in quiet.hosts.values()] == [0, 0, 0]
    before = quiet.sent
    quiet.run(60)
    assert quiet.sent == before


def test_what_a_node_led_is_led_by_others_a_batch_a_tick() -> None:
    hosts = Hosts(GROUPS, after=6)
    gone = hosts.led()["a"]
    assert gone > 0
    del hosts.hosts["a"]
    before = hosts.sent
    for name, host in hosts.hosts.items():
        hosts.carry(name, host.peer_down("a", hosts.now))
    hosts.run(3)
    assert sum(hosts.led().values()) == GROUPS
    assert [len(host.awake) for host in hosts.hosts.values()] == [0, 0], (
        "who is down is not waited for"
    )
    assert hosts.sent - before < gone, "envelopes carry many groups"


def test_what_others_lead_is_not_asked_about_when_a_node_is_gone() -> None:
    """Its leader and another are a majority and have everything: there is nothing to say until the third is back."""
    hosts = Hosts(150, after=6)
    del hosts.hosts["a"]
    host = hosts.hosts["b"]
    led = {name for name, group in host.groups.items() if group.leading is not None}
    hosts.carry("b", host.peer_down("a", hosts.now))
    hosts.carry("c", hosts.hosts["c"].peer_down("a", hosts.now))
    hosts.now += 0.05
    woken: set[str] = set()
    for _ in range(20):
        host.tick(hosts.now)
        woken |= host.awake.keys()
    assert not woken & led
    hosts.carry("b", host.peer_up("a", hosts.now))
    assert led <= host.awake.keys(), "nobody knows what it missed"


def test_the_second_of_a_group_gives_the_first_time_where_many_groups_lose_their_leader() -> None:
    """Else both stand for all of them, and no one gets most votes."""
    hosts = Hosts(300, after=6)
    host = hosts.hosts["c"]
    lost = [group for group in host.groups.values() if group.replica.leader == "a"]
    hosts.hosts = {"c": host}  # b is held up
    hosts.carry("c", host.peer_down("a", hosts.now))
    hosts.run(RaftOptions().stagger * (1 + len(lost) / RaftOptions().crowd) * 0.95)
    stood = [group for group in lost if group.election is not None]
    voters = [[name for name in group.replica.members.voters if name != "a"] for group in lost]
    assert stood == [
        group for group, names in zip(lost, voters, strict=True) if names == ["c", "b"]
    ]
    assert 0 < len(stood) < len(lost)


def test_who_has_more_of_the_log_stands_when_the_first_asks() -> None:
    sim = Groups(3)
    sim.stage(a=[1], b=[1], c=[1, 1])
    sim.kill("b")
    asked = sim.now
    sim.do("a", lambda group: group._stand(sim.now))
    sim.until(sim.leader, 5, 0.05)
    assert sim.leader() == "c"
    assert sim.now - asked < RaftOptions().election_timeout / 2


def test_a_few_groups_stand_at_a_time() -> None:
    hosts = Hosts(900)
    hosts.hosts = {"a": hosts.hosts["a"]}
    hosts.run(1.0)
    before = 0
    while before < 900:
        hosts.run(0.05)
        stood = sum(group.election is not None for group in hosts.hosts["a"].groups.values())
        assert stood - before <= RaftOptions().wakes
        before = max(before, stood)
        assert hosts.now < 10


@pytest.mark.parametrize("names", [NAMES, (*NAMES, "d", "e")])
def test_what_is_committed_is_told_with_the_next_rows_or_soon_after_the_last(
    names: tuple[str, ...],
) -> None:
    """Two messages a batch and follower that is needed: rows, and its answer; the others get many at once.

    One of three sees by itself what is committed, and need not be told.
    """
    hosts = Hosts(1, names)
    hosts.run(6)
    leader = next(name for name, count in hosts.led().items() if count)
    host = hosts.hosts[leader]
    group = host.groups["g0"]
    needed, spare, behind = len(names) // 2, len(names) // 2, int(len(names) > 3)

    def put(number: int) -> int:
        before = hosts.sent
        assert group.append([Mark("store", "boot", number, 1)], [b"row"], 1 + number, hosts.now)
        hosts.carry(leader, host.finish(group))
        return hosts.sent - before

    def behind_leader() -> list[int]:
        commits = [each.groups["g0"].replica.commit for each in hosts.hosts.values()]
        return sorted(group.replica.commit - each for each in commits)

    assert put(0) == 2 * (needed + spare), "after a rest all get it"
    assert behind_leader() == [0] + (needed + spare) * [behind]
    rested = hosts.now
    for number in range(1, 4):
        hosts.now += 0.004
        assert put(number) == 2 * needed
        assert behind_leader() == [0] + needed * [behind] + spare * [behind + number]
    if behind:
        assert hosts.now < host.tells_at <= hosts.now + 0.005
        hosts.carry(leader, host.tell(hosts.now))
        assert behind_leader()[1], "it is not time yet"
        hosts.now = host.tells_at
        hosts.carry(leader, host.tell(hosts.now))
        assert behind_leader()[: needed + 1] == (needed + 1) * [0]
    hosts.now = host.tells_at
    assert hosts.now == pytest.approx(rested + RaftOptions().spare_within)
    before = hosts.sent
    hosts.carry(leader, host.tell(hosts.now))
    assert hosts.sent - before == 2 * spare
    assert not any(behind_leader())
    assert host.tells_at == AT_NO_TIME
    hosts.run(RaftOptions().heartbeat + 0.1)
    assert not host.is_busy


def test_rows_for_which_nobody_waits_gather_but_for_whose_node_publishes() -> None:
    hosts = Hosts(1, after=6)
    leader = next(name for name, count in hosts.led().items() if count)
    host = hosts.hosts[leader]

    def put(store: str, number: int) -> int:
        before = hosts.sent
        mark = Mark(store, "boot", number, 1)
        assert host.groups["g0"].append([mark], [b"row"], 0, hosts.now)
        hosts.carry(leader, host.finish(host.groups["g0"]))
        return hosts.sent - before

    assert put("s", 0) == 4, "after a rest all get it"
    assert [put("s", number) for number in range(1, 4)] == [0, 0, 0]
    before, rested = hosts.sent, hosts.now
    hosts.now = host.tells_at
    assert hosts.now == pytest.approx(rested + RaftOptions().tell_within)
    hosts.carry(leader, host.tell(hosts.now))
    assert hosts.sent - before == 2, "three batches in a message, and its answer"
    publisher = next(name for name in NAMES if name != leader)
    assert put(publisher, 0) == 1, "the answer waits for rows that are next"


def test_that_rows_of_its_own_node_are_committed_a_replica_says_with_what_goes_there_next() -> None:
    hosts = Hosts(1, after=6)
    led = hosts.led()
    leader, own = sorted(led, key=lambda name: led[name], reverse=True)[:2]
    host, follower = hosts.hosts[leader], hosts.hosts[own]
    group = host.groups["g0"]

    def put(*stores: str) -> bool:
        """Whether the leader has heard at once."""
        marks = [Mark(each, f"boot{hosts.now}", 0, 1) for each in stores]
        assert group.append(marks, [b"row"], 1, hosts.now)
        hosts.carry(leader, host.finish(group))
        assert follower.groups["g0"].replica.commit == group.replica.log.end
        return group.replica.commit == group.replica.log.end

    for stores, is_heard in (((own,), True), ((own,), False), ((own, "x"), True)):
        hosts.now += 0.001
        assert put(*stores) == is_heard, "after a rest the third has it, too"
    for stores in ((own,), (DOTTED + own,)):
        hosts.now += 0.001
        assert not put(*stores)
        assert not follower.tell(hosts.now), "it is not time yet"
        hosts.carry(own, follower.tell_leader("g0"))
        assert group.replica.commit == group.replica.log.end
    hosts.now += 0.001
    assert not put(own)
    hosts.now = follower.tells_at
    hosts.carry(own, follower.tell(hosts.now))
    assert group.replica.commit == group.replica.log.end
    assert follower.tells_at == AT_NO_TIME


def test_a_node_that_was_held_up_first_hears_what_the_others_said() -> None:
    """Else it would stand in all groups of leaders that live, though what these said lies unread before it."""
    hosts = Hosts(3)
    hosts.run(1.9)
    host = hosts.hosts["a"]
    leaders = {name: group.replica.leader for name, group in host.groups.items()}
    for group in host.groups.values():
        if group.following is not None:
            group.following.quiet = False
            host._settle(group)
    del hosts.hosts["b"], hosts.hosts["c"]
    hosts.now += 30
    hosts.carry("a", host.tick(hosts.now))
    assert {name: group.replica.leader for name, group in host.groups.items()} == leaders
    hosts.run(3)
    assert not any(group.replica.leader in ("b", "c") for group in host.groups.values())


def test_a_host_tells_once_to_which_groups_something_happened() -> None:
    hosts = Hosts(3, after=6)
    host = hosts.hosts["a"]
    assert host.take_touched() == {"g0", "g1", "g2"}
    assert host.take_touched() == set()
    assert not host.is_busy
    host.close("g1")
    assert host.take_touched() == {"g1"}
    hosts.carry("a", host.peer_down("b", hosts.now))
    assert host.is_busy


def test_a_node_that_began_anew_leads_nothing_and_is_missed_at_once() -> None:
    sim, leader, _ = of_three(seed=5)
    assert not any(sim.group(name).is_awake for name in "abc")
    sim.kill(leader)
    sim.start(leader)
    sim.until(sim.leader, 5, 0.05)


def test_what_an_earlier_boot_sent_counts_no_more() -> None:
    host = Host("a", 1, RaftOptions(), Random(1))
    assert host.receive(Envelope("b", 2, []), 0.0) == []
    assert host._boots == {"b": 2}
    host.receive(Envelope("b", 1, []), 0.0)
    assert host._boots == {"b": 2}


def test_files_are_fetched_within_a_limit_for_the_node() -> None:
    host = Host("a", 1, RaftOptions(catch_up_rate=1000.0), Random(1))
    taken = sum(host.may_fetch(100, 10.0 + number / 100) for number in range(200))
    assert 28 <= taken <= 30, "a second's worth at once, and as much a second"


def test_an_envelope_is_read_as_it_was_written_and_nothing_else_is_read() -> None:
    sim = Groups(0)
    seen: list[Envelope] = []

    def watch(_sender: str, _peer: str, envelope: Envelope) -> bool:
        seen.append(envelope)
        return True

    sim.passes = watch
    sim.begin("a", "b", "c")
    sim.put(sim.elect(), "s", 0)
    sim.run(1)
    assert seen
    for envelope in seen:
        assert decode(encode(envelope)) == envelope
    for raw in (b"", b"\x93", b"\x93\xa1a\x01\x91\x92\xa1g\x92\x63\x00", b"\xc1" * 40):
        with pytest.raises(MalformedError):
            decode(raw)


@pytest.mark.parametrize("error", [OSError("the disk failed"), AssertionError("a mistake")])
def test_a_group_that_fails_is_closed_and_no_other(error: Exception) -> None:
    hosts = Hosts(3)
    host = hosts.hosts["b"]
    hosts.run(4)
    log = host.groups["g1"].replica.log
    with patch.object(log, "append", side_effect=error):
        append = Append(99, 1, 0, [Batch(1, 1, 99, 0, (), b"")], 0, 0, 0, (0, 0))
        host.groups["g1"].replica.commit = 0
        log.cut(1)
        effects = host.receive(Envelope("a", 1, [("g1", append), ("g2", Nudge(0))]), hosts.now)
    assert [each for each in effects if isinstance(each, Failed)] == [Failed("g1", error)]
    assert set(host.groups) == {"g0", "g2"}
    assert "g1" not in host.awake


def test_whose_groups_fall_silent_leads_nothing_though_its_link_is_well() -> None:
    hosts = Hosts(30, after=6)
    assert hosts.led()["a"] == 30
    stuck = hosts.hosts.pop("a")
    hosts.run(stuck.options.silence / 2)
    assert sum(hosts.led().values()) == 0, "it may be slow"
    hosts.run(stuck.options.silence)
    assert sum(hosts.led().values()) == 30
    assert not hosts.hosts["b"].is_up("a")
    hosts.hosts["a"] = stuck
    hosts.run(6)
    assert sum(hosts.led().values()) == 30
    assert [len(host.awake) for host in hosts.hosts.values()] == [0, 0, 0]
    assert all(hosts.hosts[one].is_up(other) for one in NAMES for other in NAMES if one != other)


def test_who_was_held_up_itself_misses_nobody_and_nor_does_it_a_node_that_never_gave_its_word() -> (
    None
):
    hosts = Hosts(3, after=6)
    host = hosts.hosts["a"]
    host.tick(hosts.now + 1000)
    assert host.is_up("b")
    host.peer_up("old", hosts.now)
    host.receive(Envelope("old", 1, [("g0", Nudge(0))]), hosts.now)
    for second in range(1000):
        host.tick(hosts.now + 1000 + second)
    assert host.is_up("old")
    assert not host.is_up("b")


def test_whose_copy_fails_says_that_it_leads_no_more() -> None:
    hosts = Hosts(3, after=6)
    host = hosts.hosts["a"]
    name, group = next((n, g) for n, g in host.groups.items() if g.leading is not None)
    host.close(name)
    for peer in "bc":
        host.send(peer, name, Nudge(group.replica.term))
    hosts.carry("a", host.finish())
    hosts.run(3)
    assert (
        sum(
            name in each.groups and each.groups[name].leading is not None
            for each in hosts.hosts.values()
        )
        == 1
    )


def test_a_closed_group_is_not_here() -> None:
    host = Hosts(1).hosts["a"]
    host.close("g0")
    assert host.awake == {}
    assert host.on_safe("g0", 1.0) == []
    assert GROUP not in host.groups
