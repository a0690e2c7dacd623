"""Protection does not go unseen: what is new has to serve before what is gone may go, and what is open is told.

One plugin is often put in the place of another, and a typing error in the new one's section is no reason to let
everybody in: as long as anything that is wanted cannot be started, nothing is stopped.
"""

import logging
from collections.abc import Iterable, Mapping
from typing import Final, Protocol

from vmq.config.plugins import PluginOptions
from vmq.core.hook_sites import Hooks
from vmq.plugins.loaded import LoadedPlugin
from vmq.plugins.starting import PluginError

log = logging.getLogger("vmq.plugins")

#: What holds where no plugin serves a hook.
OPEN: Final = {
    "auth_on_register": "no plugin checks who connects: where anonymous clients may connect (allow_anonymous), "
    "everybody may, under any name; elsewhere nobody can log in",
    "auth_on_publish": "no plugin is asked about publishing: every client may publish to every topic",
    "auth_on_subscribe": "no plugin is asked about subscribing: every client may subscribe to every topic filter",
    "auth_on_unsubscribe": "no plugin is asked about unsubscribing: every client may end its subscriptions",
}


def unguarded(sites: Iterable[Hooks]) -> frozenset[str]:
    """The hooks that no plugin serves, for the clients of some listener at least."""
    return frozenset(name for hooks in sites for name in OPEN if getattr(hooks, name) is None)


def told(before: frozenset[str], after: frozenset[str]) -> list[str]:
    """What everybody may do since a change of plugins."""
    return [text for hook, text in OPEN.items() if hook in after - before]


def lost(old: Iterable[str], new: Iterable[str]) -> list[str]:
    """The auth hooks that a plugin serves no more."""
    return sorted((set(old) - set(new)) & OPEN.keys())


class Changeable(Protocol):
    """The plugins of a broker."""

    sections: dict[str, PluginOptions]
    loaded: dict[str, LoadedPlugin]
    problems: dict[str, str]

    async def enable(self, name: str) -> None: ...
    async def disable(self, name: str) -> list[str]: ...
    async def reload(self, name: str, *, force: bool = False) -> list[str]: ...


class ConfigFollower:
    """Has plugins go by a configuration."""

    def __init__(self, plugins: Changeable) -> None:
        self._plugins = plugins
        #: Plugins that are not as the configuration has them. They are tried again with the next one.
        self.behind: set[str] = set()

    async def follow(self, sections: Mapping[str, PluginOptions]) -> list[str]:
        """Starts, reloads and stops what differs; returns what could not be done, and stays as it is."""
        plugins, before = self._plugins, self._plugins.sections
        plugins.sections = dict(sections)
        names = dict.fromkeys((*before, *sections))
        self.behind.intersection_update(names)
        for name in plugins.problems.keys() - names.keys():
            del plugins.problems[name]
        wanted: list[str] = []
        rest: list[str] = []
        for name in names:
            options = sections.get(name)
            if options != before.get(name) or name in self.behind:
                is_wanted = options is not None and options.enabled
                (wanted if is_wanted else rest).append(name)
        problems = [await self._follow(name) for name in wanted]
        if any(problems):
            problems += [self._keep(each, before[each]) for each in rest if each in plugins.loaded]
        else:
            problems = [await self._follow(name) for name in rest]
        return [each for each in problems if each]

    async def _follow(self, name: str) -> str:
        plugins, options = self._plugins, self._plugins.sections.get(name)
        runs = name in plugins.loaded
        try:
            if options is None or not options.enabled:
                if runs:
                    await plugins.disable(name)
            elif runs:
                # Options say which hooks some plugins serve: what they leave out is wanted, and told.
                await plugins.reload(name, force=True)
            else:
                await plugins.enable(name)
        except PluginError as error:
            if not runs:  # else the reload has told
                log.error("plugin not started: %s", error)
            self.behind.add(name)
            return str(error)
        self.behind.discard(name)
        plugins.problems.pop(name, None)
        return ""

    def _keep(self, name: str, options: PluginOptions) -> str:
        """A plugin that was to stop goes on, with its old section: the next configuration finds it different."""
        self._plugins.sections[name] = options
        self.behind.add(name)
        text = f"plugin {name} goes on, as not all that is to serve instead could be started"
        self._plugins.problems[name] = text
        log.error("%s", text)
        return text
