"""Three nodes on three machines, as far as the kernel's network goes."""

from tests.cluster_processes.devices import traffic, wait_retained
from tests.cluster_processes.namespaces import NamespaceCluster

NAMES = ("a", "b", "c")


def test_a_node_without_network_and_with_it_again() -> None:
    """Both sides of the split serve their clients, and have everything once it is over."""
    with (
        NamespaceCluster(NAMES) as cluster,
        traffic(cluster, "net", NAMES, NAMES) as devices,
    ):
        devices.flow()
        cluster.unplug("a")
        cluster["a"].wait_seen("b", "down")
        cluster.wait_down("a")
        devices.flow(20)
        for name in NAMES:
            devices.retain(f"kept/{name}", name, name)
        devices.flow(5)
        cluster.plug("a")
        cluster.wait_whole()
        devices.flow()
        devices.settle()
        kept = {f"kept/{name}": name.encode() for name in NAMES}
        wait_retained(cluster.running, "kept/#", kept)
