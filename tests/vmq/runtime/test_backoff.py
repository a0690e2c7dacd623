from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from vmq.runtime.backoff import FIRST, LONGEST, STEADY, Backoff


@given(lives=st.lists(st.floats(min_value=0, max_value=2 * STEADY), min_size=1, max_size=40))
def test_waits_double_up_to_the_longest_until_a_life_was_steady(lives: list[float]) -> None:
    backoff = Backoff()
    waits = [backoff.after(life) for life in lives]
    assert waits[0] == FIRST
    for life, (before, wait) in zip(lives[1:], pairwise(waits), strict=True):
        assert wait == (FIRST if life >= STEADY else min(LONGEST, 2 * before))
