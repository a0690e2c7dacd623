"""The best copy is found and brought, whatever is lost on the way, as long as somebody who has one is there."""

import pytest

from tests.support.stored import records_of
from tests.vmq.clustering.replica_sim import World
from vmq.clustering.replication.follower import SessionCopy


def world_with(messages: int, size: int, copies: int = 3) -> World:
    world = World(3, ["a", "b", "c", "d"], copies)
    world.settle(lambda: all(peer.is_active for peer in world.nodes["a"].replicas.peers()))
    world.nodes["a"].begin("s")
    for name in range(messages):
        world.nodes["a"].publish(["s"], name, size)
    world.settle(world.is_quiet)
    return world


def keepers(world: World) -> list[str]:
    return sorted(name for name, node in world.nodes.items() if len(node.copies))


@pytest.mark.parametrize("loss", (0.0, 0.3))
@pytest.mark.parametrize(("messages", "size"), [(0, 0), (3, 10), (1700, 10), (120, 3000)])
def test_a_copy_comes_over_whole_piece_by_piece(loss: float, messages: int, size: int) -> None:
    world = world_with(messages, size)
    [new] = set("bcd") - set(keepers(world))
    world.kill("a")
    world.loss = loss
    assert world.take_over("s", "a", new)
    assert world.nodes[new].names("s") == list(range(messages))
    assert not len(world.nodes[new].copies)


def test_who_has_the_best_copy_needs_nobody() -> None:
    world = world_with(3, 10)
    here = keepers(world)[0]
    for name in "abcd":
        if name != here:
            world.kill(name)
    assert world.take_over("s", "a", here)
    assert world.nodes[here].names("s") == [0, 1, 2]


def test_the_next_best_is_taken_when_the_best_dies_meanwhile() -> None:
    world = world_with(1700, 10)
    first, second = keepers(world)
    [new] = set("bcd") - {first, second}
    world.kill("a")
    node = world.nodes[new]
    answers: list[tuple[SessionCopy | None, str]] = []
    node.searcher.find("s", "a", [first, second], world.now, lambda *found: answers.append(found))
    world.settle(lambda: bool(node.searcher.sources))
    [source] = node.searcher.sources
    world.kill(source)
    world.settle(lambda: bool(answers))
    copy, found_at = answers[0]
    assert found_at in {first, second} - {source}
    assert copy is not None
    world.settle(lambda: not node.store.dirty)
    assert len(records_of(node.db, b"q" + copy.number)) == 1700
    assert len(node.copies) == 1, "what came of the first is deleted"


def test_nobody_has_a_copy_and_silence_is_an_answer() -> None:
    world = world_with(1, 10)
    for name in keepers(world):
        world.nodes[name].receive = lambda peer, message: None  # type: ignore[method-assign]
    [new] = set("bcd") - set(keepers(world))
    world.kill("a")
    assert not world.take_over("s", "a", new)
    assert not world.take_over("nobody", "a", new)
    assert not world.take_over("s", "z", new), "it was another node's session"
