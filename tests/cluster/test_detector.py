"""Who is silent, and who only was not listened to: nodes that are held up, and nodes that die meanwhile.

Deaths and returns that nothing comes between are in test_membership.py.
"""

from dataclasses import replace
from random import Random
from unittest.mock import patch

import pytest

from tests.simulator.machines import OPTIONS, TICK, Sim, joined
from tests.simulator.network import Network
from tests.simulator.seeds import over_seeds
from vmq_cluster.clocks import MAX_NUMBER
from vmq_cluster.detector import Detector
from vmq_cluster.effects import Outbox, PeerDown, PeerUp, Renewed
from vmq_cluster.messages import Heartbeat
from vmq_cluster.round_trips import RoundTrips

INTERVAL, TIMEOUT = OPTIONS.heartbeat_interval, OPTIONS.heartbeat_timeout
#: A node that is held up for less than this is heard in time by all others.
SHORT = TIMEOUT - INTERVAL - 2 * TICK

#: When a node is held up: from, to.
Pauses = list[tuple[float, float]]


def pauses(random: Random, end: float, longest: float, between: float) -> Pauses:
    """Some, one after the other, with time enough between them to read what came."""
    found: Pauses = []
    at = random.uniform(0.1, between)
    while at < end:
        until = at + random.uniform(0, longest)
        found.append((at, until))
        at = until + random.uniform(0.1, between)
    return found


def plan(sim: Sim, name: str, when: Pauses) -> None:
    """From now on."""
    for begin, end in when:
        sim.later(begin, sim.pause, name)
        sim.later(end, sim.resume, name)


def awake(when: Pauses, time: float) -> float:
    """The first time from then on at which a node is not held up."""
    for begin, end in when:
        if begin <= time < end:
            return end
    return time


@over_seeds(15)
def test_who_is_held_up_for_less_than_the_timeout_judges_nobody(seed: int) -> None:
    """One node is, or all of them for a part of it: then one sends late, and another reads late. Again and again."""
    sim, names = joined(Sim(seed), (2, 5))
    held, longest = (names, SHORT / 2) if seed % 4 == 0 else (names[:1], TIMEOUT)
    for name in held:
        plan(sim, name, pauses(sim.random, 60, longest, sim.random.choice([0.3, 3.0, 20.0])))
    sim.run(70)
    for name in held:
        assert sim.nodes[name].of(PeerDown) == []


@over_seeds(12)
def test_who_is_held_up_for_long_takes_nobody_for_silent_when_it_goes_on(seed: int) -> None:
    """The others miss it, and have it again at once."""
    sim, names = joined(Sim(seed), (2, 5))
    held, others = names[0], names[1:]
    for _ in range(2):
        sim.run(sim.random.uniform(1, 5))
        sim.pause(held)
        sim.run(sim.random.uniform(2 * TIMEOUT, 60))
        assert all(sim[name].detector.down.keys() == {held} for name in others)
        sim.resume(held)
        sim.run(INTERVAL)
        assert sim.is_joined(names)
    assert sim.nodes[held].of(PeerDown) == []


@over_seeds(10)
def test_who_died_is_noticed_one_timeout_later_at_most(seed: int) -> None:
    """However often those who are to notice are held up."""
    sim, names = joined(Sim(seed), (2, 5))
    dead, others = names[0], names[1:]
    longest, between = sim.random.choice([(3.0, 0.3), (3.0, 3.0), (10.0, 1.0), (30.0, 10.0)])
    when = {name: pauses(sim.random, 120, longest, between) for name in others}
    begin = sim.now
    for name in others:
        plan(sim, name, when[name])
    sim.run(sim.random.uniform(0, 60))
    sim.crash(dead)
    crash = sim.now - begin
    late = {}
    for name in others:
        heard = awake(when[name], crash + sim.network.longest)
        due = awake(when[name], heard + TIMEOUT + INTERVAL + TICK)
        late[name] = awake(when[name], due + TIMEOUT + INTERVAL + TICK) + TICK
    for name in sorted(others, key=lambda name: late[name]):
        sim.run(max(0.0, begin + late[name] - sim.now))
        assert not sim[name].detector.is_up(dead), f"{name} has not noticed"


@over_seeds(8)
def test_who_was_held_up_has_what_was_written_meanwhile_at_once(seed: int) -> None:
    """Nobody is down for it and up again, so nobody else is asked; and what was said last is all that is announced."""
    sim, names = joined(Sim(seed, replace(OPTIONS, sync_interval=10_000.0)), (2, 5))
    held, writer = names[0], names[-1]
    sim.run(2 * TIMEOUT)
    sim.pause(held)
    sim.run(2 * TIMEOUT)
    sim.ask(writer, lambda: sim[writer].metadata.put("p", b"k", b"v"))
    sim.run(10 * TIMEOUT)
    sim.resume(held)
    sim.until(lambda: sim[held].metadata.get("p", b"k") == b"v", 2 * INTERVAL)


@over_seeds(10)
def test_who_was_down_when_a_node_was_held_up_and_came_back_is_not_taken_out(seed: int) -> None:
    sim, names = joined(Sim(seed, replace(OPTIONS, dead_node_timeout=8.0)), 4)
    held, back = names[:2]
    sim.crash(back)
    sim.until(lambda: not any(sim[name].detector.is_up(back) for name in names if name != back), 8)
    sim.pause(held)
    sim.restart(back)
    sim.run(sim.random.uniform(8, 100))
    sim.resume(held)
    sim.until(lambda: sim.is_joined(names), 2 * TIMEOUT)
    # It never was another: nobody had taken it out.
    assert sim.nodes[back].of(Renewed) == []


@pytest.mark.parametrize("since", [0.0, 1.5, 3.9])
def test_who_is_late_spares_once(since: float) -> None:
    """A peer that was silent for some time before is given a whole timeout to be heard, and only one."""
    detector = Detector(OPTIONS, Outbox())
    detector.watch(["peer"], 0.0)
    detector.heard("peer", 100.0 - since)
    detector.tick(100.0)
    for late in (150.0, 152.0, 153.9):
        detector.tick(late)
        assert detector.is_up("peer")
    detector.tick(155.0)
    assert not detector.is_up("peer")


def test_who_was_heard_is_spared_anew() -> None:
    outbox = Outbox()
    detector = Detector(OPTIONS, outbox)
    detector.watch(["peer"], 0.0)
    for hundred in range(1, 5):
        detector.heard("peer", 100.0 * hundred)
        detector.tick(100.0 * hundred)
    detector.tick(500.0)
    detector.heard("peer", 500.0)
    detector.tick(600.0)
    assert outbox.effects == [PeerUp("peer")]


def test_who_is_on_time_spares_nobody() -> None:
    detector = Detector(OPTIONS, Outbox())
    detector.watch(["peer"], 0.0)
    detector.heard("peer", 0.0)
    ticks = int((TIMEOUT + INTERVAL) / TICK)
    for tick in range(ticks):
        assert detector.is_up("peer")
        detector.tick(tick * TICK)
    detector.tick(ticks * TICK)
    assert not detector.is_up("peer")


def test_delays_that_are_small_each_count_together() -> None:
    """A loop that is late all the time has listened for half of it."""
    detector = Detector(OPTIONS, Outbox())
    detector.watch(["peer"], 0.0)
    detector.heard("peer", 0.0)
    now = 0.0
    while now < 2 * TIMEOUT:
        assert detector.is_up("peer")
        detector.tick(now)
        now += 0.8 * INTERVAL
    detector.tick(now + 2 * INTERVAL)
    assert not detector.is_up("peer")


def slower_and_slower(seed: int) -> list[PeerDown]:
    """Whom nodes take for silent whose answers take up to ten seconds in the end."""
    sim, names = joined(Sim(seed, network=Network(ordered=True)), 3)
    for longest in (1.0, 2.0, 3.0, 4.0, 5.0):
        sim.network.longest = longest
        sim.run(60)
    return [down for name in names for down in sim.nodes[name].of(PeerDown)]


@over_seeds(4)
def test_who_answers_late_is_waited_for(seed: int) -> None:
    assert slower_and_slower(seed) == []


@patch.object(RoundTrips, "longest", lambda _self, _peer: 0.0)
def test_without_measured_round_trips_late_ones_are_taken_for_dead() -> None:
    assert slower_and_slower(3) != []


@over_seeds(10)
def test_a_silent_one_is_down_within_three_timeouts_however_late_it_answered(seed: int) -> None:
    sim, names = joined(Sim(seed, network=Network(ordered=True, longest=3.0)), 3)
    sim.run(60)
    sim.crash(names[0])
    sim.run(3.0 + 3 * TIMEOUT + INTERVAL + TICK)
    assert not any(sim[name].detector.is_up(names[0]) for name in names[1:])


@over_seeds(10)
def test_round_trips_are_those_of_the_network_whoever_is_held_up(seed: int) -> None:
    sim, names = joined(Sim(seed, network=Network(ordered=True, shortest=0.1, longest=0.1)), 2)
    sim.run(20)
    for held in names:
        sim.pause(held)
        sim.run(sim.random.uniform(5, 60))
        sim.resume(held)
        sim.run(20)
    for name, other in (names, reversed(names)):
        detector = sim[name].detector
        assert detector.round_trips.smoothed(other) == pytest.approx(0.2, abs=0.3)
        assert detector.patience(other) == TIMEOUT


@pytest.mark.parametrize("echo", [0, 1, 5000, 900_000, 1_000_001, MAX_NUMBER])
@pytest.mark.parametrize("held", [0, 99, MAX_NUMBER])
def test_whatever_a_peer_says_of_the_time_it_is_waited_for_three_timeouts_at_most(
    echo: int, held: int
) -> None:
    detector = Detector(OPTIONS, Outbox())
    detector.watch(["peer"], 0.0)
    detector.tick(5.0)
    detector.round_trips.heartbeat("peer", 0, 5.0)
    for number in range(1, 1000):
        detector.answered("peer", Heartbeat(0, number, echo, held), 1000.0 + number)
    assert TIMEOUT <= detector.patience("peer") <= 3 * TIMEOUT
    assert 0 <= detector.round_trips.heartbeat("peer", 0, 3000.0).held <= MAX_NUMBER


@over_seeds(10)
def test_who_is_stopped_says_so_and_is_up_again_with_its_first_word(seed: int) -> None:
    sim, names = joined(Sim(seed), (2, 5))
    stopped, others = names[0], names[1:]
    sim.stop(stopped)
    sim.run(sim.network.longest)
    for name in others:
        assert sim.nodes[name].of(PeerDown) == [PeerDown(stopped, "it was stopped")]
        assert stopped in sim[name].membership.others
    sim.restart(stopped)
    sim.until(lambda: sim.is_joined(names), 2 * INTERVAL)
