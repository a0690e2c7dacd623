"""The parts that every started broker has, whatever it listens on."""

from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any

from plyvel import CorruptionError
from vmq_hooks import Plugin

from vmq.config.core import options_of
from vmq.config.options import Config
from vmq.config.overrides import LiveConfig
from vmq.config.session import SessionOverrides
from vmq.core.registry import Registry
from vmq.listeners.handshakes import Handshakes
from vmq.persistence.damage import DamageReport
from vmq.persistence.opening import open_core, store_folder
from vmq.persistence.purging import Purger
from vmq.persistence.restoring import restore
from vmq.plugins.host import PluginHost
from vmq.plugins.logins import Logins
from vmq.plugins.manager import Plugins
from vmq.plugins.reauthorize import Lapsed
from vmq.runtime.banning import Banning
from vmq.runtime.bans import Bans
from vmq.runtime.connections import Connections
from vmq.runtime.draining import QueueTasks
from vmq.runtime.errors import StartError
from vmq.runtime.live import begin_retries, update_connections, update_trees
from vmq.runtime.metrics import Metrics
from vmq.runtime.monitor import Monitor
from vmq.runtime.registries import BrokerRegistries
from vmq.store.opening import StoreDamagedError, ended_sessions, text_of
from vmq.tracing.tracer import Tracer


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
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        self._config = config
        self._spawn = spawn
        self.registries = registries
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

    def registry(self, mountpoint: str = "") -> Registry:
        """The topic tree of a mountpoint with its sessions; made when first asked for."""
        found = self.registries.get(mountpoint)
        if found is None:
            purge = self._purger.add
            found = Registry(self.core, self._queue_tasks.wake, purge, mountpoint)
            self.registries[mountpoint] = found
        return found

    def restore(self) -> None:
        """Has sessions and retained messages as the store has them.

        Raises:
            StartError: the store is damaged.
        """
        committer = self.committer
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

    def follow(self, live: LiveConfig, changed: list[str]) -> None:
        """Goes by a configuration that is in force from now on."""
        core = self.core
        config, keys = live.config, set(changed)
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
