"""What can be told of plugins before one starts: whether each can be loaded, and takes its options."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vmq_hooks import Plugin

from vmq.config_plugins import PluginOptions, own_config
from vmq.config_sources import ConfigError
from vmq.plugins.guard import Guard
from vmq.plugins.implementations import steps_of
from vmq.plugins.loading import LoadError, load


def folder_of(options: PluginOptions) -> Path:
    """Where the paths in a plugin's section start: the folder of the configuration file."""
    file = Path(options.stated_in)
    return file.parent if options.stated_in and file.is_file() else Path()


def prepare(name: str, options: PluginOptions) -> tuple[Plugin, Any]:
    """A plugin that is not started, out of code that is read now, and its own configuration.

    Raises:
        LoadError: its code cannot be used.
        ConfigError: one of its options is wrong, or missing.
    """
    path = None if options.path is None else folder_of(options) / options.path
    kind = load(name, path)
    config = own_config(name, options, kind.Config)
    try:
        return kind(), config
    except Exception as error:
        raise LoadError(f"plugin {name}: {type(error).__name__}: {error}") from error


class Checked:
    """The plugins of a configuration, as far as they can be known without a start.

    `problems` has a line for each thing that would keep the broker from starting them.
    """

    def __init__(self, sections: Mapping[str, PluginOptions]) -> None:
        self.problems: list[str] = []
        self._hooks: dict[str, frozenset[str]] = {}
        #: Plugins that say only when they run which of their hooks they want.
        self._undecided: set[str] = set()
        for name, options in sections.items():
            if options.enabled:
                self._check(name, options)

    def _check(self, name: str, options: PluginOptions) -> None:
        try:
            plugin, _ = prepare(name, options)
            steps = steps_of(name, plugin, Guard(name))
        except (LoadError, ConfigError) as error:
            self.problems += str(error).splitlines()
            return
        self._hooks[name] = frozenset(steps)
        if type(plugin).serves is not Plugin.serves:
            self._undecided.add(name)

    def who_decides(
        self, hook: str, chosen: Sequence[str] | None = None
    ) -> tuple[list[str], list[str]]:
        """The plugins that serve a hook, and those that might.

        Args:
            hook: the hook's name.
            chosen: the plugins that a listener chooses; None: all.
        """
        names = [each for each in self._hooks if chosen is None or each in chosen]
        serving = [each for each in names if hook in self._hooks[each]]
        sure = [each for each in serving if each not in self._undecided]
        return sure, [each for each in serving if each in self._undecided]
