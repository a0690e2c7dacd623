"""What must hold of a cluster that is whole and quiet."""

import re
from collections.abc import Collection
from pathlib import Path
from time import monotonic, sleep
from typing import Any, Final

from tests.cluster_processes.cluster import Cluster, Node
from tests.vmq.http.conftest import get
from vmq.cli.admin.client import AdminClient

QUIET: Final = 60.0

#: Errors that operators are to see when they do what is done here.
_KNOWN: Final = ("this node was taken out of the cluster", "killed by SIGKILL")

_EMPTY: Final = ("cluster_messages_waiting", "cluster_bytes_waiting", "store_uncommitted_writes")


def figures_of(url: str) -> dict[str, int]:
    """The metrics, by their names and labels."""
    text = get(url, "/metrics").body.decode()
    return {
        name: int(float(value))
        for name, value in re.findall(r"^(\w+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)
    }


def metrics(node: Node) -> dict[str, int]:
    """The metrics of a node."""
    return figures_of(node.process.http)


def ask(node: Node, path: str, **parameters: object) -> Any:
    return AdminClient(None, str(node.data_dir), {"limit": 0}).get(path, **parameters)


def restless(cluster: Cluster) -> list[str]:
    """Why the cluster is not quiet."""
    found = []
    names = sorted(each.name for each in cluster.running)
    for node in cluster.running:
        rows = rows_of(ask(node, "/cluster/members"))
        for row in rows:
            if row["node"] in names and (row["status"] != "joined" or not row["is_up"]):
                found.append(f"{node.name} has {row['node']} as {row['status']}, up {row['is_up']}")
            if row["waiting_messages"] or row["waiting_bytes"]:
                found.append(f"{node.name} has {row['waiting_messages']} for {row['node']}")
        figures = metrics(node)
        found += [f"{node.name}: {name} {figures[name]}" for name in _EMPTY if figures.get(name, 0)]
    return found


def rows_of(answer: Any) -> list[dict[str, Any]]:
    """The rows of a listing, whose answer may say besides how many there are."""
    rows: list[dict[str, Any]] = answer["rows"] if isinstance(answer, dict) else answer
    return rows


def wait_quiet(cluster: Cluster) -> list[str]:
    """Waits until nothing is under way; returns what still is after a long while."""
    deadline = monotonic() + QUIET
    while why := restless(cluster):
        if monotonic() > deadline:
            return why
        sleep(0.2)
    return []


def sessions_wrong(cluster: Cluster, client_ids: Collection[str]) -> list[str]:
    """What the nodes do not agree about, or have twice, or not at all."""
    deadline = monotonic() + QUIET
    while wrong := _sessions_wrong(cluster, client_ids):
        if monotonic() > deadline:
            break
        sleep(0.2)
    return wrong[:8]


def _sessions_wrong(cluster: Cluster, client_ids: Collection[str]) -> list[str]:
    wrong = []
    local: dict[str, list[str]] = {}
    views: dict[str, dict[str, str]] = {}
    for node in cluster.running:
        for row in rows_of(ask(node, "/sessions", local=True)):
            local.setdefault(row["client_id"], []).append(node.name)
        for row in rows_of(ask(node, "/sessions")):
            views.setdefault(node.name, {})[row["client_id"]] = row["node"]
    for client_id in client_ids:
        at = local.pop(client_id, [])
        if len(at) != 1:
            wrong.append(f"{client_id} has sessions at {at}")
        for name, view in views.items():
            if [view.get(client_id)] != at:
                wrong.append(
                    f"{name} takes {client_id} to be at {view.get(client_id)}, it is at {at}"
                )
    wrong += [f"unknown session {client_id} at {at}" for client_id, at in local.items()]
    return wrong


def logs_wrong(cluster: Cluster) -> list[str]:
    """Errors and tracebacks of all nodes, in all their lives."""
    found = []
    for node in cluster.nodes.values():
        texts = [*node.logs, *([node.process.stderr_text()] if node.is_running else [])]
        found += [f"{node.name}: {line}" for text in texts for line in complaints(text)]
        if node.is_running and not node.process.is_running():
            found.append(f"{node.name} has ended by itself")
    return found[:8]


def complaints(log: str) -> list[str]:
    """Lines that nobody wants to see."""
    wanted = (" error ", " critical ", "Traceback", "Assertion failed")
    return [
        line
        for line in log.splitlines()
        if any(each in line for each in wanted) and not any(each in line for each in _KNOWN)
    ]


def memory(node: Node) -> float:
    """MiB, without what is mapped from files."""
    status = Path(f"/proc/{node.process.pid}/status").read_text()
    found = re.search(r"^RssAnon:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024
