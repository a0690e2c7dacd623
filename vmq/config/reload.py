"""What a new configuration changes, and whether a running broker can take it over.

An option says of itself that it may change live, by `extra={"live": True}` in its annotation. Every
other change needs a restart, and then nothing of the new configuration is taken over at all.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct

from vmq.config.options import Config
from vmq.config.plugins import UNWRITTEN, PluginOptions
from vmq.config.sources import sections
from vmq.config.text import is_live

#: Sections of which all may change live, also which tables there are.
_LIVE: Final = frozenset({"jobs", "schedules", "mappings"})


class Change(NamedTuple):
    """One option that has another value, by its dotted key. Its values may be secret."""

    key: str
    live: bool


class ReloadError(Exception):
    """The new configuration cannot be taken over; nothing of it was.

    `keys` names what needs a restart.
    """

    def __init__(self, keys: tuple[str, ...]) -> None:
        super().__init__(f"{', '.join(keys)}: cannot change while the broker runs; restart it")
        self.keys = keys


def changes(old: Config, new: Config) -> list[Change]:
    """What differs between two configurations, in the order of the reference file."""
    found: list[Change] = []
    for name, struct, named in sections(Config):
        before, after = getattr(old, name), getattr(new, name)
        if not named:
            found.extend(_changed(name, struct, before, after))
            continue
        for table in dict.fromkeys((*before, *after)):
            key = f"{name}.{table}"
            if table in before and table in after:
                found.extend(_changed(key, struct, before[table], after[table]))
            else:
                found.append(Change(key, live=name == "plugins" or name in _LIVE))
    return found


def check_live(found: list[Change]) -> None:
    """Refuse changes of which one needs a restart.

    Raises:
        ReloadError: with the keys of those that do.
    """
    fixed = tuple(change.key for change in found if not change.live)
    if fixed:
        raise ReloadError(fixed)


def _changed(key: str, struct: type[Struct], before: Struct, after: Struct) -> Iterator[Change]:
    for field in msgspec.structs.fields(struct):
        if field.name in UNWRITTEN:
            continue
        if getattr(before, field.name) != getattr(after, field.name):
            live = is_live_option(key.partition(".")[0], field.type)
            yield Change(f"{key}.{field.name}", live)
    if isinstance(before, PluginOptions) and isinstance(after, PluginOptions):
        own, new = before.own_options, after.own_options
        for name in dict.fromkeys((*own, *new)):
            if name not in own or name not in new or own[name] != new[name]:
                yield Change(f"{key}.{name}", live=True)


def is_live_option(section: str, option_type: object) -> bool:
    """Whether an option of a section may change while the broker runs."""
    return section in _LIVE or is_live(option_type)


def live_keys(config: Config) -> Mapping[str, bool]:
    """Every option of a configuration by its dotted key, and whether it may change live."""
    found: dict[str, bool] = {}
    for name, struct, named in sections(Config):
        tables = [f"{name}.{table}" for table in getattr(config, name)] if named else [name]
        for table in tables:
            for field in msgspec.structs.fields(struct):
                found[f"{table}.{field.name}"] = is_live_option(name, field.type)
    return found
