"""The broker: puts the parts together, starts and stops them, and is the embedding API (docs/embedding.md)."""

import asyncio
import logging
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from plyvel import CorruptionError
from vmq_hooks import Plugin

from vmq.config.configured import Configured
from vmq.config.core import options_of
from vmq.config.embedding import GivenPlugin, Keywords, temporary_folder
from vmq.config.options import Config, ListenerOptions, value_of
from vmq.config.overrides import LiveConfig
from vmq.config.session import SessionOverrides
from vmq.core.context import Core
from vmq.core.hook_sites import Hooks
from vmq.core.registry import Registry
from vmq.embedded import ReceivedMessage
from vmq.jobs.embedded import Jobs
from vmq.listeners.handshakes import Handshakes
from vmq.listeners.listener import Listener
from vmq.listeners.renewing import renew, watch
from vmq.listeners.sockets import bind
from vmq.listeners.state import AnyListener
from vmq.persistence.damage import DamageReport
from vmq.persistence.group_commit import Committer
from vmq.persistence.opening import open_core, store_folder
from vmq.persistence.purging import Purger
from vmq.persistence.restoring import restore
from vmq.plugins.figures import families
from vmq.plugins.host import PluginHost
from vmq.plugins.logins import Logins
from vmq.plugins.manager import Plugins
from vmq.plugins.reauthorize import Lapsed
from vmq.plugins.starting import PluginError
from vmq.resources.memory import MemoryWatch
from vmq.resources.upkeep import Upkeep
from vmq.runtime.banning import Banning
from vmq.runtime.bans import Bans, BansError
from vmq.runtime.connections import Connections
from vmq.runtime.draining import QueueTasks
from vmq.runtime.errors import StartError
from vmq.runtime.health import Health, add_core, add_listener
from vmq.runtime.live import begin_retries, update_connections, update_trees
from vmq.runtime.local_clients import LocalClients
from vmq.runtime.metrics import Family, Metrics
from vmq.runtime.monitor import Monitor
from vmq.runtime.open_listeners import OpenListeners, not_to_be_had
from vmq.runtime.registries import BrokerRegistries
from vmq.runtime.share import Share
from vmq.runtime.watchdog import Watchdog
from vmq.startup.job_questions import answer_others
from vmq.startup.listening import import_ahead, listen
from vmq.store.opening import StoreDamagedError, ended_sessions, text_of
from vmq.streams.serving.opening import follow_stream, open_streaming, streams_folder
from vmq.tracing.tracer import Tracer

if TYPE_CHECKING:
    from vmq.clustering.node.node import Clustering
    from vmq.http.admin_socket import AdminSocket
    from vmq.http.server import HttpListener
    from vmq.listeners.handed import HandedListener
    from vmq.streams.serving.listener import FlightListener
    from vmq.streams.serving.service import Streaming

__all__ = ["Broker", "StartError"]

log = logging.getLogger("vmq.broker")


class Broker(Configured):
    """One MQTT broker.

    Args:
        config: the configuration; the defaults if it is left out. The keywords below stand over it.
        listen: URLs of listeners instead of those of the configuration; port 0 is any free one, see `addresses`.
        data_dir: the folder for durable state; None = a new one, which goes when the broker stops; "" = that of the
            configuration.
        users: user names and passwords, open text: anonymous clients are let in no more.
        acl: rules in the syntax of vmq_acl.
        plugins: by name, a plugin that the program has made, the options of [plugins.NAME], or a pair of both.
        sections: any section of the configuration, as `queue={"drop": "oldest"}`.
        admin: whether `vmq session` and its like may look into the broker, through a socket in the data directory.
        share: the broker's part where several processes share the listeners; None = it is alone.
        before_clients: called when all is ready, and clients are let in next.
        prepared: plugins of the configuration that are loaded and checked already (`vmq.plugins.checking.Checked`).

    Raises:
        ConfigError: the configuration is impossible or not safe.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        listen: str | Sequence[str] | None = None,
        data_dir: str | Path | None = "",
        users: Mapping[str, str] | None = None,
        acl: str | Sequence[str] | None = None,
        plugins: Mapping[str, GivenPlugin] | None = None,
        admin: bool = False,
        share: Share | None = None,
        before_clients: Callable[[], None] = lambda: None,
        prepared: Mapping[str, tuple[Plugin, Any]] | None = None,
        **sections: Mapping[str, Any],
    ) -> None:
        #: The data directory if it goes with the broker.
        self._temporary = temporary_folder() if data_dir is None else None
        keywords = Keywords(
            listen=listen,
            data_dir=self._temporary or data_dir or None,
            users=users,
            acl=acl,
            plugins=plugins or {},
            sections=sections,
        )
        super().__init__(keywords.over(config))
        self.share = share
        #: Called when the broker has left its cluster: it has neither clients nor sessions any more.
        self.on_left: Callable[[], None] | None = None
        #: The open listeners by their names in the configuration.
        self.listeners: OpenListeners[AnyListener] = OpenListeners(self._listen)
        self._wants_admin = admin
        self._before_clients = before_clients
        #: Sockets that have the ports of listeners, until those are there.
        self._ports: dict[str, socket.socket] = {}
        self._admin: AdminSocket | None = None
        self._core: Core | None = None
        #: Topic trees by mountpoint, once started.
        self.registries: dict[str, Registry] = {}
        self._queue_tasks: QueueTasks | None = None
        self._committer: Committer | None = None
        self._purger: Purger | None = None
        self._monitor: Monitor | None = None
        self._watchdog: Watchdog | None = None
        self._metrics: Metrics | None = None
        self._plugins: Plugins | None = None
        self._tracer: Tracer | None = None
        self._banning: Banning | None = None
        #: Plugins that the program itself has made, by name.
        self._given = keywords.made()
        self._prepared = prepared
        self._memory: MemoryWatch | None = None
        self._damage: DamageReport | None = None
        self._upkeep: Upkeep | None = None
        #: Listeners that are none of MQTT's.
        self._served: list[HandedListener | HttpListener | FlightListener] = []
        self._streams: Streaming | None = None
        #: Adds and takes jobs from inside the process.
        self.jobs = Jobs(lambda: self._core, lambda: self.config, lambda: self.on_left)
        #: This broker as a node of a cluster, if it is one and runs.
        self.clustering: Clustering | None = None
        #: Shares the time for TLS handshakes among all listeners, once started.
        self.handshakes: Handshakes | None = None
        #: The MQTT connections that came through listeners, once started.
        self.connections: Connections | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._clients = LocalClients(self.registry, "embedded")
        self._clients_of_plugins = LocalClients(self.registry, "plugin")

    @property
    def worker_names(self) -> frozenset[str]:
        """The names, as nodes, of the processes that are one broker together with this one; empty: it is alone."""
        return frozenset() if self.share is None else self.share.worker_names

    def _sharers(self) -> int:
        """How many processes are one broker now: one that starts again is among them, one that has left is not."""
        names, cluster = self.worker_names, self.clustering
        if names and cluster is not None and cluster.is_running:
            names = names.intersection(cluster.node.members)
        return len(names) or 1

    async def __aenter__(self) -> "Broker":
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    # Start and stop

    async def start(self) -> None:
        """Opens the store and the listeners.

        Raises:
            StartError: a listener's address cannot be had, or the store cannot be used.
        """
        own = [options for _, options in self._own_listeners()]
        import_ahead(own, with_admin=self._wants_admin)
        self._bind_ports()
        try:
            self._open_core()
        except BaseException:
            self._free_ports()
            self._forget_data()
            raise
        self._watchdog = Watchdog(
            self.plugins.owner_of, self.plugins.was_blocked, dumps=self._wants_admin
        )
        self._watchdog.start()
        self._spawn(self.monitor.run(self.metrics.counters, self._watchdog.beat))
        try:
            self._begin_banning()
            await self._start_plugins()
            if self.config.cluster.listen:
                await self._start_clustering()
            elif self._core is not None and self._core.store is not None:
                self._core.store.note_alone()
            if self._streams is not None:
                self._streams.recover()  # what goes into the logs of this node depends on the others
            self.jobs.begin(None if self.clustering is None else self.clustering.job_links)
            answer_others(self)
            await self._prepare_listeners()
            if self._wants_admin:
                await self._open_admin()
            self._before_clients()
            self._let_in()
        except BaseException:
            await self.stop()
            raise
        self._spawn(self.banning.run())
        assert self._core is not None and self.connections is not None
        limit, connections = self.config.limits.max_memory, self.connections
        memory = MemoryWatch(self._core, limit, connections.__iter__, sharers=self._sharers)
        self._memory = memory
        self._upkeep = Upkeep(self._core, self.registries, self.config, memory)
        for work in (memory.run(), *self._upkeep.works()):
            self._spawn(work)
        self._spawn(watch(self._mqtt_listeners))

    def _begin_banning(self) -> None:
        try:
            self.banning.begin()
        except BansError as error:
            raise StartError(f"{error}; mend or remove the file") from error

    async def stop(self) -> None:
        """Closes listeners and connections (wills are published) and saves all durable state."""
        if self._admin is not None:
            await self._admin.stop()
            self._admin = None
        for name in list(self.listeners):
            self.close_listener(name)
        self._free_ports()
        for served in self._served:
            await served.finish()
        self._served.clear()
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None
        for task in list(self._background):
            task.cancel()
        if self._upkeep is not None:
            self._upkeep.drops.tell()
            self._upkeep = None
        self._clients.close()
        self._clients_of_plugins.close()
        if self.connections is not None:
            self.connections.close("the broker is shutting down")
        await self.jobs.stop()
        core, committer = self._core, self._committer
        if core is not None and committer is not None:
            await _wills_settled(core)
            core.outbox.flush()
            if self._streams is not None:
                await self._streams.finish()
            await committer.finish_all()
            if self._streams is not None:
                await self._streams.write()
            core.outbox.flush()
        await asyncio.sleep(0)  # the transports write what they were just given
        if self.connections is not None:
            await self.connections.end()
        if self._plugins is not None:
            await self._plugins.stop()
            self._plugins = None
        if self.connections is not None:
            self.connections.stop_watching()
            self.connections = None
        if committer is not None:
            await committer.finish_all()  # what the ends of the connections wrote
        if self.clustering is not None:
            await self.clustering.streams.finish()
        if self._streams is not None:
            await self._streams.stop()
            self._streams = None
        if self.clustering is not None:
            await self.clustering.stop()
            self.clustering = None
            if committer is not None:
                await committer.finish_all()  # what other nodes said until now
        if core is not None and committer is not None and core.store is not None:
            if core.store.has_work():
                log.error("stopped with unsaved state: the store cannot write")
            committer.close()
        self._core = None
        self.registries.clear()
        self._forget_data()

    def _forget_data(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _open_core(self) -> None:
        config = self.config
        core, committer = open_core(config)
        store = core.store
        assert store is not None
        core.registries = BrokerRegistries(self.registry)
        self._session_options = SessionOverrides(core.options)
        core.session_options = self._session_options
        core.rechecks = Lapsed(self._spawn)
        self.connections = Connections(
            core.clock, lambda: float(self.config.session.mqtt_connect_timeout)
        )
        self._core = core
        self.handshakes = Handshakes(core.clock, core.call_soon, core.counters)
        self._committer = self.jobs.committer = committer
        bans = Bans(Path(config.broker.data_dir), core.wall_clock)
        self._banning = Banning(bans, core, lambda: self.connections or ())
        self._purger = Purger(store, committer)
        self._queue_tasks = QueueTasks(core)
        self._watch(core, committer)
        host = PluginHost(
            config.cluster,
            Path(config.broker.data_dir),
            self.registries,
            self.registry,
            lambda: self.metrics,
            self._declare_stream,
            self._clients_of_plugins,
            1 if self.share is None else self.share.number,
        )
        self._plugins = plugins = Plugins(
            host, core.hooks, config, core.clock, self._prepared, Logins(core).over
        )
        self.jobs.functions, plugins.changed = plugins.functions, self.jobs.use_functions
        self.jobs.follow = lambda *about: follow_stream(self.open_streams, *about)
        self._prepared = None  # a second start loads what is there by then
        self._tracer = Tracer(core, plugins)
        self.metrics.others = self._other_families
        self._damage = DamageReport(store, self.registries)
        committer.on_damage = self._damage.tell
        try:
            try:
                restore(store, self.registry, self.registries)
            except CorruptionError:
                if not committer.isolate():
                    raise
                self.registries.clear()
                restore(store, self.registry, self.registries)
            for session in ended_sessions(store):
                self._purger.add(session)
            committer.limit_damage()
            self._damage.tell()
        except Exception as error:
            committer.close()
            self._core = None
            damage = StoreDamagedError(store_folder(config), text_of(error))
            raise StartError(str(damage)) from error
        self._spawn(self._purger.run())
        try:
            if config.streams or streams_folder(config).is_dir():
                self.open_streams()
        except BaseException:
            committer.close()
            self._core = None
            raise

    @property
    def streaming(self) -> "Streaming | None":
        """The streams; None as long as there were never any."""
        return self._streams

    def open_streams(self) -> "Streaming":
        """Opens the streams, those that only lie in the data directory too; once.

        Raises:
            StartError: a library is missing, or the folder cannot be used.
        """
        if self._streams is not None:
            return self._streams
        core = self._core
        assert core is not None, "the broker is not started"
        self._streams = open_streaming(core, self.registry(), self.config, self._committer)
        self._streams.sinks.add_jobs = self.jobs.add_staged
        if self.clustering is not None:
            self.clustering.streams.attach(self._streams.catalog)
        return self._streams

    async def _start_clustering(self) -> None:
        # Late: most brokers are no nodes and need no ZeroMQ.
        from vmq.clustering.node.discovery import Discovery
        from vmq.clustering.node.initial_sync import catch_up
        from vmq.clustering.node.node import Clustering
        from vmq_cluster.errors import ClusterError

        assert self._core is not None and self._committer is not None
        clustering = Clustering(
            self.config.cluster,
            self._own_folder / "cluster",
            self._core,
            self._committer,
            self.registries,
            self.registry,
            lambda: self.open_streams().catalog,
            self.banning,
            turn_away=self._turn_away,
            nearby=None if self.share is None else self.share.sockets,
            durability=self.config.store.durability,
            data_dir=Path(self.config.broker.data_dir),
        )
        try:
            await clustering.start(None if self._streams is None else self._streams.catalog)
        except ClusterError as error:
            raise StartError(f"cluster: {error}") from error
        self.clustering = clustering
        if self._damage is not None:
            self._damage.ghosts = clustering.mover.ghosts
        try:
            await catch_up(clustering, {} if self.share is None else self.share.siblings)
        except ClusterError as error:
            raise StartError(f"cluster: {error}") from error
        await clustering.admission.look()
        clustering.admission.start()
        self._spawn(
            Discovery(clustering.joining, lambda: self.plugins.only("discover_nodes")).run()
        )

    async def _declare_stream(self, name: str, options: Mapping[str, Any]) -> None:
        """Keeps a stream that a plugin wants; the first may be this broker's first stream at all."""
        if self.share is not None:
            raise RuntimeError("streams are kept by one process; accepted: broker.workers = 1")
        try:
            streams = self.open_streams()
        except StartError as error:
            raise RuntimeError(str(error)) from error
        await streams.declare(name, options)

    def _other_families(self) -> Iterator[Family]:
        """The figures of plugins, streams and the cluster."""
        yield from families(self.plugins.guards, self.plugins.counters, self.plugins.gauges)
        if self._streams is not None:
            yield from self._streams.families()
        yield from self.jobs.families()
        if self.clustering is not None:
            yield from self.clustering.families()

    def _watch(self, core: Core, committer: Committer) -> None:
        """Sets up what reads figures: metrics and the watch over the event loop."""
        self._monitor = monitor = Monitor(core)
        self._metrics = Metrics(
            core,
            lambda: list(self.registries.values()),
            committer.times,
            monitor.lags,
            monitor.recent_lag,
            monitor.uptime,
            self.listeners.connections,
        )

    def registry(self, mountpoint: str = "") -> Registry:
        """The topic tree of a mountpoint with its sessions; made when first asked for."""
        found = self.registries.get(mountpoint)
        if found is None:
            core, tasks = self._core, self._queue_tasks
            assert core is not None, "the broker is not started"
            assert tasks is not None
            found = Registry(core, tasks.wake, self._purge_later, mountpoint)
            self.registries[mountpoint] = found
        return found

    # Listeners

    @property
    def addresses(self) -> list[str]:
        """The URLs of the open listeners with their real ports."""
        return [each.url for each in self.listeners.values()]

    async def _listen(self, name: str, options: ListenerOptions) -> AnyListener:
        listener = await listen(self, name, options)
        if not isinstance(listener, Listener):
            self._served.append(listener)
        return listener

    def _bind_ports(self) -> None:
        """Has the TCP ports of this process's MQTT listeners, so that one in use is told before anything else is done.

        Raises:
            StartError: an address cannot be had.
        """
        for name, options in self._own_listeners():
            endpoint = options.endpoint
            if endpoint.scheme in ("tcp", "tls", "ws", "wss"):
                try:
                    shared = self.share is not None
                    self._ports[name] = bind(endpoint.host, endpoint.port, shared)
                except OSError as error:
                    self._free_ports()
                    raise not_to_be_had(name, options, error) from error

    def _free_ports(self) -> None:
        for sock in self._ports.values():
            sock.close()
        self._ports.clear()

    def take_port(self, name: str) -> socket.socket | None:
        """The socket that has a listener's port since the start; it is the listener's from now on."""
        return self._ports.pop(name, None)

    async def open_listener(self, name: str) -> None:
        """Opens a listener of the configuration.

        Raises:
            StartError: its address or its certificates cannot be had.
        """
        await self.listeners.open(name, self.config.listeners[name])
        self._let_in()

    def _let_in(self) -> None:
        """Has every open listener of MQTT listen."""
        for name, listener in self.listeners.items():
            if isinstance(listener, Listener) and not listener.is_open:
                try:
                    listener.listen()
                except OSError as error:
                    raise not_to_be_had(name, listener.options, error) from error

    def _own_listeners(self) -> Iterator[tuple[str, ListenerOptions]]:
        """Those of the configuration that are this process's."""
        for name, options in self.config.listeners.items():
            if self.share is None or name in self.share.listeners:
                yield name, options

    async def open_listeners(self) -> None:
        """Opens those listeners of the configuration that are this process's and not open.

        Raises:
            StartError: an address or certificates cannot be had.
        """
        await self._prepare_listeners()
        self._let_in()

    async def _prepare_listeners(self) -> None:
        for name, options in self._own_listeners():
            if name not in self.listeners:
                await self.listeners.open(name, options)

    def turn_clients_away(self, reason: str) -> None:
        """Closes the listeners of MQTT and every connection that came through them."""
        for name, listener in list(self.listeners.items()):
            if isinstance(listener, Listener):
                self.close_listener(name)
        self._turn_away(reason)

    def _turn_away(self, reason: str) -> None:
        assert self._core is not None and self.connections is not None, "the broker is not started"
        self.connections.close(reason)
        self.jobs.turn_away(reason)
        self._core.outbox.flush()

    def close_listener(self, name: str) -> None:
        """Closes a listener; connections that came through it stay."""
        if self.listeners.close(name).endpoint.is_flight and self.clustering is not None:
            self.clustering.streams.set_address("")

    async def _open_admin(self) -> None:
        # Late: an embedded broker without the socket needs no HTTP server.
        from vmq.http.admin_socket import AdminSocket, SocketError
        from vmq.http.app import make_admin_app

        admin = AdminSocket(make_admin_app(self), self._own_folder)
        try:
            await admin.start()
        except SocketError as error:
            raise StartError(str(error)) from error
        self._admin = admin

    @property
    def _own_folder(self) -> Path:
        """What is of this process: the data directory, unless several processes are this broker."""
        return Path(self.config.broker.data_dir) if self.share is None else self.share.path

    def _mqtt_listeners(self) -> list[Listener]:
        return [each for each in self.listeners.values() if isinstance(each, Listener)]

    def reload_certificates(self) -> bool:
        """Reads the TLS files of all listeners anew, for the handshakes to come.

        No connection is dropped. A listener whose files are broken keeps what it has, and the log
        says why.

        Returns:
            Whether every listener could use its files.
        """
        return renew(self._mqtt_listeners())

    # Changes while it runs

    def reload(self, config: Config) -> list[str]:
        """Takes over a new configuration, all of it or nothing; returns the keys that changed.

        Certificates and the files of plugins are read anew too, changed or not.

        Raises:
            ConfigError: the configuration is impossible or not safe.
            ReloadError: an option changed that cannot change live.
        """
        changed = super().reload(config)
        self.read_files_anew()
        return changed

    def read_files_anew(self) -> None:
        """Reads certificates, and has the plugins read the files that are theirs."""
        self.reload_certificates()
        self._spawn(self.plugins.reread())

    def _follow(self, live: LiveConfig, changed: list[str]) -> None:
        core, committer, memory = self._core, self._committer, self._memory
        connections = self.connections
        assert core is not None and committer is not None, "the broker is not started"
        assert connections is not None
        config, keys = live.config, set(changed)
        had_retries = core.options.retry_interval > 0
        options_of(config, core.options)
        self._session_options.refresh()
        self._spawn(self._tell_plugins(config, changed))
        trees = self.registries.values()
        if core.options.retry_interval and not had_retries:
            begin_retries(core, trees)
        update_trees(keys, config, trees)
        update_connections(keys, config, connections)
        for listener in (*self._mqtt_listeners(), *self._served):
            listener.configure(config)
        committer.flush_interval = config.store.flush_interval
        if memory is not None:
            memory.set_limit(config.limits.max_memory)
        if self._upkeep is not None:
            self._upkeep.configure(config)
        self.jobs.configure(config)
        connections.wake()

    # Plugins

    @property
    def plugins(self) -> Plugins:
        """The plugins, to be enabled, disabled and reloaded."""
        assert self._plugins is not None, "the broker is not started"
        return self._plugins

    @property
    def banning(self) -> Banning:
        """Whom the operator lets in no more."""
        assert self._banning is not None, "the broker is not started"
        return self._banning

    @property
    def tracer(self) -> Tracer:
        """Watches single clients."""
        assert self._tracer is not None, "the broker is not started"
        return self._tracer

    async def _start_plugins(self) -> None:
        try:
            for name, plugin in self._given.items():
                await self.plugins.add(name, plugin, self.config.plugins.get(name))
            await self.plugins.start()
            for name, runs in self.share.plugins.items() if self.share is not None else ():
                if runs != (name in self.plugins.loaded):
                    await (self.plugins.enable(name) if runs else self.plugins.disable(name))
        except PluginError as error:
            raise StartError(str(error)) from error

    async def _tell_plugins(self, config: Config, changed: list[str]) -> None:
        """Has the plugins follow a new configuration."""
        others = {key: _value(config, key) for key in changed if not key.startswith("plugins.")}
        await self.plugins.take_over(config.plugins, others)

    # Background work

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _purge_later(self, session: bytes) -> None:
        assert self._purger is not None, "the broker is not started"
        self._purger.add(session)

    # Figures

    @property
    def metrics(self) -> Metrics:
        """Every figure of the running broker."""
        assert self._metrics is not None, "the broker is not started"
        return self._metrics

    @property
    def monitor(self) -> Monitor:
        """The watch over the event loop, with uptime and rates."""
        assert self._monitor is not None, "the broker is not started"
        return self._monitor

    def health(self) -> list[str]:
        """What is wrong with the broker now; empty if it is well."""
        return self.condition().reasons

    def condition(self) -> Health:
        """What is wrong with the broker now, and which of it keeps new clients out."""
        health = Health([], [])
        for listener in self.listeners.values():
            add_listener(health, listener)
        if self._damage is not None:
            health.degraded.extend(self._damage.reasons())
        if self._core is not None:
            add_core(health, self._core, self.monitor.recent_lag())
        if self._streams is not None:
            health.degraded.extend(self._streams.problems())
        health.degraded.extend(self.jobs.problems())
        if self.clustering is not None:
            if self.clustering.admission.reason:
                health.failing.append(self.clustering.admission.reason)
            health.degraded.extend(self.clustering.problems())
        return health

    # Embedding

    @property
    def hooks(self) -> Hooks:
        """The call sites of the hooks."""
        assert self._core is not None, "the broker is not started"
        return self._core.hooks

    async def publish(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, mountpoint: str = ""
    ) -> None:
        """Publishes from inside the process; returns when the broker owns the message.

        Raises:
            ValueError: topic or QoS is not valid.
        """
        await self._clients.publish(topic, payload, qos, retain, mountpoint)

    @asynccontextmanager
    async def subscribe(
        self, *filters: str, qos: int = 0, limit: int = 1000, mountpoint: str = ""
    ) -> AsyncIterator[AsyncIterator[ReceivedMessage]]:
        """Subscribes from inside the process; gives an iterator over the messages.

        The subscription holds when the block begins: on this node, and with `cluster.suback_after = "cluster"` on every
        node that can be reached.

        Args:
            filters: topic filters.
            qos: the highest QoS to receive at.
            limit: messages held for a slow reader before the queue's own limits apply.
            mountpoint: the topic tree, as the option of listeners names it.

        Raises:
            ValueError: a filter or the QoS is not valid.
        """
        async with self._clients.subscribe(filters, qos, limit, mountpoint) as client:
            yield client.messages()


def _value(config: Config, key: str) -> object:
    """The value of an option by its dotted key; None if it is gone."""
    try:
        return value_of(config, key)
    except KeyError:
        return None


async def _wills_settled(core: Core) -> None:
    """Returns when no plugin is asked about a will any more; each has its deadline."""
    while core.awaited_wills:  # noqa: ASYNC110 - the core knows no loop
        await asyncio.sleep(0.01)
