"""The sections of plugins: what the broker reads of `[plugins.NAME]`, and what belongs to the plugin itself."""

import difflib
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from vmq.config.nested import struct_mistakes
from vmq.config.sources import ConfigError, Problem
from vmq.config.text import HIDDEN, SECRET_KEY, without_secrets
from vmq.config.values import PATH_PATTERN

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
        Annotated[str, Meta(pattern=PATH_PATTERN)] | None,
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
    on_deliver_failure: Annotated[
        Literal["deliver", "withhold"],
        Meta(
            description="What becomes of a message when on_deliver fails, or is not asked as the breaker is open: it "
            "is delivered as it is, or kept back for good.",
            extra=_LIVE,
        ),
    ] = "deliver"
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


#: Keys that never reach a plugin.
_BROKERS: Final = {*PluginOptions.__struct_fields__} - {*UNWRITTEN}


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


def value_at(options: PluginOptions, key: str) -> object:
    """What stands at the dotted key of a plugin's option; UNSET where there is nothing, or a table."""
    found: object = options.own_options
    for name in key.split("."):
        if not isinstance(found, dict) or name not in found:
            return msgspec.UNSET
        found = found[name]
    return msgspec.UNSET if isinstance(found, dict) else found


def own_config(name: str, options: PluginOptions, kind: Any) -> Struct:
    """The plugin's own configuration, typed as `kind` says, its `Config`: whatever that is.

    Raises:
        ConfigError: with every problem, each with its source, key, value and what is accepted.
    """
    prefix = f"plugins.{name}"
    if not (isinstance(kind, type) and issubclass(kind, Struct)):
        what = "the plugin's Config cannot be used; accepted: a subclass of msgspec.Struct"
        raise ConfigError([own_problem(name, options, "", what)])
    ours = {each.encode_name for each in msgspec.structs.fields(kind)} & _BROKERS
    if ours:
        what = f"the plugin's Config has {', '.join(sorted(ours))}; accepted: other names, these are the broker's"
        raise ConfigError([own_problem(name, options, "", what)])
    try:
        found = list(struct_mistakes(prefix, options.own_options, kind))
        if not found:
            return msgspec.convert(options.own_options, kind)
    except TypeError as error:  # it has a type that msgspec does not take
        what = f"the plugin's Config cannot be used: {error}"
        raise ConfigError([own_problem(name, options, "", what)]) from error
    raise ConfigError(
        own_problem(name, options, own, _hinted(own, what), value)
        for key, what, value in found
        for own in (key.removeprefix(prefix).lstrip("."),)
    )


def _hinted(key: str, what: str) -> str:
    """What is wrong with a key; an unknown one may be the broker's, misspelt."""
    close = difflib.get_close_matches(key, _BROKERS, n=1)
    if close and what.startswith("unknown option") and "did you mean" not in what:
        return f"unknown option; did you mean {close[0]!r}?"
    return what


def own_problem(
    name: str, options: PluginOptions, key: str, what: str, value: object = msgspec.UNSET
) -> Problem:
    """What is wrong in a plugin's section; secrets are not shown.

    Args:
        name: the plugin's.
        options: the section.
        key: the dotted key of the plugin's option; "": the section as a whole.
        what: what is wrong.
        value: the value there; UNSET: there is none, or it is not the point.
    """
    source = options.own_sources.get(key.partition(".")[0].partition("[")[0])
    shown = msgspec.UNSET if SECRET_KEY.search(key) else without_secrets(value)
    dotted = f"plugins.{name}.{key}" if key else f"plugins.{name}"
    return Problem(dotted, what, source or options.stated_in or None, shown)
