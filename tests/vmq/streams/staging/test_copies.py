"""What is kept for other nodes: whole, or not at all, until it is this node's own."""

import errno
import os
from pathlib import Path

import msgspec
import pytest

from tests.vmq.streams.staging.test_parts import found, put
from vmq.streams.groups.copying import CopyPiece
from vmq.streams.groups.records import GroupKey
from vmq.streams.groups.steps import PublishStep, StepMove
from vmq.streams.serving.copying import pieces_of
from vmq.streams.staging.copies import StepCopies
from vmq.streams.staging.parts import Staging
from vmq.streams.staging.state import Decided, StagedStep, StagingError

QUERY = "members." + "0" * 32
MOVES = [StepMove(0, 1, 0, 5)]
STEP = StagedStep(GroupKey("g", "s"), PublishStep("a@1", (1, 1), "m", MOVES), "b")


@pytest.fixture
def staged(tmp_path: Path) -> tuple[Staging, Decided]:
    """On the node that is lost later."""
    staging = Staging(tmp_path / "a" / "sinks")
    put(staging, QUERY, 3, 0, 0, b"x", b"y")
    what = staging.asking(QUERY, 3, [(0, 0)], {}, 9)
    what.step = STEP
    return staging, what


@pytest.fixture
def copies(tmp_path: Path) -> StepCopies:
    return StepCopies(tmp_path / "b" / "copies", Staging(tmp_path / "b" / "sinks"), 1 << 20)


def sizes_of(staging: Staging, what: Decided) -> list[tuple[str, int]]:
    return [(name, (staging.folder / QUERY / name).stat().st_size) for name in what.parts]


def copy(staged: tuple[Staging, Decided], copies: StepCopies) -> None:
    staging, what = staged
    sizes = sizes_of(staging, what)
    copies.write(QUERY, list(pieces_of(staging.folder / QUERY, sizes)))
    assert copies.keep(QUERY, sizes, msgspec.json.encode(what)) == STEP


def test_a_step_goes_to_the_staged_batches_of_its_keeper(
    staged: tuple[Staging, Decided], copies: StepCopies
) -> None:
    copy(staged, copies)
    assert list(copies.kept()) == [(QUERY, STEP)]
    own = PublishStep("b@2", (1, 7), "heir", MOVES, ("a@1", (1, 1)))
    assert copies.adopt(QUERY, StagedStep(STEP.key, own)) == 3
    assert list(copies.kept()) == []
    staging = Staging(copies.staging.folder)
    assert staging.size == copies.staging.size > 0
    assert [each.step and each.step.step for _, each, _ in staging.asked()] == [own]
    assert staging.taken_since(QUERY) is None
    staging.settle(QUERY, is_accepted=True)
    assert staging.taken_since(QUERY) == 9
    assert found(staging.decide(QUERY, 3, [])) == [b"x", b"y"]


def test_it_goes_when_that_very_step_ends(
    staged: tuple[Staging, Decided], copies: StepCopies
) -> None:
    copy(staged, copies)
    assert not copies.drop(QUERY, "a@1", (1, 2))
    assert not copies.drop(QUERY, "a@2", (1, 1))
    assert list(copies.kept()) == [(QUERY, STEP)]
    assert copies.drop(QUERY, "a@1", (1, 1))
    assert list(copies.folder.iterdir()) == []


def test_what_is_not_whole_is_not_kept(staged: tuple[Staging, Decided], copies: StepCopies) -> None:
    staging, what = staged
    (name, size), *_ = sizes = sizes_of(staging, what)
    copies.write(QUERY, [CopyPiece(name, 0, b"x" * (size - 1))])
    for wrong in (sizes, []):
        with pytest.raises(StagingError, match=r"is not whole|is no step"):
            copies.keep(QUERY, wrong, msgspec.json.encode(what))
    with pytest.raises(StagingError, match="is no step"):
        copies.keep(QUERY, sizes, b"{}")
    assert list(copies.kept()) == []
    assert list(copies.folder.iterdir()) == []
    copies.most = 10
    with pytest.raises(StagingError, match="more than 10 bytes"):
        copies.write(QUERY, [CopyPiece(name, 0, b"x" * 11)])


def test_what_could_not_be_synced_is_to_be_sent_again(
    staged: tuple[Staging, Decided], copies: StepCopies, monkeypatch: pytest.MonkeyPatch
) -> None:
    staging, what = staged
    sizes, state = sizes_of(staging, what), msgspec.json.encode(what)
    copies.write(QUERY, list(pieces_of(staging.folder / QUERY, sizes)))

    def fail(_fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(StagingError, match="Input/output error"):
            copies.keep(QUERY, sizes, state)
    with pytest.raises(StagingError, match="cannot keep"):
        copies.keep(QUERY, sizes, state)
    copy(staged, copies)
