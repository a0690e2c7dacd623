"""Which hooks a plugin implements: found and checked by pluggy, and made into the steps of chains.

pluggy compares names and arguments with the specifications; it takes no part in the calls.
"""

import difflib
import inspect
from collections.abc import Callable
from typing import Any, Final

import pluggy
from vmq_hooks import Plugin
from vmq_hooks.answers import READERS
from vmq_hooks.plugin import PROJECT
from vmq_hooks.specs import CHAINS, Specs, arguments_of, taken_by

from vmq.plugins.guard import PluginGuard
from vmq.plugins.loading import LoadError
from vmq.plugins.steps import AnswerStep, ChainStep, VerdictStep

#: Hooks whose answer nobody can wait for.
_PLAIN: Final = {
    "on_deliver": "stands on the way to the socket",
    "expression_functions": "is asked while mappings are made",
}


def steps_of(name: str, plugin: Plugin, guard: PluginGuard) -> dict[str, ChainStep]:
    """The plugin's steps by hook.

    Raises:
        LoadError: a hook that there is not, arguments that it does not have, or a hook's name that is not marked.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(Specs)
    try:
        manager.register(plugin, name)
        manager.check_pending()
    except pluggy.PluginValidationError as error:
        raise LoadError(f"plugin {name}: {_mistakes(plugin) or error}") from None
    steps: dict[str, ChainStep] = {}
    for caller in manager.get_hookcallers(plugin) or ():
        for found in caller.get_hookimpls():
            _check(name, caller.name, found)
            steps[caller.name] = _step(name, caller.name, guard, found.function)
    # Also one that a subclass defines anew without the mark: what it protects would be open, and nothing would tell.
    for each in CHAINS:
        if each not in steps and callable(getattr(plugin, each, None)):
            raise LoadError(
                f"plugin {name}: {each} has the name of a hook; accepted: @hook above it"
            )
    return steps


def _mistakes(plugin: Plugin) -> str:
    """What is wrong with what a plugin marks as hooks: names that there are not, arguments that they do not have."""
    kind = type(plugin)
    marked = [each for each in dir(kind) if hasattr(getattr(kind, each, None), f"{PROJECT}_impl")]
    return "; ".join(filter(None, (_mistake(plugin, each) for each in marked)))


def _mistake(plugin: Plugin, name: str) -> str:
    if name in CHAINS:
        try:
            taken_by(getattr(plugin, name), name)
        except TypeError as error:
            return str(error)
        return ""
    close = difflib.get_close_matches(name, CHAINS, n=1)
    meant = f", did you mean {close[0]!r}?" if close else f"; accepted: {', '.join(CHAINS)}"
    return f"there is no hook {name!r}{meant}"


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


def _step(name: str, hook: str, guard: PluginGuard, function: Callable[..., Any]) -> ChainStep:
    try:
        taken = taken_by(function, hook)  # pluggy's own list leaves out what has a default
    except TypeError as error:
        raise LoadError(f"plugin {name}: {error}") from None
    given = arguments_of(hook)
    if hook in READERS:
        return AnswerStep(hook, guard, function, taken, given, READERS[hook])
    if CHAINS[hook] == "all_till_ok":
        return VerdictStep(hook, guard, function, taken, given)
    return ChainStep(hook, guard, function, taken, given)
