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
    durable: bool
    away: bool


MEMBERS = st.lists(
    st.builds(
        lambda node, qos, kind: Member(node, qos, kind > 0, kind > 1),
        st.sampled_from(NODES),
        st.integers(0, 2),
        st.integers(0, 2),
    ),
    max_size=8,
)


def counted(members: list[Member]) -> dict[str, ShareMembers]:
    found: dict[str, ShareMembers] = {}
    for each in members:
        wish = each.qos + ShareMembers.DURABLE * each.durable + ShareMembers.AWAY * each.away
        found.setdefault(each.node, ShareMembers()).by_wish[wish] += 1
    return found


def naive(policy: str, qos: int, members: list[Member], up: set[str]) -> Counter[str]:
    """The nodes of the members that are placed best."""

    def rank(member: Member) -> tuple[bool, ...]:
        is_far = member.node != "own"
        if is_far and member.node not in up:
            return True, True, not member.durable
        return False, member.away, is_far and policy != "random"

    here = Counter(each.node for each in members if each.node == "own")
    if policy == "local_only" or (policy == "prefer_local" and qos and here):
        return here
    best = min((rank(each) for each in members), default=())
    return Counter(each.node for each in members if rank(each) == best)


@given(st.sampled_from(POLICIES), st.integers(0, 2), MEMBERS, st.sets(st.sampled_from(NODES[1:])))
def test_every_member_that_is_placed_best_has_the_same_chance(
    policy: str, qos: int, members: list[Member], up: set[str]
) -> None:
    wanted = naive(policy, qos, members, up)
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
                qos,
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
    down = [Member("b", 2, True, False)] * 10
    for other in (Member("c", 0, True, True), Member("own", 0, True, True)):
        members = counted([*down, other])
        if policy == "local_only" and other.node != "own":
            continue
        assert choose(policy, 1, "own", members, {"c"}, lambda _: 0) == other.node


def test_what_asks_for_most_tells_how_a_message_is_sent() -> None:
    members = counted([Member("b", 0, False, False), Member("b", 1, True, True)])["b"]
    assert (members.highest, members.total, members.online, members.away) == (1, 2, 1, 1)
    assert ShareMembers().highest == -1
