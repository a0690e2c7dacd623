"""A network of the kernel's for each node of a cluster, and a bridge between them: network namespaces.

All of it is in a user namespace, so nobody has to be root.
Clients reach the nodes by Unix sockets, which are in no network.
"""

import subprocess
from collections.abc import Sequence
from typing import Final

import pytest

from tests.cluster_processes.cluster import Cluster, Node
from tests.support.tools import require_tool

TIMEOUT: Final = 20.0
PORT: Final = 44053


class NamespaceError(Exception):
    """The kernel permits none."""


class Namespace:
    """A network that lives as long as a process which does nothing."""

    def __init__(self, command: Sequence[str]) -> None:
        self._holder = subprocess.Popen(
            [*command, "sh", "-c", "ip link set lo up && echo ready && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.pid = self._holder.pid
        assert self._holder.stdout is not None
        assert self._holder.stderr is not None
        if self._holder.stdout.readline() != "ready\n":
            reason = self._holder.stderr.read().strip()
            self.close()
            raise NamespaceError(reason)
        #: A command that becomes the one behind it, in this network.
        self.enter = [
            require_tool("nsenter"),
            f"--target={self.pid}",
            "--user",
            "--net",
            "--preserve-credentials",
        ]

    def ip(self, *arguments: str) -> None:
        """Runs `ip`."""
        done = subprocess.run(
            [*self.enter, "ip", *arguments],
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        if done.returncode:
            raise NamespaceError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")

    def close(self) -> None:
        for pipe in (self._holder.stdin, self._holder.stdout, self._holder.stderr):
            assert pipe is not None
            pipe.close()
        self._holder.wait(TIMEOUT)


class NamespaceCluster(Cluster):
    """Whose nodes have a network each. The test does not run where the kernel permits none."""

    def prepare(self, names: Sequence[str]) -> None:
        require_tool("ip")
        self._spaces: list[Namespace] = []
        try:
            self._bridge = self._space(
                [require_tool("unshare"), "--user", "--map-root-user", "--net"]
            )
            self._bridge.ip("link", "add", "bridge", "type", "bridge")
            self._bridge.ip("link", "set", "bridge", "up")
            for number, name in enumerate(names, 1):
                self._add(name, f"10.77.0.{number}")
        except NamespaceError as error:
            self.close()
            pytest.skip(f"no network namespaces here: {error}")

    def _space(self, command: Sequence[str]) -> Namespace:
        space = Namespace(command)
        self._spaces.append(space)
        return space

    def _add(self, name: str, address: str) -> None:
        space = self._space([*self._bridge.enter, "unshare", "--net"])
        end = ("peer", "name", "eth0", "netns", str(space.pid))
        self._bridge.ip("link", "add", f"to-{name}", "type", "veth", *end)
        self._bridge.ip("link", "set", f"to-{name}", "master", "bridge", "up")
        space.ip("address", "add", f"{address}/24", "dev", "eth0")
        space.ip("link", "set", "eth0", "up")
        where = f"tcp://{address}:{PORT}"
        self.nodes[name] = Node(name, self.folder, where, where, space.enter)

    def unplug(self, name: str) -> None:
        """Nothing comes to the node any more and nothing from it; nobody is told."""
        self._bridge.ip("link", "set", f"to-{name}", "down")

    def plug(self, name: str) -> None:
        self._bridge.ip("link", "set", f"to-{name}", "up")

    def end_network(self) -> None:
        for space in reversed(self._spaces):
            space.close()
