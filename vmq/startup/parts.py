"""The parts that every started broker has, whatever it listens on."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from plyvel import CorruptionError
from vmq_hooks import Plugin

from vmq.config.cluster import slots_folder
from vmq.config.core import options_of
from vmq.config.options import Config, value_of
from vmq.config.session import SessionOverrides
from vmq.core.registry import Registry
from vmq.listeners.handshakes import Handshakes
from vmq.listeners.listener import Listener
from vmq.listeners.renewing import CertificateWatch
from vmq.persistence.damage import DamageReport
from vmq.persistence.opening import open_core, store_folder
from vmq.persistence.purging import Purger
from vmq.persistence.restoring import restore
from vmq.persistence.wills import StoredWills, publish_all_left, wills_settled
from vmq.plugins.host import PluginHost
from vmq.plugins.logins import Logins
from vmq.plugins.manager import Plugins
from vmq.plugins.reauthorize import Lapsed
from vmq.plugins.starting import PluginError
from vmq.resources.memory import MemoryWatch
from vmq.resources.upkeep import Upkeep
from vmq.runtime.audit import tell_of_plugins
from vmq.runtime.banning import Banning
from vmq.runtime.bans import Bans, BansError
from vmq.runtime.connections import Connections
from vmq.runtime.draining import QueueTasks
from vmq.runtime.errors import StartError
from vmq.runtime.live import begin_retries, update_connections, update_trees
from vmq.runtime.metrics import Metrics
from vmq.runtime.monitor import Monitor
from vmq.runtime.registries import BrokerRegistries
from vmq.store.opening import StoreDamagedError, ended_sessions, text_of
from vmq.tracing.tracer import Tracer

if TYPE_CHECKING:
    from vmq.clustering.node.node import Clustering

log = logging.getLogger("vmq.broker")


class Parts:
    """They are made together, over an open store, and end together.

    Args:
        config: the broker's; the store lies in its data directory.
        registries: its topic trees by mountpoint, which fill as they are asked for.
        host: what plugins may ask the broker for.
        prepared: plugins of the configuration that are loaded and checked already.
        counted: open MQTT connections by kind of listener.
        spawn: runs work beside the broker's own until it stops.

    Raises:
        StartError: the store cannot be used.
    """

    def __init__(
        self,
        config: Config,
        registries: dict[str, Registry],
        host: PluginHost,
        prepared: Mapping[str, tuple[Plugin, Any]] | None,
        counted: Callable[[], dict[str, int]],
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]],
    ) -> None:
        self._config = config
        self._spawn = spawn
        self._following: asyncio.Task[list[str]] | None = None
        self.registries = registries
        self.host = host
        self.core, self.committer = core, committer = open_core(config)
        assert core.store is not None
        self.store = core.store
        core.registries = BrokerRegistries(self.registry)
        self.session_options = core.session_options = SessionOverrides(core.options)
        core.rechecks = Lapsed(spawn)
        self.connections = Connections(
            core.clock, lambda: float(self._config.session.mqtt_connect_timeout)
        )
        self.handshakes = Handshakes(core.clock, core.call_soon, core.counters)
        bans = Bans(Path(config.broker.data_dir), core.wall_clock)
        self.banning = Banning(bans, core, lambda: self.connections)
        self._purger = Purger(self.store, committer)
        self._queue_tasks = QueueTasks(core)
        self.monitor = monitor = Monitor(core)
        self.metrics = Metrics(
            core,
            lambda: list(registries.values()),
            committer.times,
            monitor.lags,
            monitor.recent_lag,
            monitor.uptime,
            counted,
        )
        logins = Logins(core)
        self.plugins = Plugins(host, core.hooks, config, core.clock, prepared, logins.over)
        self.tracer = Tracer(core, self.plugins)
        self.damage = DamageReport(self.store, registries)
        committer.on_damage = self.damage.tell
        #: What the process may have; None before `begin_upkeep`.
        self.memory: MemoryWatch | None = None
        self._upkeep: Upkeep | None = None
        self.certificates = CertificateWatch(config.listeners)
        self._wills = StoredWills(Path(config.broker.data_dir))
        self._host = host

    def registry(self, mountpoint: str = "") -> Registry:
        """The topic tree of a mountpoint with its sessions; made when first asked for."""
        found = self.registries.get(mountpoint)
        if found is None:
            purge = self._purger.add
            found = Registry(self.core, self._queue_tasks.wake, purge, mountpoint)
            self.registries[mountpoint] = found
        return found

    def _take_back(self) -> None:
        """Without a cluster, what is in slots is the store's again."""
        folder = slots_folder(Path(self._config.broker.data_dir))
        if self._config.cluster.listen or not folder.parent.is_dir():
            return
        # Late: most brokers never had any, and need none of it.
        from vmq.clustering.running.returning import take_back
        from vmq_cluster.errors import ClusterError

        try:
            take_back(folder, self.store)
        except ClusterError as error:
            raise StartError(str(error)) from error

    def restore(self) -> None:
        """Has sessions and retained messages as the store has them.

        Raises:
            StartError: the store is damaged.
        """
        committer = self.committer
        self._take_back()
        try:
            try:
                restore(self.store, self.registry, self.registries)
            except CorruptionError:
                if not committer.isolate():
                    raise
                self.registries.clear()
                restore(self.store, self.registry, self.registries)
            for session in ended_sessions(self.store):
                self._purger.add(session)
            committer.limit_damage()
            self.damage.tell()
        except Exception as error:
            damage = StoreDamagedError(store_folder(self._config), text_of(error))
            raise StartError(str(damage)) from error
        self._spawn(self._purger.run())

    async def begin(self, made: Mapping[str, Plugin], runs: Mapping[str, bool]) -> None:
        """Has the operator's bans in force and the plugins run.

        Args:
            made: plugins that the program itself has made, by name.
            runs: which plugins the operator has enabled or disabled since the configuration was read.

        Raises:
            StartError: the bans cannot be read, or a plugin does not start.
        """
        try:
            self.banning.begin()
            for name, plugin in made.items():
                await self.plugins.add(name, plugin, self._config.plugins.get(name))
            await self.plugins.start()
            for name, is_on in runs.items():
                if is_on != (name in self.plugins.loaded):
                    await (self.plugins.enable(name) if is_on else self.plugins.disable(name))
        except BansError as error:
            raise StartError(f"{error}; mend or remove the file") from error
        except PluginError as error:
            raise StartError(str(error)) from error
        finally:
            self._strike_wills()

    def _strike_wills(self) -> None:
        """Whom a plugin calls gone at its start leaves no will, though the broker does not come to publish any."""
        gone, self._host.gone = self._host.gone, None
        try:
            self._wills.strike(gone or ())
        except OSError as error:
            raise _unusable_wills(error) from error

    def begin_upkeep(
        self,
        sharers: Callable[[], int],
        listeners: Callable[[], Sequence[Listener]],
        make_room: Callable[[], object],
    ) -> None:
        """Has what is done from time to time run: bans end, memory and disk are watched, sessions expire.

        Args:
            sharers: how many processes are one broker now.
            listeners: those whose certificates are read anew.
            make_room: called while memory is high.
        """
        connections, limit = self.connections, self._config.limits.max_memory
        self.memory = MemoryWatch(self.core, limit, connections.__iter__, sharers=sharers)
        self.memory.high = make_room
        self._upkeep = Upkeep(self.core, self.registries, self._config, self.memory)
        works = self.banning.run(), self.memory.run(), self.certificates.run(listeners)
        for work in (*works, *self._upkeep.works()):
            self._spawn(work)

    def end_upkeep(self) -> None:
        """Says what was dropped since it was said last; the works themselves end with the broker's others."""
        if self._upkeep is not None:
            self._upkeep.drops.tell()

    async def begin_wills(self, clustering: "Clustering | None") -> None:
        """Publishes the wills of clients that were connected when it was killed, and keeps those of clients to come.

        A node of a cluster has kept them since it runs, and looks first what others have published.

        Raises:
            StartError: their files cannot be used.
        """
        if clustering is not None:
            clustering.begin_wills()
            return
        wills = self._wills
        try:
            if found := wills.left_over():
                clients = [each.client(self.registry(each.mountpoint)) for each in found]
                await publish_all_left(clients, self.core, self.committer)
            wills.forget()
            wills.begin()
            self.core.wills = wills
        except OSError as error:
            raise _unusable_wills(error) from error

    def close(self) -> None:
        """Everything is written that can be."""
        self._wills.close()
        self.committer.close()

    async def wills_settled(self) -> None:
        """Returns when no plugin is asked about a will any more; each has its deadline."""
        await wills_settled(self.core)

    def follow(self, config: Config, changed: Sequence[str]) -> None:
        """Goes by a configuration that is in force from now on; `changed` names the options that differ."""
        core, keys = self.core, set(changed)
        self._config = config
        had_retries = core.options.retry_interval > 0
        options_of(config, core.options)
        self.session_options.refresh()
        trees = self.registries.values()
        if core.options.retry_interval and not had_retries:
            begin_retries(core, trees)
        update_trees(keys, config, trees)
        update_connections(keys, config, self.connections)
        self.committer.flush_interval = config.store.flush_interval
        others = {key: _value(config, key) for key in changed if not key.startswith("plugins.")}
        self._following = self._spawn(self._tell_plugins(others))
        if self.memory is not None:
            self.memory.set_limit(config.limits.max_memory)
        if self._upkeep is not None:
            self._upkeep.configure(config)

    async def _tell_plugins(self, others: Mapping[str, object]) -> list[str]:
        """Has the plugins go by the configuration; `others`: options that changed and are not theirs."""
        problems = await self.plugins.take_over(self._config.plugins, others)
        for problem in problems:
            tell_of_plugins(problem)
        return problems

    async def followed(self) -> list[str]:
        """Returns when the plugins go by the configuration in force: why some of them stay as they were."""
        return [] if self._following is None else await asyncio.shield(self._following)


def _unusable_wills(error: OSError) -> StartError:
    return StartError(f"the wills that were kept cannot be used: {error}")


def _value(config: Config, key: str) -> object:
    """The value of an option by its dotted key; None if it is gone."""
    try:
        return value_of(config, key)
    except KeyError:
        return None
