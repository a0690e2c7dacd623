"""A plugin as the operator sees it."""

from collections.abc import Iterable, Iterator
from typing import Literal

from msgspec import Struct
from vmq_hooks.breaker import State

from vmq.config.plugins import PluginOptions
from vmq.plugins.guard import PluginGuard
from vmq.plugins.loaded import LoadedPlugin


def not_asked(loaded: Iterable[LoadedPlugin]) -> list[str]:
    """Of plugins that failed too often in a row: what is told of each until a call goes well."""
    return [
        f"plugin {each.name} fails (see the log): what it decides is refused until a call goes well"
        if any(hook.startswith("auth_") for hook in each.steps)
        else f"plugin {each.name} fails (see the log): it is left out until a call goes well"
        for each in loaded
        if each.guard.state is not State.CLOSED
    ]


def not_taken(
    behind: Iterable[str], not_reloaded: Iterable[str], loaded: Iterable[LoadedPlugin]
) -> Iterator[str]:
    """What is told of plugins that are not as they were to be. Why may quote secret options: it is for the operator.

    Args:
        behind: those of which the configuration says otherwise.
        not_reloaded: those that run, and that an operator has reloaded in vain.
        loaded: those that run, and may have told of problems themselves.
    """
    for name in behind:
        yield f"plugin {name} is not as the configuration has it; vmq plugin list says why"
    for name in not_reloaded:
        yield f"plugin {name} could not be reloaded, its old code goes on; vmq plugin list says why"
    for each in loaded:
        for about in _own_problems(each):
            yield f"plugin {each.name} has a problem with {about}; vmq plugin list says which"


def _own_problems(loaded: LoadedPlugin | None) -> dict[str, str]:
    return {} if loaded is None or loaded.handle is None else loaded.handle.problems


class Status(Struct, frozen=True):
    """A plugin, for the operator."""

    name: str
    status: Literal["running", "disabled"]
    priority: int
    source: str
    hooks: str
    breaker: str
    errors: int
    timeouts: int
    #: Why it is not as it was last to be: its code, its options or a file of its own cannot be taken.
    problem: str = ""
    #: Of a change: what everybody may do since then, as no plugin is asked any more.
    opened: str = ""


def status_of(
    name: str,
    options: PluginOptions,
    loaded: LoadedPlugin | None,
    guard: PluginGuard | None,
    problem: str,
    *,
    is_given: bool,
) -> Status:
    """The status of one plugin.

    Args:
        name: the plugin.
        options: its section.
        loaded: it, if it runs.
        guard: what has become of its calls, if there were any.
        problem: why it is not as it was last to be; "" if it is.
        is_given: whether the program has made it.
    """
    return Status(
        name=name,
        status="disabled" if loaded is None else "running",
        priority=options.priority,
        source="program" if is_given else options.path or "installed",
        hooks=" ".join(loaded.steps) if loaded is not None else "",
        breaker=loaded.guard.state.value if loaded is not None else State.CLOSED.value,
        errors=guard.errors.total() if guard is not None else 0,
        timeouts=guard.timeouts.total() if guard is not None else 0,
        problem="; ".join(filter(None, (problem, *_own_problems(loaded).values()))),
    )
