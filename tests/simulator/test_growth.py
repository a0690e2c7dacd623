"""What a cluster of a hundred nodes says grows with what docs/scaling.md says, and with nothing else."""

import pytest

from tests.bench.scaling import CountingSim, idle
from vmq_cluster.messages import Heartbeat
from vmq_cluster.options import Options

MANY = 100


@pytest.fixture(scope="module")
def sim() -> CountingSim:
    """A hundred nodes in which nothing happens, after a minute."""
    made = CountingSim()
    made.ready(MANY)
    made.run(2)
    return made


def reset(sim: CountingSim) -> list[str]:
    sim.restart_counts()
    return sorted(sim.nodes)


def write(sim: CountingSim, name: str, number: int) -> None:
    sim.ask(name, lambda: sim[name].metadata.put("p", b"%d" % number, b"v"))
    sim.run(0.3)


def test_a_node_sends_a_heartbeat_to_each_other_and_little_else(sim: CountingSim) -> None:
    names = reset(sim)
    seconds = 3
    sim.run(seconds)
    beats = sim.heartbeats.frames / MANY / (MANY - 1)
    assert beats == pytest.approx(seconds / Options().heartbeat_interval, abs=1)
    # Each node compares clocks with one other in a period, which takes a question and an answer.
    periods = seconds / Options().sync_interval
    assert sim.beyond_heartbeats().frames / len(names) <= 2 * (periods + 1)


def test_a_write_reaches_each_node_about_once(sim: CountingSim) -> None:
    names = reset(sim)
    for at in range(5):
        write(sim, names[at], at)
    pushed = {name: sim[name].plumtree.counters.pushed for name in names}
    assert all(sim[name].metadata.get("p", b"4") == b"v" for name in names)
    for at in range(5, 10):
        write(sim, names[at], at)
    later = sum(sim[name].plumtree.counters.pushed - pushed[name] for name in names)
    assert later / 5 / (MANY - 1) <= 1.5


def test_the_death_of_a_node_is_noticed_by_each_without_a_word(sim: CountingSim) -> None:
    names = reset(sim)
    dead = names[-1]
    sim.crash(dead)
    kinds = set()
    sim.trace = lambda _sender, _receiver, message: kinds.add(type(message))
    sim.until(lambda: not any(machine.detector.is_up(dead) for machine in sim), 10)
    sim.trace = None
    assert Heartbeat in kinds
    assert sim.beyond_heartbeats().frames <= 5 * MANY  # those who were its neighbours find others
    sim.restart(dead)
    sim.until(lambda: sim.is_joined(names), 5)


def test_idle_gossip_does_not_grow_with_what_is_known() -> None:
    few, many = idle(3, 10), idle(3, 2000)
    assert many[0].frames == few[0].frames
    assert many[1].frames <= few[1].frames + 2
    assert many[1].bytes <= 1.5 * few[1].bytes + 100
