"""The configuration in force: what was read from its sources, and what the operator set on the running broker.

A value that was set stays in force until the sources say something new of that option (somebody wrote down what is to
hold), the operator takes it back, or the broker stops. That other options of the file change is no reason to drop it.
"""

from collections.abc import Mapping

import msgspec
from msgspec import Struct

from vmq.config.load import changed
from vmq.config.options import Config, value_of


class Override(Struct, frozen=True):
    """An option that was set on the running broker."""

    value: object
    #: When, in seconds since 1970.
    since: float


class LiveConfig(Struct, frozen=True):
    """A configuration with overrides. It never changes: each method gives another one.

    Args:
        base: as the sources say.
        config: the same with the overrides; what is in force.
        overrides: by dotted key. Each differs from what `base` says.
    """

    base: Config
    config: Config
    overrides: Mapping[str, Override] = msgspec.field(default_factory=dict)

    @classmethod
    def of(cls, config: Config) -> "LiveConfig":
        """A configuration as it was read."""
        return cls(config, config)

    def with_option(self, key: str, text: str, now: float) -> "LiveConfig":
        """A copy with one option set; a value that the sources give anyway ends the override.

        Args:
            key: its dotted key.
            text: its value, as TOML or plain text.
            now: seconds since 1970.

        Raises:
            ConfigError: there is no such option, or it does not accept the value.
        """
        config = changed(self.config, key, text)
        value = value_of(config, key)
        overrides = {name: each for name, each in self.overrides.items() if name != key}
        if value != _find(self.base, key):
            overrides[key] = Override(value, now)
        return LiveConfig(self.base, config, overrides)

    def without(self, key: str) -> "LiveConfig":
        """A copy with one option as the sources say.

        Raises:
            KeyError: it was not set.
        """
        overrides = dict(self.overrides)
        del overrides[key]
        return LiveConfig(self.base, _over(self.base, overrides), overrides)

    def on(self, base: Config) -> "LiveConfig":
        """The overrides on what the sources say now, but for those of options of which they say something new."""
        kept = {
            key: each
            for key, each in self.overrides.items()
            if _find(base, key) == _find(self.base, key) != each.value
        }
        return LiveConfig(base, _over(base, kept), kept)


def _over(base: Config, overrides: Mapping[str, Override]) -> Config:
    config = base
    for key, each in overrides.items():
        config = replaced(config, key, each.value)
    return config


def _find(config: Config, key: str) -> object:
    """As `value_of`; nothing where there is no such option (any more)."""
    try:
        return value_of(config, key)
    except KeyError:
        return None


def replaced(config: Config, key: str, value: object) -> Config:
    """A configuration with one option replaced, unchecked."""
    section, *table, name = key.split(".")
    before = getattr(config, section)
    if not table:
        return msgspec.structs.replace(
            config, **{section: msgspec.structs.replace(before, **{name: value})}
        )
    within = msgspec.structs.replace(before[table[0]], **{name: value})
    return msgspec.structs.replace(config, **{section: {**before, table[0]: within}})
