"""What can be told of plugins before one starts: whether each can be loaded, takes its options, and finds its files."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from msgspec import UNSET
from vmq_hooks import Checking, Plugin
from vmq_hooks.plugin import mistakes_of

from vmq.config.options import Config
from vmq.config.plugins import PluginOptions, own_config, own_problem, value_at
from vmq.config.sources import ConfigError
from vmq.config.streams import StreamOptions, check_name, from_plain
from vmq.plugins.guard import PluginGuard
from vmq.plugins.implementations import steps_of
from vmq.plugins.loading import LoadError, NotThere, load, source_of
from vmq.plugins.places import where_raised


def folder_of(options: PluginOptions) -> Path:
    """Where the paths in a plugin's section start: the folder of the configuration file."""
    file = Path(options.stated_in)
    return file.parent if options.stated_in and file.is_file() else Path()


def prepare(name: str, options: PluginOptions) -> tuple[Plugin, Any]:
    """A plugin that is not started, out of code that is read now, and its own configuration.

    Raises:
        LoadError: its code cannot be used.
        ConfigError: one of its options is wrong, or missing, or there is no such plugin.
    """
    path = None if options.path is None else folder_of(options) / options.path
    try:
        kind = load(name, path)
    except NotThere as error:
        value = options.path if error.option else UNSET
        problem = own_problem(name, options, error.option, error.what, value)
        raise ConfigError([problem]) from error
    config = own_config(name, options, kind.Config)
    try:
        return kind(), config
    except BaseException as error:
        where = where_raised(error, source_of(kind))
        raise LoadError(f"plugin {name}: {type(error).__name__}: {error}{where}") from error


class CheckingBroker:
    """What a plugin that is checked sees of the broker (`vmq_hooks.Checking`).

    Args:
        options: the plugin's section.
        configured: the streams that the configuration names.
        alone: whether the broker is one process.
    """

    def __init__(
        self,
        options: PluginOptions,
        configured: Mapping[str, StreamOptions],
        alone: bool = True,
    ) -> None:
        self.config_dir: Final = folder_of(options)
        self._configured = configured
        self._alone = alone
        #: The streams that it will declare.
        self.declared: dict[str, StreamOptions] = {}

    def declare_stream(self, name: str, options: Mapping[str, Any]) -> None:
        if not self._alone:
            raise ValueError("streams are kept by one process; accepted: broker.workers = 1")
        if name in self._configured:
            raise ValueError(f"there is a stream {name!r} already, made by the configuration")
        check_name(name)
        self.declared[name] = from_plain(name, dict(options))


def check(name: str, options: PluginOptions, plugin: Plugin, config: Any, broker: Checking) -> None:
    """Has a plugin that is not started say what would keep it from that.

    Raises:
        ConfigError: something would.
        LoadError: its check itself is broken.
    """
    try:
        mistakes = mistakes_of(plugin, broker, config)
    except BaseException as error:
        where = where_raised(error, source_of(type(plugin)))
        raise LoadError(f"plugin {name}: check: {type(error).__name__}: {error}{where}") from error
    if mistakes:
        raise ConfigError(
            own_problem(name, options, each.option, each.what, value_at(options, each.option))
            for each in mistakes
        )


class Checked:
    """The plugins of a configuration, as far as they can be known without a start.

    `problems` has a line for each thing that would keep the broker from starting them.

    Args:
        config: the configuration.
        alone: whether the broker will be one process.
    """

    def __init__(self, config: Config, alone: bool = True) -> None:
        self.problems: list[str] = []
        #: Those that may be started as they are, each with its own configuration.
        self.prepared: dict[str, tuple[Plugin, Any]] = {}
        #: The streams that they will declare.
        self.streams: dict[str, StreamOptions] = {}
        self._hooks: dict[str, frozenset[str]] = {}
        #: Plugins that say only when they run which of their hooks they want.
        self._undecided: set[str] = set()
        for name, options in config.plugins.items():
            if options.enabled:
                self._check(name, options, CheckingBroker(options, config.streams, alone))

    def _check(self, name: str, options: PluginOptions, broker: CheckingBroker) -> None:
        try:
            plugin, own = prepare(name, options)
            steps = steps_of(name, plugin, PluginGuard(name))
            check(name, options, plugin, own, broker)
        except (LoadError, ConfigError) as error:
            # Ctrl-C, while the plugin's code ran.
            if isinstance(error.__cause__, KeyboardInterrupt):
                raise error.__cause__ from None
            self.problems += str(error).splitlines()
            return
        self.prepared[name] = (plugin, own)
        self.streams |= broker.declared
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
