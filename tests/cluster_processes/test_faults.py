"""Three nodes under traffic at QoS 1 and 2, to which things happen. Nothing acknowledged is lost, QoS 2 comes once.

Each node has a publisher and a durable subscriber of its own; each subscriber gets everything.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from tests.cluster_processes.cluster import LinkedCluster
from tests.cluster_processes.devices import traffic
from tests.cluster_processes.links import Fault

NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LinkedCluster]:
    """Whole at the start of each test, which leaves it so."""
    with LinkedCluster(NAMES) as found:
        yield found


def test_a_node_that_is_killed_and_comes_back(cluster: LinkedCluster) -> None:
    with traffic(cluster, "kill", NAMES, NAMES) as devices:
        devices.flow()
        cluster["b"].kill()
        # The others go on, among themselves and for the one that is away.
        devices.flow(40, "kill-pub-a", "kill-pub-c")
        cluster.start("b")
        devices.flow()
        devices.settle()


def test_a_node_that_is_stopped_and_continued(cluster: LinkedCluster) -> None:
    with traffic(cluster, "stop", NAMES, NAMES) as devices:
        devices.flow()
        cluster["b"].signal(signal.SIGSTOP)
        cluster.wait_down("b")
        devices.flow(20, "stop-pub-a", "stop-pub-c")
        cluster["b"].signal(signal.SIGCONT)
        cluster.wait_whole()
        devices.flow()
        devices.settle()


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_links_that_fail_and_heal(cluster: LinkedCluster, fault: Fault) -> None:
    topic = fault.name.lower()
    with traffic(cluster, topic, NAMES, NAMES) as devices:
        devices.flow()
        cluster.links.part(fault, ["a"], ["b", "c"])
        cluster["a"].wait_seen("b", "down")
        cluster.wait_down("a")
        # Each side goes on.
        devices.flow(20)
        cluster.links.heal()
        cluster.wait_whole()
        devices.flow()
        devices.settle()


def test_all_nodes_killed_at_once(cluster: LinkedCluster) -> None:
    with traffic(cluster, "all", NAMES, NAMES) as devices:
        devices.flow()
        cluster.each(lambda node: node.kill())
        cluster.start()
        devices.flow()
        devices.settle()
        # The subscriptions were not made again: the sessions were there.
        for subscriber in devices.subscribers:
            assert subscriber.sessions == [False, True]
