"""A stream with three copies while nodes are killed, stopped, wiped and damaged: nothing acknowledged is lost."""

import json
import signal
from collections.abc import Callable
from time import monotonic, sleep

import pytest
from pyarrow.flight import FlightError

from tests.cluster_processes.cluster import TIMEOUT, LinkedCluster, Node
from tests.cluster_processes.devices import Message, traffic
from tests.cluster_processes.test_streams import LOOK, read
from tests.vmq.cli.program import run

PARTITIONS = 3
STREAM = {
    "VMQ_STREAMS__LOG__FILTERS": '["log/#"]',
    "VMQ_STREAMS__LOG__PARTITIONS": str(PARTITIONS),
    "VMQ_STREAMS__LOG__KEY": "topic",
    "VMQ_STREAMS__LOG__REPLICAS": "3",
    "VMQ_STREAMS__LOG__SEGMENT_BYTES": "65536",
}
FLIGHT = ["grpc://127.0.0.1:0"]


def shown(node: Node) -> list[dict[str, object]]:
    """The partitions of the stream as a node has them."""
    done = run("stream", "show", "log", "--json", "--data-dir", str(node.data_dir))
    assert done.code == 0, done.err
    found: list[dict[str, object]] = json.loads(done.out)["partitions"]
    return found


def wait_until(holds: Callable[[], bool], what: str | Callable[[], str]) -> None:
    deadline = monotonic() + TIMEOUT
    while not holds():
        assert monotonic() < deadline, what if isinstance(what, str) else what()
        sleep(LOOK)


def leaders(node: Node) -> list[object]:
    return [each["leader"] for each in shown(node)]


def wait_led(*nodes: Node, without: str = "") -> None:
    """Waits until each of these nodes knows a leader of each partition, none of which is `without`."""

    def are_led() -> bool:
        return all(each and each != without for node in nodes for each in leaders(node))

    wait_until(are_led, "not all partitions have leaders")


def check(cluster: LinkedCluster, wanted: set[Message]) -> None:
    """Every node has the same rows, and all that was acknowledged is among them."""
    nodes = cluster.running
    found: list[list[list[Message]]] = []

    def is_whole() -> bool:
        nonlocal found
        try:
            found = [read(node) for node in nodes]
        except FlightError:  # the leader has just become another one
            return False
        there = {message for each in found[0] for message in each}
        return wanted <= there and all(each == found[0] for each in found)

    wait_until(is_whole, "not all nodes have all that was acknowledged")
    for partition in found[0]:
        for publisher, qos in {(each.publisher, each.qos) for each in partition}:
            numbers = [
                each.number
                for each in dict.fromkeys(partition)
                if (each.publisher, each.qos) == (publisher, qos)
            ]
            assert numbers == sorted(numbers), f"{publisher} at QoS {qos} is out of order"


@pytest.mark.parametrize("durability", ["os", "fsync"])
def test_nothing_acknowledged_is_lost_whichever_node_is_killed(durability: str) -> None:
    env = {**STREAM, "VMQ_STREAMS__LOG__DURABILITY": durability}
    with LinkedCluster(("a", "b", "c"), env, FLIGHT) as cluster:
        wait_led(*cluster.running)
        with traffic(cluster, "log", ["a", "b", "c"], []) as devices:
            devices.flow()
            for name in ("a", "b", "c"):
                cluster[name].kill()
                cluster.wait_down(name)
                rest = [each for each in "abc" if each != name]
                wait_led(*(cluster[each] for each in rest), without=name)
                devices.flow(20, *(f"log-pub-{each}" for each in rest))
                cluster.start(name)
                devices.flow()
            for publisher in devices.publishers:
                publisher.finish()
            check(cluster, devices.sent())


def test_a_leader_that_hangs_is_replaced_and_takes_nothing_back() -> None:
    with LinkedCluster(("a", "b", "c"), STREAM, FLIGHT) as cluster:
        wait_led(*cluster.running)
        name = str(leaders(cluster["a"])[0])
        rest = [each for each in "abc" if each != name]
        with traffic(cluster, "log", rest, []) as devices:
            devices.flow()
            cluster[name].signal(signal.SIGSTOP)
            for each in rest:
                cluster[each].wait_seen(name, "down")
            wait_led(*(cluster[each] for each in rest), without=name)
            devices.flow()
            cluster[name].signal(signal.SIGCONT)
            devices.flow()
            for publisher in devices.publishers:
                publisher.finish()
            check(cluster, devices.sent())


def test_a_node_whose_disk_is_wiped_gets_its_copies_again() -> None:
    with LinkedCluster(("a", "b", "c"), STREAM, FLIGHT) as cluster:
        wait_led(*cluster.running)
        with traffic(cluster, "log", ["a", "b"], []) as devices:
            devices.flow(200)
            cluster["c"].kill()
            cluster["c"].wipe()
            devices.flow()
            cluster.start("c")
            devices.flow()
            for publisher in devices.publishers:
                publisher.finish()
            check(cluster, devices.sent())
            wait_until(
                lambda: all(each["segments"] is not None for each in shown(cluster["c"])),
                "c has not all its copies again",
            )
            cluster["a"].kill()
            cluster.wait_down("a")
            wait_led(cluster["b"], cluster["c"], without="a")
            check(cluster, devices.sent())


def test_a_flipped_bit_below_the_commit_index_costs_nothing_but_a_fetch() -> None:
    with LinkedCluster(("a", "b", "c"), STREAM, FLIGHT) as cluster:
        wait_led(*cluster.running)
        with traffic(cluster, "log", ["a", "b", "c"], []) as devices:
            devices.flow(600)
            for publisher in devices.publishers:
                publisher.finish()
            check(cluster, devices.sent())
            node = cluster["b"]
            path = next(
                path
                for number in range(PARTITIONS)
                for path in sorted((node.data_dir / f"streams/log/{number}").glob("*.arrows"))[:-2]
            )
            raw = bytearray(path.read_bytes())
            raw[len(raw) // 2] ^= 4
            with path.open("r+b") as file:
                file.write(raw)
            done = run("stream", "verify", "--data-dir", str(node.data_dir))
            assert done.code == 1

            def is_mended() -> bool:
                nonlocal done
                done = run("stream", "verify", "--data-dir", str(node.data_dir))
                return done.code == 0

            wait_until(is_mended, lambda: f"the segment is not mended: {done}; {shown(node)}")
            check(cluster, devices.sent())
