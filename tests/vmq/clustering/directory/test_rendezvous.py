"""Nodes ranked for a key: everywhere alike, in fair shares, and nothing moves that need not."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from vmq.clustering.directory.rendezvous import ranked

NAMES = [f"node{number}" for number in range(5)]


@given(st.text(), st.lists(st.text(max_size=20), unique=True, min_size=1))
def test_the_order_of_asking_does_not_matter_and_who_goes_changes_nothing_among_the_rest(
    key: str, nodes: list[str]
) -> None:
    order = ranked(key, nodes)
    assert sorted(order) == sorted(nodes)
    assert ranked(key, reversed(nodes)) == order
    for gone in nodes:
        assert ranked(key, set(nodes) - {gone}) == [node for node in order if node != gone]


def test_every_node_has_its_share() -> None:
    firsts = Counter(ranked(f"client-{number}", NAMES)[0] for number in range(5000))
    assert all(850 < firsts[name] < 1150 for name in NAMES)
    seconds = Counter(
        ranked(f"client-{number}", NAMES)[1]
        for number in range(5000)
        if ranked(f"client-{number}", NAMES)[0] == "node0"
    )
    assert all(180 < seconds[name] < 320 for name in NAMES[1:])
