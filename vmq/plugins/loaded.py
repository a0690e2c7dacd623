"""A plugin that serves, with all that goes when it does."""

from vmq_hooks import Plugin

from vmq.config.plugins import PluginOptions
from vmq.plugins.guard import PluginGuard
from vmq.plugins.handle import Handle
from vmq.plugins.implementations import steps_of
from vmq.plugins.loading import source_of
from vmq.plugins.notices import NoticeQueues
from vmq.plugins.shadow import Shadow


class LoadedPlugin:
    """A plugin that serves."""

    def __init__(
        self, name: str, options: PluginOptions, plugin: Plugin, guard: PluginGuard
    ) -> None:
        self.name = name
        self.options = options
        self.plugin = plugin
        self.guard = guard
        self.notices = NoticeQueues(guard)
        self.steps = steps_of(name, plugin, guard)
        #: The file of its code, or the folder.
        self.source = source_of(type(plugin))
        self.handle: Handle | None = None
        #: Other code of it that is tried beside it, and as what that is loaded.
        self.shadow: tuple[Shadow, LoadedPlugin] | None = None
