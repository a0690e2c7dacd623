"""Who gets a mark when the record of a session becomes another."""

import pytest

from tests.vmq.clustering.world import World
from tests.vmq.clustering.world_node import NOTHING, WHO, Stamped
from vmq.clustering.directory.records import Record
from vmq.clustering.messages.takeover import RouteMarker, SessionMoved


def record(node: str, since: int, source: str = "") -> Record:
    return Record(node, since, False, {"t": 2}, source=source)


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (record("a", 1), record("b", 2, "a"), ["a", "b"]),
        (record("x", 1), record("b", 2, "a"), ["b"]),
        (record("a", 1), record("x", 2, "a"), ["a"]),
        # Heard of only now: of a session that may be on its way, and of one that was made when others were away.
        (None, record("b", 2, "a"), ["a", "b"]),
        (None, record("b", 2), []),
        (None, record("b", 2, "b"), ["b"]),
        # Its client came again, or it was elsewhere meanwhile.
        (record("b", 1), record("b", 2), []),
        (record("b", 1, "a"), record("b", 2, "a"), []),
        (record("b", 1), record("b", 3, "a"), ["b"]),
        (record("b", 1), record("b", 3, "b"), ["b"]),
    ],
)
def test_both_owners_are_told_of_a_change(
    before: Record | None, after: Record, told: list[str]
) -> None:
    world = World(1, nodes=3, others=False)
    world.join("x")
    node = world.nodes["x"]
    node.view = NOTHING if before is None else Stamped((before.since, before.node), before)
    world.change(node, Stamped((after.since, after.node), after))
    marks = {peer: [each for each, _ in world.outboxes["x", peer]] for peer in "abc"}
    assert [peer for peer, found in marks.items() if found] == told
    for peer in told:
        [mark] = marks[peer]
        assert isinstance(mark, RouteMarker)
        assert (mark.since, mark.node, mark.subscriptions) == (after.since, after.node, {"t": 2})
        # Publishes before it were for that node, too.
        assert mark.again == (before is not None and before.node == after.node)


def test_a_mark_is_answered_at_once_or_when_the_record_comes() -> None:
    world = World(2, nodes=2, others=False)
    marking = world.nodes["b"].moving.marking
    marking.asked("a", SessionMoved(*WHO, 100, "a"), 0.0)
    assert len(world.outboxes["b", "a"]) == 1
    marking.asked("a", SessionMoved(*WHO, 101, "b"), 0.0)
    assert len(world.outboxes["b", "a"]) == 1
    world.change(world.nodes["b"], Stamped((101, "b"), record("b", 101, "a")))
    assert [each.again for each, _ in world.outboxes["b", "a"]] == [True, False, True]
    assert not marking.owed
