"""The options of a pipeline: the keyword arguments of its entry function, checked against their types."""

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, Struct

from vmq_spark.errors import PipelineError

_UNITS: Final = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION: Final = re.compile(r"([1-9][0-9]{0,8})(ms|s|m|h|d)\Z")

#: A span of time, for options of pipelines.
Duration = Annotated[
    str,
    Meta(
        pattern=_DURATION.pattern,
        extra={"accepts": "a number and a unit (ms, s, m, h, d), as in 30s or 5m"},
    ),
]


def interval(duration: str) -> str:
    """A duration as Spark wants it, to the millisecond.

    Raises:
        PipelineError: it is none.
    """
    found = _DURATION.match(duration)
    if found is None:
        raise PipelineError(f"{duration!r} is no duration; accepted: 30s, 5m, 2h, 1d, 500ms")
    return f"{int(found[1]) * _UNITS[found[2]]} milliseconds"


class Option(Struct):
    """One option of a pipeline."""

    name: str
    kind: Any
    default: Any
    is_required: bool
    description: str
    accepts: str

    def convert(self, text: object) -> Any:
        """The value that a text, or a plain value, stands for.

        Raises:
            PipelineError: it is not accepted.
        """
        try:
            return msgspec.convert(text, self.kind, strict=False)
        except msgspec.ValidationError as problem:
            wanted = f"; accepted: {self.accepts}" if self.accepts else f": {problem}"
            raise PipelineError(f"option '{self.name}': {text!r} is not accepted{wanted}") from None


def options_of(function: Callable[..., object]) -> dict[str, Option]:
    """The options that an entry function takes: all its arguments but the first.

    Raises:
        PipelineError: the function cannot be called as `pipeline(flow, name=value, ...)`.
    """
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        raise PipelineError("its function 'pipeline' has to take the flow as its first argument")
    try:
        hints = typing.get_type_hints(function, include_extras=True)
    except (NameError, TypeError) as problem:
        raise PipelineError(f"the types of its function 'pipeline': {problem}") from None
    found = {}
    for each in parameters[1:]:
        if each.kind not in {each.KEYWORD_ONLY, each.POSITIONAL_OR_KEYWORD}:
            raise PipelineError(f"its function 'pipeline' cannot take *{each.name}")
        found[each.name] = _option(each, hints.get(each.name, str))
    return found


def _option(parameter: inspect.Parameter, kind: Any) -> Option:
    metas = [each for each in getattr(kind, "__metadata__", ()) if isinstance(each, Meta)]
    is_required = parameter.default is parameter.empty
    return Option(
        parameter.name,
        kind,
        None if is_required else parameter.default,
        is_required,
        next((each.description for each in metas if each.description), ""),
        next((str(each.extra["accepts"]) for each in metas if each.extra), ""),
    )


def check(options: Mapping[str, Option], given: Mapping[str, object]) -> dict[str, Any]:
    """The arguments that given values make.

    Raises:
        PipelineError: names the option, its value and what is accepted.
    """
    for name in given:
        if name not in options:
            there = ", ".join(options) or "none"
            raise PipelineError(f"there is no option '{name}'; there are: {there}")
    for each in options.values():
        if each.is_required and each.name not in given:
            raise PipelineError(f"option '{each.name}' is missing: {each.description}".rstrip(": "))
    return {name: options[name].convert(value) for name, value in given.items()}
