"""What a cluster of a hundred nodes says grows with what docs/scaling.md says, and with nothing else."""

from collections import Counter
from typing import Any

import pytest

from tests.bench.scaling import CountingSim, idle
from tests.simulator import world as worlds
from vmq.clustering.running.agreement import AGREED_AT_ONCE, RouteAgreement
from vmq.clustering.running.routes import SLOT_ROUTES, key_of
from vmq.clustering.slots.turns import LOOKED_AT_ONCE
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


def test_a_node_that_rests_looks_at_few_slots_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slots, names, seconds = 512, "abc", 10
    done: Counter[str] = Counter()

    def count(name: str) -> None:
        was = getattr(RouteAgreement, name)

        def counted(*about: Any) -> Any:
            done.update([name])
            return was(*about)

        monkeypatch.setattr(RouteAgreement, name, counted)

    count("look")
    count("_compare")
    monkeypatch.setattr(worlds, "SLOTS", slots)
    with worlds.World(1, *names, slots=slots) as world:
        world.run(60)  # all that is new was looked at
        done.clear()
        world.trace = lambda *_: done.update(["frames"])
        world.run(seconds)
        found = done.copy()
        nodes = [each.running.clustering for each in map(world.__getitem__, names)]
        looked_at = [each.slots.status._lacks.looked_at for each in nodes if each.slots]
        nodes[0].node.put(SLOT_ROUTES, key_of(1, 1, "a/b"), b"1")
        world.run(5)
    assert done["_compare"] - found["_compare"] >= slots * len(names), "a route is new"
    a_second = 1 / worlds.CLUSTER["heartbeat_interval"]
    # Those that heartbeats have looked at, and no others.
    assert max(looked_at) <= a_second * LOOKED_AT_ONCE
    assert found["_compare"] <= AGREED_AT_ONCE * seconds * len(names) * 1.1
    assert found["look"] <= (a_second + 2) * seconds * len(names), "most find nothing to do"
    # To each other one of members and one of slots in an interval, and comparisons of clocks.
    assert found["frames"] <= (2 * 2 * a_second * seconds + 2 + seconds / 5) * len(names)
