"""The sections of plugins: what the broker reads of `[plugins.NAME]`, and what belongs to the plugin itself."""

import difflib
from collections.abc import Mapping
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from vmq.config_sources import ConfigError, Problem
from vmq.config_text import HIDDEN, SECRET_KEY, accepted, without_secrets

_LIVE: Final = {"live": True}

#: Options of a section that nobody writes: what belongs to the plugin, and where it comes from.
UNWRITTEN: Final = ("own_options", "own_sources", "stated_in")


class PluginOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One plugin. Keys other than these are the plugin's own; its `Config` says which there are."""

    enabled: Annotated[
        bool,
        Meta(description="Load it when the broker starts.", extra=_LIVE),
    ] = True
    path: Annotated[
        Annotated[str, Meta(pattern=r"^[^\x00]+\Z")] | None,
        Meta(
            description="A file or folder of Python to load it from; unset = an installed plugin of this name.",
            extra={"accepts": "a path", **_LIVE},
        ),
    ] = None
    priority: Annotated[
        int,
        Meta(
            ge=-1000,
            le=1000,
            description="Place in the chains of hooks: the lowest is asked first; alike, in the order of this file.",
            extra=_LIVE,
        ),
    ] = 0
    deadline: Annotated[
        float,
        Meta(
            gt=0,
            le=600,
            description="Seconds that an async verdict may take; later, it is a failure, and auth hooks refuse.",
            extra=_LIVE,
        ),
    ] = 5.0
    breaker_failures: Annotated[
        int,
        Meta(
            ge=0,
            description="Failures in a row after which the plugin is not called for a while: auth hooks refuse "
            "at once, others leave it out; 0 = never.",
            extra=_LIVE,
        ),
    ] = 5
    breaker_seconds: Annotated[
        float,
        Meta(
            gt=0,
            le=86_400,
            description="How long that is; then one call is tried.",
            extra=_LIVE,
        ),
    ] = 30.0
    #: The plugin's own keys, as they stand in the file.
    own_options: Annotated[dict[str, Any], Meta(extra={"accepts": "a table", **_LIVE})] = (
        msgspec.field(default_factory=dict)
    )
    #: Who states each of them.
    own_sources: Annotated[dict[str, str], Meta(extra={"accepts": "a table", **_LIVE})] = (
        msgspec.field(default_factory=dict)
    )
    #: Who states the section first.
    stated_in: Annotated[str, Meta(extra={"accepts": "text", **_LIVE})] = ""


def shown_options(name: str, options: PluginOptions) -> list[tuple[str, object, str]]:
    """Key, value and source of each of the plugin's own options that are set, secrets hidden."""
    return [
        (
            f"plugins.{name}.{key}",
            HIDDEN if value and SECRET_KEY.search(key) else without_secrets(value),
            options.own_sources.get(key) or options.stated_in,
        )
        for key, value in options.own_options.items()
    ]


def own_config(name: str, options: PluginOptions, kind: type[Struct]) -> Struct:
    """The plugin's own configuration, typed as its `Config` says.

    Raises:
        ConfigError: with every problem, each with its source, key, value and what is accepted.
    """
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    given = options.own_options
    stated_in = options.stated_in or None
    problems: list[Problem] = []
    for key, value in given.items():
        dotted = f"plugins.{name}.{key}"
        field = fields.get(key)
        source = options.own_sources.get(key) or stated_in
        shown = msgspec.UNSET if SECRET_KEY.search(key) else without_secrets(value)
        if field is None:
            what = f"unknown option; {_hint(key, fields)}"
            problems.append(Problem(dotted, what, source, shown))
            continue
        try:
            msgspec.convert(value, field.type)
        except msgspec.ValidationError as error:
            problems.append(Problem(dotted, _expected(field.type, error), source, shown))
    for key, field in fields.items():
        if field.required and key not in given:
            what = "missing; " + _expected(field.type, None)
            problems.append(Problem(f"plugins.{name}.{key}", what, stated_in))
    if not problems:
        try:
            return msgspec.convert(given, kind)
        except msgspec.ValidationError as error:
            problems.append(Problem(f"plugins.{name}", str(error), stated_in))
    raise ConfigError(problems)


def _expected(option_type: object, error: msgspec.ValidationError | None) -> str:
    if error is not None and get_origin(next(iter(get_args(option_type)), None)) is dict:
        # Tables of tables: the library says which of their keys it is.
        return str(error)
    try:
        return f"accepted: {accepted(option_type)}"
    except KeyError:
        # A type that our own options do not use; the library says it in its words.
        return str(error) if error is not None else "see the plugin's documentation"


def _hint(key: str, fields: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(key, fields, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"accepted: {', '.join(fields)}" if fields else "the plugin has no options"
