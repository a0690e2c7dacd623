"""How each operation of the API is done where several workers are one broker."""

import re
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

import msgspec
from msgspec import Struct

from vmq.admin import keys, options
from vmq.admin.errors import AdminError, NotFoundError, RefusedError
from vmq.admin.listeners import ListenerRow
from vmq.admin.listing import Listing, Selection
from vmq.admin.metrics import MetricRow
from vmq.admin.plugins import PluginRow
from vmq.broker import StartError
from vmq.config_text import toml_value
from vmq.http.operations import OPERATIONS, Operation, Result
from vmq.workers import figures
from vmq.workers.asking import UnreachableError

if TYPE_CHECKING:
    from vmq.workers.face import Face
    from vmq.workers.process import Worker
    from vmq.workers.supervisor import Supervisor

Row = TypeVar("Row")
Done = Result | msgspec.Raw


class Way(Enum):
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
    #: Nobody: it cannot be had with several workers.
    NOBODY = auto()


WAYS: Final[Mapping[str, Way]] = {
    "list_sessions": Way.ALL,
    "show_session": Way.OWNER,
    "disconnect": Way.OWNER,
    "unsubscribe": Way.OWNER,
    "peek": Way.OWNER,
    "purge": Way.OWNER,
    "list_retained": Way.ANY,
    "delete_retained": Way.ANY,
    "show_retained": Way.ANY,
    "list_listeners": Way.HERE,
    "start_listener": Way.HERE,
    "stop_listener": Way.HERE,
    "list_members": Way.ANY,
    "join_cluster": Way.HERE,
    "leave_cluster": Way.HERE,
    "remove_member": Way.HERE,
    "list_plugins": Way.HERE,
    "enable_plugin": Way.HERE,
    "disable_plugin": Way.HERE,
    "reload_plugin": Way.HERE,
    "list_streams": Way.ANY,
    "show_stream": Way.ANY,
    "create_stream": Way.NOBODY,
    "delete_stream": Way.ANY,
    "list_metrics": Way.HERE,
    "list_options": Way.HERE,
    "set_option": Way.HERE,
    "reset_option": Way.HERE,
    "why": Way.OWNER_OR_ANY,
    "list_api_keys": Way.HERE,
    "create_api_key": Way.HERE,
    "delete_api_key": Way.HERE,
}

_BY_NAME: Final = {each.name: each for each in OPERATIONS}


class Page(Struct, Generic[Row]):
    """The rows of one worker."""

    rows: list[Row]


class Ways:
    """Does operations on the workers of a supervisor."""

    def __init__(self, supervisor: "Supervisor", face: "Face") -> None:
        self._supervisor = supervisor
        self._face = face
        self._here: dict[str, Callable[[Any], Done | Awaitable[Done]]] = {
            "list_listeners": self._list_listeners,
            "start_listener": self._start_listener,
            "stop_listener": self._stop_listener,
            "join_cluster": self._join_cluster,
            "leave_cluster": self._leave_cluster,
            "remove_member": self._remove_member,
            "list_plugins": self._list_plugins,
            "enable_plugin": lambda wanted: self._plugin("enable_plugin", wanted.name, True),
            "disable_plugin": lambda wanted: self._plugin("disable_plugin", wanted.name, False),
            "reload_plugin": lambda wanted: self._plugin("reload_plugin", wanted.name, None),
            "list_metrics": self._list_metrics,
            "list_options": lambda wanted: Listing(
                options.OptionRow, options.list_options(supervisor), wanted
            ),
            "set_option": self._set_option,
            "reset_option": self._reset_option,
            "list_api_keys": lambda wanted: Listing(keys.KeyRow, face.keys.list_keys(), wanted),
            "create_api_key": lambda wanted: face.keys.create(
                keys.check_name(wanted.name), wanted.scope
            ),
            "delete_api_key": lambda wanted: face.keys.delete(wanted.id),
        }

    def do(self, operation: Operation, wanted: Any) -> Done | Awaitable[Done]:
        """Does an operation in the way that the table says.

        Raises:
            AdminError: it was not done; later, where the answer is awaited.
        """
        match WAYS[operation.name]:
            case Way.ALL:
                return self._all(operation, wanted)
            case Way.OWNER:
                return self._owner(operation, wanted)
            case Way.OWNER_OR_ANY:
                return self._owner_or_any(operation, wanted)
            case Way.ANY:
                return self._any(operation, wanted)
            case Way.HERE:
                return self._here[operation.name](wanted)
            case Way.NOBODY:
                raise RefusedError("streams are kept by one process; accepted: broker.workers = 1")

    # --- ways

    async def _ask(self, worker: "Worker", operation: Operation, wanted: Any) -> msgspec.Raw:
        parameters = wanted if isinstance(wanted, dict) else msgspec.to_builtins(wanted)
        raw = await self._face.client.raw(
            worker.number, operation.method, operation.path, parameters
        )
        return msgspec.Raw(raw)

    def _running(self) -> "list[Worker]":
        """The workers that can be asked, those that are about to go last.

        Raises:
            UnreachableError: there is none.
        """
        running = [each for each in self._supervisor.workers.values() if each.is_running]
        if not running:
            raise UnreachableError("no worker runs now")
        return running

    def _complete(self) -> "list[Worker]":
        """The workers that serve, all of them.

        Raises:
            UnreachableError: one does not run now.
        """
        for worker in self._supervisor.serving:
            problem = worker.problem()
            if problem is not None:
                raise UnreachableError(f"{problem}; try again")
        return self._running()

    async def _any(self, operation: Operation, wanted: Any) -> msgspec.Raw:
        return await self._ask(self._running()[0], operation, wanted)

    async def _owner(self, operation: Operation, wanted: Any) -> msgspec.Raw:
        absent: NotFoundError | None = None
        for worker in self._running():
            try:
                return await self._ask(worker, operation, wanted)
            except NotFoundError as error:
                # Where there is the session, the answer says more: that it lacks a subscription, for example.
                if absent is None or "no session" in str(absent):
                    absent = error
        assert absent is not None
        missing = [
            text for each in self._supervisor.serving if (text := each.problem()) is not None
        ]
        if missing:
            raise UnreachableError(f"{absent}, but {'; '.join(missing)}")
        raise absent

    async def _owner_or_any(self, operation: Operation, wanted: Any) -> msgspec.Raw:
        one = {"client_id": wanted.client_id, "mountpoint": wanted.mountpoint}
        for worker in self._running():
            try:
                await self._ask(worker, _BY_NAME["show_session"], one)
            except NotFoundError:
                continue
            return await self._ask(worker, operation, wanted)
        return await self._any(operation, wanted)

    async def _all(self, operation: Operation, wanted: Any) -> Listing[Any]:
        # Each may have all the rows that are wanted, and one that tells that there are more.
        part = msgspec.to_builtins(wanted) | {
            "offset": 0,
            "limit": wanted.limit and wanted.offset + wanted.limit + 1,
        }
        rows = await self._rows(operation, part, operation.row)
        rest = Selection(sort=wanted.sort, limit=wanted.limit, offset=wanted.offset)
        return Listing(operation.row, rows, rest)

    async def _rows(self, operation: Operation, part: dict[str, Any], row: type[Row]) -> list[Row]:
        """The rows of all workers; a mountpoint that only some of them know is none of the others' faults."""
        rows: list[Row] = []
        absent: NotFoundError | None = None
        known = False
        for worker in self._running():
            try:
                raw = await self._ask(worker, operation, part)
            except NotFoundError as error:
                absent = error
                continue
            known = True
            rows += msgspec.json.decode(raw, type=Page[row]).rows  # type: ignore[valid-type]
        if absent is not None and not known:
            raise absent
        return rows

    async def _by_worker(self, name: str, row: type[Row]) -> dict[int, list[Row]]:
        """The whole listing of each worker that serves now."""
        found: dict[int, list[Row]] = {}
        for worker in self._supervisor.serving:
            if worker.is_running:
                raw = await self._ask(worker, _BY_NAME[name], {"limit": 0})
                found[worker.number] = msgspec.json.decode(raw, type=Page[row]).rows  # type: ignore[valid-type]
        return found

    # --- listeners

    async def _list_listeners(self, wanted: Selection) -> Listing[Any]:
        rows = await self._listener_rows()
        return Listing(ListenerRow, list(rows.values()), wanted)

    async def _listener_rows(self) -> dict[str, ListenerRow]:
        config = self._supervisor.config
        reported = await self._by_worker("list_listeners", ListenerRow)
        rows: dict[str, ListenerRow] = {}
        for name, listener in config.listeners.items():
            servers = self._supervisor.plan.servers(name, config)
            if not servers:
                url = self._face.urls.get(name)
                rows[name] = ListenerRow(
                    name=name,
                    status="stopped" if url is None else "running",
                    url=url or listener.url,
                    connections=0,
                    mountpoint=None,
                    allow_anonymous=None,
                )
                continue
            parts = [
                row for number in servers for row in reported.get(number, ()) if row.name == name
            ]
            if parts:
                rows[name] = msgspec.structs.replace(
                    parts[0],
                    status=min(each.status for each in parts),  # running, if it is so anywhere
                    connections=sum(each.connections for each in parts),
                )
        return rows

    async def _start_listener(self, wanted: Any) -> Done:
        name = wanted.name
        servers = self._servers_of(name)
        if servers:
            return await self._switch("start_listener", name, servers)
        if name in self._face.listeners:
            raise RefusedError(f"listener {name!r} runs already")
        try:
            await self._face.open_listener(name)
        except StartError as error:
            raise RefusedError(str(error)) from None
        return (await self._listener_rows())[name]

    async def _stop_listener(self, wanted: Any) -> Done:
        name = wanted.name
        servers = self._servers_of(name)
        if servers:
            return await self._switch("stop_listener", name, servers)
        if name not in self._face.listeners:
            raise RefusedError(f"listener {name!r} is stopped already")
        await self._face.close_listener(name)
        return (await self._listener_rows())[name]

    def _servers_of(self, name: str) -> list[int]:
        config = self._supervisor.config
        if name not in config.listeners:
            names = ", ".join(config.listeners)
            raise NotFoundError(f"there is no listener {name!r}; accepted: {names}")
        return self._supervisor.plan.servers(name, config)

    async def _switch(self, operation: str, name: str, servers: list[int]) -> Done:
        """Opens or closes a listener in every worker that has it; a restarted worker has it likewise."""
        for worker in self._complete():
            if worker.number in servers:
                await self._ask(worker, _BY_NAME[operation], {"name": name})
        stopped = self._supervisor.plan.stopped
        stopped.add(name) if operation == "stop_listener" else stopped.discard(name)
        return (await self._listener_rows())[name]

    # --- plugins

    async def _list_plugins(self, wanted: Selection) -> Listing[Any]:
        return Listing(PluginRow, list((await self._plugin_rows()).values()), wanted)

    async def _plugin_rows(self) -> dict[str, PluginRow]:
        rows: dict[str, PluginRow] = {}
        for reported in (await self._by_worker("list_plugins", PluginRow)).values():
            for row in reported:
                found = rows.get(row.name)
                rows[row.name] = row if found is None else _together(found, row)
        return rows

    async def _plugin(self, operation: str, name: str, runs: bool | None) -> Done:
        """Has every worker do something with a plugin; `runs`: whether one that starts later is to have it."""
        workers = self._complete()
        for worker in workers:
            try:
                await self._ask(worker, _BY_NAME[operation], {"name": name})
            except AdminError as error:
                if worker is workers[0]:
                    raise  # nothing has changed anywhere
                raise RefusedError(f"worker {worker.number}, after others did: {error}") from None
        if runs is not None:
            self._supervisor.plan.plugins[name] = runs
        rows = await self._plugin_rows()
        if name not in rows:
            raise NotFoundError(f"there is no plugin {name!r} any more")
        return rows[name]

    # --- the cluster that the workers belong to

    async def _join_cluster(self, wanted: Any) -> Done:
        if not self._supervisor.config.cluster.listen:
            raise RefusedError(
                "the workers are linked on this machine only; other nodes need cluster.listen"
            )
        return await self._any(_BY_NAME["join_cluster"], wanted)

    async def _leave_cluster(self, wanted: Any) -> Done:
        workers = self._complete()
        own = {self._supervisor.plan.node_name(each.number) for each in workers}
        raw = await self._ask(workers[0], _BY_NAME["list_members"], {"limit": 0})
        members = msgspec.json.decode(raw, type=Page[dict[str, Any]]).rows
        if not any(each["status"] == "joined" and each["node"] not in own for each in members):
            raise RefusedError("the workers are in no cluster but their own")
        left = [await self._ask(each, _BY_NAME["leave_cluster"], wanted) for each in workers]
        complete = all(msgspec.json.decode(each)["complete"] for each in left)
        row = {"node": " ".join(sorted(own)), "complete": complete}
        return msgspec.Raw(msgspec.json.encode(row))

    async def _remove_member(self, wanted: Any) -> Done:
        name = re.escape(self._supervisor.plan.name)
        own = re.fullmatch(rf"{name}-(\d+)", wanted.node)
        if own is not None and int(own[1]) in self._supervisor.workers:
            raise RefusedError(
                f"{wanted.node!r} is a worker of this broker: it goes when broker.workers is lowered"
            )
        return await self._any(_BY_NAME["remove_member"], wanted)

    # --- figures and options

    async def _list_metrics(self, wanted: Selection) -> Listing[Any]:
        rows = figures.rows_of(await self._face.views.families())
        return Listing(MetricRow, rows, wanted)

    async def _set_option(self, wanted: Any) -> Done:
        value = wanted.value if isinstance(wanted.value, str) else toml_value(wanted.value)
        changed = options.set_option(self._supervisor, wanted.option, value)
        await self._supervisor.delivered()
        return changed

    async def _reset_option(self, wanted: Any) -> Done:
        changed = options.reset_option(self._supervisor, wanted.option)
        await self._supervisor.delivered()
        return changed


def _together(one: PluginRow, other: PluginRow) -> PluginRow:
    """A plugin as two workers have it: it runs if it does in one of them, and fares as it does where it fares worst."""
    runs = one if one.status == "running" else other
    return msgspec.structs.replace(
        runs,
        breaker=max(one.breaker, other.breaker, key=lambda state: state != "closed"),
        errors=one.errors + other.errors,
        timeouts=one.timeouts + other.timeouts,
    )
