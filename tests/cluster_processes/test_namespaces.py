"""Three nodes on three machines, as far as the kernel's network goes."""

import json

from tests.cluster_processes.cluster import Node
from tests.cluster_processes.devices import message_of, traffic, wait_retained
from tests.cluster_processes.namespaces import NamespaceCluster
from tests.cluster_processes.test_replicas import options_of, wait_led
from tests.support.until import reach
from tests.vmq.cli.program import here
from vmq.streams.log.message import MOST

NAMES = ("a", "b", "c")
#: Whose publishers at the node that is cut off are acknowledged from its disk.
STREAM = {**options_of("net", "os"), "VMQ_STREAMS__NET__WITHOUT_QUORUM": "keep"}


def rows_of(node: Node) -> dict[tuple[int, int], bytes]:
    """What a node reads of the stream, by partition and offset."""
    tail = ("stream", "tail", "net", "--from", "earliest", "-n", str(MOST), "--json")
    done = here(*tail, "--data-dir", str(node.data_dir))
    found = [json.loads(line) for line in done.out.splitlines()]
    return {
        (each["partition"], each["offset"]): each["payload"].encode()
        for each in found
        if each["topic"] != "net/probe"
    }


def test_a_node_without_network_and_with_it_again() -> None:
    """Both sides of the split serve their clients, and have everything once it is over: the stream has it once."""
    with (
        NamespaceCluster(NAMES, STREAM) as cluster,
        traffic(cluster, "net", NAMES, NAMES) as devices,
    ):
        wait_led(*cluster.running, names=("net",))
        devices.flow()
        cluster.unplug("a")
        cluster["a"].wait_seen("b", "down")
        cluster.wait_down("a")
        devices.flow()
        for name in NAMES:
            devices.retain(f"kept/{name}", name, name)
            devices.retain("kept/common", name, name)
        devices.flow(5)
        cluster.plug("a")
        cluster.wait_whole()
        devices.flow()
        devices.settle()
        kept = {f"kept/{name}": name.encode() for name in NAMES} | {"kept/common": b"c"}
        wait_retained(cluster.running, "kept/#", kept)
        wanted = sorted(each.payload for each in devices.sent())
        reach(lambda: sorted(set(rows_of(cluster["a"]).values())) == wanted)
        rows = rows_of(cluster["a"])
        reach(lambda: all(rows_of(each) == rows for each in cluster.running))
        for number in {number for number, _ in rows}:
            own = [
                message_of(payload) for (part, _), payload in sorted(rows.items()) if part == number
            ]
            for who in {(each.publisher, each.qos) for each in own}:
                there = [each.number for each in own if (each.publisher, each.qos) == who]
                sent = list(dict.fromkeys(there))
                assert sent == sorted(sent), f"{who} is out of order"
                assert who[1] == 1 or sent == there, f"{who} is there twice"
