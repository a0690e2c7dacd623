"""The tree of topics that are published to, read from the routes that the broker keeps of them.

A route counts its messages; here they are summed up for the branches that a page has open, once a second at most for
all pages. What nobody looks at costs nothing.

`TopicTree` knows which branches are looked at; `RouteSums` reads those of this process. Several workers are read by
`vmq.workers.page`.
"""

import asyncio
import heapq
from collections.abc import Callable, Iterable
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

if TYPE_CHECKING:
    from vmq.core.trie import Route
    from vmq.ports import BrokerView

#: Rows of all branches together, and branches that a page has open.
MOST_ROWS: Final = 400
MOST_BRANCHES: Final = 100
#: Routes that are looked at between two turns of the event loop.
SLICE: Final = 500
#: Seconds between two looks; longer where a look takes long: at most a fiftieth of a core.
STEP: Final = 1.0
PAUSE: Final = 50
#: Branches that are looked at for all pages together, and seconds after which one that nobody asks for is left out.
MOST_WATCHED: Final = 1000
KEPT: Final = 10.0


class TopicRow(Struct, frozen=True):
    """A level of the tree: topics at and below it, their messages since the broker keeps their routes, and a second."""

    name: str
    topics: int
    messages: int
    rate: float
    #: It is a topic itself, and has others below.
    is_topic: bool
    has_more: bool


class Branch(Struct, frozen=True):
    """What lies below a level; `hidden` is how many rows were left out."""

    path: str
    rows: list[TopicRow]
    hidden: int


class _Child:
    """What is summed up of a level."""

    __slots__ = ("is_topic", "messages", "topics")

    def __init__(self) -> None:
        self.topics = 0
        self.messages = 0
        self.is_topic = False


#: Path of a branch ("" is the top, which has no level of its own) -> name of a level -> its sums.
Sums = dict[str, dict[str, _Child]]

#: The path of the top; no topic begins with NUL.
TOP: Final = "\0"


class BranchSource(Protocol):
    """Where a tree has its branches from."""

    async def look(self, paths: list[str], now: float) -> float:
        """Reads some branches anew, at monotonic second `now`; returns the seconds of a processor that it took."""

    def __contains__(self, path: str) -> bool:
        """Whether a branch was looked at."""

    def branch(self, path: str, most: int) -> Branch:
        """What the last look saw of a branch, in so many rows at most."""


class TopicTree:
    """The branches that pages have open.

    Args:
        source: is looked at.
        clock: monotonic seconds.
    """

    def __init__(self, source: BranchSource, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        #: When each branch was asked for last.
        self._watched: dict[str, float] = {}
        self._looked = float("-inf")
        self._pause = STEP
        self._lock = asyncio.Lock()
        #: How often it was looked.
        self.looks = 0

    async def branches(self, paths: list[str], most: int = MOST_ROWS) -> list[Branch]:
        """What lies below some levels (`TOP` is above all of them), in so many rows at most.

        Raises:
            AdminError: it cannot be told.
        """
        now = self._clock()
        for path in paths:
            self._watched[path] = now
        async with self._lock:
            is_new = any(path not in self._source for path in paths)
            if is_new or now - self._looked >= self._pause:
                await self._look(self._clock())
        left = most
        found = []
        for number, path in enumerate(paths):
            # Each branch has its share, and what those before it did not need.
            branch = self._source.branch(path, left // (len(paths) - number))
            left -= len(branch.rows)
            found.append(branch)
        return found

    async def _look(self, now: float) -> None:
        self.looks += 1
        asked = sorted(self._watched.items(), key=lambda each: -each[1])[:MOST_WATCHED]
        self._watched = {path: when for path, when in asked if now - when <= KEPT}
        took = await self._source.look(list(self._watched), now)
        self._looked = now
        self._pause = max(STEP, PAUSE * took)


class RouteSums:
    """The topics of one topic tree of the broker of this process."""

    def __init__(self, broker: "BrokerView", mountpoint: str = "") -> None:
        self._broker = broker
        self._mountpoint = mountpoint
        self._sums: Sums = {}
        self._rates: dict[str, dict[str, float]] = {}
        self._looked = float("-inf")

    def __contains__(self, path: str) -> bool:
        return path in self._sums

    def branch(self, path: str, most: int) -> Branch:
        """The rows that are published to most."""
        children = self._sums.get(path, {})
        rates = self._rates.get(path, {})
        rows = []
        for name in busiest(
            children, most, lambda name: (rates.get(name, 0.0), children[name].messages)
        ):
            child = children[name]
            more = child.topics > child.is_topic
            rate = round(rates.get(name, 0.0), 2)
            rows.append(TopicRow(name, child.topics, child.messages, rate, child.is_topic, more))
        return Branch(path, rows, len(children) - len(rows))

    async def look(self, paths: list[str], now: float) -> float:
        """Reads all routes, in slices."""
        before, span = self._sums, now - self._looked
        sums: Sums = {path: {} for path in paths}
        registry = self._broker.registries.get(self._mountpoint)
        took = 0.0
        if registry is not None:
            young, old = registry.routes.young, registry.routes.old
            routes = iter(
                list(young.values()) + [each for each in old.values() if each.topic not in young]
            )
            while chunk := list(islice(routes, SLICE)):
                began = perf_counter()
                _add_up(sums, chunk)
                took += perf_counter() - began
                await asyncio.sleep(0)
        self._sums, self._looked = sums, now
        self._rates = {
            path: _rates(children, before[path], span)
            for path, children in sums.items()
            if path in before
        }
        return took


def busiest(
    names: Iterable[str], most: int, measure: Callable[[str], tuple[float, int]]
) -> list[str]:
    """The names with the largest measures, in the order of names."""
    return sorted(heapq.nlargest(most, names, key=measure))


def _add_up(sums: Sums, routes: "Iterable[Route]") -> None:
    for route in routes:
        messages = route.messages
        if not messages:
            continue  # it was asked about only
        levels = route.text.split("/")
        path = TOP
        last = len(levels) - 1
        for number, name in enumerate(levels):
            children = sums.get(path)
            if children is None:
                break
            child = children.get(name)
            if child is None:
                child = children[name] = _Child()
            child.topics += 1
            child.messages += messages
            if number == last:
                child.is_topic = True
            path = name if path == TOP else f"{path}/{name}"


def _rates(children: dict[str, _Child], before: dict[str, _Child], span: float) -> dict[str, float]:
    found = {}
    for name, child in children.items():
        known = before.get(name)
        if known is not None and child.messages > known.messages:
            found[name] = (child.messages - known.messages) / span
    return found
