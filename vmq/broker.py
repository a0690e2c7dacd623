"""The broker: puts the parts together, starts and stops them, and is the embedding API.

async with Broker(config) as broker:
async with broker.subscribe("sensors/#", qos=1) as messages:
await broker.publish("sensors/1", b"20.5", qos=1)
message = await anext(messages)
"""

import asyncio
import logging
import random
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import plyvel
from vmq_hooks import Plugin

from vmq.client_ids import new_client_id
from vmq.commits import Committer
from vmq.config import Config, ListenerOptions, value_of
from vmq.config_checks import check
from vmq.connection import Connection
from vmq.core import Core
from vmq.core_options import options_of
from vmq.embedded import LocalClient, ReceivedMessage
from vmq.hooks import Hooks
from vmq.listeners.certificates import CertificateError
from vmq.listeners.listener import Listener
from vmq.listeners.sockets import bind
from vmq.listeners.state import AnyListener
from vmq.live import begin_retries, update_connections, update_trees
from vmq.memory import MemoryWatch
from vmq.metrics import Family, Metrics
from vmq.monitor import Monitor
from vmq.overrides import LiveConfig
from vmq.plugins.figures import families
from vmq.plugins.host import PluginHost
from vmq.plugins.manager import PluginError, Plugins
from vmq.plugins.reauthorize import ask_again
from vmq.registry import Registry
from vmq.reload import changes, check_live
from vmq.session_options import SessionOptions
from vmq.share import Share
from vmq.store import Store, StoreError
from vmq.store_open import (
    StoreDamagedError,
    ended_sessions,
    open_database,
    open_store,
    stored_retained,
    stored_sessions,
    text_of,
)
from vmq.tasks import QueueTasks
from vmq.tracing.tracer import Tracer
from vmq.watch import Deadlines, SessionWatch

if TYPE_CHECKING:
    from vmq.clustering.clustering import Clustering
    from vmq.flight_listener import FlightListener
    from vmq.http.admin_socket import AdminSocket
    from vmq.http.server import HttpListener
    from vmq.streaming import Streaming

log = logging.getLogger("vmq.broker")

#: A loop that was late by more seconds lately is unwell.
UNWELL_LAG: Final = 1.0

#: Records of an ended session that are deleted between two passes of the loop.
PURGE_STEP = 1000

#: Seconds between two looks at the files of certificates.
CERTIFICATE_INTERVAL = 10


class StartError(RuntimeError):
    """The broker cannot start; the text is for the operator."""


class Broker:
    """One MQTT broker.

    Args:
        config: the configuration; the defaults if it is left out.
        plugins: plugins that the program has made itself, by name; [plugins.NAME] holds the options of each.
        admin: whether `vmq session` and its like may look into the broker, through a socket in the data directory.
        share: the broker's part where several processes share the listeners; None = it is alone.

    Raises:
        ConfigError: the configuration is impossible or not safe.
    """

    def __init__(
        self,
        config: Config | None = None,
        *,
        admin: bool = False,
        plugins: Mapping[str, Plugin] | None = None,
        share: Share | None = None,
    ) -> None:
        self.live = LiveConfig.of(config if config is not None else Config())
        check(self.config)
        #: Told of the options that changed, when they are in force; for what surrounds the broker, such as its log.
        self.on_change: Callable[[list[str]], None] | None = None
        #: Called when the broker has left its cluster: it has neither clients nor sessions any more.
        self.on_left: Callable[[], None] | None = None
        #: The open listeners by their names in the configuration.
        self.listeners: dict[str, AnyListener] = {}
        #: Closed ones whose connections may go on.
        self._closed_listeners: list[AnyListener] = []
        self._wants_admin = admin
        self._share = share
        self._admin: AdminSocket | None = None
        self._core: Core | None = None
        #: Topic trees by mountpoint, once started.
        self.registries: dict[str, Registry] = {}
        self._queue_tasks: QueueTasks | None = None
        self._committer: Committer | None = None
        self._monitor: Monitor | None = None
        self._metrics: Metrics | None = None
        self._plugins: Plugins | None = None
        self._tracer: Tracer | None = None
        #: Plugins that the program itself has made, by name.
        self._given = dict(plugins or {})
        self._memory: MemoryWatch | None = None
        #: Listeners that are none of MQTT's.
        self._served: list[HttpListener | FlightListener] = []
        self._streams: Streaming | None = None
        #: This broker as a node of a cluster, if it is one and runs.
        self.clustering: Clustering | None = None
        #: What programs have staged is published from now on.
        self._publishes_staged = False
        self._watches: dict[Connection, SessionWatch] = {}
        self._deadlines: Deadlines | None = None
        self._all_closed: asyncio.Future[None] | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._publishers: dict[str, LocalClient] = {}
        self._clients: set[LocalClient] = set()

    @property
    def crew(self) -> frozenset[str]:
        """The names, as nodes, of the processes that are one broker together with this one; empty: it is alone."""
        return frozenset() if self._share is None else self._share.crew

    @property
    def config(self) -> Config:
        """The configuration in force."""
        return self.live.config

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
        self._all_closed = None
        self._open_core()
        try:
            await self._start_plugins()
            if self.config.cluster.listen:
                await self._start_clustering()
            elif self._core is not None and self._core.store is not None:
                self._core.store.note_alone()
            # Not before: it depends on the other nodes which messages go into the logs of this one.
            self._publishes_staged = True
            if self._streams is not None:
                self._streams.recover()
            await self.open_listeners()
            if self._wants_admin:
                await self._open_admin()
        except BaseException:
            await self.stop()
            raise
        self._spawn(self._expire_sessions())
        self._spawn(self.monitor.run(self.metrics.counters))
        assert self._core is not None
        self._memory = MemoryWatch(self._core, self.config.limits.max_memory)
        self._spawn(self._memory.run())
        self._spawn(self._watch_certificates())

    async def stop(self) -> None:
        """Closes listeners and connections (wills are published) and saves all durable state."""
        if self._admin is not None:
            await self._admin.stop()
            self._admin = None
        for name in list(self.listeners):
            self.close_listener(name)
        for served in self._served:
            await served.finish()
        self._served.clear()
        self._closed_listeners.clear()
        for task in list(self._background):
            task.cancel()
        for client in list(self._clients):
            client.close()
        self._publishers.clear()
        for connection in list(self._watches):
            connection.close("the broker is shutting down")
        core, committer = self._core, self._committer
        if core is not None and committer is not None:
            core.outbox.flush()
            if self._streams is not None:
                await self._streams.finish()
            await committer.finish_all()
            if self._streams is not None:
                await self._streams.write()
            core.outbox.flush()
        await asyncio.sleep(0)  # the transports write what they were just given
        for connection in list(self._watches):
            connection.abort()
        if self._watches:
            self._all_closed = asyncio.get_running_loop().create_future()
            await self._all_closed
        if self._plugins is not None:
            await self._plugins.stop()
            self._plugins = None
        if self._deadlines is not None:
            self._deadlines.close()
        if committer is not None:
            await committer.finish_all()  # what the ends of the connections wrote
        if self.clustering is not None:
            self.clustering.streams.detach()
        if self._streams is not None:
            await self._streams.stop()
            self._streams = None
        self._publishes_staged = False
        if self.clustering is not None:
            await self.clustering.stop()
            self.clustering = None
            if committer is not None:
                await committer.finish_all()  # what other nodes said until now
        if core is not None and core.store is not None:
            if core.store.dirty:
                log.error("stopped with unsaved state: the store cannot write")
            core.store.db.close()
        self._core = None
        self.registries.clear()

    def _open_core(self) -> None:
        config = self.config
        committer = Committer(config.store.flush_interval)
        path = Path(config.broker.data_dir) / "store"
        sizes = (config.store.write_buffer_size, config.store.cache_size)

        def reopen() -> Any:
            return open_database(path, *sizes)

        try:
            store = open_store(path, config.store.durability, committer.schedule, *sizes)
        except StoreError as error:
            raise StartError(str(error)) from error
        except OSError as error:
            raise StartError(f"cannot use the data directory: {path}: {error.strerror}") from error
        core = Core(options_of(config), store, time.monotonic, time.time, random.Random().randrange)
        loop = asyncio.get_running_loop()
        core.call_later = loop.call_later
        core.find_registry = self.registry
        self._session_options = SessionOptions(core.options)
        core.own_options = self._session_options.of
        core.recheck = lambda registry, subscriber: self._spawn(ask_again(registry, subscriber))
        self._deadlines = Deadlines(core.clock, loop.call_later, loop.call_soon)
        committer.attach(core, store, reopen)
        self._core = core
        self._committer = committer
        self._queue_tasks = QueueTasks(core)
        self._watch(core, committer)
        host = PluginHost(
            config.cluster.node_name or socket.gethostname(),
            Path(config.broker.data_dir),
            self.registries,
            self.registry,
            lambda: self.metrics,
            self._declare_stream,
            self._clients,
            1 if self._share is None else self._share.number,
        )
        self._plugins = plugins = Plugins(host, core.hooks, config.plugins, core.clock)
        self._tracer = Tracer(core, plugins)
        self.metrics.others = self._other_families
        try:
            self._restore(store)
        except Exception as error:
            store.db.close()
            self._core = None
            raise StartError(str(StoreDamagedError(path, text_of(error)))) from error
        try:
            folder = Path(self.config.broker.data_dir) / "streams"
            if self.config.streams or folder.is_dir():
                self.open_streams()
        except BaseException:
            store.db.close()
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
        folder = Path(self.config.broker.data_dir) / "streams"
        try:
            from vmq.streaming import StreamError, Streaming
        except ImportError as error:
            text = f"streams need more libraries ({error}): pip install 'vmq[streams]'"
            raise StartError(text) from error
        try:
            self._streams = Streaming(core, self.registry(), folder, self.config.streams)
        except StreamError as error:
            raise StartError(str(error)) from error
        except OSError as error:
            raise StartError(f"cannot use the streams: {folder}: {error.strerror}") from error
        if self.clustering is not None:
            self.clustering.streams.attach(self._streams.catalog)
        if self._publishes_staged:
            self._streams.recover()
        return self._streams

    async def _start_clustering(self) -> None:
        # Late: most brokers are no nodes and need no ZeroMQ.
        from vmq.clustering.clustering import Clustering
        from vmq.clustering.discovery import Discovery
        from vmq_cluster.errors import ClusterError

        folder = self._own_folder / "cluster"
        assert self._core is not None and self._committer is not None
        clustering = Clustering(
            self.config.cluster,
            folder,
            self._core,
            self._committer,
            self.registries,
            self.registry,
            lambda: self.open_streams().catalog,
        )
        try:
            await clustering.start(None if self._streams is None else self._streams.catalog)
        except ClusterError as error:
            raise StartError(f"cluster: {error}") from error
        self.clustering = clustering
        try:
            await clustering.catch_up({} if self._share is None else self._share.siblings)
        except ClusterError as error:
            raise StartError(f"cluster: {error}") from error
        self._spawn(Discovery(clustering, lambda: self.plugins.only("discover_nodes")).run())

    async def _declare_stream(self, name: str, options: Mapping[str, Any]) -> None:
        """Keeps a stream that a plugin wants; the first may be this broker's first stream at all."""
        if self._share is not None:
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
        if self.clustering is not None:
            yield from self.clustering.families()

    def _restore(self, store: Store) -> None:
        """Brings back sessions and retained messages, those of mountpoints without a listener too."""
        for session in stored_sessions(store):
            self.registry(session.mountpoint).restore(session)
        retained = 0
        for mountpoint, message in stored_retained(store):
            self.registry(mountpoint).retained.keep(message.topic.decode(), message)
            retained += 1
        for number in ended_sessions(store):
            self._purge_later(number)
        sessions = 0
        for registry in self.registries.values():
            # In the order in which they left, which is the order in which they expire.
            registry.offline = dict(sorted(registry.offline.items(), key=lambda item: item[1]))
            sessions += len(registry.subscribers)
        if sessions or retained:
            log.info("restored sessions=%d retained=%d", sessions, retained)

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
            self._open_connections,
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

    async def _open_http(self, name: str, options: ListenerOptions) -> AnyListener:
        # Late: the library is large, and not everybody has such a listener.
        from vmq.http.app import make_app
        from vmq.http.server import serve

        endpoint, backlog = options.endpoint, self.config.network.backlog
        sock = bind(endpoint.host, endpoint.port, backlog)
        app = make_app(self, allow_remote=options.allow_remote)
        http = await serve(name, options, sock, app, self.monitor.core.counters, backlog)
        self._served.append(http)
        return http

    async def _open_mqtt(self, name: str) -> AnyListener:
        registry = self.registry(self.config.listeners[name].mountpoint)
        listener = Listener(
            name,
            self.config,
            registry,
            self._on_opened,
            self._on_closed,
            new_client_id,
            lambda: self.monitor.lag,
            shared=self._share is not None,
        )
        options = listener.options
        listener.hooks = self.plugins.hooks_for(options.auth_plugins, options.authz_plugins)
        await listener.open()
        return listener

    async def _open_flight(self, name: str, options: ListenerOptions) -> AnyListener:
        streams = self._streams
        if streams is None and self.clustering is not None:
            streams = self.open_streams()  # the other nodes may have some
        if streams is None:
            raise StartError(
                f"listeners.{name}: {options.url} serves streams, but there are none; add [streams.NAME]"
            )
        hooks = self.plugins.hooks_for(options.auth_plugins, options.authz_plugins)
        listener = await streams.listen(name, self.config, hooks)
        self._served.append(listener)
        if self.clustering is not None:
            self.clustering.streams.set_address(listener.location)
        return listener

    async def open_listener(self, name: str) -> None:
        """Opens a listener of the configuration.

        Raises:
            StartError: its address or its certificates cannot be had.
        """
        options = self.config.listeners[name]
        try:
            if options.endpoint.scheme == "http":
                self.listeners[name] = await self._open_http(name, options)
            elif options.endpoint.is_flight:
                self.listeners[name] = await self._open_flight(name, options)
            else:
                self.listeners[name] = await self._open_mqtt(name)
        except OSError as error:
            raise StartError(
                f"listeners.{name}: cannot listen on {options.url}: {error.strerror or error}"
            ) from error
        except CertificateError as error:
            raise StartError(f"listeners.{name}.{error}") from error

    async def open_listeners(self) -> None:
        """Opens those listeners of the configuration that are this process's and not open.

        Raises:
            StartError: an address or certificates cannot be had.
        """
        for name in self.config.listeners:
            is_shared = self._share is None or name in self._share.listeners
            if is_shared and name not in self.listeners:
                await self.open_listener(name)

    def turn_clients_away(self, reason: str) -> None:
        """Closes the listeners of MQTT and every connection that came through them."""
        for name, listener in list(self.listeners.items()):
            if isinstance(listener, Listener):
                self.close_listener(name)
        for connection in list(self._watches):
            connection.close(reason)
        assert self._core is not None, "the broker is not started"
        self._core.outbox.flush()

    def close_listener(self, name: str) -> None:
        """Closes a listener; connections that came through it stay."""
        listener = self.listeners.pop(name)
        if listener.endpoint.is_flight and self.clustering is not None:
            self.clustering.streams.set_address("")
        listener.close()
        # Their number still counts.
        self._closed_listeners = [each for each in self._closed_listeners if each.connections]
        self._closed_listeners.append(listener)

    async def _open_admin(self) -> None:
        # Late: an embedded broker without the socket needs no HTTP server.
        from vmq.http.admin_socket import AdminSocket, SocketError

        admin = AdminSocket(self._admin_app(), self._own_folder)
        try:
            await admin.start()
        except SocketError as error:
            raise StartError(str(error)) from error
        self._admin = admin

    def _admin_app(self) -> Any:
        from vmq.http.app import make_admin_app

        return make_admin_app(self)

    @property
    def _own_folder(self) -> Path:
        """What is of this process: the data directory, unless several processes are this broker."""
        return Path(self.config.broker.data_dir) if self._share is None else self._share.path

    def _mqtt_listeners(self) -> list[Listener]:
        return [each for each in self.listeners.values() if isinstance(each, Listener)]

    def _on_opened(self, connection: Connection, listener: Listener) -> None:
        timeout = float(self.config.session.mqtt_connect_timeout)  # may change live
        lifetime = listener.options.max_connection_lifetime
        assert self._deadlines is not None
        self._watches[connection] = SessionWatch(connection, self._deadlines, timeout, lifetime)

    def _on_closed(self, connection: Connection) -> None:
        watch = self._watches.pop(connection, None)
        if watch is not None:
            watch.cancel()
        if self._all_closed is not None and not self._watches:
            self._all_closed.set_result(None)

    def reload_certificates(self) -> bool:
        """Reads the TLS files of all listeners anew, for the handshakes to come.

        No connection is dropped. A listener whose files are broken keeps what it has, and the log
        says why.

        Returns:
            Whether every listener could use its files.
        """
        good = True
        for listener in self._mqtt_listeners():
            good = listener.reload_certificates() and good
        return good

    async def _watch_certificates(self) -> None:
        while True:
            await asyncio.sleep(CERTIFICATE_INTERVAL)
            for listener in self._mqtt_listeners():
                listener.reload_changed_certificates()

    # Changes while it runs

    def reload(self, config: Config) -> list[str]:
        """Takes over a new configuration, all of it or nothing; returns the keys that changed.

        What was set by `set_option` stays, unless the new configuration says something new of that option.
        Certificates are read anew too, changed or not. The log belongs to whoever set it up: see `on_change`.

        Raises:
            ConfigError: the configuration is impossible or not safe.
            ReloadError: an option changed that cannot change live.
        """
        check(config)
        changed = self.take_over(self.live.on(config))
        self.reload_certificates()
        return changed

    def set_option(self, key: str, text: str) -> list[str]:
        """Sets an option until the configuration that is read says something new of it; returns the keys that changed.

        Raises:
            ConfigError: there is no such option, or it does not accept the value.
            ReloadError: it cannot change live.
        """
        return self.take_over(self.live.with_option(key, text, time.time()))

    def reset_option(self, key: str) -> list[str]:
        """Takes back what was set; returns the keys that changed.

        Raises:
            KeyError: the option was not set.
            ConfigError: the configuration is impossible without it.
        """
        return self.take_over(self.live.without(key))

    def take_over(self, live: LiveConfig) -> list[str]:
        """Has a configuration in force, all of it or nothing; returns the keys that changed.

        Raises:
            ConfigError: it is impossible or not safe.
            ReloadError: an option changed that cannot change live.
        """
        check(live.config)
        core, committer, memory = self._core, self._committer, self._memory
        assert core is not None and committer is not None, "the broker is not started"
        found = changes(self.config, live.config)
        check_live(found)
        changed = [change.key for change in found]
        had_retries = core.options.retry_interval > 0
        self.live = live
        config = live.config
        options_of(config, core.options)
        self._session_options.refresh()
        self._spawn(self._follow(config, {key: _value(config, key) for key in changed}))
        trees = self.registries.values()
        if core.options.retry_interval and not had_retries:
            begin_retries(core, trees)
        update_trees(set(changed), config, trees)
        update_connections(set(changed), config, self._watches)
        for listener in self._mqtt_listeners():
            listener.configure(config)
        committer.flush_interval = config.store.flush_interval
        if memory is not None:
            memory.set_limit(config.limits.max_memory)
        for watch in self._watches.values():
            watch.wake()
        if changed and self.on_change is not None:
            self.on_change(changed)
        return changed

    # Plugins

    @property
    def plugins(self) -> Plugins:
        """The plugins, to be enabled, disabled and reloaded."""
        assert self._plugins is not None, "the broker is not started"
        return self._plugins

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
            for name, runs in self._share.plugins.items() if self._share is not None else ():
                if runs != (name in self.plugins.loaded):
                    await (self.plugins.enable(name) if runs else self.plugins.disable(name))
        except PluginError as error:
            raise StartError(str(error)) from error

    async def _follow(self, config: Config, told: dict[str, object]) -> None:
        """Has the plugins follow a new configuration."""
        others = {key: value for key, value in told.items() if not key.startswith("plugins.")}
        await self.plugins.take_over(config.plugins, others)

    # Background work

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _purge_later(self, session: bytes) -> None:
        self._spawn(self._purge(session))

    async def _purge(self, session: bytes) -> None:
        """Deletes the records of an ended session in steps, each after the commit of the last."""
        core = self._core
        assert core is not None
        store = core.store
        assert store is not None
        committer = self._committer
        assert committer is not None
        try:
            more = True
            while more:
                await asyncio.sleep(0)
                await committer.finish_all()
                more = store.purge_step(session, PURGE_STEP)
        except (plyvel.Error, StoreError, RuntimeError) as error:
            # What is left of the session is deleted after the next start.
            log.error("cannot delete an ended session: %s", text_of(error))

    async def _expire_sessions(self) -> None:
        while True:
            await asyncio.sleep(60)
            count = sum(registry.expire() for registry in self.registries.values())
            if count:
                log.info("expired sessions=%d", count)

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
        """Why the broker cannot do its work now; empty if it can."""
        reasons = self.listener_problems()
        store = self._core.store if self._core is not None else None
        if store is not None and store.failing:
            reasons.append("the store cannot write")
        if self._streams is not None:
            reasons.extend(self._streams.problems())
        if self.clustering is not None:
            reasons.extend(self.clustering.problems())
        lag = self.monitor.recent_lag()
        if lag > UNWELL_LAG:
            reasons.append(f"the event loop was {lag:.1f} s late in the last seconds")
        return reasons

    def listener_problems(self) -> list[str]:
        """Which listeners do not accept."""
        return [
            f"listener {name} ({each.url}) does not accept connections"
            for name, each in self.listeners.items()
            if not each.is_open
        ]

    def _open_connections(self) -> dict[str, int]:
        """Open MQTT connections by kind of listener."""
        counts: dict[str, int] = {}
        for each in (*self.listeners.values(), *self._closed_listeners):
            kind = "mqttws" if each.endpoint.is_websocket else "mqtt"
            counts[kind] = counts.get(kind, 0) + each.connections
        return counts

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
        publisher = self._publishers.get(mountpoint)
        if publisher is None or publisher.is_closed:
            self._publishers[mountpoint] = publisher = self._client(1, mountpoint)
        await publisher.publish(topic, payload, qos, retain)

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
        client = self._client(limit, mountpoint)
        try:
            await client.subscribe(filters, qos)
            yield client.messages()
        finally:
            client.close()

    def _client(self, limit: int, mountpoint: str) -> LocalClient:
        registry = self.registry(mountpoint)
        client = LocalClient(registry, "embedded-" + uuid4().hex, limit, self._clients.discard)
        self._clients.add(client)
        return client


def _value(config: Config, key: str) -> object:
    """The value of an option by its dotted key; None if it is gone."""
    try:
        return value_of(config, key)
    except KeyError:
        return None
