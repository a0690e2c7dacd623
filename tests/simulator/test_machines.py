"""The simulator itself: it replays, and its network does what it is told."""

from tests.simulator.machines import Sim
from tests.simulator.network import Network
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
