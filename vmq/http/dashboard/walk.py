"""Who is worst: a walk over all sessions in slices, at most once a second, for a small share of a core at most."""

import asyncio
import heapq
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from vmq.core.queue import Queue
from vmq.core.registry import Registry

if TYPE_CHECKING:
    from vmq.ports import BrokerView

#: Rows that are shown of each kind; of what may come from several workers, more are told, to be added up.
MOST: Final = 10
MOST_TOLD: Final = 50
#: What is shown from how much on, where that is not the first time.
_LEAST: Final = {"reconnects": 2}
#: Sessions that are looked at between two turns of the event loop.
SLICE: Final = 250
#: A walk is followed by a pause of so many times what it took: a third of a percent of a core.
PAUSE: Final = 300
#: Clients whose oldest message in flight is remembered from walk to walk.
MOST_AGES: Final = 20_000


class WorstRow(Struct, frozen=True, array_like=True):
    """A name with its figure. `mountpoint` is that of a client; null: it is none."""

    name: str
    value: float
    mountpoint: str | None = None


#: Rows by measure.
Worst = dict[str, list[WorstRow]]


def shown(worst: Worst) -> Worst:
    """What a page is told of it."""
    return {
        name: [row for row in rows[:MOST] if row.value >= _LEAST.get(name, 0)]
        for name, rows in worst.items()
    }


class Top:
    """The largest of many values."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str, str]] = []

    def offer(self, value: float, name: str, mountpoint: str) -> None:
        """Keeps it if it is among the largest; 0 never is."""
        heap = self._heap
        if value <= 0:
            return
        if len(heap) < MOST:
            heapq.heappush(heap, (value, name, mountpoint))
        elif value > heap[0][0]:
            heapq.heapreplace(heap, (value, name, mountpoint))

    def rows(self) -> list[WorstRow]:
        """Those that were kept, the largest first."""
        return [WorstRow(name, value, tree) for value, name, tree in sorted(self._heap)[::-1]]


class SessionWalk:
    """Walks over the sessions of a broker again and again; what is in flight is compared with the walk before."""

    def __init__(self, broker: "BrokerView", clock: Callable[[], float]) -> None:
        self._broker = broker
        self._clock = clock
        #: By mountpoint and client: the turn of the oldest message in flight, and since when it is that.
        self._ages: dict[tuple[str, str], tuple[int, float]] = {}
        #: Seconds of a processor that the last walk took, and sessions that it saw.
        self.took = 0.0
        self.seen = 0

    async def once(self) -> Worst:
        """The worst by each measure: bytes that wait, messages dropped, seconds that one is in flight."""
        measures = {"queue_bytes": Top(), "dropped": Top(), "inflight_age": Top()}
        now, before, self._ages = self._clock(), self._ages, {}
        took, seen = 0.0, 0
        for registry in list(self._broker.registries.values()):
            names = iter(list(registry.subscribers))
            while chunk := list(islice(names, SLICE)):
                began = perf_counter()
                self._look(registry, chunk, measures, before, now)
                took += perf_counter() - began
                seen += len(chunk)
                await asyncio.sleep(0)
        self.took, self.seen = took, seen
        return {name: top.rows() for name, top in measures.items()}

    def _look(
        self,
        registry: Registry,
        names: Iterable[str],
        measures: dict[str, Top],
        before: dict[tuple[str, str], tuple[int, float]],
        now: float,
    ) -> None:
        tree = registry.mountpoint
        store = registry.core.store
        for name in names:
            subscriber = registry.subscribers.get(name)
            if subscriber is None:
                continue
            queue = subscriber.queue
            size = queue.quick_bytes + queue.pending_bytes
            if store is not None and queue.session:
                size = max(size, store.sizes.of(queue.session))
            measures["queue_bytes"].offer(size, name, tree)
            measures["dropped"].offer(queue.dropped, name, tree)
            turn = _oldest(queue)
            if turn >= 0 and len(self._ages) < MOST_AGES:
                known = before.get((tree, name))
                since = known[1] if known is not None and known[0] == turn else now
                self._ages[tree, name] = (turn, since)
                measures["inflight_age"].offer(now - since, name, tree)


def _oldest(queue: Queue) -> int:
    """The turn of the oldest message in flight; -1: there is none, or it is not loaded."""
    return -1 if queue.inflight_is_stored else queue.inflight.oldest()


def most_frequent(counts: Iterable[tuple[str, int]]) -> list[WorstRow]:
    """The names that came most often."""
    found = heapq.nlargest(MOST_TOLD, counts, key=lambda each: each[1])
    return [WorstRow(name, count) for name, count in found]


class HookTimes:
    """What the hooks of plugins took since the look before."""

    def __init__(self, broker: "BrokerView") -> None:
        self._broker = broker
        self._totals: dict[tuple[str, str], tuple[int, float]] = {}

    def look(self) -> list[WorstRow]:
        """Those whose calls took longest, by the mean in milliseconds."""
        before, self._totals = self._totals, {}
        rows = list(self._rows(before))
        return heapq.nlargest(MOST, rows, key=lambda each: each.value)

    def _rows(self, before: dict[tuple[str, str], tuple[int, float]]) -> Iterator[WorstRow]:
        for plugin, guard in self._broker.plugins.guards.items():
            for hook, times in guard.times.items():
                count, total = before.get((plugin, hook), (0, 0.0))
                self._totals[plugin, hook] = (times.count, times.total)
                if times.count > count:
                    mean = 1000 * (times.total - total) / (times.count - count)
                    yield WorstRow(f"{plugin}.{hook}", mean)
