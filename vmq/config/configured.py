"""What goes by a configuration that may change while it runs: a broker, or those who are one together.

Whatever brings the change (the file read anew, an option that the operator sets or takes back), it is taken over as a
whole or not at all.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from vmq.config.checks import check
from vmq.config.options import Config
from vmq.config.overrides import LiveConfig
from vmq.config.reload import changes, check_live


class Configured(ABC):
    """Has a configuration and follows its changes.

    Args:
        config: as it was read.

    Raises:
        ConfigError: the configuration is impossible or not safe.
    """

    def __init__(self, config: Config) -> None:
        check(config)
        self.live = LiveConfig.of(config)
        #: Told of the options that changed, when they are in force; for what surrounds it, such as its log.
        self.on_change: Callable[[list[str]], None] | None = None

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.live.config

    def reload(self, config: Config) -> list[str]:
        """Takes over a new configuration, all of it or nothing; returns the keys that changed.

        What was set by `set_option` stays, unless the new configuration says something new of that option. The log
        belongs to whoever set it up: see `on_change`.

        Raises:
            ConfigError: the configuration is impossible or not safe.
            ReloadError: an option changed that cannot change live.
        """
        check(config)
        return self.take_over(self.live.on(config))

    def set_option(self, key: str, text: str) -> list[str]:
        """Sets an option until the configuration that is read says something new of it; returns the keys that changed.

        Raises:
            ConfigError: there is no such option, or it does not accept the value.
            ReloadError: it cannot change live.
        """
        return self.take_over(self.live.with_option(key, text, time.time()))

    def reset_option(self, key: str) -> list[str]:
        """Takes back what was set; returns the keys that changed.

        Raises:
            KeyError: the option was not set.
            ConfigError: the configuration is impossible without it.
        """
        return self.take_over(self.live.without(key))

    def take_over(self, live: LiveConfig) -> list[str]:
        """Has a configuration in force, all of it or nothing; returns the keys that changed.

        Raises:
            ConfigError: it is impossible or not safe.
            ReloadError: an option changed that cannot change live.
        """
        check(live.config)
        found = changes(self.config, live.config)
        check_live(found)
        changed = [change.key for change in found]
        self._follow(live, changed)
        self.live = live
        if changed and self.on_change is not None:
            self.on_change(changed)
        return changed

    async def followed(self) -> list[str]:
        """Returns when the configuration in force is followed everywhere: what stays as it was, and why."""
        return []

    @abstractmethod
    def _follow(self, live: LiveConfig, changed: list[str]) -> None:
        """Goes by a configuration that is in force from now on; `changed` names what differs from the one before."""
