"""Nodes of several versions: who talks to whom, and how a cluster is upgraded."""

import msgspec
import pytest

from tests.simulator.machines import OPTIONS, Sim, joined
from tests.simulator.seeds import over_seeds
from vmq_cluster.effects import Outbox, PeerDown, PeerUp, Refused
from vmq_cluster.errors import FormatError, MalformedError
from vmq_cluster.messages import FORMAT, MAX_MEMBERS, Frame, Heartbeat, decode
from vmq_cluster.metadata.versions import Dialects, Versions

OLD, BRIDGE, NEW = Versions(1, 1), Versions(2, 1), Versions(2, 2)


def upgrade(sim: Sim, name: str, versions: Versions) -> None:
    """A node is stopped, and starts again as another version."""
    sim.stop(name)
    sim.run(sim.random.uniform(0, 2 * OPTIONS.heartbeat_timeout))
    sim.nodes[name].versions = versions
    sim.restart(name)


def knows_all(sim: Sim, names: list[str]) -> bool:
    """Whether each knows what all others speak."""
    return all(
        sim[one].dialects.spoken_by(other) == sim.nodes[other].versions.speaks
        for one in names
        for other in names
    )


@over_seeds(8)
def test_a_cluster_is_upgraded_node_by_node_over_a_version_that_talks_to_both(seed: int) -> None:
    sim, names = joined(Sim(seed), (2, 5))
    for versions in (BRIDGE, NEW):
        for name in names:
            upgrade(sim, name, versions)
            sim.until(lambda: knows_all(sim, names) and sim.is_joined(names), 20)
    assert not any(sim.nodes[name].of(Refused) for name in names)


@over_seeds(8)
def test_who_cannot_be_talked_with_is_down_and_told_of_once_in_each_of_its_lives(seed: int) -> None:
    sim, names = joined(Sim(seed), (2, 5))
    early, others = names[0], names[1:]
    upgrade(sim, early, NEW)
    for _ in range(2):
        sim.run(30)
        for name in others:
            assert sim[name].detector.down.keys() == {early}
        assert sim[early].detector.up == []
        upgrade(sim, early, NEW)
    sim.run(5)
    for name in others:
        told = sim.nodes[name].of(Refused)
        assert [each.peer for each in told] == [early] * 3
        assert told[0].reason.endswith("upgrade vmq on this node")
    for each in sim.nodes[early].of(Refused):
        assert each.reason.endswith("upgrade vmq on that one")
    for name in others:
        upgrade(sim, name, NEW)
    sim.until(lambda: sim.is_joined(names), 20)


def test_who_is_up_and_comes_back_as_another_version_is_down_at_once() -> None:
    sim, names = joined(Sim(0), 2)
    sim.crash(names[0])
    sim.nodes[names[0]].versions = NEW
    sim.restart(names[0])
    sim.run(OPTIONS.heartbeat_interval)
    (down,) = sim.nodes[names[1]].of(PeerDown)
    assert down.reason == "it cannot be talked with"
    assert not sim[names[1]].detector.up


def test_a_stranger_of_another_version_is_not_taken_in_and_both_are_told() -> None:
    sim = Sim(0)
    sim.add("old")
    sim.add("new", join="old", versions=NEW)
    sim.run(10)
    for name, other in (("old", "new"), ("new", "old")):
        assert [each.peer for each in sim.nodes[name].of(Refused)] == [other]
        assert sim.nodes[name].of(PeerUp) == []
        assert sim[name].membership.others == []
    # Each knock is answered, and the answer is not.
    assert sim.sent[Heartbeat] <= 11


def test_the_names_of_strangers_are_forgotten() -> None:
    outbox = Outbox()
    dialects = Dialects(BRIDGE, outbox)
    for number in range(2 * MAX_MEMBERS):
        dialects.accepts(Frame(FORMAT, f"newer {number}", 1, 1, [], 3, 1))
        dialects.accepts(Frame(FORMAT, f"too new {number}", 1, 1, [], 3, 3))
    assert len(dialects._others) == len(dialects._refused) == MAX_MEMBERS
    assert len(outbox.effects) == 2 * MAX_MEMBERS


@pytest.mark.parametrize("is_member", [False, True])
def test_who_has_another_number_of_what_all_have_alike_is_refused_on_both_sides(
    is_member: bool,
) -> None:
    sim = Sim(0)
    names = sim.cluster(2) if is_member else [sim.add(name).name for name in ("a", "b")]
    for name, slots in zip(names, (64, 256), strict=True):
        sim.crash(name)
        sim.nodes[name].versions = Versions(alike=slots, what="cluster.slots")
        sim.restart(name)
    sim.ask(names[1], lambda: sim[names[1]].join(names[0]))
    sim.run(20)
    assert not any(machine.detector.up for machine in sim)
    assert is_member or not any(machine.membership.others for machine in sim)
    for name, text in zip(
        names, ("is 256, this node's is 64", "is 64, this node's is 256"), strict=True
    ):
        [refused] = sim.nodes[name].of(Refused)
        assert text in refused.reason


@pytest.mark.parametrize("unknown", [[99, "what is this"], [1, "no digest"], "no message"])
def test_what_a_later_version_says_besides_is_passed_over(unknown: object) -> None:
    def raw(speaks: int) -> bytes:
        return msgspec.msgpack.encode(
            [FORMAT, "node", 1, 1, [[1, 7], unknown, [1, 8]], speaks, 1, 0, 0, 0, "and more"]
        )

    assert decode(raw(3), 2) == Frame(FORMAT, "node", 1, 1, [Heartbeat(7), Heartbeat(8)], 3, 1)
    with pytest.raises(MalformedError, match="no frame of this cluster"):
        decode(raw(2), 2)


@pytest.mark.parametrize(
    ("spoken", "where"), [(FORMAT + 1, "on this node"), (FORMAT - 1, "on that one")]
)
def test_another_format_is_told_from_nonsense(spoken: int, where: str) -> None:
    for raw in ([spoken, "b", 1, 1, []], [spoken, "b", {}]):
        with pytest.raises(FormatError, match=f"node 'b' sends frames of format {spoken}.*{where}"):
            decode(msgspec.msgpack.encode(raw))
    with pytest.raises(FormatError, match="a node sends"):
        decode(msgspec.msgpack.encode([spoken]))
