"""The ring: symmetric, connected, of small degree."""

from math import ceil, log2

from hypothesis import given
from hypothesis import strategies as st

from vmq_cluster.overlay import neighbours


@given(st.sets(st.text("abc", min_size=1, max_size=5), min_size=1, max_size=60))
def test_neighbours_are_mutual_few_and_connect_all(names: set[str]) -> None:
    links = {name: neighbours(name, names - {name}) for name in names}
    for name, found in links.items():
        assert name not in found
        assert found <= names
        assert all(name in links[other] for other in found)
        assert len(found) <= 2 * ceil(log2(len(names) + 1))
    reached: set[str] = set()
    front = {min(names)}
    while front:
        reached |= front
        front = set().union(*(links[name] for name in front)) - reached
    assert reached == names


def test_up_to_five_nodes_all_know_all() -> None:
    for count in range(1, 6):
        names = {f"{number}" for number in range(count)}
        for name in names:
            assert neighbours(name, names - {name}) == names - {name}
