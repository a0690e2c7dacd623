"""A mistake in tables of tables is told by its whole key."""

from typing import Annotated, Any, Literal

import msgspec
import pytest
from msgspec import UNSET, Meta, Struct

from vmq.config.nested import Mistake, mistakes, struct_mistakes


class Leaf(Struct, forbid_unknown_fields=True):
    name: str
    qos: Literal[0, 1] = 0
    prefix: str = ""

    def __post_init__(self) -> None:
        if self.prefix == "bad":
            raise ValueError("prefix: accepted: another one")
        if self.name == self.prefix:
            raise ValueError("name and prefix are alike")


class Branch(Struct, forbid_unknown_fields=True):
    leaves: Annotated[tuple[Leaf, ...], Meta(min_length=1, extra={"accepts": "leaves"})]
    more: list[int] = []
    best: Leaf | None = None
    names: dict[str, str] = {}
    odd: bytes = b""


class Root(Struct, forbid_unknown_fields=True):
    branches: dict[str, Branch] = {}
    size: Annotated[int, Meta(ge=1)] = 1


ONE = {"name": "n"}


@pytest.mark.parametrize(
    ("branch", "found"),
    [
        ({"leaves": [ONE, {"name": "n", "qos": 7}]}, ("leaves[1].qos", "accepted: 0, 1", 7)),
        ({"leaves": [{}]}, ("leaves[0].name", "missing; accepted: a text", UNSET)),
        (
            {"leaves": [{"name": "n", "qso": 1}]},
            ("leaves[0].qso", "unknown option; did you mean 'qos'?", 1),
        ),
        ({"leaves": []}, ("leaves", "accepted: leaves", [])),
        ({"leaves": [3]}, ("leaves[0]", "accepted: a table with name, qos, prefix", 3)),
        (
            {"leaves": [{"name": "n", "prefix": "bad"}]},
            ("leaves[0].prefix", "accepted: another one", "bad"),
        ),
        (
            {"leaves": [{"name": "n", "prefix": "n"}]},
            ("leaves[0]", "name and prefix are alike", UNSET),
        ),
        ({"leaves": [ONE], "best": {"name": 3}}, ("best.name", "accepted: a text", 3)),
        (
            {"leaves": [ONE], "more": [1, "x"]},
            ("more", "accepted: a list, each: a whole number", [1, "x"]),
        ),
        (
            {"leaves": [ONE], "names": {"x": 1}},
            ("names", "accepted: a table, each value: a text", {"x": 1}),
        ),
        ({"leaves": [ONE], "odd": 3}, ("odd", "Expected `bytes`, got `int`", 3)),
    ],
)
def test_the_key_of_a_mistake_is_whole(branch: dict[str, Any], found: Mistake) -> None:
    key, what, value = found
    assert list(struct_mistakes("p", {"branches": {"a b": branch}}, Root)) == [
        (f'p.branches."a b".{key}', what, value)
    ]


def test_all_mistakes_are_told() -> None:
    value = {"branches": {"x": {"leaves": [{"qos": 9}]}}, "size": 0, "sise": 1}
    assert [key for key, _, _ in struct_mistakes("p", value, Root)] == [
        "p.branches.x.leaves[0].qos",
        "p.branches.x.leaves[0].name",
        "p.size",
        "p.sise",
    ]


def test_what_is_right_has_none() -> None:
    value = {"branches": {"x": {"leaves": [ONE]}}}
    assert list(struct_mistakes("p", value, Root)) == []
    assert list(mistakes("p", 3, int)) == []
    assert msgspec.convert(value, Root).size == 1
