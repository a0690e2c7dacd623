"""The workers of a supervisor, as operations ask them."""

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from vmq.http.operation import Operation
from vmq.http.operations import OPERATIONS
from vmq.workers.asking import UnreachableError, WorkerClient
from vmq.workers.process import Worker

if TYPE_CHECKING:
    from vmq.workers.roles import SupervisorView

Row = TypeVar("Row")

#: Every operation by its name.
BY_NAME: Final = {each.name: each for each in OPERATIONS}


class WorkerPage(Struct, Generic[Row]):
    """The rows of one worker."""

    rows: list[Row]
    missing: list[str] = []


def page_in(raw: msgspec.Raw, row: type[Row]) -> WorkerPage[Row]:
    """A listing."""
    # No checker knows a type that comes as a value.
    page: WorkerPage[Row] = msgspec.json.decode(raw, type=WorkerPage[row])  # type: ignore[valid-type]
    return page


def rows_in(raw: msgspec.Raw, row: type[Row]) -> list[Row]:
    """The rows of a listing."""
    return page_in(raw, row).rows


class WorkerPool:
    """Who may be asked, and asks."""

    def __init__(self, supervisor: "SupervisorView", client: WorkerClient) -> None:
        self._supervisor = supervisor
        self._client = client

    def running(self) -> list[Worker]:
        """The workers that can be asked, those that are about to go last.

        Raises:
            UnreachableError: there is none.
        """
        running = [each for each in self._supervisor.workers.values() if each.is_running]
        if not running:
            raise UnreachableError("no worker runs now")
        return running

    def complete(self) -> list[Worker]:
        """All workers that serve, when none may be missing.

        Raises:
            UnreachableError: one does not run now.
        """
        for problem in self.problems():
            raise UnreachableError(f"{problem}; try again")
        return self.running()

    def problems(self) -> list[str]:
        """What is wrong with those that do not run, and should."""
        found = [each.problem() for each in self._supervisor.serving]
        return [problem for problem in found if problem is not None]

    async def ask(self, worker: Worker, operation: Operation, wanted: Any) -> msgspec.Raw:
        """What a worker answers; `wanted` are its parameters.

        Raises:
            AdminError: it refuses, or does not answer.
        """
        parameters = wanted if isinstance(wanted, dict) else msgspec.to_builtins(wanted)
        method, path = operation.method, operation.path
        return msgspec.Raw(await self._client.raw(worker.number, method, path, parameters))

    async def listed(self, name: str, row: type[Row]) -> dict[int, list[Row]]:
        """The whole listing of each worker that serves now."""
        return {
            worker.number: rows_in(await self.ask(worker, BY_NAME[name], {"limit": 0}), row)
            for worker in self._supervisor.serving
            if worker.is_running
        }
