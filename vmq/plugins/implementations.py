"""Which hooks a plugin implements: found and checked by pluggy, and made into the steps of chains.

pluggy compares names and arguments with the specifications; it takes no part in the calls.
"""

import difflib
import inspect
from typing import Final

import pluggy
from vmq_hooks import Plugin
from vmq_hooks.answers import READERS
from vmq_hooks.plugin import PROJECT
from vmq_hooks.specs import CHAINS, Specs

from vmq.plugins.guard import PluginGuard
from vmq.plugins.loading import LoadError
from vmq.plugins.steps import AnswerStep, ChainStep, VerdictStep

#: Hooks whose answer nobody can wait for.
_PLAIN: Final = {
    "on_deliver": "stands on the way to the socket",
    "expression_functions": "is asked while mappings are made",
}


def arguments_of(hook: str) -> tuple[str, ...]:
    """The names of a hook's arguments, in order."""
    names = tuple(inspect.signature(getattr(Specs, hook)).parameters)
    return names[1:]


def steps_of(name: str, plugin: Plugin, guard: PluginGuard) -> dict[str, ChainStep]:
    """The plugin's steps by hook.

    Raises:
        LoadError: a hook that there is not, or arguments that it does not have.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Specs)
    try:
        manager.register(plugin, name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise LoadError(f"plugin {name}: {error}{_hint(plugin)}") from None
    steps: dict[str, ChainStep] = {}
    for caller in manager.get_hookcallers(plugin) or ():
        for found in caller.get_hookimpls():
            _check(name, caller.name, found)
            steps[caller.name] = _step(caller.name, guard, found)
    return steps


def _hint(plugin: Plugin) -> str:
    """What the hooks that there are not may have been meant to be."""
    marked = {
        each
        for each in dir(type(plugin))
        if hasattr(getattr(type(plugin), each, None), f"{PROJECT}_impl")
    }
    close = {
        each: difflib.get_close_matches(each, CHAINS, n=1)
        for each in sorted(marked - CHAINS.keys())
    }
    return "".join(
        f"; there is no hook {name!r}, did you mean {found[0]!r}?"
        if found
        else f"; there is no hook {name!r} (hooks: {', '.join(CHAINS)})"
        for name, found in close.items()
    )


def _check(name: str, hook: str, found: pluggy.HookImpl) -> None:
    if found.wrapper or found.hookwrapper or found.tryfirst or found.trylast:
        raise LoadError(
            f"plugin {name}: hook {hook}: wrapper, tryfirst and trylast have no meaning here; "
            f"the order is set by plugins.{name}.priority"
        )
    if inspect.isasyncgenfunction(found.function) or inspect.isgeneratorfunction(found.function):
        raise LoadError(f"plugin {name}: hook {hook} is a generator; accepted: def or async def")
    if hook in _PLAIN and inspect.iscoroutinefunction(found.function):
        raise LoadError(f"plugin {name}: hook {hook} {_PLAIN[hook]} and cannot be async def")


def _step(hook: str, guard: PluginGuard, found: pluggy.HookImpl) -> ChainStep:
    given = arguments_of(hook)
    if hook in READERS:
        return AnswerStep(hook, guard, found.function, found.argnames, given, READERS[hook])
    if CHAINS[hook] == "all_till_ok":
        return VerdictStep(hook, guard, found.function, found.argnames, given)
    return ChainStep(hook, guard, found.function, found.argnames, given)
