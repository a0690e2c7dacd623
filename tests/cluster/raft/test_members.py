"""Majorities, and the way from some members to others."""

from itertools import combinations
from random import Random

from vmq_cluster.raft.members import Members, step_towards


def test_the_majority_agrees_on_what_most_have_reached() -> None:
    random = Random(1)
    for _ in range(2000):
        values = {name: random.randint(0, 9) for name in "abcdefg"[: random.randint(1, 7)]}
        members = Members(tuple(values))
        naive = max(
            n
            for n in values.values()
            if members.has_majority(k for k, v in values.items() if v >= n)
        )
        assert members.agreed(values.__getitem__) == naive


def test_majorities_of_members_one_change_apart_meet() -> None:
    for count in range(1, 6):
        before = Members(tuple("abcde"[:count]))
        after = Members((*before.voters, "z"))
        assert after.can_follow(before)
        assert before.can_follow(after)
        for one in combinations(before.voters, before.majority):
            for other in combinations(after.voters, after.majority):
                assert set(one) & set(other)


def test_two_changes_at_once_are_none() -> None:
    assert not Members(("a", "b", "d", "e")).can_follow(Members(("a", "b")))
    assert not Members(("a", "c")).can_follow(Members(("a", "b")))
    assert not Members(()).can_follow(Members(("a",)))


def test_each_step_to_other_members_is_one_change() -> None:
    members, wanted = Members(("a", "b", "c"), ("x",)), ("c", "d", "e")
    ready: set[str] = set()
    seen = []
    leader = "c"
    while (
        after := step_towards(members, wanted, leader, ready.__contains__)
    ) is not None or ready != set("de"):
        if after is None:
            ready = set("de")
            continue
        assert after.can_follow(members)
        members = after
        seen.append(members)
    assert members == Members(wanted)
    assert Members(("a", "b", "c"), ("x", "d", "e")) in seen
    assert Members(("c", "b", "d", "e")) in seen or Members(("b", "c", "d", "e")) in seen


def test_the_leader_goes_last() -> None:
    assert step_towards(Members(("a", "b")), ("b",), "a", lambda _: True) is None
    assert step_towards(Members(("a", "b")), ("b",), "b", lambda _: True) == Members(("b",))


def test_a_learner_waits_until_it_is_ready() -> None:
    members = Members(("a",), ("b",))
    assert step_towards(members, ("a", "b"), "a", lambda _: False) is None
    assert step_towards(members, ("a", "b"), "a", lambda _: True) == Members(("a", "b"))
