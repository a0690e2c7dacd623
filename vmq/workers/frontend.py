"""The frontend: all workers seen as one broker, by the listeners of HTTP and the admin socket."""

from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from vmq.admin.keys import ApiKeys
from vmq.config.options import ListenerOptions
from vmq.core.context import Counters
from vmq.http.admin_socket import AdminSocket, SocketError
from vmq.http.api import add_api
from vmq.http.app import bare_app
from vmq.http.folder import folder_app
from vmq.http.home import show_home
from vmq.http.server import HttpListener, open_http
from vmq.runtime.errors import StartError
from vmq.runtime.open_listeners import OpenListeners
from vmq.workers.asking import WorkerClient
from vmq.workers.dispatch import Ways
from vmq.workers.pool import WorkerPool
from vmq.workers.tailing import WorkerTails
from vmq.workers.tracing import Traces
from vmq.workers.views import Views

if TYPE_CHECKING:
    from vmq.workers.roles import SupervisorView


class Frontend:
    """Answers for the workers of a supervisor."""

    def __init__(self, supervisor: "SupervisorView") -> None:
        self._supervisor = supervisor
        self._counters = Counters()
        folder = Path(supervisor.config.broker.data_dir)
        self.keys: ApiKeys = ApiKeys(folder)
        self.client = WorkerClient(supervisor.plan.own_folder)
        self.views = Views(supervisor, self.client, self._counters)
        self.ways = Ways(supervisor, self)
        self._live = {
            "/trace": Traces(supervisor, self.client).stream,
            "/stream/tail": WorkerTails(WorkerPool(supervisor, self.client), self.client).stream,
        }
        self._folder = folder
        self._admin: AdminSocket | None = None
        #: The open listeners of HTTP by name.
        self.listeners = OpenListeners(self._listen)

    async def open(self) -> None:
        """Opens the listeners, then the admin socket.

        Raises:
            StartError: an address cannot be had.
        """
        for name, options in self._supervisor.config.listeners.items():
            if options.endpoint.scheme == "http":
                await self.open_listener(name)
        app = web.Application()
        add_api(app, self.ways.do, self._live, None)
        admin = AdminSocket(app, self._folder)
        try:
            await admin.start()
        except SocketError as error:
            raise StartError(str(error)) from error
        self._admin = admin

    async def close(self) -> None:
        """Closes everything."""
        if self._admin is not None:
            await self._admin.stop()
            self._admin = None
        for name in list(self.listeners):
            await self.close_listener(name)
        await self.client.close()

    async def open_listener(self, name: str) -> None:
        """Opens a listener of HTTP.

        Raises:
            StartError: its address cannot be had.
        """
        await self.listeners.open(name, self._supervisor.config.listeners[name])

    async def _listen(self, name: str, options: ListenerOptions) -> HttpListener:
        backlog = self._supervisor.config.network.backlog
        if options.serve is not None:
            files = folder_app(Path(options.serve), allow_remote=options.allow_remote)
            return await open_http(name, options, files, self._counters, backlog)
        app = bare_app(allow_remote=options.allow_remote)
        # Several processes have no live page: what there is has links.
        app.router.add_get("/", show_home)
        app.add_routes(self.views.routes())
        add_api(app, self.ways.do, self._live, self.keys)
        return await open_http(name, options, app, self._counters, backlog)

    async def close_listener(self, name: str) -> None:
        """Closes a listener of HTTP."""
        await self.listeners.close(name).finish()
