"""The frontend: all workers seen as one broker, by the listeners of HTTP and the admin socket."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from vmq.config.options import ListenerOptions
from vmq.core.context import Counters
from vmq.http.admin_socket import AdminSocket, SocketError
from vmq.http.api import add_api, add_dashboard, in_turns
from vmq.http.app import bare_app
from vmq.http.dashboard import files
from vmq.http.dashboard.dashboard import Dashboard
from vmq.http.folder import folder_app
from vmq.http.server import HttpListener
from vmq.runtime.errors import StartError
from vmq.runtime.open_listeners import OpenListeners
from vmq.workers.asking import WorkerClient
from vmq.workers.dispatch import Ways
from vmq.workers.door import WorkerDoor
from vmq.workers.page import WorkersSource
from vmq.workers.pool import WorkerPool
from vmq.workers.tailing import WorkerQueries, WorkerTails
from vmq.workers.tracing import Traces
from vmq.workers.views import Views

if TYPE_CHECKING:
    from vmq.workers.roles import SupervisorView


class Frontend:
    """Answers for the workers of a supervisor."""

    def __init__(self, supervisor: "SupervisorView") -> None:
        self._supervisor = supervisor
        self._counters = Counters()
        self.client = WorkerClient(supervisor.plan.own_folder)
        self.views = Views(supervisor, self.client, self._counters)
        #: The open listeners of HTTP by name.
        self.listeners = OpenListeners(self._listen)
        self.dashboard = Dashboard(WorkersSource(supervisor, self.client, self.listeners))
        self.keys = self.dashboard.api_keys
        self._do = in_turns(self.dashboard, Ways(supervisor, self).do)
        pool = WorkerPool(supervisor, self.client)
        self._live = {
            "/trace": Traces(supervisor, self.client).stream,
            "/stream/tail": WorkerTails(pool, self.client).stream,
            "/sql": WorkerQueries(pool, self.client).serve,
        }
        self._admin: AdminSocket | None = None

    async def open(self) -> None:
        """Opens the listeners, then the admin socket.

        Raises:
            StartError: an address cannot be had.
        """
        for name, options in self._supervisor.config.listeners.items():
            if options.endpoint.scheme == "http":
                await self.open_listener(name)
        admin = AdminSocket(self.dashboard.source.folder, self._admin_app)
        try:
            admin.open()
        except SocketError as error:
            raise StartError(str(error)) from error
        self._admin = admin

    async def _admin_app(self) -> web.Application:
        app = web.Application()
        add_dashboard(app, self.dashboard, trusted=True)
        add_api(app, self._do, self._live, None)
        return app

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
        door = WorkerDoor(name, self._supervisor)
        make_app = partial(self._make_app, options)
        listener = HttpListener(name, options, make_app, self._counters, backlog, door)
        listener.serve()
        return listener

    async def _make_app(self, options: ListenerOptions) -> web.Application:
        if options.serve is not None:
            return folder_app(Path(options.serve), allow_remote=options.allow_remote)
        app = bare_app(self._supervisor.config.limits, allow_remote=options.allow_remote)
        app.add_routes(files.routes())
        app.add_routes(self.views.routes())
        add_dashboard(app, self.dashboard, trusted=False)
        add_api(app, self._do, self._live, self.dashboard)
        return app

    async def close_listener(self, name: str) -> None:
        """Closes a listener of HTTP."""
        await self.listeners.close(name).finish()
