"""Streams: partitioned, append-only logs of messages, kept in Arrow IPC segments and read by Arrow Flight.

The broker calls `catalog` (which streams there are), `appender` (the hot path) and `commits` (when an
acknowledgement may leave). Nothing here knows sessions, queues or the registry. Needs vmq[streams].

Programs have `group`, by which they are members of consumer groups (docs/readers.md).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from vmq.streams.client.errors import BrokerAwayError, FencedError, GroupError
    from vmq.streams.client.joining import group

__all__ = ["BrokerAwayError", "FencedError", "GroupError", "group"]

_LAZY: Final = {
    "BrokerAwayError": "vmq.streams.client.errors",
    "FencedError": "vmq.streams.client.errors",
    "GroupError": "vmq.streams.client.errors",
    "group": "vmq.streams.client.joining",
}


if not TYPE_CHECKING:  # a type checker that saw it would let any name pass

    def __getattr__(name: str) -> object:
        module = _LAZY.get(name)
        if module is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        try:
            value = getattr(import_module(module), name)
        except ModuleNotFoundError as error:
            if error.name != "pyarrow":
                raise
            text = f"vmq.streams.{name} needs pyarrow: pip install 'vmq[streams]'"
            raise ImportError(text, name="pyarrow") from None
        globals()[name] = value
        return value
