"""Durable sessions on their way from node to node, under traffic at QoS 1 and 2."""

from collections.abc import Iterator

import pytest

from tests.cluster_processes.cluster import LinkedCluster
from tests.cluster_processes.devices import faults_of, traffic
from tests.cluster_processes.links import Fault
from tests.vmq.cli.program import run

NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LinkedCluster]:
    """Whole at the start of each test, which leaves it so."""
    with LinkedCluster(NAMES, {"VMQ_CLUSTER__ACK_AFTER": "remote"}) as found:
        yield found


def test_a_client_that_goes_from_node_to_node(cluster: LinkedCluster) -> None:
    """All nodes are up: what comes is exactly what came to a client that stays."""
    with traffic(cluster, "roam", NAMES, ["abc", "c"]) as devices:
        roaming = devices.subscribers[0]
        for _ in range(4):
            devices.flow(5)
            roaming.move()
        devices.settle()
        assert roaming.sessions == [False, True, True, True, True]


def test_a_client_that_changes_sides_in_a_split(cluster: LinkedCluster) -> None:
    """It has a session on both sides: what waits in the old one comes when the split is over."""
    with traffic(cluster, "both", ["a", "c"], ["b"]) as devices:
        # At QoS 1: packet ids of two sessions that do not know of each other mean different messages.
        between, before = devices.join_in("ac", qos=1)
        devices.flow()
        cluster.links.part(Fault.CUT, ["a"], ["b", "c"])
        cluster["a"].wait_seen("c", "down")
        cluster.wait_down("a")
        devices.flow()
        between.move()
        devices.flow()
        cluster.links.heal()
        cluster.wait_whole()
        devices.flow()
        devices.settle()
        between.wait_for(devices.sent() - before)
        assert between.sessions == [False, True]


def test_a_node_that_leaves_hands_its_sessions_over(cluster: LinkedCluster) -> None:
    with traffic(cluster, "leave", ["a", "c"], ["ba", "a"]) as devices:
        asleep, before = devices.join_in("bc")
        asleep.pause()
        devices.flow()
        there = ("--data-dir", str(cluster["b"].data_dir))
        done = run("cluster", "leave", "--timeout", "30", *there)
        assert (done.code, done.err) == (0, "")
        cluster["b"].close()
        devices.flow()
        devices.settle()
        asleep.resume()
        asleep.wait_for(devices.sent() - before)
        assert asleep.sessions == [False, True]
        assert faults_of(asleep.got) == []
