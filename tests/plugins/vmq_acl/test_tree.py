"""The tree of filters, against trying every topic there is."""

import sys
from itertools import product
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from vmq_acl.names import Names
from vmq_acl.tree import Effort, FilterTree
from vmq_hooks import matches

NAMES = Names("bob", "lamp")

#: Filters have at most three levels of these; `z` is a word that none of them mentions.
WORDS = ["a", "b", "", "$a"]
DEPTH = 3
TOPICS = [
    # The empty text among them, though it is no topic name [MQTT-4.7.3-1]: the tree knows of no exception.
    "/".join(levels)
    for depth in range(1, DEPTH + 2)
    for levels in product([*WORDS, "z"], repeat=depth)
]

levels = st.lists(st.sampled_from([*WORDS, "+"]), min_size=1, max_size=DEPTH)
filters = st.builds(
    lambda words, many: "/".join([*words, "#"] if many else words), levels, st.booleans()
).filter(bool) | st.just("#")


def tree_of(*topic_filters: str, is_pattern: bool = False) -> FilterTree:
    tree = FilterTree()
    for each in topic_filters:
        tree.add(each, is_pattern=is_pattern)
    return tree


def meets(tree: FilterTree, wanted: str, names: Names = NAMES) -> bool:
    return tree.meets(wanted, names, Effort(100_000))


@settings(max_examples=200)
@given(st.lists(filters, max_size=5), filters)
@example(["a", "a/+/#"], "a/#")
@example(["a/+/#"], "a/#")
@example(["a/+"], "a/#")
@example(["+/a"], "$a/a")
@example(["#"], "$a/#")
def test_covers_as_every_topic_says(rules: list[str], wanted: str) -> None:
    expected = all(
        any(matches(rule, topic) for rule in rules) for topic in TOPICS if matches(wanted, topic)
    )
    assert tree_of(*rules).covers(wanted, NAMES) == expected


@settings(max_examples=200)
@given(st.lists(filters, max_size=5), filters)
@example(["a/#"], "a")
@example(["a"], "a/#")
@example(["$a/a"], "#")
@example(["$a/a"], "+/a")
@example(["a/b"], "+/#")
def test_meets_as_every_topic_says(rules: list[str], wanted: str) -> None:
    expected = any(
        matches(wanted, topic) and matches(rule, topic) for rule in rules for topic in TOPICS
    )
    assert meets(tree_of(*rules), wanted) == expected


class TestPatterns:
    def test_names_stand_for_levels_and_for_parts_of_them(self) -> None:
        tree = tree_of("dev/%c/+", "of-%u/%c-%u", is_pattern=True)
        for topic in ("dev/lamp/on", "of-bob/lamp-bob"):
            assert tree.covers(topic, NAMES)
            assert meets(tree, topic)
            assert not tree.covers(topic, Names("eve", "door"))
            assert not meets(tree, topic, Names("eve", "door"))
        assert tree.covers("dev/lamp/+", NAMES)
        assert not tree.covers("dev/+/+", NAMES)
        assert meets(tree, "dev/+/+")
        assert meets(tree, "#")

    def test_in_a_topic_line_they_are_text(self) -> None:
        assert tree_of("dev/%c").covers("dev/%c", NAMES)
        assert not tree_of("dev/%c").covers("dev/lamp", NAMES)

    def test_a_reserved_topic_is_met_by_its_own_name_only(self) -> None:
        tree = tree_of("$%u/x", is_pattern=True)
        assert meets(tree, "$bob/x")
        assert not meets(tree, "+/x")
        assert not meets(tree, "#")


def test_a_filter_of_many_levels_needs_no_deep_stack() -> None:
    deep = "/" * 30_000
    tree = tree_of(deep)
    assert tree.covers(deep, NAMES)
    assert meets(tree, "#")
    assert tree_of("#").covers(deep, NAMES)


@pytest.mark.parametrize("question", ["dev/7/x/state", "dev/7/+/state", "dev/7/#"])
def test_an_answer_costs_the_same_however_many_filters_there_are(question: str) -> None:
    few, many = (
        tree_of(*(f"dev/{index}/+/state" for index in range(count))) for count in (10, 10_000)
    )
    assert lines_executed(few, question) == lines_executed(many, question)


def lines_executed(tree: FilterTree, question: str) -> int:
    count = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += 1
        return trace

    sys.settrace(trace)
    try:
        tree.covers(question, NAMES)
        meets(tree, question)
    finally:
        sys.settrace(None)
    return count


def test_an_effort_ends_and_then_the_safe_answer_is_given() -> None:
    tree = tree_of(*(f"dev/{index}/secret" for index in range(100)))
    effort = Effort(250)
    assert [tree.meets("dev/+/x", NAMES, effort) for _ in range(3)] == [False, False, True]


def test_everything_below_a_level_is_not_visited_to_find_one() -> None:
    few, many = (tree_of(*(f"dev/{index}/x" for index in range(count))) for count in (10, 10_000))
    assert lines_executed(few, "dev/#") == lines_executed(many, "dev/#")
