"""The figures of each second, encoded once for all pages that are open."""

import asyncio
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec import Struct

from vmq.admin.errors import RefusedError
from vmq.http.dashboard.history import History
from vmq.http.dashboard.log_watch import LogWatch
from vmq.http.dashboard.sampler import SERIES, Sampler
from vmq.http.dashboard.walk import PAUSE, HookTimes, SessionWalk, most_frequent
from vmq.runtime.health import Health

if TYPE_CHECKING:
    from vmq.ports import BrokerView

#: Pages at a time.
MOST_PAGES: Final = 200
STEP: Final = 1.0
#: Figures in a reason change while it stays the same reason.
_FIGURE: Final = re.compile(r"\d+\.\d+")


class Reason(Struct, frozen=True):
    """One thing that is wrong, and since when (seconds since 1970)."""

    text: str
    since: float
    failing: bool


class Tick(Struct, frozen=True):
    """One second: its time, a value a series, what is wrong, which parts run, how many warnings there were."""

    time: int
    values: list[float]
    status: str
    reasons: list[Reason]
    parts: list[str]
    warnings: int


class OpenPage:
    """One page: what it has not been sent yet. Of what is newer than that, the older is left out."""

    def __init__(self) -> None:
        self._pending: dict[str, bytes] = {}
        self._fresh = asyncio.Event()
        self.is_closed = False

    def offer(self, kind: str, data: bytes) -> None:
        """There is something new of a kind."""
        self._pending[kind] = data
        self._fresh.set()

    def close(self) -> None:
        """There will be nothing more."""
        self.is_closed = True
        self._fresh.set()

    async def take(self) -> bytes:
        """All that is new, once there is some."""
        await self._fresh.wait()
        self._fresh.clear()
        data = b"".join(self._pending.values())
        self._pending.clear()
        return data


class ReasonTimes:
    """Since when each thing is wrong."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}

    def see(self, health: Health, now: float) -> list[Reason]:
        """The reasons of now."""
        before, self._since = self._since, {}
        found = []
        for text in health.reasons:
            key = _FIGURE.sub("#", text)
            since = self._since[key] = before.get(key, now)
            found.append(Reason(text, since, text in health.failing))
        return found


class Feed:
    """Reads a broker once a second, and gives what it read to all pages.

    Args:
        broker: which is read.
        clock: monotonic seconds.
        wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        broker: "BrokerView",
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._wall_clock = wall_clock
        self._sampler = Sampler(broker)
        self._reasons = ReasonTimes()
        self._walk = SessionWalk(broker, clock)
        self._hooks = HookTimes(broker)
        self._last: dict[str, bytes] = {}
        self._told = -1
        self.history = History(SERIES)
        self.log = LogWatch()
        self.pages: dict[OpenPage, None] = {}
        #: How often something was encoded, and how often the sessions were walked over.
        self.encodings = 0
        self.walks = 0

    def join(self) -> OpenPage:
        """A page is opened; it has what was told last.

        Raises:
            RefusedError: there are too many.
        """
        if len(self.pages) >= MOST_PAGES:
            raise RefusedError(f"{MOST_PAGES} pages are open already; accepted: fewer")
        page = OpenPage()
        for kind, data in self._last.items():
            page.offer(kind, data)
        self.pages[page] = None
        return page

    def leave(self, page: OpenPage) -> None:
        """A page is closed."""
        self.pages.pop(page, None)

    async def run(self) -> None:
        """Ticks until cancelled, and walks while somebody looks."""
        self.log.start()
        walking = asyncio.create_task(self._keep_walking())
        due = self._clock()
        try:
            while True:
                self.tick()
                due = max(due + STEP, self._clock())
                await asyncio.sleep(due - self._clock())
        finally:
            walking.cancel()
            self.log.stop()

    def tick(self) -> None:
        """One second."""
        now = self._wall_clock()
        values = self._sampler.sample(self._clock())
        self.history.add(int(now), values)
        reasons = self._reasons.see(self._broker.condition(), now)
        if not self.pages:
            self._last.clear()
            self._told = -1
            return
        status = "ok"
        if reasons:
            status = "failing" if any(each.failing for each in reasons) else "degraded"
        parts, count = parts_of(self._broker), self.log.count
        rounded = [round(value, 3) for value in values]
        self._tell("tick", Tick(int(now), rounded, status, reasons, parts, count))
        if count != self._told:
            self._told = count
            self._tell("warnings", list(self.log.rows))

    async def _keep_walking(self) -> None:
        while True:
            pause = STEP
            if self.pages:
                await self.walk()
                pause = max(STEP, PAUSE * self._walk.took)
            await asyncio.sleep(pause)

    async def walk(self) -> None:
        """Looks who is worst, and tells it."""
        self.walks += 1
        worst = await self._walk.once()
        connections = self._broker.connections
        if connections is not None:
            worst["reconnects"] = most_frequent(connections.ended.items())
        worst["logins_refused"] = most_frequent(self.log.refused.items(), 1)
        worst["hook_time"] = self._hooks.look()
        self._tell("worst", worst)

    def _tell(self, kind: str, what: object) -> None:
        """Encodes it once, whoever is there."""
        self.encodings += 1
        data = b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode(what))
        self._last[kind] = data
        for page in self.pages:
            page.offer(kind, data)

    def close(self) -> None:
        """Ends all pages."""
        for page in list(self.pages):
            page.close()
        self.pages.clear()


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
