"""Whom a node tells what happens: each hears of the kinds of effects, or of the prefixes, that it asked for."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from vmq_cluster.effects import Changed, Effect

log = logging.getLogger("vmq.cluster")

E = TypeVar("E")


class Followers:
    """The callbacks of the application. One that fails is logged and harms nobody."""

    def __init__(self) -> None:
        self._of_effects: dict[type, list[Callable[[Any], None]]] = {}
        self._of_steps: list[tuple[str, Callable[[list[Changed]], None]]] = []

    def on(self, kind: type[E], callback: Callable[[E], None]) -> None:
        """Calls back with each effect of a kind."""
        self._of_effects.setdefault(kind, []).append(callback)

    def watch(self, prefix: str, callback: Callable[[Changed], None]) -> None:
        """Calls back with each change under a prefix."""
        self.on(Changed, lambda effect: callback(effect) if effect.prefix == prefix else None)

    def watch_steps(self, prefix: str, callback: Callable[[list[Changed]], None]) -> None:
        """Calls back with all changes under a prefix that one step brought."""
        self._of_steps.append((prefix, callback))

    def tell(self, effect: Effect) -> None:
        """Tells of one effect."""
        for callback in self._of_effects.get(type(effect), ()):
            _call(callback, effect)

    def tell_changes(self, effects: list[Effect]) -> None:
        """Tells of the changes among all effects of a step."""
        all_changes = [each for each in effects if type(each) is Changed]
        if all_changes:
            for prefix, callback in self._of_steps:
                changes = [each for each in all_changes if each.prefix == prefix]
                if changes:
                    _call(callback, changes)


def _call(callback: Callable[[Any], None], news: Any) -> None:
    try:
        callback(news)
    except Exception:  # the application's own
        what = news[0] if isinstance(news, list) else news
        log.exception("a callback for %s failed", type(what).__name__)
