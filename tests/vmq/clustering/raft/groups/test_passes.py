"""Who makes the passes: the loop those that are short, and it never waits, nor overtakes what the thread is to do."""

import asyncio
import threading
from collections.abc import AsyncIterator
from math import inf
from pathlib import Path
from time import monotonic
from unittest.mock import patch

import pytest
from msgspec.structs import replace

from tests.support.present import present
from tests.support.until import until
from tests.vmq.clustering.raft.groups.test_taking import Node
from tests.vmq.streams.support import payloads
from vmq.clustering.raft.groups.passes import LITTLE, LoopPasses
from vmq.clustering.raft.groups.upkeep import lead
from vmq.clustering.raft.produce import DONE, Take

#: What is done in the loop, and in the thread.
LOOP, THREAD = "MainThread", "vmq-groups"


class LoopNode(Node):
    """One whose producers are in the loop."""

    def __init__(self, folder: Path, durability: str) -> None:
        super().__init__(folder, durability)
        self.passes = LoopPasses(self.thread, lambda: None)
        self.done_in: list[str] = []
        self.next = 0

    def row(self, size: int = 100) -> Take:
        made = self.take("x", [b"%d" % self.next])
        made.mark, made.size = type(made.mark)("x", "b", self.next, 1), size
        self.next += 1

        def answer(status: int) -> None:
            assert status == DONE
            self.done_in.append(threading.current_thread().name)

        made.answer = answer
        return made

    async def put(self, *takes: Take) -> list[str]:
        """Hands rows in; returns in which threads they were taken."""
        before = len(self.done_in)
        for each in takes:
            self.passes.take(each)
        await until(lambda: len(self.done_in) == before + len(takes))
        return self.done_in[before:]


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[LoopNode]:
    made = LoopNode(tmp_path, "os")
    yield made
    made.thread.stop()


async def test_a_few_rows_are_taken_in_the_loop(node: LoopNode) -> None:
    assert await node.put(*(node.row() for _ in range(10))) == 10 * [LOOP]
    assert payloads(node.partition) == [b"%d" % number for number in range(10)]


async def test_what_may_take_long_is_the_threads(node: LoopNode, tmp_path: Path) -> None:
    assert await node.put(node.row(), node.row(LITTLE + 1), node.row()) == [LOOP, THREAD, THREAD]
    with patch.object(node.partition, "segment_age", 0.0):
        assert await node.put(node.row()) == [THREAD], "a segment begins"
    (tmp_path / "synced").mkdir()
    synced = LoopNode(tmp_path / "synced", "fsync")
    assert await synced.put(synced.row()) == [THREAD], "the disk is waited for"
    synced.thread.stop()


async def test_what_retention_takes_goes_with_the_look_of_the_thread(node: LoopNode) -> None:
    """The next rows are the loop's, which is not to wait for files that are deleted."""
    with patch.object(node.partition, "segment_age", 0.0):
        for _ in range(5):
            await node.put(node.row())
    node.partition.set_options(replace(node.partition.options, retention_bytes=1))

    def look() -> int:
        group = present(node.thread.opened["g"].group)
        lead(node.partition, group, node.thread._do, monotonic())
        return present(node.partition.log).first

    assert await asyncio.wrap_future(node.thread.turns.call(look)) > 0


@pytest.mark.parametrize("stage", ["work", "pass"])
async def test_the_loop_overtakes_nothing_and_waits_for_nothing(node: LoopNode, stage: str) -> None:
    may_go, is_there = threading.Event(), threading.Event()

    def hold() -> None:
        is_there.set()
        assert may_go.wait(10)

    if stage == "pass":
        node.thread.post(hold)
        await asyncio.to_thread(is_there.wait, 10)
    else:
        with node.thread.turns.turn:  # the thread has something to do and has not begun it
            node.thread.post(hold)
            node.passes.take(node.row())
            await _turn()
    node.passes.take(node.row())
    await _turn()
    assert not node.done_in, "what came before is not done yet"
    may_go.set()
    await until(lambda: len(node.done_in) == node.next)
    assert set(node.done_in) == {THREAD}
    while await node.put(node.row()) != [LOOP]:
        pass  # the thread is at the end of its pass still


async def test_nothing_is_taken_once_the_thread_has_ended(node: LoopNode) -> None:
    node.thread.stop()
    assert not node.thread.turns.enter()
    node.passes.take(node.row())
    await _turn()
    assert not node.done_in


async def test_one_of_thread_and_loop_sees_to_what_is_to_be_told(node: LoopNode) -> None:
    thread = node.thread

    def due(looks_at: float) -> float:
        group = thread.host.telling["g"] = present(thread.opened["g"].group)
        present(group.leading).tells_at, thread.looks_at = 0.0, looks_at
        return thread._next()

    found = [await asyncio.wrap_future(thread.turns.call(due, each)) for each in (inf, 1.0, 0.0)]
    assert (found[:2], found[2] > 0) == ([0.0, 0.0], True)
    with thread.turns.turn:
        thread.tells_at = monotonic() + 60
        node.passes._look()
        assert thread.looks_at == thread.tells_at


async def _turn() -> None:
    """The loop has done what was to be done soon, and what that had it do soon."""
    for _ in range(2):
        await asyncio.sleep(0)
