"""What a worker tells the front of several of them, on its admin socket, beside the API's operations.

POST /live/branches   branches of its tree of topics
GET  /live/hooks      what its plugins' hooks took and said
GET  /live/samples    its metrics with their labels
POST /live/let-in     whether its plugins let a user in
"""

from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web
from msgspec import Struct

from vmq.http.dashboard.dashboard import dashboard_of
from vmq.http.dashboard.routes import Handler, LiveRoutes, json_of

if TYPE_CHECKING:
    from vmq.ports import BrokerView

BRANCHES: Final = "/live/branches"
HOOKS: Final = "/live/hooks"
SAMPLES: Final = "/live/samples"
LET_IN: Final = "/live/let-in"


class WantedBranches(Struct, frozen=True):
    """Which branches, in how many rows each at most."""

    paths: list[str]
    most: int


class WantedUser(Struct, frozen=True):
    """Who wants to come in, from where."""

    user: str
    password: str
    address: str


class ForFront:
    """Answers for one worker; its supervisor alone asks."""

    def __init__(self, broker: "BrokerView") -> None:
        self._dashboard = dashboard_of(broker)
        live = LiveRoutes(self._dashboard, None)
        self.asked: dict[str, Handler] = {HOOKS: live.hooks, SAMPLES: live.samples}
        self.told: dict[str, Handler] = {BRANCHES: self._branches, LET_IN: self._let_in}

    async def _branches(self, request: web.Request) -> web.StreamResponse:
        wanted = msgspec.json.decode(await request.read(), type=WantedBranches)
        found = await self._dashboard.topics.branches(wanted.paths, wanted.most * len(wanted.paths))
        return json_of(found)

    async def _let_in(self, request: web.Request) -> web.StreamResponse:
        wanted = msgspec.json.decode(await request.read(), type=WantedUser)
        await self._dashboard.source.let_in(wanted.user, wanted.password, wanted.address)
        return json_of(None)
