"""`suback_after = "cluster"`: with the SUBACK every node in reach routes, and nobody holds it up for long."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from tests.cluster_processes.cluster import TIMEOUT, LinkedCluster, Node
from tests.support.wire import Wire

NAMES = ("a", "b", "c")
ENV = {
    "VMQ_CLUSTER__SUBACK_AFTER": "cluster",
    "VMQ_CLUSTER__SUBACK_TIMEOUT": "4",
    # A node that is stopped stays up for the others as long as a test takes.
    "VMQ_CLUSTER__HEARTBEAT_TIMEOUT": "60",
}


@pytest.fixture
def cluster() -> Iterator[LinkedCluster]:
    with LinkedCluster(NAMES, ENV) as found:
        yield found


class Clients:
    """One at each node."""

    def __init__(self, nodes: list[Node], stack: ExitStack) -> None:
        self._at = {each.name: Wire.connect_tcp((each.host, each.port)) for each in nodes}
        for name, wire in self._at.items():
            stack.callback(wire.close)
            wire.connect(f"at-{name}")

    def subscribe(self, at: str, topic: str) -> None:
        """Returns with the SUBACK."""
        self._at[at].subscribe((topic, 0))

    def publish(self, names: str, topic: str) -> None:
        for name in names:
            self._at[name].publish(topic, name.encode())

    def expect(self, at: str, topic: str, names: str) -> None:
        """What was published at these nodes comes, in any order, and nothing else."""
        got = [self._at[at].expect_publish(topic, timeout=TIMEOUT).payload for _ in names]
        assert sorted(got) == [name.encode() for name in names]


def test_with_the_suback_all_that_can_be_reached_route(cluster: LinkedCluster) -> None:
    """At QoS 0, which nothing sends again: what came too early to be routed would never come."""
    with ExitStack() as stack:
        clients = Clients(cluster.running, stack)
        for number in range(50):
            topic = f"all/{number}"
            clients.subscribe("a", topic)
            clients.publish("bc", topic)
            clients.expect("a", topic, "bc")
        cluster["c"].signal(signal.SIGSTOP)
        clients.subscribe("a", "stopped")  # it comes all the same: after suback_timeout
        cluster["a"].process.wait_log("SUBACK sent before these nodes have the subscriptions: c$")
        clients.publish("b", "stopped")
        clients.expect("a", "stopped", "b")
        cluster["c"].signal(signal.SIGCONT)
        clients.publish("c", "all/0")
        clients.expect("a", "all/0", "c")  # it is awake
        clients.subscribe("b", "again")
        clients.publish("ac", "again")
        clients.expect("b", "again", "ac")
