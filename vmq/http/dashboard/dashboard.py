"""The dashboard of a broker: one, however many listeners serve it."""

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary, proxy

from vmq.admin.keys import ApiKeys, KeyRow
from vmq.http.dashboard.feed import Feed
from vmq.http.dashboard.logins import PageLogins
from vmq.http.dashboard.source import BrokerSource, PageSource
from vmq.http.dashboard.tokens import PageKeys
from vmq.http.dashboard.topics import TopicTree

if TYPE_CHECKING:
    from vmq.ports import BrokerView

#: Seconds between two walks over all sessions that pages ask for.
WALK_PAUSE: Final = 1.0


class Dashboard:
    """Figures, and who may see them. It reads its source from its first `start` to its last `stop`."""

    def __init__(self, source: PageSource) -> None:
        self.source = source
        self.page_keys = PageKeys(source.folder)
        self.logins = PageLogins(source)
        self.api_keys: ApiKeys = ApiKeys(source.folder)
        self.feed = Feed(source.figures)
        self.topics = TopicTree(source.topics, time.monotonic)
        #: Another one each time that the broker is started.
        self.run = secrets.token_hex(8)
        self._users = 0
        self._task: asyncio.Task[None] | None = None
        self._walks = asyncio.Lock()
        self._walked = float("-inf")

    def start(self) -> None:
        """One more listener serves it."""
        self._users += 1
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self.feed.run())

    async def stop(self) -> None:
        """One listener less serves it."""
        self._users -= 1
        if self._users or self._task is None:
            return
        task, self._task = self._task, None
        task.cancel()
        await asyncio.wait([task])

    def find(self, key: str) -> KeyRow | None:
        """What a key is good for, be it an API key or that of a page; None: it is none."""
        return self.page_keys.find(key, self.logins.scope_of) or self.api_keys.find(key)

    async def walk_turn(self) -> None:
        """Returns when a page may have all sessions walked over: once a second for all of them together."""
        async with self._walks:
            await asyncio.sleep(max(0.0, self._walked + WALK_PAUSE - time.monotonic()))
            self._walked = time.monotonic()


_dashboards: "WeakKeyDictionary[BrokerView, Dashboard]" = WeakKeyDictionary()


def dashboard_of(broker: "BrokerView") -> Dashboard:
    """The dashboard of the broker of this process, made when first asked for."""
    found = _dashboards.get(broker)
    if found is None:
        # A dashboard that held its broker would keep both for good: what a dictionary holds is never let go.
        found = _dashboards[broker] = Dashboard(BrokerSource(proxy(broker)))
    return found
