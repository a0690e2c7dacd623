"""What the thread of the groups does in a pass, and what becomes of what goes wrong in it."""

import logging
from functools import partial

import pytest

from vmq.clustering.raft.groups.turns import GroupTurns


@pytest.fixture
def turns() -> GroupTurns:
    return GroupTurns("vmq-test", lambda: None)


def test_a_pass_ends_when_it_is_long(turns: GroupTurns, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much there is to do: between two passes a node says that it lives."""
    now = [0.0]
    monkeypatch.setattr("vmq.clustering.raft.groups.turns.time.monotonic", lambda: now[0])
    done: list[int] = []

    def work(number: int) -> None:
        done.append(number)
        now[0] += 0.2

    for number in range(5):
        turns.put(partial(work, number))
    passes = []
    while len(done) < 5:
        assert turns.do()
        passes.append(len(done))
    assert passes == [2, 4, 5]
    assert done == [*range(5)]


def test_what_goes_wrong_with_nobody_waiting_is_in_the_log_once(
    turns: GroupTurns, caplog: pytest.LogCaptureFixture
) -> None:
    def fails() -> None:
        raise ValueError("something is wrong")

    turns.post(fails)
    future = turns.call(fails)
    with caplog.at_level(logging.ERROR, "vmq.cluster"):
        assert turns.do()
    (record,) = caplog.records
    assert "fails" in record.getMessage()
    assert record.exc_info
    with pytest.raises(ValueError, match="something is wrong"):
        future.result(0)
