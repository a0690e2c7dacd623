"""vmq: an MQTT broker. docs/embedding.md has what these names are for.

Importing the package is cheap: the broker and its libraries load when `Broker` or `Config` is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from vmq.version import __version__, is_compiled

if TYPE_CHECKING:
    from vmq.broker import Broker
    from vmq.config.options import Config
    from vmq.config.sources import ConfigError
    from vmq.embedded import ReceivedMessage
    from vmq.runtime.errors import StartError

__all__ = [
    "Broker",
    "Config",
    "ConfigError",
    "ReceivedMessage",
    "StartError",
    "__version__",
    "is_compiled",
]

_LAZY: Final = {
    "Broker": "vmq.broker",
    "Config": "vmq.config.options",
    "ConfigError": "vmq.config.sources",
    "ReceivedMessage": "vmq.embedded",
    "StartError": "vmq.runtime.errors",
}


if not TYPE_CHECKING:  # a type checker that saw it would let any name pass

    def __getattr__(name: str) -> object:
        module = _LAZY.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
