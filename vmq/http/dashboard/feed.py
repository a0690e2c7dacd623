"""The figures of each second, encoded once for all pages that are open."""

import asyncio
import re
import time
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec import Struct

from vmq.admin.errors import RefusedError
from vmq.http.dashboard.history import History
from vmq.http.dashboard.log_watch import KEPT, WarningRow
from vmq.http.dashboard.reading import STEP, FigureSource
from vmq.http.dashboard.sampler import SERIES
from vmq.http.dashboard.walk import shown
from vmq.http.dashboard.worker_row import WorkerRow
from vmq.runtime.health import Health
from vmq_cluster.ticks import sleep_to_tick

#: Pages at a time.
MOST_PAGES: Final = 200
#: Figures in a reason change while it stays the same reason.
_FIGURE: Final = re.compile(r"\d+\.\d+")


class Reason(Struct, frozen=True):
    """One thing that is wrong, and since when (seconds since 1970)."""

    text: str
    since: float
    failing: bool


class Tick(Struct, frozen=True, omit_defaults=True):
    """One second: its time, a value a series, what is wrong, which parts run, how many warnings there were; workers."""

    time: int
    values: list[float]
    status: str
    reasons: list[Reason]
    parts: list[str]
    warnings: int
    workers: list[WorkerRow] = []


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
    """Gives all pages what is read once a second.

    Args:
        source: what is read.
        wall_clock: seconds since 1970.
    """

    def __init__(
        self,
        source: FigureSource,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._wall_clock = wall_clock
        self._reasons = ReasonTimes()
        self._last: dict[str, bytes] = {}
        #: The last warnings, how many there were, and how many when pages were told.
        self._warnings: deque[WarningRow] = deque(maxlen=KEPT)
        self._warned = 0
        self._told = -1
        self.history = History(SERIES)
        self.pages: dict[OpenPage, None] = {}
        #: How often something was encoded.
        self.encodings = 0

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
        """Ticks until cancelled."""
        self._source.start()
        try:
            while True:
                self.tick()
                await sleep_to_tick(STEP)
        finally:
            self._source.stop()

    def tick(self) -> None:
        """One second."""
        now = self._wall_clock()
        reading = self._source.read(is_watched=bool(self.pages))
        self.history.add(int(now), reading.values)
        self._warnings.extend(reading.warnings)
        self._warned += reading.warned
        reasons = self._reasons.see(reading.health, now)
        if not self.pages:
            self._last.clear()
            self._told = -1
            return
        rounded = [round(value, 3) for value in reading.values]
        status, parts, workers = reading.health.status, reading.parts, reading.workers
        tick = Tick(int(now), rounded, status, reasons, parts, self._warned, workers)
        self._tell("tick", tick)
        if self._warned != self._told:
            self._told = self._warned
            self._tell("warnings", list(self._warnings))
        if reading.worst is not None:
            self._tell("worst", shown(reading.worst))

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
