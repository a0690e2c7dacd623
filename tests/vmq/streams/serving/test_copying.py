"""What is staged goes to a second host: over lost messages, refusals, and questions nobody answers."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.until import until
from tests.vmq.streams.staging.test_copies import QUERY, STEP
from tests.vmq.streams.staging.test_parts import put
from vmq.streams.groups.copying import PIECE, Copying, CopyStep, StepCopied, StepEnds
from vmq.streams.groups.steps import PublishStep, StepMove
from vmq.streams.serving import copying as module
from vmq.streams.serving.copying import StepKeeper
from vmq.streams.staging.parts import Staging
from vmq.streams.staging.state import Decided, StagedStep


class Wire:
    """Two nodes, `a` and `b`, as `vmq.clustering.streams.groups` has them; `lose` says what gets lost."""

    def __init__(self, folder: Path) -> None:
        self.up = {"a", "b"}
        self.lost: set[str] = set()
        self.lose = 0
        self.said: list[tuple[str, Copying]] = []
        self.taken: list[tuple[str, StagedStep]] = []
        self.nodes = {name: End(self, name) for name in "ab"}
        self.keepers = {
            name: StepKeeper(Staging(folder / name / "sinks"), self.take_over) for name in "ab"
        }

    async def take_over(self, query: str, staged: StagedStep) -> None:
        self.taken.append((query, staged))

    def begin(self) -> None:
        for name, keeper in self.keepers.items():
            keeper.begin(self.nodes[name])

    async def stop(self) -> None:
        for each in self.keepers.values():
            await each.stop()

    async def give(self, payload: bytes) -> bool:
        """Node `a` has a step of one message kept by `b`."""
        staging = self.keepers["a"].staging
        put(staging, QUERY, 3, 0, 0, payload)
        what = staging.asking(QUERY, 3, [(0, 0)], {}, 9)
        what.step = STEP
        return await self.keepers["a"].give(QUERY, what)


class End:
    """What one node's keeper says, and to whom."""

    def __init__(self, wire: Wire, name: str) -> None:
        self.wire = wire
        self.store = f"{name}@1"
        self.on_copy: Callable[[str, Copying], None] = self.ignore

    def ignore(self, node: str, saying: Copying) -> None:
        raise AssertionError

    def pass_on(self, node: str, saying: Copying) -> None:
        self.wire.said.append((node, saying))
        if self.wire.lose:
            self.wire.lose -= 1
        else:
            asyncio.get_running_loop().call_soon(
                self.wire.nodes[node].on_copy, self.store[0], saying
            )

    def keepers(self) -> list[str]:
        return sorted(self.wire.up - {self.store[0]})

    def has_hosts(self) -> bool:
        return len(self.wire.nodes) > 1

    def is_lost(self, store: str) -> bool:
        return store in self.wire.lost


@pytest.fixture
def wire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Wire:
    for name in ("_AGAIN", "_LOOK", "_MISSED"):
        monkeypatch.setattr(module, name, 0.05)
    monkeypatch.setattr(module, "_TRIES", 100)  # a disk may take longer than the time between two
    return Wire(tmp_path)


@pytest.mark.parametrize("size", [10, 3 * PIECE])
async def test_a_step_is_kept_though_messages_get_lost(wire: Wire, size: int) -> None:
    wire.begin()
    wire.lose = 2
    assert await wire.give(b"x" * size)
    asked = [saying for node, saying in wire.said if node == "b"]
    assert sum(isinstance(each, CopyStep) for each in asked) >= 3
    assert wire.keepers["b"].kept == {QUERY: STEP}
    assert list(wire.keepers["b"].copies.kept()) == [(QUERY, STEP)]
    wire.keepers["a"].end(QUERY, STEP)
    await until(lambda: not wire.keepers["b"].kept)
    assert list(wire.keepers["b"].copies.kept()) == []
    await wire.stop()


async def test_who_cannot_keep_it_says_so(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    wire.begin()
    wire.keepers["b"].copies.most = 10
    assert not await wire.give(b"x" * 100)
    assert "more than 10 bytes" in caplog.text
    wire.up = {"a"}
    assert not await wire.keepers["a"].ask("b", lambda at: CopyStep(at, QUERY, []))
    await wire.stop()


async def test_what_is_lost_is_taken_over_and_what_is_over_is_dropped(
    wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ASK", 0.0)
    wire.begin()
    keeper, giver = wire.keepers["b"], wire.keepers["a"]
    giver.giving.add(QUERY)
    assert await wire.give(b"x")
    await until(lambda: sum(type(each) is not StepCopied for _, each in wire.said) > 3)
    assert keeper.kept == {QUERY: STEP}  # it is on its way still
    prepared = Decided(3, ["3-0-0.arrow"], {}, None, STEP, 9)
    giver.staging.prepare(QUERY, prepared)
    giver.giving.clear()
    before = len(wire.said)
    await until(lambda: len(wire.said) > before + 2)
    assert keeper.kept == {QUERY: STEP}  # it may be published yet
    assert not any(isinstance(each, StepEnds) for _, each in wire.said)
    wire.lost = {"a@1"}
    await until(lambda: wire.taken == [(QUERY, STEP)])
    assert keeper.kept == {}
    keeper.keep_on(QUERY, STEP)
    wire.lost = set()
    giver.staging.settle(QUERY, is_accepted=False)
    await until(lambda: not keeper.kept)
    assert list(keeper.copies.kept()) == []
    assert len(wire.taken) == 1
    await wire.stop()


async def test_a_start_finds_what_is_kept_and_what_an_earlier_life_took_over(wire: Wire) -> None:
    wire.begin()
    assert await wire.give(b"x")
    await wire.stop()
    again = StepKeeper(wire.keepers["b"].staging, wire.take_over)
    own = StagedStep(STEP.key, PublishStep("b@1", (1, 1), "heir", [StepMove(0, 1, 0, 5)]))
    again.begin(wire.nodes["b"])
    assert again.kept == {QUERY: STEP}
    again.keep_on(QUERY, own)
    await until(lambda: wire.taken == [(QUERY, own)])
    await again.stop()
