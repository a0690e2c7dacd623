"""A node that is taken out of its cluster, and let in again with what is on its disk."""

from tests.cluster_processes.cluster import LinkedCluster
from tests.cluster_processes.devices import Publisher, Subscriber
from tests.vmq.cli.program import run

#: Sessions in as many slots, of which each may go wrong.
SESSIONS = 24


def test_what_came_while_a_node_was_out_is_there_when_it_is_in_again() -> None:
    """Its copies are older than what the others have: they do not stand for that, though nobody else was with it."""
    with LinkedCluster("abc", {"VMQ_CLUSTER__REPLICAS": "3"}) as cluster:
        a, b, c = (cluster[name] for name in "abc")
        sessions = [Subscriber(f"s{each}", [c], "t/#", 1 + each % 2) for each in range(SESSIONS)]
        publishers = [Publisher(f"p-{each.name}", [each], "t") for each in (a, b, c)]
        for device in (*sessions, *publishers):
            device.open()
        for publisher in publishers:
            publisher.start()
        publishers[0].wait_more(5)
        c.kill()
        cluster.wait_down("c")
        publishers[0].wait_more(20)
        done = run("cluster", "remove", "c", "--data-dir", str(b.data_dir))
        assert done.code == 0, done
        publishers[0].wait_more(5)
        cluster.start_only("c")
        done = run("cluster", "join", b.address, "--data-dir", str(c.data_dir))
        assert done.code == 0, done
        publishers[0].wait_more(5)
        sent = {message for each in publishers for message in each.finish()}
        for session in sessions:
            session.wait_for(sent)
        for device in (*sessions, *publishers):
            device.close()
