"""When a node's process has ended: it was reached, and nobody listens there any more."""

from collections.abc import Callable
from typing import Final

#: Attempts to connect in a row at which somebody is told: what lay in a socket may have been heard after the first.
_TELLS: Final = 3


class Refusals:
    """Whether a peer that there was a connection to is gone: attempts to connect to it are refused."""

    def __init__(self, on_gone: Callable[[], None]) -> None:
        self._on_gone = on_gone
        self._told = _TELLS

    def linked(self) -> None:
        """There is a connection."""
        self._told = 0

    def refused(self) -> None:
        """Nobody listens there. An address that never answered says nothing about who is behind it."""
        if self._told < _TELLS:
            self._told += 1
            self._on_gone()
