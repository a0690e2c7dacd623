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

from typing import Any, ClassVar, Final

import msgspec
import pluggy

from vmq_hooks.broker import Broker

#: The name by which pluggy knows our hooks, and the group of entry points that plugins are found in.
PROJECT: Final = "vmq"
ENTRY_POINTS: Final = "vmq.plugins"

#: Marks a method as the implementation of the hook of its name.
hook: Final = pluggy.HookimplMarker(PROJECT)


class NoConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The configuration of a plugin that has no options."""


class Plugin:
    """The base of all plugins. A plugin may override `start` and `stop`, sync or async."""

    #: The type of the plugin's section of the configuration: a msgspec.Struct, best with
    #: forbid_unknown_fields, so that a misspelt key is an error and not a surprise.
    Config: ClassVar[type[msgspec.Struct]] = NoConfig

    def start(self, broker: Broker, config: Any) -> Any:
        """Called before the first hook. `config` is an instance of `Config`, checked.

        What it raises stops the plugin from being loaded; at a reload the old one stays.
        """

    def serves(self, hook: str) -> bool:
        """Whether the plugin wants calls of this hook, which it implements. Asked for each, once, after `start`."""
        return True

    def stop(self) -> Any:
        """Called after the last hook. Tasks made by `broker.spawn` are cancelled afterwards."""
