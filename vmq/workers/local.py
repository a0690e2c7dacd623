"""What the supervisor does itself where several workers are one broker; it asks the workers for parts of it."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import msgspec

from vmq.admin import keys, options
from vmq.admin.bans import BanAdded
from vmq.admin.cluster import Joined
from vmq.admin.errors import AdminError, NotFoundError, RefusedError
from vmq.admin.jobs.mappings import MappingRow, added
from vmq.admin.listeners import ListenerRow
from vmq.admin.listing import Listing, Selection
from vmq.admin.metrics import MetricRow
from vmq.admin.plugins import PluginRow
from vmq.admin.streams import StreamRow
from vmq.config.text import toml_value
from vmq.http.operation import Result
from vmq.runtime.errors import StartError
from vmq.workers import figures
from vmq.workers.asking import UnreachableError
from vmq.workers.pool import BY_NAME, WorkerPool, rows_in

if TYPE_CHECKING:
    from vmq.workers.roles import FrontendView, SupervisorView

Done = Result | msgspec.Raw


class SupervisorOperations:
    """Operations by their names."""

    def __init__(
        self, supervisor: "SupervisorView", frontend: "FrontendView", pool: WorkerPool
    ) -> None:
        self._supervisor = supervisor
        self._frontend = frontend
        self._pool = pool
        self.operations: dict[str, Callable[[Any], Done | Awaitable[Done]]] = {
            "add_ban": self._add_ban,
            "list_listeners": self._list_listeners,
            "start_listener": self._start_listener,
            "stop_listener": self._stop_listener,
            "join_cluster": self._join_cluster,
            "leave_cluster": self._leave_cluster,
            "drain_node": self._drain_node,
            "remove_member": self._remove_member,
            "list_plugins": self._list_plugins,
            "enable_plugin": lambda wanted: self._plugin("enable_plugin", wanted, True),
            "disable_plugin": lambda wanted: self._plugin("disable_plugin", wanted, False),
            "reload_plugin": lambda wanted: self._plugin("reload_plugin", wanted, None),
            "shadow_plugin": _no_shadow,
            "show_shadow": _no_shadow,
            "list_streams": self._list_streams,
            "scrub_stream": self._scrub_stream,
            "list_schedules": self._list_schedules,
            "list_mappings": self._list_mappings,
            "enable_mapping": partial(self._switch_mapping, "enable_mapping"),
            "disable_mapping": partial(self._switch_mapping, "disable_mapping"),
            "list_metrics": self._list_metrics,
            "list_options": lambda wanted: Listing(
                options.OptionRow, options.list_options(supervisor), wanted
            ),
            "set_option": self._set_option,
            "reset_option": self._reset_option,
            "list_api_keys": lambda wanted: Listing(keys.KeyRow, frontend.keys.list_keys(), wanted),
            "create_api_key": lambda wanted: frontend.keys.create(
                keys.check_name(wanted.name), wanted.scope
            ),
            "delete_api_key": lambda wanted: frontend.keys.delete(wanted.id),
        }

    # --- bans

    async def _add_ban(self, wanted: Any) -> Done:
        """Has each worker ban and say whom it ended for it: the first tells the others, but not how many they had."""
        answers = [
            msgspec.json.decode(
                await self._pool.ask(worker, BY_NAME["add_ban"], wanted), type=BanAdded
            )
            for worker in self._pool.running()
        ]
        ended = sum(each.disconnected for each in answers)
        return msgspec.structs.replace(answers[-1], disconnected=ended)

    # --- listeners

    async def _list_listeners(self, wanted: Selection) -> Listing[Any]:
        rows = await self._listener_rows()
        return Listing(ListenerRow, list(rows.values()), wanted)

    async def _listener_rows(self) -> dict[str, ListenerRow]:
        config = self._supervisor.config
        reported = await self._pool.listed("list_listeners", ListenerRow)
        rows: dict[str, ListenerRow] = {}
        for name, listener in config.listeners.items():
            servers = self._supervisor.plan.servers(name, config)
            parts = [
                row
                for number, each in reported.items()
                for row in each
                if row.name == name and (number in servers or not servers)
            ]
            if not servers:  # the supervisor's own
                running = self._frontend.listeners.get(name)
                rows[name] = ListenerRow(
                    name=name,
                    status="stopped" if running is None else "running",
                    url=listener.url if running is None else running.url,
                    connections=sum(each.connections for each in parts),
                    mountpoint=None,
                    allow_anonymous=None,
                )
                continue
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
        if name in self._frontend.listeners:
            raise RefusedError(f"listener {name!r} runs already")
        try:
            await self._frontend.open_listener(name)
        except StartError as error:
            raise RefusedError(str(error)) from None
        return (await self._listener_rows())[name]

    async def _stop_listener(self, wanted: Any) -> Done:
        name = wanted.name
        servers = self._servers_of(name)
        if servers:
            return await self._switch("stop_listener", name, servers)
        if name not in self._frontend.listeners:
            raise RefusedError(f"listener {name!r} is stopped already")
        await self._frontend.close_listener(name)
        return (await self._listener_rows())[name]

    def _servers_of(self, name: str) -> list[int]:
        config = self._supervisor.config
        if name not in config.listeners:
            names = ", ".join(config.listeners)
            raise NotFoundError(f"there is no listener {name!r}; accepted: {names}")
        return self._supervisor.plan.servers(name, config)

    async def _switch(self, operation: str, name: str, servers: list[int]) -> Done:
        """Opens or closes a listener in every worker that has it; a restarted worker has it likewise."""
        for worker in self._pool.complete():
            if worker.number in servers:
                await self._pool.ask(worker, BY_NAME[operation], {"name": name})
        stopped = self._supervisor.plan.stopped
        stopped.add(name) if operation == "stop_listener" else stopped.discard(name)
        return (await self._listener_rows())[name]

    # --- plugins

    async def _list_plugins(self, wanted: Selection) -> Listing[Any]:
        return Listing(PluginRow, list((await self._plugin_rows()).values()), wanted)

    async def _plugin_rows(self) -> dict[str, PluginRow]:
        rows: dict[str, PluginRow] = {}
        for reported in (await self._pool.listed("list_plugins", PluginRow)).values():
            for row in reported:
                found = rows.get(row.name)
                rows[row.name] = row if found is None else _together(found, row)
        return rows

    async def _plugin(self, operation: str, wanted: Any, runs: bool | None) -> Done:
        """Has every worker do something with a plugin; `runs`: whether one that starts later is to have it."""
        name = wanted.name
        workers = self._pool.complete()
        opened = ""
        for worker in workers:
            try:
                done = await self._pool.ask(worker, BY_NAME[operation], wanted)
                opened = opened or msgspec.json.decode(done, type=PluginRow).opened
            except AdminError as error:
                if worker is workers[0]:
                    raise  # nothing has changed anywhere
                raise RefusedError(f"worker {worker.number}, after others did: {error}") from None
        if runs is not None:
            self._supervisor.plan.plugins[name] = runs
        rows = await self._plugin_rows()
        if name not in rows:
            raise NotFoundError(f"there is no plugin {name!r} any more")
        return msgspec.structs.replace(rows[name], opened=opened)

    # --- the cluster that the workers belong to

    async def _join_cluster(self, wanted: Any) -> Done:
        if not self._supervisor.config.cluster.listen:
            raise RefusedError(
                "the workers are linked on this machine only; other nodes need cluster.listen"
            )
        # One that was taken out is let in by its own word alone, not by that of its siblings.
        asked = [
            self._pool.ask(each, BY_NAME["join_cluster"], wanted) for each in self._pool.complete()
        ]
        joined = [msgspec.json.decode(each, type=Joined) for each in await asyncio.gather(*asked)]
        return next((each for each in joined if each.status != "joined"), joined[0])

    async def _leave_cluster(self, wanted: Any) -> Done:
        workers = self._pool.complete()
        own = {self._supervisor.plan.node_name(each.number) for each in workers}
        raw = await self._pool.ask(workers[0], BY_NAME["list_members"], {"limit": 0})
        members = rows_in(raw, dict[str, Any])
        joined = {each["node"] for each in members if each["status"] in ("joined", "drained")}
        if not joined - own:
            raise RefusedError("the workers are in no cluster but their own")
        left = [await self._pool.ask(each, BY_NAME["leave_cluster"], wanted) for each in workers]
        complete = all(msgspec.json.decode(each)["complete"] for each in left)
        if self._supervisor.on_left is not None:
            self._supervisor.on_left()
        row = {"node": " ".join(sorted(own)), "complete": complete}
        return msgspec.Raw(msgspec.json.encode(row))

    async def _drain_node(self, wanted: Any) -> Done:
        """Drains every worker, or none any more: they are one host."""
        own = [self._supervisor.plan.node_name(each.number) for each in self._pool.complete()]
        done = [
            msgspec.json.decode(await self._pool.ask(each, BY_NAME["drain_node"], wanted))
            for each in self._pool.complete()
        ]
        row = {
            "node": " ".join(own),
            "drained": all(each["drained"] for each in done),
            "complete": all(each["complete"] for each in done),
        }
        return msgspec.Raw(msgspec.json.encode(row))

    async def _remove_member(self, wanted: Any) -> Done:
        name = re.escape(self._supervisor.plan.name)
        own = re.fullmatch(rf"{name}-(\d+)", wanted.node)
        if own is not None and int(own[1]) in self._supervisor.workers:
            raise RefusedError(
                f"{wanted.node!r} is a worker of this broker: it goes when broker.workers is lowered"
            )
        return await self._pool.ask(self._pool.running()[0], BY_NAME["remove_member"], wanted)

    # --- streams, whose partitions they share

    async def _list_streams(self, wanted: Selection) -> Listing[Any]:
        rows: dict[str, StreamRow] = {}
        for reported in (await self._pool.listed("list_streams", StreamRow)).values():
            for row in reported:
                found = rows.get(row.stream)
                rows[row.stream] = row if found is None else _sum(found, row)
        return Listing(StreamRow, [rows[name] for name in sorted(rows)], wanted)

    async def _scrub_stream(self, wanted: Any) -> StreamRow:
        operation = BY_NAME["scrub_stream"]
        rows = [
            msgspec.json.decode(await self._pool.ask(each, operation, wanted), type=StreamRow)
            for each in self._pool.running()
        ]
        return reduce(_sum, rows)

    # --- jobs

    async def _list_schedules(self, wanted: Selection) -> msgspec.Raw:
        """Worker 1 looks at the clock for all."""
        worker = self._supervisor.workers[1]
        if not worker.is_running:
            raise UnreachableError(worker.problem() or "worker 1 does not run now")
        return await self._pool.ask(worker, BY_NAME["list_schedules"], wanted)

    async def _list_mappings(self, wanted: Selection) -> Listing[Any]:
        rows: dict[str, MappingRow] = {}
        for reported in (await self._pool.listed("list_mappings", MappingRow)).values():
            for row in reported:
                rows[row.mapping] = added(rows[row.mapping], row) if row.mapping in rows else row
        return Listing(MappingRow, rows.values(), wanted)

    async def _switch_mapping(self, name: str, wanted: Any) -> MappingRow:
        """Each of them maps what is published to it."""
        rows = [
            msgspec.json.decode(await self._pool.ask(each, BY_NAME[name], wanted), type=MappingRow)
            for each in self._pool.complete()
        ]
        return reduce(added, rows)

    # --- figures and options

    async def _list_metrics(self, wanted: Selection) -> Listing[Any]:
        rows = figures.rows_of(await self._frontend.views.families())
        return Listing(MetricRow, rows, wanted)

    async def _set_option(self, wanted: Any) -> Done:
        value = wanted.value if isinstance(wanted.value, str) else toml_value(wanted.value)
        changed = options.set_option(self._supervisor, wanted.option, value)
        await self._supervisor.followed()
        return changed

    async def _reset_option(self, wanted: Any) -> Done:
        changed = options.reset_option(self._supervisor, wanted.option)
        await self._supervisor.followed()
        return changed


def _together(one: PluginRow, other: PluginRow) -> PluginRow:
    """A plugin as two workers have it: it runs if it does in one of them, and fares as it does where it fares worst."""
    runs = one if one.status == "running" else other
    return msgspec.structs.replace(
        runs,
        breaker=max(one.breaker, other.breaker, key=lambda state: state != "closed"),
        errors=one.errors + other.errors,
        timeouts=one.timeouts + other.timeouts,
        problem=one.problem or other.problem,
    )


def _sum(one: StreamRow, other: StreamRow) -> StreamRow:
    """A stream of which two workers have a part each."""
    added = {
        name: (getattr(one, name) or 0) + (getattr(other, name) or 0)
        for name in ("owned", "messages", "bytes", "gathered", "dropped", "refused")
    }
    return msgspec.structs.replace(one, **added)


def _no_shadow(_wanted: Any) -> Done:
    raise RefusedError(
        "code is tried beside a plugin in one process alone; accepted: broker.workers = 1"
    )
