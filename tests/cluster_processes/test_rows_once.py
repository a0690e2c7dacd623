"""QoS 2 in a stream with three copies, while its publishers' nodes are killed: each message is one row."""

from collections import Counter

from tests.cluster_processes.cluster import LinkedCluster
from tests.cluster_processes.devices import traffic
from tests.cluster_processes.slots import ENV
from tests.cluster_processes.test_replicas import FLIGHT, STREAM, check, wait_led, wait_whole
from tests.cluster_processes.test_streams import read


def test_what_is_published_at_qos_2_is_one_row_whichever_node_is_killed() -> None:
    """Publishers that lose their node go on at another one, with what was not answered."""
    with LinkedCluster("abc", {**STREAM, **ENV}, FLIGHT) as cluster:
        wait_led(*cluster.running)
        with traffic(cluster, "log", ["abc", "bca", "cab"], []) as log:
            for name in "abc":
                log.flow()
                cluster[name].kill()
                cluster.wait_down(name)
                wait_led(*cluster.running, without=name)
                log.flow()
                cluster.start(name)
                wait_whole(*cluster.running)
            for publisher in log.publishers:
                publisher.finish()
            check(cluster, log.sent())
        rows = Counter(each for partition in read(cluster["a"], "log") for each in partition)
        assert [each for each, count in rows.items() if each.qos == 2 and count > 1] == []
        assert sum(each.qos == 2 for each in rows)
