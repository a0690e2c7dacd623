"""What the parts of a supervisor know of it and of its front, which stand above them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from vmq.config.settable import Settable
from vmq.ports import BrokerView

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from vmq.admin.keys import ApiKeys
    from vmq.config.overrides import LiveConfig
    from vmq.http.report import FamilyReport
    from vmq.http.server import HttpListener
    from vmq.runtime.open_listeners import OpenListeners
    from vmq.workers.asking import WorkerClient
    from vmq.workers.plan import Plan
    from vmq.workers.process import Worker


class Figures(Protocol):
    """The metrics of all workers as one."""

    async def families(self) -> dict[str, list[FamilyReport]]: ...


class FrontendView(Protocol):
    """The listeners of HTTP that answer for all workers, as `vmq.workers.frontend.Frontend` has them."""

    @property
    def client(self) -> WorkerClient: ...
    @property
    def keys(self) -> ApiKeys: ...
    @property
    def views(self) -> Figures: ...
    @property
    def listeners(self) -> OpenListeners[HttpListener]: ...

    async def open_listener(self, name: str) -> None: ...
    async def close_listener(self, name: str) -> None: ...


class SupervisorView(Settable, Protocol):
    """The workers of one start, as `vmq.workers.supervisor.Supervisor` has them."""

    @property
    def frontend(self) -> FrontendView: ...
    @property
    def on_left(self) -> Callable[[], None] | None: ...
    @property
    def plan(self) -> Plan: ...
    @property
    def workers(self) -> Mapping[int, Worker]: ...
    @property
    def serving(self) -> list[Worker]: ...
    @property
    def addresses(self) -> list[str]: ...

    async def followed(self) -> list[str]: ...


class WorkerBroker(BrokerView, Protocol):
    """The broker of a worker, which goes by the configuration that its supervisor gives it."""

    def take_over(self, live: LiveConfig) -> list[str]: ...
    def read_files_anew(self) -> None: ...
    async def followed(self) -> list[str]: ...
