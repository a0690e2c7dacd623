"""How each operation of the API is done where several workers are one broker."""

from collections.abc import Awaitable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from vmq.admin.errors import NotFoundError
from vmq.admin.listing import Listing, Selection
from vmq.http.operation import Operation
from vmq.workers.asking import UnreachableError
from vmq.workers.local import Done, SupervisorOperations
from vmq.workers.pool import BY_NAME, WorkerPool, page_in

if TYPE_CHECKING:
    from vmq.workers.roles import FrontendView, SupervisorView

Row = TypeVar("Row")


class Dispatch(Enum):
    """Who does an operation."""

    #: Every worker lists what it has; the rows become one listing.
    ALL = auto()
    #: The worker that has the client's session.
    OWNER = auto()
    #: The worker that has the client's session; without one, any.
    OWNER_OR_ANY = auto()
    #: Any worker: all have the same, or pass on what they are told.
    ANY = auto()
    #: The supervisor, which may ask the workers for parts of it.
    HERE = auto()


WAYS: Final[Mapping[str, Dispatch]] = {
    "list_sessions": Dispatch.ALL,
    "show_session": Dispatch.OWNER,
    "disconnect": Dispatch.OWNER,
    "unsubscribe": Dispatch.OWNER,
    "peek": Dispatch.OWNER,
    "purge": Dispatch.OWNER,
    "list_retained": Dispatch.ANY,
    "delete_retained": Dispatch.ANY,
    "show_retained": Dispatch.ANY,
    "list_bans": Dispatch.ANY,
    "add_ban": Dispatch.HERE,
    "remove_ban": Dispatch.ANY,
    "list_listeners": Dispatch.HERE,
    "start_listener": Dispatch.HERE,
    "stop_listener": Dispatch.HERE,
    "list_members": Dispatch.ANY,
    "join_cluster": Dispatch.HERE,
    "leave_cluster": Dispatch.HERE,
    "drain_node": Dispatch.HERE,
    "remove_member": Dispatch.HERE,
    "list_plugins": Dispatch.HERE,
    "enable_plugin": Dispatch.HERE,
    "disable_plugin": Dispatch.HERE,
    "reload_plugin": Dispatch.HERE,
    "shadow_plugin": Dispatch.HERE,
    "show_shadow": Dispatch.HERE,
    "list_streams": Dispatch.HERE,
    "show_stream": Dispatch.ANY,
    "create_stream": Dispatch.ANY,
    "delete_stream": Dispatch.ANY,
    "scrub_stream": Dispatch.HERE,
    # Workers of one host have no replicas: any of them says so.
    "alter_stream": Dispatch.ANY,
    "move_partition": Dispatch.ANY,
    "transfer_partition": Dispatch.ANY,
    "rebalance_stream": Dispatch.ANY,
    "recover_stream": Dispatch.ANY,
    "accept_loss": Dispatch.ANY,
    # Nodes of a cluster have no groups, and workers are nodes: any of them says so.
    "list_groups": Dispatch.ANY,
    "show_group": Dispatch.ANY,
    "reset_group": Dispatch.ANY,
    "delete_group": Dispatch.ANY,
    "list_metrics": Dispatch.HERE,
    "list_options": Dispatch.HERE,
    "set_option": Dispatch.HERE,
    "reset_option": Dispatch.HERE,
    "why": Dispatch.OWNER_OR_ANY,
    "why_subscribe": Dispatch.OWNER_OR_ANY,
    "why_receive": Dispatch.OWNER_OR_ANY,
    "publish": Dispatch.ANY,
    "list_api_keys": Dispatch.HERE,
    "create_api_key": Dispatch.HERE,
    "delete_api_key": Dispatch.HERE,
    # Each knows what the others have, as nodes of a cluster do.
    "list_job_queues": Dispatch.ANY,
    "show_job_queue": Dispatch.ANY,
    "purge_job_queue": Dispatch.ANY,
    "peek_jobs": Dispatch.ANY,
    "show_job": Dispatch.ANY,
    "add_job": Dispatch.ANY,
    "delete_job": Dispatch.ANY,
    "take_jobs": Dispatch.ANY,
    "pause_job_queue": Dispatch.ANY,
    "resume_job_queue": Dispatch.ANY,
    "retry_jobs": Dispatch.ANY,
    "list_schedules": Dispatch.HERE,
    "dump_jobs": Dispatch.ANY,
    "load_jobs": Dispatch.ANY,
    "why_job": Dispatch.ANY,
    "list_mappings": Dispatch.HERE,
    "try_mapping": Dispatch.ANY,
    "enable_mapping": Dispatch.HERE,
    "disable_mapping": Dispatch.HERE,
}


class Ways:
    """Does operations on the workers of a supervisor."""

    def __init__(self, supervisor: "SupervisorView", frontend: "FrontendView") -> None:
        self._pool = pool = WorkerPool(supervisor, frontend.client)
        self._here = SupervisorOperations(supervisor, frontend, pool)

    def do(self, operation: Operation, wanted: Any) -> Done | Awaitable[Done]:
        """Does an operation in the way that the table says.

        Raises:
            AdminError: it was not done; later, where the answer is awaited.
        """
        match WAYS[operation.name]:
            case Dispatch.ALL:
                return self._all(operation, wanted)
            case Dispatch.OWNER:
                return self._owner(operation, wanted)
            case Dispatch.OWNER_OR_ANY:
                return self._owner_or_any(operation, wanted)
            case Dispatch.ANY:
                return self._any(operation, wanted)
            case Dispatch.HERE:
                return self._here.operations[operation.name](wanted)

    async def _any(self, operation: Operation, wanted: Any) -> msgspec.Raw:
        return await self._pool.ask(self._pool.running()[0], operation, wanted)

    async def _owner(self, operation: Operation, wanted: Any) -> msgspec.Raw:
        absent: NotFoundError | None = None
        for worker in self._pool.running():
            try:
                return await self._pool.ask(worker, operation, _of_its_own(operation, wanted))
            except NotFoundError as error:
                # Where there is the session, the answer says more: that it lacks a subscription, for example.
                if absent is None or "no session" in str(absent):
                    absent = error
        assert absent is not None
        if not getattr(wanted, "local", True):
            return await self._any(operation, wanted)  # another node of the cluster may have it
        missing = "; ".join(self._pool.problems())
        if missing:
            raise UnreachableError(f"{absent}, but {missing}")
        raise absent

    async def _owner_or_any(self, operation: Operation, wanted: Any) -> msgspec.Raw:
        one = {"client_id": wanted.client_id, "mountpoint": wanted.mountpoint, "local": True}
        for worker in self._pool.running():
            try:
                await self._pool.ask(worker, BY_NAME["show_session"], one)
            except NotFoundError:
                continue
            return await self._pool.ask(worker, operation, wanted)
        return await self._any(operation, wanted)

    async def _all(self, operation: Operation, wanted: Any) -> Listing[Any]:
        # Each may have all the rows that are wanted, and one that tells that there are more.
        part = msgspec.to_builtins(wanted) | {
            "offset": 0,
            "limit": wanted.limit and wanted.offset + wanted.limit + 1,
        }
        missing: list[str] = []
        rows = await self._rows(operation, part, operation.row, missing)
        rest = Selection(sort=wanted.sort, limit=wanted.limit, offset=wanted.offset)
        return Listing(operation.row, rows, rest, missing=missing)

    async def _rows(
        self, operation: Operation, part: dict[str, Any], row: type[Row], missing: list[str]
    ) -> list[Row]:
        """The rows of all workers; a mountpoint that only some of them know is none of the others' faults.

        Nodes that have not answered join the `missing`.
        """
        rows: list[Row] = []
        absent: NotFoundError | None = None
        known = False
        for number, worker in enumerate(self._pool.running()):
            if number:
                part = _of_its_own(
                    operation, part
                )  # what is on other nodes, the first one has told
            try:
                raw = await self._pool.ask(worker, operation, part)
            except NotFoundError as error:
                absent = error
                continue
            known = True
            page = page_in(raw, row)
            rows += page.rows
            missing += page.missing
        if absent is not None and not known:
            raise absent
        return rows


def _of_its_own(operation: Operation, wanted: Any) -> dict[str, Any]:
    """Parameters with which a worker answers for itself, not for the rest of its cluster."""
    parameters: dict[str, Any] = (
        dict(wanted) if isinstance(wanted, dict) else msgspec.to_builtins(wanted)
    )
    if "local" in operation.parameters.__struct_fields__:
        parameters["local"] = True
    return parameters
