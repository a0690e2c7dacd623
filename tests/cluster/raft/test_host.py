"""All groups of a node: what idle ones cost, and how they are woken."""

from random import Random
from unittest.mock import patch

import pytest

from tests.simulator.groups import GROUP, Groups
from tests.simulator.segments import SimLog
from vmq_cluster.errors import MalformedError
from vmq_cluster.raft.effects import Ballot, Effect, Failed, Send
from vmq_cluster.raft.host import Host
from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import STATE, Append, Batch, Envelope, Nudge, decode, encode
from vmq_cluster.raft.options import RaftOptions
from vmq_cluster.raft.state import genesis

NAMES = ("a", "b", "c")
GROUPS = 500


class Hosts:
    """Three nodes with many groups, whose envelopes arrive at once."""

    def __init__(self, groups: int) -> None:
        self.now = 0.0
        self.hosts = {name: Host(name, 1, RaftOptions(), Random(1)) for name in NAMES}
        self.sent = 0
        for host in self.hosts.values():
            for number in range(groups):
                order = NAMES[number % 3 :] + NAMES[: number % 3]
                first = Batch(0, 1, 0, STATE, (), genesis(Members(order)))
                host.open(f"g{number}", SimLog("os", [first]), Ballot(), 1, 0.0)
            for peer in NAMES:
                if peer != host.name:
                    self.carry(host.name, host.peer_up(peer, 0.0))

    def carry(self, name: str, effects: list[Effect]) -> None:
        waiting = [effect for effect in effects if isinstance(effect, Send)]
        while waiting:
            send = waiting.pop(0)
            if send.peer not in self.hosts:
                continue
            self.sent += 1
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
    hosts = Hosts(GROUPS)
    hosts.run(6)
    return hosts


def test_groups_in_which_nothing_happens_say_nothing(quiet: Hosts) -> None:
    assert sum(quiet.led().values()) == GROUPS
    assert [len(host.awake) for host in quiet.hosts.values()] == [0, 0, 0]
    before = quiet.sent
    quiet.run(60)
    assert quiet.sent == before


def test_what_a_node_led_is_led_by_others_a_batch_a_tick() -> None:
    hosts = Hosts(GROUPS)
    hosts.run(6)
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


def test_a_node_that_began_anew_leads_nothing_and_is_missed_at_once() -> None:
    sim = Groups(5)
    sim.begin("a", "b", "c")
    leader = sim.elect()
    sim.run(3)
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


def test_a_log_that_fails_closes_its_group_and_no_other() -> None:
    hosts = Hosts(3)
    host = hosts.hosts["b"]
    hosts.run(4)
    log = host.groups["g1"].replica.log

    def fail(*_: object) -> None:
        raise OSError("the disk failed")

    with patch.object(log, "append", fail):
        append = Append(99, 1, 0, [Batch(1, 1, 99, 0, (), b"")], 0, 0, 0, (0, 0))
        host.groups["g1"].replica.commit = 0
        log.cut(1)
        effects = host.receive(Envelope("a", 1, [("g1", append), ("g2", Nudge(0))]), hosts.now)
    assert [each for each in effects if isinstance(each, Failed)] == [
        Failed("g1", "the disk failed")
    ]
    assert set(host.groups) == {"g0", "g2"}
    assert "g1" not in host.awake


def test_a_closed_group_is_not_here() -> None:
    host = Hosts(1).hosts["a"]
    host.close("g0")
    assert host.awake == {}
    assert host.on_safe("g0", 1.0) == []
    assert GROUP not in host.groups
