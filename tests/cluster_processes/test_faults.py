"""Three nodes under traffic at QoS 1 and 2, to which things happen. Nothing acknowledged is lost, QoS 2 comes once.

Each node has a publisher and a durable subscriber of its own; each subscriber gets everything.
"""

import signal
from collections.abc import Iterator

import pytest

from tests.cluster_processes.cluster import LinkedCluster
from tests.cluster_processes.devices import WINDOW, faults_of, traffic, wait_retained
from tests.cluster_processes.links import Fault

NAMES = ("a", "b", "c")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LinkedCluster]:
    """Whole at the start of each test, which leaves it so."""
    with LinkedCluster(NAMES) as found:
        yield found


def test_a_node_that_is_stopped_and_continued(cluster: LinkedCluster) -> None:
    with traffic(cluster, "stop", NAMES, NAMES) as devices:
        devices.flow()
        downs = cluster["b"].seen("down")
        cluster["b"].signal(signal.SIGSTOP)
        cluster.wait_down("b")
        devices.flow(10, "stop-pub-a", "stop-pub-c")
        cluster["b"].signal(signal.SIGCONT)
        cluster.wait_whole()
        devices.flow()
        devices.settle()
        # What the others had said meanwhile was there to be read: it took nobody for silent.
        assert cluster["b"].seen("down") == downs


def test_what_waited_at_a_node_that_lost_its_disk(cluster: LinkedCluster) -> None:
    """The node of a session is down; the one that acknowledged messages for it dies for good before that is back.

    Both come back to what was retained, and deleted, meanwhile.
    """
    with traffic(cluster, "disk", "ac", ["c"]) as devices:
        for text in ("old", "gone"):
            devices.retain(f"disk-kept/{text}", text, "a")
        both = {"disk-kept/old": b"old", "disk-kept/gone": b"gone"}
        wait_retained([cluster["b"]], "disk-kept/#", both)
        asleep, before = devices.join_in("b")
        asleep.pause()
        devices.flow()
        cluster["b"].kill()
        cluster.wait_down("b")
        devices.flow(20)
        acknowledged = devices.at("a").finish() - before
        cluster["a"].kill()
        cluster["a"].wipe()
        cluster["c"].wait_seen("a", "down")
        devices.retain("disk-kept/gone", "", "c")
        devices.retain("disk-kept/new", "new", "c")
        cluster.start("a")
        cluster.start("b")
        kept = {"disk-kept/old": b"old", "disk-kept/new": b"new"}
        wait_retained(cluster.running, "disk-kept/#", kept)
        asleep.resume()
        asleep.wait_for(acknowledged)
        assert asleep.sessions == [False, True]
        assert faults_of(asleep.got) == []
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
        devices.flow()
        cluster.links.heal()
        cluster.wait_whole()
        devices.flow()
        devices.settle()


def test_two_nodes_that_reach_each_other_by_a_third_one_alone(cluster: LinkedCluster) -> None:
    """Their clients are served: the slots of both go to that one."""
    with traffic(cluster, "by-third", NAMES, NAMES) as devices:
        devices.flow()
        cluster.links.part(Fault.HELD, ["a"], ["b"])
        cluster["a"].wait_seen("b", "down")
        cluster["b"].wait_seen("a", "down")
        devices.flow(2 * WINDOW)
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
