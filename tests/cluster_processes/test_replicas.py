"""A stream with three copies while nodes are killed, stopped and wiped: nothing acknowledged is lost."""

import json
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import pytest
from pyarrow.flight import FlightError

from tests.cluster_processes.cluster import TIMEOUT, LinkedCluster, Node
from tests.cluster_processes.devices import Message, traffic
from tests.cluster_processes.test_streams import read
from tests.support.until import reach
from tests.vmq.cli.program import here

NAMES = ["a", "b", "c"]
PARTITIONS = 3


def options_of(
    name: str, durability: str, segment_bytes: int = 65_536, replicas: int = 3
) -> dict[str, str]:
    """A stream of a topic tree of its name."""
    options = {
        "FILTERS": f'["{name}/#"]',
        "PARTITIONS": str(PARTITIONS),
        "KEY": "topic",
        "REPLICAS": str(replicas),
        "SEGMENT_BYTES": str(segment_bytes),
        "DURABILITY": durability,
    }
    return {f"VMQ_STREAMS__{name.upper()}__{option}": value for option, value in options.items()}


FLIGHT = ["grpc://127.0.0.1:0"]


def shown(node: Node, name: str = "log") -> list[dict[str, object]]:
    """The partitions of the stream as a node has them."""
    done = here("stream", "show", name, "--json", "--data-dir", str(node.data_dir))
    assert done.code == 0, done.err
    found: list[dict[str, object]] = json.loads(done.out)["partitions"]
    return found


def leaders(node: Node, name: str = "log") -> list[object]:
    return [each["leader"] for each in shown(node, name)]


def wait_led(*nodes: Node, without: str = "", names: Sequence[str] = ("log",)) -> None:
    """Waits until each of these nodes knows a leader of each partition, none of which is `without`.

    One after the other, here and below: to ask costs a node more than what it waits for.
    """

    def is_led(node: Node, name: str) -> bool:
        return all(each and each != without for each in leaders(node, name))

    for node, name in product(nodes, names):
        reach(partial(is_led, node, name), "not all partitions have leaders", rest=1.0)


def wait_whole(*nodes: Node, names: Sequence[str] = ("log",), timeout: float = TIMEOUT) -> None:
    """Waits until each of these nodes reads its own copies: they count, and have caught up."""

    def is_whole(node: Node, name: str) -> bool:
        return all(each["segments"] is not None for each in shown(node, name))

    for node, name in product(nodes, names):
        reach(
            partial(is_whole, node, name),
            lambda: f"not all nodes have all their copies: {[*map(shown, nodes)]}",
            timeout,
            rest=1.0,
        )


def check(
    cluster: LinkedCluster, wanted: set[Message], name: str = "log", timeout: float = TIMEOUT
) -> None:
    """Every node has the same rows, and all that was acknowledged is among them."""
    nodes = cluster.running
    found: list[list[list[Message]]] = []
    refused = ""

    def lacking() -> list[Message]:
        there = {message for each in found[0] for message in each}
        return sorted(wanted - there, key=lambda each: (each.publisher, each.qos, each.number))

    def is_whole() -> bool:
        nonlocal refused
        found.clear()
        refused = ""
        try:
            for node in nodes:
                found.append(read(node, name))
                if found[-1] != found[0] or lacking():
                    return False
        except FlightError as error:  # the leader has just become another one
            refused = str(error)
            return False
        return True

    def what() -> str:
        rows = {node.name: [*map(len, each)] for node, each in zip(nodes, found, strict=False)}
        return (
            f"not all nodes have all that was acknowledged: {refused or 'nothing refused'}; rows {rows}; "
            f"lacking {lacking()[:10] if found else 'unknown'}"
        )

    reach(is_whole, what, timeout, rest=1.0)
    for partition in found[0]:
        for publisher, qos in {(each.publisher, each.qos) for each in partition}:
            numbers = [
                each.number
                for each in dict.fromkeys(partition)
                if (each.publisher, each.qos) == (publisher, qos)
            ]
            assert numbers == sorted(numbers), f"{publisher} at QoS {qos} is out of order"


def check_once(found: list[list[Message]]) -> None:
    """What was published at QoS 2 is there once."""
    rows = Counter(each for partition in found for each in partition if each.qos == 2)
    assert rows
    assert [each for each, count in rows.items() if count > 1] == []


@pytest.fixture(scope="module")
def cluster() -> Iterator[LinkedCluster]:
    """Streams for each test, led at its start; all nodes run then."""
    streams = [options_of(name, "os") for name in ("log", "hung", "wiped")]
    env = {name: value for each in streams for name, value in each.items()}
    with LinkedCluster(NAMES, env | options_of("synced", "fsync"), FLIGHT) as found:
        wait_led(*found.running, names=("log", "synced", "hung", "wiped"))
        yield found


def test_nothing_acknowledged_is_lost_whichever_node_is_killed(cluster: LinkedCluster) -> None:
    """Of two streams: what one has is with the operating system, what the other has on the disk itself.

    Publishers of the one lose their node and go on at another, with what was not answered: at QoS 2 it is one row.
    """
    names = ("log", "synced")
    with (
        traffic(cluster, "log", ("abc", "bca", "cab"), []) as log,
        traffic(cluster, "synced", NAMES, []) as synced,
    ):
        for name in NAMES:
            log.flow()
            synced.flow()
            cluster[name].kill()
            cluster.wait_down(name)
            rest = [each for each in NAMES if each != name]
            for each in rest:
                # At once, by the connection: not by silence.
                assert cluster[each].last_seen(name) == "its process has ended"
            wait_led(*(cluster[each] for each in rest), without=name, names=names)
            log.flow()
            synced.flow(10, *(f"synced-pub-{each}" for each in rest))
            cluster.start(name)
            wait_whole(*cluster.running, names=names)
        for topic, devices in (("log", log), ("synced", synced)):
            for publisher in devices.publishers:
                publisher.finish()
            check(cluster, devices.sent(), topic)
    check_once(read(cluster["a"], "log"))


def test_a_leader_that_hangs_is_replaced_and_takes_nothing_back(cluster: LinkedCluster) -> None:
    name = str(leaders(cluster["a"], "hung")[0])
    rest = [each for each in NAMES if each != name]
    with traffic(cluster, "hung", rest, []) as devices:
        devices.flow()
        cluster[name].signal(signal.SIGSTOP)
        for each in rest:
            cluster[each].wait_seen(name, "down")
        wait_led(*(cluster[each] for each in rest), without=name, names=("hung",))
        devices.flow()
        cluster[name].signal(signal.SIGCONT)
        cluster.wait_whole()
        devices.flow()
        for publisher in devices.publishers:
            publisher.finish()
        check(cluster, devices.sent(), "hung")


def test_a_node_whose_disk_is_wiped_gets_its_copies_again(cluster: LinkedCluster) -> None:
    with traffic(cluster, "wiped", ["a", "b"], []) as devices:
        devices.flow(50)
        cluster["c"].kill()
        cluster["c"].wipe()
        devices.flow()
        cluster.start("c")
        devices.flow()
        for publisher in devices.publishers:
            publisher.finish()
        check(cluster, devices.sent(), "wiped")
        wait_whole(cluster["c"], names=("wiped",))
        cluster["a"].kill()
        cluster.wait_down("a")
        wait_led(cluster["b"], cluster["c"], without="a", names=("wiped",))
        check(cluster, devices.sent(), "wiped")
        cluster.start("a")
