"""Programs at nodes of a cluster that publish what comes of what they read: nodes are killed under them."""

from functools import partial
from random import Random

from pyarrow import flight

from tests.cluster_processes.cluster import LinkedCluster, Node
from tests.support.until import reach
from tests.support.wire import PUBACK, Wire, publish_packet
from tests.vmq.streams.client.test_exactly_once import Answering

STREAMS = {
    "VMQ_STREAMS__S__FILTERS": '["s/#"]',
    "VMQ_STREAMS__S__PARTITIONS": "4",
    "VMQ_STREAMS__S__KEY": "topic",
    "VMQ_STREAMS__OUT__FILTERS": '["out/#"]',
    "VMQ_STREAMS__OUT__PARTITIONS": "2",
    "VMQ_STREAMS__OUT__KEY": "topic",
}
ROWS = 480


def fill(node: Node) -> None:
    """Publishes the rows that are to be answered."""
    with Wire.connected((node.host, node.port), "devices") as wire:
        for number in range(ROWS):
            topic, payload = f"s/{number % 8}", b"%d" % number
            wire.send(publish_packet(topic, payload, qos=1, packet_id=1 + number))
        for _ in range(ROWS):
            wire.expect(PUBACK)


def answers(node: Node) -> list[list[int]]:
    """What is in the partitions of the stream of answers, as a node has it told."""
    try:
        with flight.connect(node.flight) as client:
            info = client.get_flight_info(flight.FlightDescriptor.for_path("out"))
            found = []
            for each in info.endpoints:
                owner = flight.connect(each.locations[0]) if each.locations else client
                table = owner.do_get(each.ticket).read_all()
                found.append([int(row) for row in table.column("payload").to_pylist()])
            return found
    except flight.FlightError:
        return []


def test_each_row_is_answered_once_though_nodes_are_killed() -> None:
    random = Random(1)
    env = {**STREAMS, "VMQ_STREAMS__S__REPLICAS": "3", "VMQ_STREAMS__OUT__REPLICAS": "3"}
    with LinkedCluster(("a", "b", "c"), env, ["grpc://127.0.0.1:0"]) as cluster:
        fill(cluster["c"])

        def servers(first: str) -> list[str]:
            order = sorted(cluster.running, key=lambda each: (each.name != first, each.name))
            return [each.flight for each in order]

        programs = [Answering(partial(servers, name), 8, 20) for name in "ab"]
        for each in programs:
            each.start()
        try:
            for kill, name in enumerate("ab"):
                enough = 40 + 60 * kill + random.randrange(60)
                reach(partial(programs[kill].has_done, enough))
                cluster[name].kill()
                cluster.wait_down(name)
                cluster.start(name)
            reach(lambda: sum(map(len, answers(cluster["c"]))) >= ROWS)
        finally:
            for each in programs:
                each.stopping.set()
            for each in programs:
                each.join()
        found = answers(cluster["c"])
        assert sorted(row for rows in found for row in rows) == list(range(ROWS))
        for rows in found:
            for at in range(8):
                of_topic = [row for row in rows if row % 8 == at]
                assert of_topic == sorted(of_topic)
