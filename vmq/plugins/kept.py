"""Verdicts that may be kept: which facts they depend on, and until when they hold.

A plugin says with its verdict for how long it holds and what it looked at. A chain's verdict may be
kept if every plugin that was asked said so; it holds as long as the first of them runs out, and
depends on what any of them looked at.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from vmq_hooks import Cache

#: Verdicts kept for one chain.
LIMIT: Final = 16_384
#: Characters and bytes that the facts of a kept call have at most: clients bring topics of 64 KiB, and a great many
#: filters in one SUBSCRIBE.
LONGEST: Final = 4096
#: Combinations of facts known for one chain; plugins have one or two.
SHAPES: Final = 8

#: Before anybody was asked: holds for ever, depends on nothing.
FOREVER: Final = Cache(float("inf"), frozenset())

#: Nothing is kept for this call.
MISSING: Final = object()

Facts = Callable[[tuple[Any, ...]], Any]

#: Where in a hook's arguments each fact stands. What belongs to the session's place (mountpoint) and what could let
#: somebody else in (the password) is part of every key.
_ALWAYS: Final[dict[str, tuple[Facts, ...]]] = {
    "auth_on_register": (
        lambda a: a[1].mountpoint,
        lambda a: a[2],
        lambda a: a[3],
        lambda a: a[4],
    ),
    "auth_on_publish": (lambda a: a[1].mountpoint,),
    "auth_on_subscribe": (
        lambda a: a[1].mountpoint,
        lambda a: tuple(
            (each.topic_filter, each.qos, each.action, each.history, each.group) for each in a[2]
        ),
    ),
    "auth_on_unsubscribe": (lambda a: a[1].mountpoint, lambda a: tuple(a[2])),
}
_FACTS: Final[dict[str, dict[str, Facts | None]]] = {
    "auth_on_register": {
        "peer": lambda a: (a[0].host, a[0].listener, a[0].common_name),
        "client_id": lambda a: a[1].client_id,
        "username": None,
        "password": None,
        "topic": None,
        "qos": None,
        "retain": None,
    },
    "auth_on_publish": {
        "username": lambda a: a[0],
        "client_id": lambda a: a[1].client_id,
        "topic": lambda a: a[2].topic,
        "qos": lambda a: a[2].qos,
        "retain": lambda a: a[2].retain,
    },
    "auth_on_subscribe": {
        "username": lambda a: a[0],
        "client_id": lambda a: a[1].client_id,
        "topic": None,
        "qos": None,
        "retain": None,
    },
    "auth_on_unsubscribe": {
        "username": lambda a: a[0],
        "client_id": lambda a: a[1].client_id,
        "topic": None,
    },
}


def together(first: Cache | None, second: Cache | None) -> Cache | None:
    """For how long, and for which calls, two verdicts hold together."""
    if first is None or second is None:
        return None
    if first is FOREVER:
        return second
    return Cache(min(first.seconds, second.seconds), frozenset(first.by) | frozenset(second.by))


def _length(fact: object) -> int:
    if isinstance(fact, list | tuple):
        return sum(_length(each) for each in fact)
    return len(fact) if isinstance(fact, str | bytes) else 1


class KeptVerdicts:
    """The kept verdicts of one chain, the least recently used in front."""

    def __init__(self, hook: str, clock: Callable[[], float], limit: int = LIMIT) -> None:
        self._hook = hook
        self._clock = clock
        self._limit = limit
        #: Sets of facts that verdicts depend on, with what reads them from a call.
        self._shapes: dict[frozenset[str], tuple[Facts, ...]] = {}
        self._entries: OrderedDict[tuple[Any, ...], tuple[float, Any]] = OrderedDict()
        #: How often what was kept was forgotten: who was asked before, has gone by what holds no longer.
        self.forgotten = 0

    def __len__(self) -> int:
        return len(self._entries)

    def find(self, arguments: tuple[Any, ...]) -> Any:
        """What is kept for such a call, or MISSING."""
        for shape, facts in self._shapes.items():
            key = (shape, *[fact(arguments) for fact in facts])
            found = self._entries.get(key)
            if found is None:
                continue
            if found[0] <= self._clock():
                del self._entries[key]
                continue
            self._entries.move_to_end(key)
            return found[1]
        return MISSING

    def until(self, cache: Cache) -> float:
        """When a verdict given now runs out, or 0 if it cannot be kept."""
        if cache.seconds <= 0 or cache is FOREVER or self._facts(frozenset(cache.by)) is None:
            return 0.0
        return self._clock() + cache.seconds

    def keep(self, arguments: tuple[Any, ...], cache: Cache, until: float, answer: Any) -> None:
        """Keeps an answer for calls alike in `cache.by`."""
        shape = frozenset(cache.by)
        facts = self._facts(shape)
        if facts is None:
            return
        key = [fact(arguments) for fact in facts]
        if _length(key) > LONGEST:
            return
        self._entries[shape, *key] = (until, answer)
        while len(self._entries) > self._limit:
            self._entries.popitem(last=False)

    def forget(self) -> None:
        """None of them holds any more."""
        self._entries.clear()
        self._shapes.clear()
        self.forgotten += 1

    def _facts(self, shape: frozenset[str]) -> tuple[Facts, ...] | None:
        """What reads the facts of a shape; None if the hook does not show one of them."""
        found = self._shapes.get(shape)
        if found is not None:
            return found
        known = _FACTS[self._hook]
        if len(self._shapes) >= SHAPES or not shape <= known.keys():
            return None
        readers = [known[name] for name in sorted(shape)]
        facts = (*_ALWAYS[self._hook], *[each for each in readers if each is not None])
        self._shapes[shape] = facts
        return facts
