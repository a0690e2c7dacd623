"""The plugins of one broker: loaded, started, swapped and stopped, at start and while it runs.

Changes are made one after the other. A plugin that is being replaced serves until the new one has
started; what it was asked before, it still answers. Whatever fails on the way leaves things as they
were.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from vmq_hooks import Plugin, Refuse

from vmq.config.options import Config
from vmq.config.plugins import PluginOptions, own_config
from vmq.config.sources import ConfigError
from vmq.core.hook_sites import Hooks
from vmq.plugins.chains import VerdictChain, settled
from vmq.plugins.checking import CheckingBroker, check, folder_of, prepare
from vmq.plugins.compiling import (
    PluginSelection,
    Wrap,
    compile_into,
    first,
    functions_of,
    notices,
)
from vmq.plugins.guard import PluginGuard
from vmq.plugins.handle import Handle, Host, PluginCounters, PluginGauge, PluginThreads
from vmq.plugins.loaded import LoadedPlugin
from vmq.plugins.loading import LoadError, installed
from vmq.plugins.places import is_within
from vmq.plugins.protection import ConfigFollower, lost, told, unguarded
from vmq.plugins.shadow import Shadow, ShadowHost
from vmq.plugins.starting import START_TIMEOUT, PluginError, retire, start
from vmq.plugins.status import Status, status_of

log = logging.getLogger("vmq.plugins")


class Plugins:
    """The plugins of one broker.

    Args:
        host: the broker, for the plugins' handles.
        hooks: the call sites of clients of listeners that choose no plugins.
        config: the configuration.
        clock: monotonic seconds.
        prepared: plugins that are loaded and checked already, each with its own configuration.
        over: stands between the core and every call site, as `Logins.over` does.
    """

    def __init__(
        self,
        host: Host,
        hooks: Hooks,
        config: Config,
        clock: Callable[[], float] = time.monotonic,
        prepared: Mapping[str, tuple[Plugin, Any]] | None = None,
        over: Wrap = lambda _hook, site: site,
    ) -> None:
        self.sections = dict(config.plugins)
        self._streams = config.streams
        self._prepared = dict(prepared or {})
        self.loaded: dict[str, LoadedPlugin] = {}
        self._host = host
        self._clock = clock
        self._lock = asyncio.Lock()
        default = PluginSelection()
        default.hooks = hooks
        self._selections = [default]
        self._chains: list[VerdictChain] = []
        self._counters: dict[str, PluginCounters] = {}
        self._guards: dict[str, PluginGuard] = {}
        #: Plugins that were handed over as objects.
        self._given: dict[str, Plugin] = {}
        #: Installed ones that an operator has started, and no section names.
        self._unlisted: set[str] = set()
        self._follower = ConfigFollower(self)
        #: Why plugins are not as they were last to be, by name.
        self.problems: dict[str, str] = {}
        self._over = over
        self._wrap: Wrap | None = None
        #: Told when other plugins serve than before.
        self.changed: Callable[[], None] = lambda: None

    # Call sites

    def hooks_for(self, auth: list[str] | None, authz: list[str] | None) -> Hooks:
        """The call sites for the clients of a listener that chooses its plugins."""
        for each in self._selections:
            if (each.auth, each.authz) == (auth, authz):
                return each.hooks
        selection = PluginSelection(auth, authz)
        self._selections.append(selection)
        self._compile()
        return selection.hooks

    def forget_verdicts(self) -> None:
        """No kept verdict holds any more."""
        for chain in self._chains:
            chain.forget()
        for selection in self._selections:
            selection.hooks.forget_kept()

    def watch(self, wrap: Wrap | None) -> None:
        """Has `wrap` look at every call of a hook, for a trace; None ends that."""
        self._wrap = wrap
        self._compile()

    def _wrapped(self, hook: str, site: Any) -> Any:
        site = self._over(hook, site)
        return site if self._wrap is None else self._wrap(hook, site)

    async def only(self, hook: str, *arguments: Any) -> Any:
        """What the first plugin answers to a hook of the broker's own; None if nobody has it, or it fails."""
        chain = first(self.in_order(), hook)
        return None if chain is None else await settled(chain(*arguments))

    def _compile(self) -> None:
        members = self.in_order()
        self._chains = []
        for selection in self._selections:
            self._chains += compile_into(selection, members, self._clock, self._wrapped)
            selection.hooks.are_of_absent = all(each.authz is None for each in self._selections)
        self.changed()

    def functions(self) -> dict[str, Callable[..., Any]]:
        """What plugins bring to expressions, by name."""
        return functions_of(self.in_order())

    def in_order(self) -> list[LoadedPlugin]:
        """The running plugins as chains ask them."""
        places = {name: place for place, name in enumerate(self.sections)}
        return sorted(
            self.loaded.values(),
            key=lambda each: (each.options.priority, places.get(each.name, len(places))),
        )

    # Life

    async def start(self) -> None:
        """Starts the plugins of the configuration.

        Raises:
            PluginError: one cannot be loaded or started; none runs then.
        """
        try:
            for name, options in self.sections.items():
                if options.enabled and name not in self.loaded:
                    await self.enable(name)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stops all of them, the last in the chains first."""
        async with self._lock:
            members = self.in_order()
            self.loaded.clear()
            self._compile()
            for each in reversed(members):
                await self._end_shadow(each)
                await retire(each, members)

    async def add(self, name: str, plugin: Plugin, options: PluginOptions | None = None) -> None:
        """Starts a plugin that the program itself has made; `options` is its section.

        Raises:
            PluginError: it cannot be started, or there is one of this name.
        """
        if name in self.loaded:
            raise PluginError(f"plugin {name!r} runs already")
        self.sections[name] = options if options is not None else PluginOptions()
        self._given[name] = plugin
        try:
            await self.enable(name)
        except PluginError:
            del self.sections[name], self._given[name]
            raise

    async def enable(self, name: str) -> None:
        """Loads and starts a plugin of the configuration.

        Raises:
            PluginError: it runs, is not in the configuration, or cannot be loaded or started.
        """
        async with self._lock:
            if name in self.loaded:
                raise PluginError(f"plugin {name!r} runs already")
            with self._noted(name):
                self.loaded[name] = await self._bring_up(name)
            self._compile()
            log.info("plugin enabled name=%s", name)

    @contextmanager
    def _noted(self, name: str) -> Iterator[None]:
        """What keeps a plugin from being as it is to be is kept until it is."""
        try:
            yield
        except PluginError as error:
            if name in self.sections:
                self.problems[name] = "; ".join(str(error).splitlines())
            raise
        self.problems.pop(name, None)

    async def disable(self, name: str) -> list[str]:
        """Takes a plugin out of the chains and stops it; returns what everybody may do since then.

        Raises:
            PluginError: it does not run.
        """
        async with self._lock:
            old = self._running(name)
            await self._end_shadow(old)
            del self.loaded[name]
            self._follower.behind.discard(name)
            self.problems.pop(name, None)
            opened = self._take_effect()
            await retire(old, self.loaded.values())
            log.info("plugin disabled name=%s", name)
            return opened

    async def shadow(self, name: str, seconds: float) -> Shadow:
        """Has the plugin's code as it is now asked beside what runs, without effect, for so long.

        It stays at hand for `reload(commit=True)` until the plugin is reloaded, disabled, or tried with other code.

        Raises:
            PluginError: it does not run, or the new code cannot be loaded or started.
        """
        async with self._lock:
            old = self._reloadable(name)
            await self._end_shadow(old)
            options = self.sections[name]
            plugin, config = await self._prepare(name, options)
            try:
                new = LoadedPlugin(name, options, plugin, self._guard(name, options))
            except LoadError as error:
                raise PluginError(str(error)) from error
            await self._start(new, config, ShadowHost(self._host))
            tried = Shadow(name, old.steps, new.steps, new.guard, new.notices, plugin, config)
            old.shadow, old.steps = (tried, new), tried.mirrored()
            self.forget_verdicts()
            self._compile()
            asyncio.get_running_loop().call_later(seconds, self._ask_no_more, old, tried)
            log.info("plugin tried beside itself name=%s seconds=%g", name, seconds)
            return tried

    def _ask_no_more(self, old: LoadedPlugin, tried: Shadow) -> None:
        """The time is over: the old code serves alone; what was found stays to be seen."""
        if old.shadow is not None and old.shadow[0] is tried and tried.is_running:
            tried.is_running = False
            old.steps = tried.old
            self._compile()

    async def _end_shadow(self, old: LoadedPlugin, *, keep_code: bool = False) -> None:
        if old.shadow is not None:
            tried, new = old.shadow
            self._ask_no_more(old, tried)
            old.shadow = None
            await tried.stop()
            await retire(new, keep_code=keep_code)

    def tried(self, name: str) -> Shadow:
        """What is, or was, tried beside a plugin.

        Raises:
            PluginError: nothing.
        """
        shadow = self._running(name).shadow
        if shadow is None:
            raise PluginError(
                f"no other code of plugin {name!r} was tried; vmq plugin reload {name} --shadow SECONDS does"
            )
        return shadow[0]

    async def reload(self, name: str, *, force: bool = False, commit: bool = False) -> list[str]:
        """Starts the plugin's code and configuration as they are now, in place of what runs.

        Args:
            name: the plugin.
            force: also if it serves an auth hook no more that it served.
            commit: the code that `shadow` tried, instead of what the files hold by now.

        Returns:
            What everybody may do since then.

        Raises:
            PluginError: the new code cannot be loaded or started, or protects less; the old goes on.
        """
        async with self._lock:
            old = self._reloadable(name)
            if commit:
                self._prepared[name] = self.tried(name).again()
            await self._end_shadow(old, keep_code=commit)
            try:
                with self._noted(name):
                    new = await self._bring_up(name)
                    if not force:
                        await self._refuse_lost(old, new)
            except PluginError as error:
                log.error("plugin not reloaded, the old code goes on: %s", error)
                raise
            self.loaded[name] = new
            opened = self._take_effect()
            await retire(old, self.loaded.values())
            log.info("plugin reloaded name=%s", name)
            return opened

    def _reloadable(self, name: str) -> LoadedPlugin:
        """A plugin that runs, of which there may be newer code."""
        if name in self._given:
            raise PluginError(f"plugin {name!r} was made by the program; there is no newer code")
        return self._running(name)

    async def _refuse_lost(self, old: LoadedPlugin, new: LoadedPlugin) -> None:
        """Refuses new code that serves an auth hook no more: by a misspelt name, most often."""
        missing = lost(old.steps, new.steps)
        if missing:
            self._guards[old.name] = old.guard
            await retire(new)
            raise PluginError(
                f"plugin {old.name}: the new code serves {', '.join(missing)} no more (but "
                f"{', '.join(new.steps) or 'nothing'}); vmq plugin reload --force {old.name} takes it all the same"
            )

    def _take_effect(self) -> list[str]:
        """Has other plugins serve from now on; tells what everybody may do by that."""
        before = unguarded(each.hooks for each in self._selections)
        self._compile()
        opened = told(before, unguarded(each.hooks for each in self._selections))
        for text in opened:
            log.warning("%s", text)
        return opened

    async def take_over(
        self, sections: Mapping[str, PluginOptions], changed: Mapping[str, Any]
    ) -> list[str]:
        """Follows a new configuration: starts, stops and reloads what changed, and tells the others.

        Args:
            sections: the new sections.
            changed: other options that changed, with their new values.

        Returns:
            What could not be done; the plugins in question stay as they are.
        """
        self._unlisted.difference_update(sections)
        ours = (*self._given, *(name for name in self._unlisted if name in self.loaded))
        problems = await self._follower.follow(
            {**sections, **{name: self.sections[name] for name in ours}}
        )
        chain = notices(self.in_order(), "on_config_change") if changed else None
        if chain is not None:
            chain(dict(changed))
        return problems

    @property
    def behind(self) -> list[str]:
        """The plugins that are not as the configuration has them."""
        return sorted(self._follower.behind)

    @property
    def not_reloaded(self) -> list[str]:
        """The plugins that run with their code of before, for an operator has reloaded them in vain."""
        return sorted((self.problems.keys() & self.loaded.keys()) - self._follower.behind)

    async def reread(self) -> None:
        """Has the plugins read the files that are theirs again."""
        handles = [each.handle for each in self.in_order() if each.handle is not None]
        await asyncio.gather(*(each.reread() for each in handles))

    def _running(self, name: str) -> LoadedPlugin:
        found = self.loaded.get(name)
        if found is None:
            known = ", ".join(self.loaded) or "none"
            raise PluginError(f"plugin {name!r} does not run (running: {known})")
        return found

    async def _bring_up(self, name: str) -> LoadedPlugin:
        options = self.sections.get(name)
        if options is None and name in installed():
            self.sections[name] = options = PluginOptions()
            self._unlisted.add(name)
        if options is None:
            known = ", ".join(self.sections) or "there is none"
            raise PluginError(
                f"there is no [plugins.{name}] in the configuration as it was last read ({known}); SIGHUP reads it anew"
            )
        if name in self._prepared:
            plugin, config = self._prepared.pop(name)
        else:
            plugin, config = await self._prepare(name, options)
        guard = self._guard(name, options)
        try:
            loaded = LoadedPlugin(name, options, plugin, guard)
        except LoadError as error:
            raise PluginError(str(error)) from error
        if name in self._guards:
            guard.inherit(self._guards[name])
        await self._start(loaded, config)
        self._guards[name] = guard
        self._follower.behind.discard(name)
        return loaded

    def _guard(self, name: str, options: PluginOptions) -> PluginGuard:
        guard = PluginGuard(
            name,
            options.deadline,
            options.breaker_failures,
            options.breaker_seconds,
            self._clock,
        )
        if options.on_deliver_failure == "withhold":
            guard.failed_delivery = Refuse(f"plugin {name} fails")
        return guard

    async def _prepare(self, name: str, options: PluginOptions) -> tuple[Plugin, Any]:
        """Loads and checks a plugin."""
        try:
            plugin, config = self._load(name, options)
            broker = CheckingBroker(options, self._streams)
            async with asyncio.timeout(START_TIMEOUT):
                await PluginThreads(name).run(partial(check, name, options, plugin, config, broker))
        except TimeoutError:
            raise PluginError(
                f"plugin {name}: check takes longer than {START_TIMEOUT:g} s"
            ) from None
        except (LoadError, ConfigError) as error:
            raise PluginError(str(error)) from error
        return plugin, config

    def _load(self, name: str, options: PluginOptions) -> tuple[Plugin, Any]:
        given = self._given.get(name)
        if given is not None:
            return given, own_config(name, options, given.Config)
        return prepare(name, options)

    async def _start(
        self, loaded: LoadedPlugin, config: Any, tried: ShadowHost | None = None
    ) -> None:
        """Starts a plugin; `tried` stands for the broker where what it does is to have no effect."""
        counters, forget = PluginCounters(), lambda: None
        if tried is None:
            counters = self._counters.setdefault(loaded.name, counters)
            forget = self.forget_verdicts
        host, folder = tried or self._host, folder_of(loaded.options)
        loaded.handle = Handle(loaded.name, host, folder, counters, forget)
        await start(loaded, loaded.handle, config)

    # Who holds the event loop up

    def owner_of(self, file: str) -> str | None:
        """The running plugin whose code a file is; None = none's. For any thread."""
        for name, loaded in tuple(self.loaded.items()):
            if is_within(file, loaded.source):
                return name
        return None

    def was_blocked(self, name: str) -> None:
        """A plugin held the event loop up."""
        self._guards[name].blocked += 1

    # Figures

    def statuses(self) -> list[Status]:
        """Every plugin of the configuration, those that run in the order of the chains."""
        rows = [self._status(each.name, each.options, each) for each in self.in_order()]
        rows += [
            self._status(name, options, None)
            for name, options in self.sections.items()
            if name not in self.loaded
        ]
        return rows

    def _status(self, name: str, options: PluginOptions, loaded: LoadedPlugin | None) -> Status:
        guard, problem = self._guards.get(name), self.problems.get(name, "")
        return status_of(name, options, loaded, guard, problem, is_given=name in self._given)

    @property
    def guards(self) -> Mapping[str, PluginGuard]:
        """Every plugin's guard, those of stopped ones too."""
        return self._guards

    @property
    def counters(self) -> Mapping[str, PluginCounters]:
        """The counters that plugins made."""
        return self._counters

    @property
    def gauges(self) -> Iterator[tuple[str, PluginGauge]]:
        """The gauges of the plugins that run, by name."""
        for loaded in self.loaded.values():
            if loaded.handle is not None:
                yield from loaded.handle.gauges.items()
