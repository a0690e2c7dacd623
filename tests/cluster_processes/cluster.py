"""A cluster of brokers as processes: started, killed, stopped, wiped and restarted."""

import os
import re
import shutil
import signal
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal, Self

from tests.cluster_processes.links import Links
from vmq.clustering.node.key import write_key
from vmq.config.embedding import as_toml
from vmq.testing.ports import lasting_port
from vmq.testing.process import BrokerProcess

#: Seconds for nodes to hear of each other, on a machine that has much else to do.
TIMEOUT: Final = 40.0

ENV: Final = {
    "VMQ_CLUSTER__HEARTBEAT_INTERVAL": "0.2",
    "VMQ_CLUSTER__HEARTBEAT_TIMEOUT": "1.5",
    "VMQ_CLUSTER__SLOTS": "64",
    # The devices may be slower than the brokers: no queue may overflow.
    "VMQ_QUEUE__MAX_ONLINE_MESSAGES": "-1",
    "VMQ_QUEUE__MAX_OFFLINE_MESSAGES": "-1",
}

_SEEN: Final = re.compile(r"node (up|down) name=(\S+)")


def say(text: str) -> None:
    """Tells it at once: somebody may be looking."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Node:
    """One broker, and where it is reached, in this life and the next.

    Args:
        name: the node's.
        folder: what it has on disk is below.
        listen: where its node listens.
        address: where the others reach that.
        launcher: a command that becomes the broker.
        urls: where it listens besides; port 0 is one that it keeps.
        config: options of a file; its listeners are there besides.
    """

    def __init__(
        self,
        name: str,
        folder: Path,
        listen: str,
        address: str,
        launcher: Sequence[str] = (),
        urls: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.name = name
        self.address = address
        self.data_dir = folder / name
        self._listen = listen
        self._launcher = launcher
        self._urls = [re.sub(":0$", f":{lasting_port()}", url) for url in urls]
        self._config = dict(config or {})
        self._process: BrokerProcess | None = None
        self._is_stopped = False
        #: What it logged in its former lives.
        self.logs: list[str] = []
        #: Where clients reach it: a host and a port, or a path when the launcher leads to another network.
        self.host = f"{folder}/{name}.mqtt" if launcher else "127.0.0.1"
        self.port = 0 if launcher else lasting_port()

    @property
    def transport(self) -> Literal["unix", "tcp"]:
        return "unix" if self._launcher else "tcp"

    @property
    def process(self) -> BrokerProcess:
        assert self._process is not None, f"{self.name} does not run"
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def flight(self) -> str:
        return next(url for url in self.process.urls if url.startswith("grpc://"))

    def start(self, join: Sequence[str], key: Path | None, env: Mapping[str, str]) -> None:
        """Starts it, where it was before if there was a before."""
        args = ["--allow-anonymous", "--node-name", self.name, "--cluster-listen", self._listen]
        for address in join:
            args += ["--join", address]
        if key is not None:
            args += ["--cluster-key", str(key)]
        url = f"unix://{self.host}" if self._launcher else f"tcp://{self.host}:{self.port}"
        urls = (url, *self._urls)
        if self._config:
            file = self.data_dir.with_suffix(".toml")
            listeners = {"mqtt": {"url": url}, **self._config["listeners"]}
            file.write_text(as_toml({**self._config, "listeners": listeners}), encoding="utf-8")
            args += ["--config", str(file)]
            urls = ()
        self._process = BrokerProcess.start(
            urls,
            self.data_dir,
            {**ENV, "VMQ_CLUSTER__ADVERTISE": self.address, **env},
            args,
            launcher=self._launcher,
        )

    def signal(self, number: signal.Signals) -> None:
        """SIGSTOP or SIGCONT."""
        self._is_stopped = number == signal.SIGSTOP
        os.kill(self.process.pid, number)

    def kill(self) -> None:
        self.process.kill()
        self._forget()

    def terminate(self) -> int:
        """SIGTERM; returns its exit code."""
        code = self.process.terminate(TIMEOUT)
        self._forget()
        return code

    def ended(self) -> None:
        """It has been told to end in another way, and does."""
        self.process.wait(TIMEOUT)
        self._forget()

    def wipe(self) -> None:
        assert not self.is_running
        shutil.rmtree(self.data_dir)

    def close(self) -> None:
        if self._process is not None:
            if self._is_stopped:
                self.signal(signal.SIGCONT)
            self.kill()

    def _forget(self) -> None:
        self._is_stopped = False
        self.process.close()
        self.logs.append(self.process.stderr_text())
        self._process = None

    # --- what it says of others

    def seen(self, state: str) -> int:
        """How often it said so far that some other is `up` or `down`."""
        return sum(found[1] == state for found in _SEEN.finditer(self.process.stderr_text()))

    def wait_seen(self, peer: str, state: str) -> None:
        """Waits until the last word of its log on another node is `up` or `down`."""

        def holds(lines: Sequence[str]) -> bool:
            found = [
                match[1] for line in lines if (match := _SEEN.search(line)) and match[2] == peer
            ]
            return found[-1:] == [state]

        self.process.wait_logs(f"{peer} is {state}", holds, TIMEOUT)

    def last_seen(self, peer: str) -> str:
        """Why another one is down, by the last word of its log on that."""
        found = re.findall(rf'node down name={peer} reason="([^"]*)"', self.process.stderr_text())
        return str(found[-1])


class Cluster(ABC):
    """A context manager that ends every process and port.

    Args:
        names: of the nodes, all of which start at once.
        env: options of all of them, as environment variables.
        urls: where each listens besides.
        config: options of a file; its listeners are there besides.
        later: of nodes that start when they are told to.
    """

    def __init__(
        self,
        names: Sequence[str],
        env: Mapping[str, str] | None = None,
        urls: Sequence[str] = (),
        later: Sequence[str] = (),
        config: Mapping[str, Any] | None = None,
    ) -> None:
        # Not pytest's folder: the path of a socket has 107 characters at most.
        self._folder = tempfile.TemporaryDirectory(prefix="vmq-cluster-")
        self.folder = Path(self._folder.name)
        self.key = self.folder / "key"
        write_key(self.key)
        self._env = dict(env or {})
        self._first = tuple(names)
        self.urls = tuple(urls)
        self.config = dict(config or {})
        self.nodes: dict[str, Node] = {}
        self.prepare([*names, *later])

    @abstractmethod
    def prepare(self, names: Sequence[str]) -> None:
        """Makes the network, and `nodes`."""

    @abstractmethod
    def end_network(self) -> None:
        """Undoes it; all nodes have ended."""

    def __getitem__(self, name: str) -> Node:
        return self.nodes[name]

    @property
    def running(self) -> list[Node]:
        return [each for each in self.nodes.values() if each.is_running]

    def start(self, *names: str) -> None:
        """Starts nodes at the same time, all if none is named; returns when all that run see each other."""
        self.start_only(*(names or self.nodes))
        self.wait_whole()

    def start_only(self, *names: str) -> None:
        """Starts nodes, and does not wait until the others see them."""
        join = [each.address for each in self.nodes.values()]
        self.each(
            lambda node: node.start(join, self.key, self._env), [self.nodes[name] for name in names]
        )

    def each(self, do: Callable[[Node], Any], nodes: Iterable[Node] | None = None) -> None:
        """Does something with several nodes at the same time."""
        with ThreadPoolExecutor() as pool:
            list(pool.map(do, self.running if nodes is None else nodes))

    def wait_whole(self) -> None:
        """Waits until each node that runs sees all others that do."""
        for node in self.running:
            for peer in self.running:
                if peer is node:
                    continue
                try:
                    node.wait_seen(peer.name, "up")
                except AssertionError as missed:
                    missed.add_note(f"{peer.name}: {peer.process.stderr_text()[-3000:]}")
                    raise

    def wait_down(self, name: str) -> None:
        """Waits until all others that run miss a node."""
        for node in self.running:
            if node.name != name:
                node.wait_seen(name, "down")

    def close(self) -> None:
        for node in self.nodes.values():
            node.close()
        self.end_network()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        try:
            self.start(*self._first)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LinkedCluster(Cluster):
    """Whose nodes reach each other by way of `links`."""

    def prepare(self, names: Sequence[str]) -> None:
        self.links = Links(self._pids)
        for name in names:
            socket = f"{self.folder}/{name}.socket"
            address = self.links.open(name, socket)
            listen = f"ipc://{socket}"
            self.nodes[name] = Node(
                name, self.folder, listen, address, urls=self.urls, config=self.config
            )

    def end_network(self) -> None:
        self.links.close()

    def _pids(self) -> dict[str, int]:
        return {each.name: each.process.pid for each in self.running}
