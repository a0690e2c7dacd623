"""The simulator itself: it replays, and its network does what it is told."""

import pytest

from tests.simulator.machines import Sim
from tests.simulator.network import Network
from tests.simulator.seeds import over_seeds
from vmq_cluster.messages import AnyMessage


def trace_of(seed: int) -> list[tuple[float, str, str, AnyMessage]]:
    sim = Sim(seed, network=Network(loss=0.1, duplicate=0.1, longest=0.5))
    seen: list[tuple[float, str, str, AnyMessage]] = []
    sim.trace = lambda sender, receiver, message: seen.append((sim.now, sender, receiver, message))
    names = sim.cluster(4, skew=500)
    sim.ask(names[1], lambda: sim[names[1]].metadata.put("p", b"k", b"v"))
    sim.crash(names[2], power=True)
    sim.run(5)
    return seen


def test_a_seed_gives_one_run() -> None:
    assert trace_of(3) == trace_of(3)
    assert trace_of(3) != trace_of(4)


def test_a_failing_seed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    @over_seeds(10)
    def case(seed: int) -> None:
        seen.append(seed)
        assert seed < 7

    with pytest.raises(AssertionError) as caught:
        case()
    [note] = caught.value.__notes__
    assert note.startswith("replay it with VMQ_SIM_SEED=7 ")
    monkeypatch.setenv("VMQ_SIM_SEED", "3")
    seen.clear()
    case()
    assert seen == [3]


def test_a_cut_is_one_way_and_a_split_both() -> None:
    sim = Sim(0)
    names = sim.cluster(2)
    sim.network.cuts.add((names[0], names[1]))
    sim.run(6)
    assert sim[names[0]].detector.up == [names[1]]
    assert sim[names[1]].detector.up == []
    sim.heal()
    sim.until(lambda: sim.is_joined(names), 5)
    sim.split([names[0]], [names[1]])
    sim.run(6)
    assert [sim[name].detector.up for name in names] == [[], []]
