"""What is published for a session while its node is dead, when that node is removed."""

from tests.cluster_processes.cluster import LinkedCluster
from tests.cluster_processes.devices import faults_of, traffic
from tests.vmq.cli.program import run

NAMES = ("a", "b", "c")


def test_what_is_published_for_a_session_of_a_dead_node_reaches_its_heir() -> None:
    """Durable sessions on `b`, which dies: of one that stays away, and of one whose client goes elsewhere at once."""
    with (
        LinkedCluster(NAMES, {"VMQ_CLUSTER__REPLICAS": "2"}) as cluster,
        traffic(cluster, "gap", ["a", "c"], ["a"]) as devices,
    ):
        asleep, before_asleep = devices.join_in("bc", what="asleep")
        moving, before_moving = devices.join_in("ba", what="moving")
        asleep.pause()
        devices.flow()
        cluster["b"].kill()
        cluster.wait_down("b")
        devices.flow(25)
        for publisher in devices.publishers:
            publisher.finish()
        done = run("cluster", "remove", "b", "--data-dir", str(cluster["a"].data_dir))
        assert (done.code, done.err) == (0, "")
        asleep.resume()
        devices.settle()
        sent = devices.sent()
        asleep.wait_for(sent - before_asleep)
        moving.wait_for(sent - before_moving)
        assert asleep.sessions == [False, True]
        assert moving.sessions == [False, True]
        assert [each for each in faults_of(asleep.got) if each.startswith("late")] == []
