"""Options are the keyword arguments of an entry function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
from msgspec import Meta
from vmq_spark.errors import PipelineError
from vmq_spark.options import Duration, check, interval, options_of


def entry(
    flow: object,
    *,
    site: Annotated[str, Meta(description="Which.")],
    limit: Annotated[int, Meta(ge=1)] = 5,
    factor: float = 1.5,
    strict: bool = False,
    window: Duration = "1m",
) -> None: ...


def test_texts_become_what_the_types_say() -> None:
    options = options_of(entry)
    assert options["site"].is_required
    assert options["site"].description == "Which."
    given = {"site": "a", "limit": "7", "factor": "2", "strict": "true", "window": "90s"}
    found = check(options, given)
    assert found == {"site": "a", "limit": 7, "factor": 2.0, "strict": True, "window": "90s"}
    assert check(options, {"site": "1"}) == {"site": "1"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"site": "a", "limits": "1"}, "there is no option 'limits'; there are: site, limit,"),
        ({}, "option 'site' is missing: Which."),
        ({"site": "a", "limit": "0"}, "option 'limit': '0' is not accepted: .*>= 1"),
        ({"site": "a", "limit": "x"}, "option 'limit': 'x' is not accepted"),
        ({"site": "a", "strict": "maybe"}, "option 'strict': 'maybe'"),
        ({"site": "a", "window": "1 fortnight"}, "option 'window': .* accepted: a number and"),
    ],
)
def test_what_is_not_accepted_is_named(given: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        check(options_of(entry), given)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda: None, "first argument"),
        (lambda flow, *more: None, r"\*more"),
        (lambda flow, **more: None, r"\*more"),
    ],
)
def test_functions_that_cannot_be_called(function: Callable[..., Any], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        options_of(function)


def test_a_type_that_is_unknown_is_named() -> None:
    def wrong(flow: object, *, a: Unheard = 1) -> None: ...  # type: ignore[name-defined]  # noqa: F821 - unknown on purpose

    with pytest.raises(PipelineError, match="Unheard"):
        options_of(wrong)


def test_durations() -> None:
    assert interval("500ms") == "500 milliseconds"
    assert interval("2m") == "120000 milliseconds"
    assert interval("1d") == "86400000 milliseconds"
    for wrong in ("", "0s", "1", "1w", "-1s", "1.5s", "1 s", "9999999999s"):
        with pytest.raises(PipelineError, match="no duration"):
            interval(wrong)
