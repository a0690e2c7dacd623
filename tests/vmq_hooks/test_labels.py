"""Labels of a plugin's figures: one form, and limits."""

from typing import Any

import pytest
from vmq_hooks.labels import MAX_LABELS, MAX_VALUE, check_labels, check_name, shown


def test_their_order_does_not_matter() -> None:
    assert check_labels({"b": "2", "a": "1"}) == check_labels({"a": "1", "b": "2"})
    assert check_labels(None) == check_labels({}) == ()
    assert shown("n", check_labels({"b": "2", "a": "1"})) == 'n{a="1",b="2"}'
    assert shown("n", ()) == "n"


@pytest.mark.parametrize(
    ("labels", "problem"),
    [
        ({"a-b": "1"}, "no name of a label"),
        ({"é": "1"}, "no name of a label"),
        ({"": "1"}, "no name of a label"),
        ({"plugin": "1"}, "'plugin' is taken"),
        ({"worker": "1"}, "'worker' is taken"),
        ({"__name__": "1"}, "is taken"),
        ({"a": 1}, "accepted: a text"),
        ({"a": "x" * (MAX_VALUE + 1)}, f"up to {MAX_VALUE} characters"),
        ({f"a{n}": "" for n in range(MAX_LABELS + 1)}, f"up to {MAX_LABELS}"),
    ],
)
def test_what_cannot_stand_in_a_metric_is_refused(labels: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        check_labels(labels)


def test_a_figure_has_a_name() -> None:
    check_name("hits_2", "a counter")
    for bad in ("", "2hits", "a b", "a-b", 'a{b="c"}'):
        with pytest.raises(ValueError, match="no name of a counter"):
            check_name(bad, "a counter")
