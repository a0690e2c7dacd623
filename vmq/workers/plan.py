"""Which workers there are, where each has its state, and what each is told of the configuration. Pure but for folders.

Worker 1 keeps its durable state in the data directory itself, where one process alone has it; worker N keeps it in
`workers/N` there. Beside that state each worker has its admin socket and its node of the cluster in `workers/N`: a
process alone is no node, and takes over the data directory without them.
"""

import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec

from vmq.config.options import (
    MOST_WORKERS,
    ClusterOptions,
    Config,
    ConfigError,
    ListenerOptions,
    Problem,
)
from vmq.config.overrides import LiveConfig
from vmq.runtime.share import Share

#: Every system takes a path of so many bytes as the address of a Unix socket.
_LONGEST_SOCKET: Final = 100
_SOCKET: Final = "node.sock"


class Plan:
    """The workers of one start.

    Args:
        config: as it was read.
        count: how many workers serve.
        urls: the addresses of TCP listeners, by name, with their real ports.

    Raises:
        ConfigError: the configuration cannot be had by several processes.
    """

    def __init__(self, config: Config, count: int, urls: Mapping[str, str] | None = None) -> None:
        self.count = count
        self.folder = Path(config.broker.data_dir).absolute()
        self.name = config.cluster.node_name or socket.gethostname()
        self.urls = dict(urls or {})
        #: Listeners that the operator closed.
        self.stopped: set[str] = set()
        #: Plugins that the operator started or stopped.
        self.plugins: dict[str, bool] = {}
        #: Workers of earlier starts, beyond `count`, that still keep sessions.
        self.surplus = [number for number in _kept(self.folder) if number > count]
        problems = list(self._problems(config))
        if problems:
            raise ConfigError(problems)

    def _problems(self, config: Config) -> Iterator[Problem]:
        longest = self.own_folder(max(self.numbers())) / _SOCKET
        if len(os.fsencode(longest)) > _LONGEST_SOCKET:
            what = f"too long for workers: {longest} would have more than {_LONGEST_SOCKET} bytes"
            yield Problem("broker.data_dir", what)
        for option in ("listen", "advertise"):
            address: str = getattr(config.cluster, option)
            if address.startswith("tcp://"):
                yield from self._port_problems(f"cluster.{option}", address)
        for name, listener in config.listeners.items():
            if self.count > 1 and listener.endpoint.is_flight:
                yield from self._port_problems(f"listeners.{name}.url", listener.url)
                if listener.advertise:
                    yield from self._port_problems(
                        f"listeners.{name}.advertise", listener.advertise
                    )

    def _port_problems(self, option: str, address: str) -> Iterator[Problem]:
        if not 0 < int(address.rpartition(":")[2]) <= 65_536 - max(self.numbers()):
            what = f"{address}: each worker has a port of its own, this one and those above it"
            yield Problem(option, what)

    # --- who they are

    def numbers(self) -> list[int]:
        """All of them, from 1; those of earlier starts last."""
        return [*range(1, self.count + 1), *self.surplus]

    def own_folder(self, number: int) -> Path:
        """The folder that one worker alone uses."""
        return workers_folder(self.folder) / str(number)

    def data_folder(self, number: int) -> Path:
        """Where one worker has its durable state."""
        return self.folder if number == 1 else self.own_folder(number)

    def node_name(self, number: int) -> str:
        """The name of a worker as a node."""
        return f"{self.name}-{number}"

    def opens(self, number: int, config: Config) -> frozenset[str]:
        """The listeners that a worker is to have open."""
        if number > self.count:
            return frozenset()
        return frozenset(
            name
            for name, options in config.listeners.items()
            # Of one of HTTP it has what speaks MQTT there.
            if options.endpoint.scheme == "http" or number in self.servers(name, config)
        ) - frozenset(self.stopped)

    def servers(self, listener: str, config: Config) -> list[int]:
        """The workers that accept at a listener; none if it is that of HTTP, which the supervisor opens for all."""
        endpoint = config.listeners[listener].endpoint
        if endpoint.scheme == "http":
            return []
        # A Unix socket has one owner; the system shares TCP ports only. Clients of Disque see one node of each host.
        is_one = endpoint.scheme == "unix" or endpoint.is_resp
        return [1] if is_one else list(range(1, self.count + 1))

    def share(self, number: int, config: Config, present: Iterable[int] = ()) -> Share:
        """What a worker is told of its part, when so many others are there."""
        return Share(
            number=number,
            listeners=self.opens(number, config),
            folder=str(self.own_folder(number)),
            siblings={
                self.node_name(each): self.address(each, config)
                for each in present
                if each != number
            },
            sockets=self._sockets() if config.cluster.listen.startswith("tcp://") else {},
            worker_names=frozenset(map(self.node_name, self.numbers())),
            plugins=dict(self.plugins),
        )

    # --- what they are told

    def live_of(self, number: int, live: LiveConfig) -> LiveConfig:
        """The configuration in force, as one worker has it."""
        base, config = self.config_of(number, live.base), self.config_of(number, live.config)
        return LiveConfig(base, config, live.overrides)

    def config_of(self, number: int, config: Config) -> Config:
        """A configuration as one worker has it; of the memory and the disk it takes its part by itself."""
        replace = msgspec.structs.replace
        listeners = {
            name: replace(
                options,
                url=self._listener_url(number, name, options),
                advertise=_shifted(options.advertise, number),
                max_connections=_part(options.max_connections, len(self.servers(name, config))),
            )
            for name, options in config.listeners.items()
        }
        most, limits = config.store.max_bytes, config.limits
        return replace(
            config,
            broker=replace(config.broker, data_dir=str(self.data_folder(number)), workers=1),
            listeners=listeners,
            limits=replace(limits, max_job_memory=_part(limits.max_job_memory, self.count)),
            store=replace(config.store, max_bytes=most if most < 0 else _part(most, self.count)),
            cluster=self._cluster(number, config.cluster),
            # One of them looks at the clock for all.
            schedules=config.schedules if number == 1 else {},
        )

    def _listener_url(self, number: int, name: str, options: ListenerOptions) -> str:
        """Where one worker listens: readers of streams have to come to the one that has what they read."""
        if options.endpoint.is_flight:
            return _shifted(options.url, number)
        return self.urls.get(name, options.url)

    def _cluster(self, number: int, options: ClusterOptions) -> ClusterOptions:
        return msgspec.structs.replace(
            options,
            node_name=self.node_name(number),
            host=options.host or self.name,
            listen=self._address(number, options.listen),
            advertise=self._address(number, options.advertise) if options.advertise else "",
        )

    def address(self, number: int, config: Config) -> str:
        """Where the others reach a worker's node."""
        return self._address(number, config.cluster.advertise or config.cluster.listen)

    def _sockets(self) -> dict[str, str]:
        """Where the workers reach each other, whatever others reach them at."""
        return {
            self.node_name(each): f"ipc://{self.own_folder(each) / _SOCKET}"
            for each in self.numbers()
        }

    def _address(self, number: int, first: str) -> str:
        """Where a worker's node is reached; `first` is that of worker 1, if one is configured."""
        if not first:
            return f"ipc://{self.own_folder(number) / _SOCKET}"
        if not first.startswith("tcp://"):
            return f"{first}-{number}"
        return _shifted(first, number)


def _shifted(address: str, number: int) -> str:
    """The address of a worker, where that of worker 1 is this; empty stays empty."""
    if not address:
        return ""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) + number - 1}"


def workers_folder(data_dir: Path) -> Path:
    """Where workers keep what is their own."""
    return data_dir / "workers"


def count_of(config: Config) -> int:
    """How many workers a configuration wants."""
    workers = config.broker.workers
    return workers if isinstance(workers, int) else min(len(os.sched_getaffinity(0)), MOST_WORKERS)


def are_needed(config: Config, count: int) -> bool:
    """Whether processes are to share the work: several are wanted, or earlier ones have left sessions behind."""
    folder = Path(config.broker.data_dir)
    return count > 1 or any(number > 1 for number in _kept(folder))


def _kept(data_dir: Path) -> list[int]:
    folder = workers_folder(data_dir)
    # (Who may not even look into the data directory is told so elsewhere; `is_dir` would raise.)
    if not os.access(folder, os.F_OK) or not folder.is_dir():
        return []
    names = [each.name for each in folder.iterdir() if each.is_dir()]
    return sorted(int(name) for name in names if re.fullmatch(r"[1-9][0-9]{0,3}", name))


def _part(limit: int, workers: int) -> int:
    """One worker's part of a limit for all; 0 is none."""
    return -(-limit // workers) if limit and workers else limit
