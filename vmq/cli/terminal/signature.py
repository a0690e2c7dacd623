"""Options that several commands share, stated once: Typer reads a command's signature, and here one is put together."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

Command = Callable[..., Any]
#: Names, each with its annotation for Typer and its default.
Options = Mapping[str, tuple[Any, object]]


def with_options(run: Command, command: Command, shared: Options) -> Command:
    """Has `run` look like `command` with further options.

    Args:
        run: what is called in the end, with every option by its name.
        command: gives the name, the help and its own options; its first parameter is none of them.
        shared: the further options, which come after the own ones.
    """
    hints = get_type_hints(command, include_extras=True)
    _, *own = inspect.signature(command).parameters.values()
    parameters = [
        each.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=hints[each.name])
        for each in own
    ]
    for name, (annotation, default) in shared.items():
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(inspect.Parameter(name, kind, default=default, annotation=annotation))
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {each.name: each.annotation for each in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what inspect looks for
    return run
