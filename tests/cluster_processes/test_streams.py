"""A stream of a cluster while nodes join, leave, die and come back, under traffic at QoS 1 and 2."""

import json
import signal
from collections.abc import Iterable
from time import monotonic, sleep

from pyarrow import flight

from tests.cluster_processes.cluster import TIMEOUT, LinkedCluster, Node
from tests.cluster_processes.devices import Message, message_of, traffic
from tests.vmq.cli.program import Program, run

STREAM = {
    "VMQ_STREAMS__LOG__FILTERS": '["log/#"]',
    "VMQ_STREAMS__LOG__PARTITIONS": "6",
    "VMQ_STREAMS__LOG__REPLICAS": "1",
    "VMQ_STREAMS__LOG__KEY": "topic",
}
#: Seconds between two looks at what is in the stream.
LOOK = 0.2


def read(node: Node, name: str = "log") -> list[list[Message]]:
    """What a plain Arrow client reads, partition by partition, that is told of one node."""
    with flight.connect(node.flight) as client:
        info = client.get_flight_info(flight.FlightDescriptor.for_path(name))
        found = []
        for each in info.endpoints:
            [place] = each.locations or [node.flight]
            with flight.connect(place) as owner:
                table = owner.do_get(each.ticket).read_all()
            assert table.num_rows == len(set(table.column("offset").to_pylist()))
            found.append([message_of(raw) for raw in table.column("payload").to_pylist()])
    return found


def wait_for(node: Node, wanted: Iterable[Message]) -> list[list[Message]]:
    """Reads until all of these are there."""
    deadline = monotonic() + TIMEOUT
    missing = set(wanted)
    while True:
        found = read(node)
        missing -= {message for each in found for message in each}
        if not missing:
            return found
        assert monotonic() < deadline, (
            f"{len(missing)} are not in the stream: {sorted(missing)[:8]}"
        )
        sleep(LOOK)


def follower(node: Node) -> Program:
    """`vmq stream tail`, from the beginning on, for as long as the node runs."""
    where = ("--data-dir", str(node.data_dir))
    return Program("stream", "tail", "log", "-f", "--from", "earliest", "--json", *where)


def by_partition(lines: bytes) -> list[list[Message]]:
    """What it has told, each partition's in its order."""
    found: list[list[Message]] = [[] for _ in range(6)]
    for line in map(json.loads, lines.splitlines()):
        found[line["partition"]].append(message_of(line["payload"].encode()))
    return found


def looked_at(node: Node, found: list[list[Message]]) -> None:
    """What commands that look into files of one node say of the stream."""
    where = ("--data-dir", str(node.data_dir))
    [shown] = [json.loads(run("stream", "show", "log", "--json", *where).out)["partitions"]]
    others = {each["owner"] for each in shown} - {node.name}
    assert others
    done = run("stream", "verify", *where)
    assert done.code == 1
    for other in others:
        assert f"of stream 'log' is on node '{other}'" in done.err
    assert "not looked at; verify it there, or say --local" in done.err
    done = run("stream", "verify", "--local", *where)
    assert (done.code, done.err, done.out.splitlines()[-1]) == (0, "", b"ok")
    target = node.data_dir / "log.parquet"
    done = run("stream", "export", "log", "--parquet", str(target), *where)
    assert (done.code, "nothing is written" in done.err, target.exists()) == (1, True, False)
    done = run("stream", "export", "log", "--parquet", str(target), "--local", *where)
    own = sum(len(found[row["partition"]]) for row in shown if row["owner"] == node.name)
    assert (done.code, done.err, done.out) == (0, "", f"{own} messages\n".encode())


def test_nothing_acknowledged_is_lost_while_nodes_join_leave_and_die() -> None:
    with (
        LinkedCluster(("a", "b", "c"), STREAM, ["grpc://127.0.0.1:0"], later=["d"]) as cluster,
        traffic(cluster, "log", ["a", "ba", "c"], []) as devices,
        follower(cluster["a"]) as tail,
    ):
        devices.flow()
        cluster.start("d")
        devices.flow()
        at_d = devices.publish_at("d")
        devices.flow()
        there = ("--data-dir", str(cluster["b"].data_dir))
        done = run("cluster", "leave", "--timeout", "30", *there)
        assert (done.code, done.err) == (0, "")
        cluster["b"].close()
        devices.flow()
        cluster["c"].kill()
        cluster.wait_down("c")
        devices.flow(10, "log-pub-a", "log-pub-b", "log-pub-d")
        cluster.start("c")
        devices.flow()
        for publisher in devices.publishers:
            publisher.finish()
        found = wait_for(cluster["d"], devices.sent())
        tail.wait_out("payload", sum(map(len, found)), TIMEOUT)
        tail.signal(signal.SIGINT)
        told = tail.finish()
        assert told.code == 130
        assert by_partition(told.out) == found
        looked_at(cluster["d"], found)
        assert read(cluster["a"]) == read(cluster["c"]) == found
        # Theirs were the same nodes throughout: their messages are in order, though a death may have repeated some.
        for client_id in ("log-pub-a", at_d.client_id):
            for partition in found:
                for qos in (1, 2):
                    numbers = [
                        each.number
                        for each in dict.fromkeys(partition)
                        if (each.publisher, each.qos) == (client_id, qos)
                    ]
                    assert numbers == sorted(numbers)
