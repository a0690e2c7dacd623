"""What is read each second: the figures of one process, for its page, or for that of several workers."""

import asyncio
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from msgspec import Struct

from vmq.http.dashboard.log_watch import LogWatch, WarningRow
from vmq.http.dashboard.sampler import Sampler
from vmq.http.dashboard.walk import PAUSE, HookTimes, SessionWalk, Worst, most_frequent
from vmq.http.dashboard.worker_row import WorkerRow
from vmq.runtime.health import Health

if TYPE_CHECKING:
    from vmq.ports import BrokerView

#: Seconds between two readings, and between two walks at least.
STEP: Final = 1.0
#: Readings that nobody watches for one look at what is wrong, which costs more than all the rest.
UNWATCHED: Final = 5


class Reading(Struct, frozen=True):
    """One second: a value a series, what is wrong, which parts run."""

    values: list[float]
    health: Health
    parts: list[str]
    #: The last warnings since the reading before, and how many there were.
    warnings: list[WarningRow] = []
    warned: int = 0
    #: Who is worst; None: nobody has looked since the reading before.
    worst: Worst | None = None
    #: The workers; none if there is one process.
    workers: list[WorkerRow] = []


class FigureSource(Protocol):
    """What a feed reads."""

    def start(self) -> None:
        """It is read from now on."""

    def stop(self) -> None:
        """It is read no more."""

    def read(self, *, is_watched: bool) -> Reading:
        """The figures of now; while somebody watches it is looked who is worst, too."""


class BrokerReader:
    """Reads the broker of this process.

    Args:
        broker: which is read.
        clock: monotonic seconds.
    """

    def __init__(self, broker: "BrokerView", clock: Callable[[], float] = time.monotonic) -> None:
        self._broker = broker
        self._clock = clock
        self._sampler = Sampler(broker)
        self._walk = SessionWalk(broker, clock)
        self._hooks = HookTimes(broker)
        self._worst: Worst | None = None
        #: What was wrong at one of the last readings.
        self._health = Health([], [])
        self._reads = 0
        self._watched = asyncio.Event()
        self._walking: asyncio.Task[None] | None = None
        self.log = LogWatch()
        #: How often the sessions were walked over.
        self.walks = 0

    def start(self) -> None:
        """It is read from now on."""
        self.log.start()
        self._walking = asyncio.get_running_loop().create_task(self._keep_walking())

    def stop(self) -> None:
        """It is read no more."""
        if self._walking is not None:
            self._walking.cancel()
            self._walking = None
        self.log.stop()

    def read(self, *, is_watched: bool) -> Reading:
        """The figures of now."""
        worst, self._worst = self._worst, None
        if is_watched:
            self._watched.set()
        else:
            self._watched.clear()
        warnings, warned = self.log.take()
        values = self._sampler.sample(self._clock())
        parts = parts_of(self._broker)
        if is_watched or self._reads % UNWATCHED == 0:
            self._health = self._broker.condition()
        self._reads += 1
        return Reading(values, self._health, parts, warnings, warned, worst)

    async def _keep_walking(self) -> None:
        while True:
            await self._watched.wait()
            await self.walk()
            await asyncio.sleep(pause_after(self._walk.took, len(self._broker.worker_names)))

    async def walk(self) -> None:
        """Looks who is worst; the next reading tells it."""
        self.walks += 1
        worst = await self._walk.once()
        connections = self._broker.connections
        if connections is not None:
            worst["reconnects"] = most_frequent(connections.ended.items())
        worst["logins_refused"] = most_frequent(self.log.refused.items())
        worst["hook_time"] = self._hooks.look()
        self._worst = worst


def pause_after(took: float, workers: int) -> float:
    """Seconds between two walks, where one takes `took` of a processor; workers share what all may take."""
    return max(STEP, PAUSE * took * max(1, workers))


def parts_of(broker: "BrokerView") -> list[str]:
    """Which parts of a broker run, of those that not every broker has."""
    found = []
    if broker.clustering is not None:
        found.append("cluster")
    if broker.streaming is not None:
        found.append("streams")
    if broker.jobs.service is not None:
        found.append("jobs")
    if broker.plugins.loaded or broker.config.plugins:
        found.append("plugins")
    if "vmq_spark" in broker.plugins.loaded:
        found.append("pipelines")
    return found
