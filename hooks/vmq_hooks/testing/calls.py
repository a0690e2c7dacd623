"""Calling one hook of one plugin, as the broker would: only with the arguments it takes, its answer checked."""

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from vmq_hooks.answers import READERS, Verdict, read_verdict, refuse_coroutine
from vmq_hooks.plugin import Plugin
from vmq_hooks.specs import CHAINS, arguments_of, taken_by
from vmq_hooks.verdicts import Explanation, Question, Refuse


def call(plugin: Plugin, hook: str, /, **arguments: Any) -> Any:
    """Calls a hook and returns what the broker would make of its answer.

    Of an auth hook that is `Accept`, `Next` or `Refuse`, raised or returned; of on_deliver and
    on_unsubscribe the change or None; of discover_nodes the addresses or None. An `async def` is run
    to its end; inside a running event loop use `call_async`.

    Raises:
        AnswerError: the answer is none for this hook.
        TypeError: the hook has no such argument, given or taken, one that the plugin takes is missing, or the plugin
            does not implement the hook.
    """
    return asyncio.run(call_async(plugin, hook, **arguments))


async def call_async(plugin: Plugin, hook: str, /, **arguments: Any) -> Any:
    """Like `call`, for tests that are coroutines themselves."""
    function = implementation(plugin, hook)
    known, taken = arguments_of(hook), taken_by(function, hook)
    if unknown := [name for name in arguments if name not in known]:
        raise TypeError(f"{hook} has no {', '.join(unknown)}; accepted: {', '.join(known)}")
    if missing := [name for name in taken if name not in arguments]:
        raise TypeError(f"{type(plugin).__name__}.{hook} takes {', '.join(missing)}, too")
    try:
        returned = function(*[arguments[name] for name in taken])
        if inspect.iscoroutinefunction(function):
            returned = await returned
        else:
            refuse_coroutine(returned)
    except Refuse as refusal:
        returned = refusal
    if hook in READERS:
        return READERS[hook](returned)
    if CHAINS[hook] == "all":
        return None
    return read_verdict(hook, returned, arguments.get("subscriptions", ()))


def explain(plugin: Plugin, question: Question) -> tuple[Verdict, Explanation | None]:
    """What the plugin answers to a question, and what it says to its verdict, as `vmq why` asks it.

    Raises:
        AnswerError: the answer is none for this hook.
        TypeError: the plugin does not implement the hook.
    """
    return asyncio.run(explain_async(plugin, question))


async def explain_async(plugin: Plugin, question: Question) -> tuple[Verdict, Explanation | None]:
    """Like `explain`, for tests that are coroutines themselves."""
    who = {"username": question.username, "subscriber_id": question.subscriber_id}
    what: dict[str, Any] = {"message": question.message}
    if question.hook == "auth_on_subscribe":
        what = {"subscriptions": [question.subscription]}
    verdict = await call_async(plugin, question.hook, **who, **what)
    found = plugin.explain(question, verdict)
    if inspect.isawaitable(found):
        found = await found
    return verdict, found


def implementation(plugin: Plugin, hook: str) -> Callable[..., Any]:
    """The plugin's function for a hook.

    Raises:
        TypeError: there is no such hook, or the plugin does not implement it.
    """
    if hook not in CHAINS:
        raise TypeError(f"there is no hook {hook!r}; accepted: {', '.join(CHAINS)}")
    found: Callable[..., Any] | None = getattr(plugin, hook, None)
    if found is None or not hasattr(found, "vmq_impl"):
        raise TypeError(f"{type(plugin).__name__} does not implement {hook} (marked with @hook)")
    return found
