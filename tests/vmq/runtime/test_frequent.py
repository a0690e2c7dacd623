from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from vmq.runtime.frequent import Frequent


@given(st.lists(st.sampled_from("abcdefgh"), max_size=200), st.integers(2, 12))
def test_it_is_bounded_and_counts_no_name_too_often(names: list[str], most: int) -> None:
    frequent = Frequent(most)
    seen: Counter[str] = Counter()
    for name in names:
        frequent.count(name)
        seen[name] += 1
        found = dict(frequent.items())
        assert len(found) <= most
        assert all(0 < number <= seen[each] for each, number in found.items())
        assert name in found
    if len(seen) <= most:
        assert dict(frequent.items()) == seen


def test_a_flood_of_names_does_not_hide_who_comes_often() -> None:
    frequent = Frequent(64)
    for number in range(10_000):
        frequent.count("often")
        frequent.count(f"once {number}")
    best = max(frequent.items(), key=lambda each: each[1])
    assert best[0] == "often"
