"""What a plugin is: a class with hooks.

    from vmq_hooks import Plugin, Refuse, hook

    class OnlyLamps(Plugin):
        @hook
        def auth_on_publish(self, username, subscriber_id, message):
            if not message.topic.startswith("lamps/"):
                raise Refuse("lamps only")
            return True

An implementation may take fewer arguments than its specification names, and may be `async def`.
"""

from collections.abc import Iterable
from typing import Any, ClassVar, Final

import msgspec
import pluggy

from vmq_hooks.broker import Broker, Checking, Mistake
from vmq_hooks.verdicts import Accept, Next, Question, Refuse

#: The name by which pluggy knows our hooks, and the group of entry points that plugins are found in.
PROJECT: Final = "vmq"
ENTRY_POINTS: Final = "vmq.plugins"

#: Marks a method as the implementation of the hook of its name.
hook: Final = pluggy.HookimplMarker(PROJECT)


class NoConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of a plugin that has no options."""


class Plugin:
    """The base of all plugins. A plugin may override `check`, and `start` and `stop`, which may be async."""

    #: The type of the plugin's section of the configuration: a msgspec.Struct, best with
    #: forbid_unknown_fields, so that a misspelt key is an error and not a surprise. The Struct has another name:
    #: within the class `Config` is this attribute, which type checkers take for no type.
    Config: ClassVar[type[msgspec.Struct]] = NoConfig

    def check(self, broker: Checking, config: Any) -> Iterable[Mistake]:
        """What would keep `start` from working: a file that cannot be used, options that do not go together.

        Called before each `start`, and by `vmq config check`, which starts nothing; outside the event loop. It reads,
        asks no other machine, changes nothing and keeps nothing for `start`. A ValueError of it counts as a mistake.
        """
        return ()

    def start(self, broker: Broker, config: Any) -> Any:
        """Called before the first hook. `config` is an instance of `Config`, checked.

        What it raises stops the plugin from being loaded; at a reload the old one stays.
        """

    def serves(self, hook: str) -> bool:
        """Whether the plugin wants calls of this hook, which it implements. Asked for each, once, after `start`."""
        return True

    def explain(self, question: Question, verdict: Accept | Next | Refuse) -> Any:
        """Why the plugin gave this verdict: an `Explanation`, or None: there is no more to say than the verdict does.

        `vmq why` asks, after it has asked the hook. May be async; looks, and changes nothing.
        """
        return None

    def stop(self) -> Any:
        """Called after the last hook. Tasks made by `broker.spawn` are cancelled afterwards."""


def mistakes_of(plugin: Plugin, broker: Checking, config: Any) -> list[Mistake]:
    """What a plugin's check says; nothing at all is no mistake.

    Raises:
        TypeError: it gives something else.
    """
    try:
        found = list(plugin.check(broker, config) or ())
    except ValueError as error:
        return [Mistake("", str(error))]
    for each in found:
        if not isinstance(each, Mistake):
            raise TypeError(f"it gives {each!r}; accepted: Mistake(option, what)")
    return found
