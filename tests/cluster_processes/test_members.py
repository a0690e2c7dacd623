"""Five nodes, of which some are apart, away, wiped or strangers: what the cluster knows afterwards."""

from collections.abc import Iterator

import pytest

from tests.cluster_processes.cluster import LinkedCluster
from tests.cluster_processes.devices import Device, traffic, wait_retained
from tests.cluster_processes.links import Fault

NAMES = ("a", "b", "c", "d", "e")


@pytest.fixture(scope="module")
def cluster() -> Iterator[LinkedCluster]:
    """Whole at the start of each test, which leaves it so."""
    with LinkedCluster(NAMES) as found:
        yield found


def test_a_node_that_was_away_catches_up(cluster: LinkedCluster) -> None:
    with traffic(cluster, "away", ["a", "e"], ["c"]) as devices:
        devices.retain("away-kept/old", "old", "a")
        devices.retain("away-kept/gone", "gone", "a")
        both = {"away-kept/old": b"old", "away-kept/gone": b"gone"}
        wait_retained([cluster["e"]], "away-kept/#", both)
        cluster["e"].kill()
        devices.retain("away-kept/gone", "", "a")
        devices.retain("away-kept/new", "new", "a")
        late = devices.subscribe_at("b")
        before = devices.at("e").sent()
        cluster.start("e")
        devices.flow()
        devices.settle()
        # What was published there since went to whom that node had never heard of, from its first message on.
        late.wait_for(devices.at("e").sent() - before)
        kept = {"away-kept/old": b"old", "away-kept/new": b"new"}
        wait_retained(cluster.running, "away-kept/#", kept)


def test_two_sides_that_both_go_on_agree_in_the_end(cluster: LinkedCluster) -> None:
    with traffic(cluster, "sides", ["a", "e"], ["b", "c"]) as devices:
        cluster.links.part(Fault.CUT, ["a", "b"], ["c", "d", "e"])
        for name in "ab":
            cluster[name].wait_seen("e", "down")
        for name in "cde":
            cluster[name].wait_seen("a", "down")
        devices.retain("sides-kept/common", "first", "a")
        devices.retain("sides-kept/a", "a", "a")
        devices.retain("sides-kept/e", "e", "e")
        devices.retain("sides-kept/common", "second", "e")
        devices.flow()
        cluster.links.heal()
        cluster.wait_whole()
        devices.settle()
        kept = {"sides-kept/a": b"a", "sides-kept/e": b"e", "sides-kept/common": b"second"}
        wait_retained(cluster.running, "sides-kept/#", kept)


def test_a_wiped_node_that_comes_back_under_its_name_resurrects_nothing(
    cluster: LinkedCluster,
) -> None:
    with traffic(cluster, "wiped", ["a", "e"], ["c"]) as devices:
        devices.retain("wiped-kept/old", "old", "a")
        devices.retain("wiped-kept/gone", "gone", "e")
        both = {"wiped-kept/old": b"old", "wiped-kept/gone": b"gone"}
        wait_retained([cluster["d"]], "wiped-kept/#", both)
        ended = Device("wiped-ended", [cluster["a"]])
        ended.open()
        ended.subscribe("wiped/#", 1)
        ended.close()
        cluster["d"].kill()
        cluster["d"].wipe()
        devices.retain("wiped-kept/gone", "", "a")
        again = Device("wiped-ended", [cluster["a"]], clean=True)
        again.open()
        again.close()
        cluster.start("d")
        # It takes and gives like any other, from the first message on.
        devices.publish_at("d")
        devices.flow()
        devices.settle()
        wait_retained(cluster.running, "wiped-kept/#", {"wiped-kept/old": b"old"})
        there = Device("wiped-ended", [cluster["d"]])
        there.open()
        there.close()
        assert there.sessions == [False]
