"""Which node gets a message for a share group, against a twin that looks at every single member."""

from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vmq.clustering.routing.shares import ShareMembers, choose

POLICIES = ("prefer_local", "local_only", "random", "prefer_online_before_local")
NODES = ("own", "b", "c", "d")


class Member(NamedTuple):
    node: str
    qos: int


MEMBERS = st.lists(st.builds(Member, st.sampled_from(NODES), st.integers(0, 2)), max_size=8)


def counted(members: list[Member]) -> dict[str, ShareMembers]:
    found: dict[str, ShareMembers] = {}
    for each in members:
        found.setdefault(each.node, ShareMembers()).by_qos[each.qos] += 1
    return found


def naive(policy: str, members: list[Member], up: set[str]) -> Counter[str]:
    """The nodes of the members that are placed best."""

    def rank(member: Member) -> tuple[bool, bool]:
        is_far = member.node != "own"
        return is_far and member.node not in up, is_far and policy != "random"

    if policy == "local_only":
        return Counter(each.node for each in members if each.node == "own")
    best = min((rank(each) for each in members), default=())
    return Counter(each.node for each in members if rank(each) == best)


@given(st.sampled_from(POLICIES), MEMBERS, st.sets(st.sampled_from(NODES[1:])))
def test_every_member_that_is_placed_best_has_the_same_chance(
    policy: str, members: list[Member], up: set[str]
) -> None:
    wanted = naive(policy, members, up)
    found: list[str | None] = []
    totals = [1]

    def draw(total: int, number: int) -> int:
        totals[0] = total
        return number

    number = 0
    while number < totals[0]:
        found.append(
            choose(
                policy,
                "own",
                counted(members),
                up,
                lambda total, number=number: draw(total, number),  # type: ignore[misc]
            )
        )
        number += 1
    if not wanted:
        assert found == [None]
    elif wanted.keys() == {"own"}:
        assert set(found) == {"own"}
    else:
        counts = Counter(each for each in found if each is not None)
        assert {node: count * wanted.total() for node, count in counts.items()} == {
            node: count * len(found) for node, count in wanted.items()
        }


@pytest.mark.parametrize("policy", POLICIES)
def test_a_node_that_is_down_is_never_chosen_while_another_has_a_member(policy: str) -> None:
    down = [Member("b", 2)] * 10
    for other in (Member("c", 0), Member("own", 0)):
        members = counted([*down, other])
        if policy == "local_only" and other.node != "own":
            continue
        assert choose(policy, "own", members, {"c"}, lambda _: 0) == other.node


def test_what_asks_for_most_tells_how_a_message_is_sent() -> None:
    members = counted([Member("b", 0), Member("b", 1)])["b"]
    assert (members.highest, members.total) == (1, 2)
    assert ShareMembers().highest == -1
