"""The configuration: options by section, sources, checks, changes while running, and the reference.

`Config` is loaded when it is first used: rooms that need one section only do not load the others.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vmq.config.options import Config

__all__ = ["Config"]


if not TYPE_CHECKING:  # a type checker that saw it would let any name pass

    def __getattr__(name: str) -> object:
        if name != "Config":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from vmq.config.options import Config

        return Config
