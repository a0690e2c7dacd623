"""The figures of all workers as those of one broker: what each told last is put together once a second."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nlargest
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from vmq.http.dashboard.log_watch import KEPT, SHOWN, LogWatch, WarningRow
from vmq.http.dashboard.reading import Reading
from vmq.http.dashboard.sampler import SERIES
from vmq.http.dashboard.walk import MOST_TOLD, Worst, WorstRow
from vmq.http.dashboard.worker_row import WorkerRow
from vmq.runtime import process
from vmq.runtime.health import Health
from vmq.workers.views import health_of

if TYPE_CHECKING:
    from vmq.workers.process import Worker
    from vmq.workers.roles import SupervisorView

#: Series that all workers have alike, or of which the worst counts; the others are added up.
_GREATEST: Final = frozenset({"retained", "lag", "lag_p99", "commit_p50", "commit_p99", "disk"})
_LEAST: Final = frozenset({"disk_free"})
#: What a client or a user may do at several workers, and is added up.
_ADDED: Final = frozenset({"reconnects", "logins_refused"})
#: Parts that are none of the workers' own: their links make each a node.
_CLUSTER: Final = "cluster"
#: Seconds without figures after which a worker that runs counts as one that does not answer.
SILENT: Final = 4.0
#: What is told of each worker by itself.
_SHOWN: Final = ("connections", "received", "sent", "cpu", "lag", "memory")


class WorkersReader:
    """Reads the workers of a supervisor, each of which tells its figures once a second.

    Args:
        supervisor: whose workers.
        clock: monotonic seconds.
    """

    def __init__(
        self, supervisor: "SupervisorView", clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._supervisor = supervisor
        self._clock = clock
        self._log = LogWatch()
        #: By worker: what it told last, and when it told anything.
        self._last: dict[int, Reading] = {}
        self._heard: dict[int, float] = {}
        self._worst: dict[int, Worst] = {}
        self._cpu = process.cpu_seconds()
        self._when = clock()

    def start(self) -> None:
        """It is read from now on."""
        self._log.start()

    def stop(self) -> None:
        """It is read no more."""
        self._log.stop()

    def read(self, *, is_watched: bool) -> Reading:
        """The figures of now, of those workers that told theirs in the last seconds."""
        now = self._clock()
        running = {n: each for n, each in self._supervisor.workers.items() if each.is_running}
        self._forget(running, is_watched=is_watched)
        warnings, warned = self._log.take()
        has_looked = False
        for number, worker in running.items():
            worker.watch(is_watched=is_watched)
            self._heard.setdefault(number, now)
            for reading in worker.take_readings():
                self._heard[number] = now
                self._last[number] = reading
                warnings += _named(number, reading.warnings)
                warned += reading.warned
                if reading.worst is not None:
                    self._worst[number] = reading.worst
                    has_looked = True
        told = {n: each for n, each in self._last.items() if now - self._heard[n] <= SILENT}
        return Reading(
            self._added(told.values(), now),
            self._health(running, told),
            self._parts(told.values()),
            sorted(warnings, key=lambda row: row.time)[-KEPT:],
            warned,
            together(self._worst.values()) if has_looked else None,
            list(self._rows(told)),
        )

    def _forget(self, running: "Mapping[int, Worker]", *, is_watched: bool) -> None:
        """What was told by those that do not run any more, and by whom nobody asks."""
        for number in [each for each in self._heard if each not in running]:
            del self._heard[number]
            self._last.pop(number, None)
            self._worst.pop(number, None)
        if not is_watched:
            self._worst.clear()

    def _added(self, readings: Iterable[Reading], now: float) -> list[float]:
        columns = list(zip(*(each.values for each in readings), strict=True))
        values = {
            name: _one(name, column)
            for name, column in zip(SERIES, columns or [()] * len(SERIES), strict=True)
        }
        # What this process takes is the broker's, too.
        cpu, span = process.cpu_seconds(), max(now - self._when, 1e-3)
        values["cpu"] += 100 * (cpu - self._cpu) / span
        self._cpu, self._when = cpu, now
        return list(values.values())

    def _health(self, running: Iterable[int], told: Mapping[int, Reading]) -> Health:
        """What each says, and what is said of those that say nothing."""
        found: dict[int, Health | str] = {}
        for number in running:
            if number in told:
                found[number] = told[number].health
            elif self._clock() - self._heard[number] > SILENT:
                found[number] = f"worker {number} does not answer: no figures for {SILENT:g} s"
            else:
                found[number] = Health([], [])  # it has just come
        return health_of(self._supervisor, found)

    def _parts(self, readings: Iterable[Reading]) -> list[str]:
        """Which parts run, in any of them; a cluster is one of several hosts."""
        found = dict.fromkeys(part for each in readings for part in each.parts)
        if not self._supervisor.config.cluster.listen:
            found.pop(_CLUSTER, None)
        return list(found)

    def _rows(self, told: Mapping[int, Reading]) -> Iterator[WorkerRow]:
        for number, worker in self._supervisor.workers.items():
            row = WorkerRow(number, str(worker.state), worker.pid, worker.restarts)
            if number in told:
                values = dict(zip(SERIES, told[number].values, strict=True))
                row = replace(row, **{name: round(values[name], 2) for name in _SHOWN})
            yield row


def _one(name: str, column: tuple[float, ...]) -> float:
    """A series of several workers as that of one broker."""
    if name in _GREATEST:
        return max(column, default=0.0)
    if name in _LEAST:
        return min(column, default=0.0)
    return sum(column)


def _named(number: int, rows: Iterable[WarningRow]) -> list[WarningRow]:
    return [replace(row, text=f"worker {number}: {row.text}"[:SHOWN]) for row in rows]


def together(parts: Iterable[Worst]) -> Worst:
    """Who is worst of all that workers told."""
    found: dict[str, dict[tuple[str, str | None], float]] = {}
    for worst in parts:
        for measure, rows in worst.items():
            values = found.setdefault(measure, {})
            for row in rows:
                who = (row.name, row.mountpoint)
                before = values.get(who, 0.0)
                values[who] = before + row.value if measure in _ADDED else max(before, row.value)
    return {
        measure: [
            WorstRow(name, value, tree)
            for (name, tree), value in nlargest(MOST_TOLD, values.items(), lambda each: each[1])
        ]
        for measure, values in found.items()
    }
