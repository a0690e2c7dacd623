"""How far a replay is: against a set of what is acknowledged."""

from hypothesis import given
from hypothesis import strategies as st

from vmq.streams.replay.sending import Progress, SentRow

# Each is the distance to the next offset, and whether it was a row that went out (else what was left out).
STEPS = st.lists(st.tuples(st.integers(1, 5), st.booleans()), max_size=40)


@given(STEPS, st.randoms(use_true_random=False))
def test_no_row_that_is_not_acknowledged_is_passed(
    steps: list[tuple[int, bool]], chance: "object"
) -> None:
    progress = Progress(10)
    at = 10
    waiting: list[tuple[int, SentRow]] = []
    for distance, is_row in steps:
        at += distance
        if is_row:
            waiting.append((at, progress.send(at)))
        else:
            progress.skip(at)
        assert progress.done <= (waiting[0][0] - 1 if waiting else at)
    if not waiting:
        assert progress.done == at
    assert progress.waiting() == len(waiting)
    order = list(waiting)
    chance.shuffle(order)  # type: ignore[attr-defined]
    left = dict(waiting)
    moved = progress.done
    for following, row in order:
        moved += progress.finish(row)
        del left[following]
        assert progress.done == moved
        # Nothing that is left is passed, and nothing is held back by what is done.
        assert progress.done < min(left, default=at + 1)
    assert progress.done == at
