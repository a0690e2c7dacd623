"""One node after the other is restarted, as for an upgrade, while clients go on."""

from tests.cluster_processes.cluster import LinkedCluster
from tests.cluster_processes.devices import traffic

NAMES = ("a", "b", "c")
#: Each device goes to the next node when its own stops.
ROUND = ("abc", "bca", "cab")


def test_a_rolling_restart_loses_nothing() -> None:
    """Sessions follow their clients, with what waits in them; what a stopped node had comes when it is back."""
    with LinkedCluster(NAMES) as cluster, traffic(cluster, "roll", ROUND, ROUND) as devices:
        for name in NAMES:
            devices.flow()
            assert cluster[name].terminate() == 0
            devices.flow()
            cluster.start(name)
        devices.flow()
        # A publisher repeats at its new node what the stopped one had not answered: twice, and out of order.
        devices.settle(is_exact=False)
        for device in [*devices.publishers, *devices.subscribers]:
            assert len(device.sessions) > 1
            assert all(device.sessions[1:]), device.client_id
