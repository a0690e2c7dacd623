"""Jobs in a cluster of processes, as clients of Disque meet them."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any
from urllib.parse import urlsplit

import redis

from tests.cluster_processes.cluster import LinkedCluster, Node
from tests.cluster_processes.links import Fault
from tests.support.until import reach

#: Where each node serves jobs; what is published to `hot` is one.
CONFIG = {
    "listeners": {"jobs": {"url": "resp://127.0.0.1:0", "admin": True}},
    "mappings": {"hot": {"from": "hot", "to": ["$jobs/q"]}},
}


class Jobs:
    """A client of one node."""

    def __init__(self, node: Node) -> None:
        url = next(each for each in node.process.urls if each.startswith("resp://"))
        self.port = urlsplit(url).port or 0
        self.redis = redis.Redis(port=self.port, socket_timeout=60)

    def __call__(self, *words: Any) -> Any:
        return self.redis.execute_command(*words)  # type: ignore[no-untyped-call]

    def add(self, queue: str, body: Any = "x", *options: Any, timeout: int = 20_000) -> bytes:
        found: bytes = self("ADDJOB", queue, body, timeout, *options)
        return found

    def get(self, *queues: str, timeout: int = 30_000) -> tuple[bytes, bytes]:
        """Id and body of a job, which somebody has within the time."""
        found = self("GETJOB", "TIMEOUT", timeout, "FROM", *queues)
        assert found, f"no job of {queues} within {timeout} ms"
        return found[0][1], found[0][2]

    def none(self, *queues: str) -> bool:
        """Whether there is no job here."""
        return self("GETJOB", "NOHANG", "FROM", *queues) is None

    def show(self, job_id: bytes) -> dict[bytes, Any]:
        found = self("SHOW", job_id)
        if not found:
            return {}
        return found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))

    def state(self, job_id: bytes) -> str:
        """What a job is here; "" if it is not here."""
        found: bytes = self.show(job_id).get(b"state", b"")
        return found.decode()

    def length(self, queue: str) -> int:
        return int(self("QLEN", queue))

    def registered(self) -> int:
        info: dict[str, Any] = self("INFO")
        return int(info["registered_jobs"])

    def id(self) -> bytes:
        found: bytes = self("CLUSTER", "MYID")
        return found

    def reachable(self) -> int:
        info = self("CLUSTER", "INFO")
        if isinstance(info, dict):
            return int(info["cluster_reachable_nodes"])
        lines = dict(line.partition(":")[::2] for line in info.decode().splitlines())
        return int(lines["cluster_reachable_nodes"])

    def close(self) -> None:
        self.redis.close()


class JobCluster:
    """Clients of all nodes that run."""

    def __init__(self, cluster: LinkedCluster) -> None:
        self.cluster = cluster
        self.clients: dict[str, Jobs] = {}
        self.meet()

    def meet(self) -> None:
        """Waits until the jobs of all nodes that run know each other."""
        running = self.cluster.running
        for node in running:
            known = self.clients.get(node.name)
            if known is not None:
                known.close()
            self.clients[node.name] = Jobs(node)
        self.wait_reachable([self.clients[node.name] for node in running])

    def wait_reachable(self, clients: list[Jobs]) -> None:
        """Waits until the jobs of these nodes reach each other, and no others."""

        def holds() -> bool:
            return all(each.reachable() == len(clients) for each in clients)

        reach(holds, "nodes reach each other")

    def __getitem__(self, name: str) -> Jobs:
        return self.clients[name]

    def kill(self, *names: str, wipe: bool = False) -> None:
        """SIGKILL, all at once; the others miss them."""
        for name in names:
            self.clients.pop(name).close()
            self.cluster[name].kill()
            if wipe:
                self.cluster[name].wipe()
        self.wait_reachable(list(self.clients.values()))

    def restart(self, *names: str) -> None:
        self.cluster.start(*names)
        self.meet()

    def make_whole(self) -> None:
        """Those that a test has killed run again."""
        dead = [name for name, node in self.cluster.nodes.items() if not node.is_running]
        if dead:
            self.restart(*dead)

    def cut(self, *side: str) -> None:
        """Parts some nodes from the rest."""
        rest = [name for name in self.clients if name not in side]
        self.cluster.links.part(Fault.CUT, side, rest)
        for names in (side, rest):
            self.wait_reachable([self.clients[name] for name in names])

    def heal(self) -> None:
        self.cluster.links.heal()
        self.wait_reachable(list(self.clients.values()))

    def holders(self, job_id: bytes) -> list[str]:
        return [name for name, each in self.clients.items() if each.state(job_id)]

    def close(self) -> None:
        for client in self.clients.values():
            client.close()


@contextmanager
def job_cluster(*names: str, env: dict[str, str] | None = None) -> Iterator[JobCluster]:
    """Nodes with jobs, which know each other."""
    with LinkedCluster(names, env, config=CONFIG) as cluster, closing(JobCluster(cluster)) as jobs:
        yield jobs
