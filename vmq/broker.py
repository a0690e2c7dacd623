"""The broker: puts the parts together, starts and stops them, and is the embedding API (docs/embedding.md)."""

import asyncio
import logging
import shutil
import socket
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vmq_hooks import Plugin

from vmq.config.configured import Configured
from vmq.config.embedding import GivenPlugin, Keywords, temporary_folder
from vmq.config.options import Config
from vmq.config.overrides import LiveConfig
from vmq.core.context import Core
from vmq.core.hook_sites import Hooks
from vmq.core.registry import Registry
from vmq.embedded import ReceivedMessage
from vmq.jobs.embedded import Jobs
from vmq.listeners.handshakes import Handshakes
from vmq.listeners.renewing import not_renewed, renew
from vmq.plugins.host import PluginHost
from vmq.plugins.manager import Plugins
from vmq.runtime.banning import Banning
from vmq.runtime.connections import Connections
from vmq.runtime.errors import StartError
from vmq.runtime.health import Health
from vmq.runtime.local_clients import LocalClients
from vmq.runtime.metrics import Metrics
from vmq.runtime.monitor import Monitor
from vmq.runtime.share import Share
from vmq.runtime.watchdog import Watchdog
from vmq.startup.broker_listeners import BrokerListeners
from vmq.startup.broker_streams import BrokerStreams
from vmq.startup.figures import away_in_slots, condition_of, families_of
from vmq.startup.job_questions import answer_others
from vmq.startup.listening import import_ahead, open_admin
from vmq.startup.parts import Parts
from vmq.streams.serving.opening import follow_stream, streams_folder
from vmq.tracing.tracer import Tracer

if TYPE_CHECKING:
    from vmq.clustering.node.node import Clustering
    from vmq.http.admin_socket import AdminSocket
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
        self.listeners = BrokerListeners(self)
        self._wants_admin = admin
        self._before_clients = before_clients
        self._admin: AdminSocket | None = None
        #: Topic trees by mountpoint, once started.
        self.registries: dict[str, Registry] = {}
        self._parts: Parts | None = None
        self._watchdog: Watchdog | None = None
        #: Plugins that the program itself has made, by name.
        self._given = keywords.made()
        self._prepared = prepared
        self._streams = BrokerStreams(self)
        #: Adds and takes jobs from inside the process.
        self.jobs = Jobs(self._core, lambda: self.config, lambda: self.on_left)
        #: This broker as a node of a cluster, if it is one and runs.
        self.clustering: Clustering | None = None
        self._background: set[asyncio.Task[None]] = set()
        self._stopping: asyncio.Task[None] | None = None
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

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    # Start and stop

    async def start(self) -> None:
        """Opens the store and the listeners.

        Raises:
            StartError: it is started already, a listener's address cannot be had, or the store cannot be used.
        """
        own = [options for _, options in self.listeners.own()]
        import_ahead(self.config, own, is_worker=self.share is not None)
        self.listeners.bind_ports()
        try:
            self._open()
        except BaseException:
            self.listeners.free_ports()
            self._forget_data()
            raise
        self._watchdog = Watchdog(
            self.plugins.owner_of, self.plugins.was_blocked, dumps=self._wants_admin
        )
        self._watchdog.start()
        self._spawn(self.monitor.run(self.metrics.counters, self._watchdog.beat))
        try:
            await self.parts.begin(self._given, {} if self.share is None else self.share.plugins)
            if self.config.cluster.listen:
                await self._start_clustering()
            else:
                self.parts.store.note_alone()
            if self.streaming is not None:
                self.streaming.recover()  # what goes into the logs of this node depends on the others
            self.jobs.begin(None if self.clustering is None else self.clustering.job_links)
            answer_others(self)
            await self.parts.begin_wills(self.clustering)
            await self.listeners.prepare()
            if self._wants_admin:
                self._admin = open_admin(self, self._own_folder)
            self._before_clients()
            self.listeners.let_in()
        except BaseException:
            await self.stop()
            raise
        self.parts.begin_upkeep(self._sharers, self.listeners.of_mqtt, self.jobs.make_room)

    async def stop(self) -> None:
        """Closes listeners and connections (wills are published) and saves all durable state.

        It goes on though who waits for it is cancelled; who calls again meanwhile waits for the same end.
        """
        if self._stopping is None or self._stopping.done():
            self._stopping = asyncio.get_running_loop().create_task(self._stop())
        await asyncio.shield(self._stopping)

    async def _stop(self) -> None:
        if self._admin is not None:
            await self._admin.stop()
            self._admin = None
        for name in list(self.listeners):
            self.close_listener(name)
        await self.listeners.finish()
        if self._watchdog is not None:
            self._watchdog.stop()
            self._watchdog = None
        for task in list(self._background):
            task.cancel()
        self._clients.close()
        self._clients_of_plugins.close()
        if self._parts is not None:
            await self._end(self._parts)
            self._parts = None
        self.registries.clear()
        self._forget_data()

    async def _end(self, parts: Parts) -> None:
        """Ends connections, plugins, streams and the cluster, and saves what each of them leaves."""
        core, streams, clustering = parts.core, self.streaming, self.clustering
        parts.end_upkeep()
        parts.connections.close("the broker is shutting down")
        await self.jobs.stop()
        await parts.wills_settled()
        core.outbox.flush()
        if streams is not None:
            await streams.finish()
        await parts.committer.finish_all()
        if streams is not None:
            await streams.write()
        core.outbox.flush()
        await asyncio.sleep(0)  # the transports write what they were just given
        await parts.connections.end()
        await parts.plugins.stop()
        parts.connections.stop_watching()
        await parts.committer.finish_all()  # what the ends of the connections wrote
        if clustering is not None:
            await clustering.streams.finish()
        if streams is not None:
            await streams.stop()
            self._streams.opened = None
        if clustering is not None:
            await clustering.stop()
            self.clustering = None
            await parts.committer.finish_all()  # what other nodes said until now
        if parts.store.has_work():
            log.error("stopped with unsaved state: the store cannot write")
        parts.close()

    def _spawn(self, work: Any) -> "asyncio.Task[Any]":
        self._background.add(task := asyncio.get_running_loop().create_task(work))
        task.add_done_callback(self._background.discard)
        return task

    def _forget_data(self) -> None:
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _open(self) -> None:
        """Makes the parts over the store, with what was kept there."""
        config = self.config
        host = PluginHost(
            config.cluster,
            Path(config.broker.data_dir),
            self.registries,
            self.registry,
            lambda: self.metrics,
            self._streams.declare,
            self._clients_of_plugins,
            1 if self.share is None else self.share.number,
        )
        self._parts = parts = Parts(
            config, self.registries, host, self._prepared, self.listeners.connections, self._spawn
        )
        self._prepared = None  # a second start loads what is there by then
        parts.metrics.others = lambda: families_of(self)
        parts.metrics.away = lambda: away_in_slots(self)
        self.jobs.committer = parts.committer
        self.jobs.functions = parts.plugins.functions
        parts.plugins.changed = self.jobs.use_functions
        self.jobs.follow = lambda *about: follow_stream(self.open_streams, *about)
        try:
            parts.restore()
            if config.streams or streams_folder(config).is_dir():
                self.open_streams()
        except BaseException:
            parts.committer.close()
            self._parts = None
            raise

    @property
    def parts(self) -> Parts:
        """What a started broker has."""
        assert self._parts is not None, "the broker is not started"
        return self._parts

    @property
    def is_started(self) -> bool:
        """Whether it has its parts."""
        return self._parts is not None

    def _core(self) -> Core | None:
        return None if self._parts is None else self._parts.core

    @property
    def streaming(self) -> "Streaming | None":
        """The streams; None as long as there were never any."""
        return self._streams.opened

    def open_streams(self) -> "Streaming":
        """Opens the streams, those that only lie in the data directory too; once.

        Raises:
            StartError: a library is missing, or the folder cannot be used.
        """
        return self._streams.open()

    async def _start_clustering(self) -> None:
        # Late: most brokers are no nodes and need no ZeroMQ.
        from vmq.startup.clustering import catch_up_with, start_node

        self.clustering = clustering = await start_node(
            self, self._own_folder / "cluster", self._turn_away
        )
        self._spawn(await catch_up_with(clustering, self))

    def registry(self, mountpoint: str = "") -> Registry:
        """The topic tree of a mountpoint with its sessions; made when first asked for."""
        return self.parts.registry(mountpoint)

    # Connections

    @property
    def connections(self) -> Connections | None:
        """The MQTT connections that came through listeners, once started."""
        return None if self._parts is None else self._parts.connections

    @property
    def handshakes(self) -> Handshakes | None:
        """Shares the time for TLS handshakes among all listeners, once started."""
        return None if self._parts is None else self._parts.handshakes

    @property
    def addresses(self) -> list[str]:
        """The URLs of the open listeners with their real ports."""
        return [each.url for each in self.listeners.values()]

    def take_port(self, name: str) -> socket.socket | None:
        """The socket that has a listener's port since the start; it is the listener's from now on."""
        return self.listeners.take_port(name)

    async def open_listener(self, name: str) -> None:
        """Opens a listener of the configuration.

        Raises:
            StartError: its address or its certificates cannot be had.
        """
        await self.listeners.open(name, self.config.listeners[name])
        self.listeners.let_in()

    async def open_listeners(self) -> None:
        """Opens those listeners of the configuration that are this process's and not open.

        Raises:
            StartError: an address or certificates cannot be had.
        """
        await self.listeners.prepare()
        self.listeners.let_in()

    def turn_clients_away(self, reason: str) -> None:
        """Closes the listeners of MQTT and every connection that came through them."""
        for listener in self.listeners.of_mqtt():
            self.close_listener(listener.name)
        self._turn_away(reason)

    def _turn_away(self, reason: str) -> None:
        self.parts.connections.close(reason)
        self.jobs.turn_away(reason)
        self.parts.core.outbox.flush()

    def close_listener(self, name: str) -> None:
        """Closes a listener; connections that came through it stay."""
        if self.listeners.close(name).endpoint.is_flight and self.clustering is not None:
            self.clustering.streams.set_address("")

    @property
    def _own_folder(self) -> Path:
        """What is of this process: the data directory, unless several processes are this broker."""
        return Path(self.config.broker.data_dir) if self.share is None else self.share.path

    def reload_certificates(self) -> bool:
        """Reads the TLS files of all listeners anew, for the handshakes to come.

        No connection is dropped. A listener whose files are broken keeps what it has, and the log
        says why.

        Returns:
            Whether every listener could use its files.
        """
        return renew(self.listeners.of_mqtt())

    # Changes while it runs

    def reload(self, config: Config) -> list[str]:
        """Takes over a new configuration, all of it or nothing, as `Configured.reload`; returns the keys that changed.

        Certificates and the files of plugins are read anew too, changed or not.
        """
        changed = super().reload(config)
        self.read_files_anew()
        return changed

    def read_files_anew(self) -> None:
        """Reads certificates, and has the plugins read the files that are theirs."""
        self.reload_certificates()
        self._spawn(self.plugins.reread())

    async def followed(self) -> list[str]:
        return [*not_renewed(self.listeners.values()), *await self.parts.followed()]

    def _follow(self, live: LiveConfig, changed: list[str]) -> None:
        self.parts.follow(live.config, changed)
        self.listeners.configure(live.config)
        self.jobs.configure(live.config)
        self.parts.connections.wake()

    # Plugins

    @property
    def plugins(self) -> Plugins:
        """The plugins, to be enabled, disabled and reloaded."""
        return self.parts.plugins

    @property
    def banning(self) -> Banning:
        """Whom the operator lets in no more."""
        return self.parts.banning

    @property
    def tracer(self) -> Tracer:
        """Watches single clients."""
        return self.parts.tracer

    # Figures

    @property
    def metrics(self) -> Metrics:
        """Every figure of the running broker."""
        return self.parts.metrics

    @property
    def monitor(self) -> Monitor:
        """The watch over the event loop, with uptime and rates."""
        return self.parts.monitor

    def health(self) -> list[str]:
        """What is wrong with the broker now; empty if it is well."""
        return self.condition().reasons

    def condition(self) -> Health:
        """What is wrong with the broker now, and which of it keeps new clients out."""
        return condition_of(self)

    # Embedding

    @property
    def hooks(self) -> Hooks:
        """The call sites of the hooks."""
        return self.parts.core.hooks

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
