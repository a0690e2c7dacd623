"""How the world outside follows a measurement, and ends it."""

from collections.abc import Callable
from time import monotonic_ns
from typing import Final

_EVERY: Final = 200_000_000


class Interrupted(Exception):
    """A measurement was ended before there was anything to report."""


class Control:
    """The wish to stop, and whoever wants to know how far things are.

    `progress` is told what is done and of how much, at most five times a second.
    """

    def __init__(self, progress: Callable[[str, float, float], None] | None = None) -> None:
        self.is_stopping = False
        self._progress = progress
        self._next = 0

    def stop(self) -> None:
        """Ends what is under way, soon. Safe in a signal handler."""
        self.is_stopping = True

    def tell(self, what: str, done: float, total: float) -> None:
        """`done` of `total` have been done."""
        if self._progress is not None and (now := monotonic_ns()) >= self._next:
            self._next = now + _EVERY
            self._progress(what, done, total)

    def check(self) -> None:
        """Raises Interrupted if the wish to stop has come."""
        if self.is_stopping:
            raise Interrupted
