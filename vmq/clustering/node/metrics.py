"""The figures of a node's links and outboxes."""

from collections.abc import Iterator
from typing import Literal

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.runtime.metrics import Family, Sample
from vmq_cluster.node import ClusterNode


def link_families(node: ClusterNode, outboxes: Outboxes) -> Iterator[Family]:
    """What goes to other nodes and comes from them, and how many there are."""
    runs = node.is_running
    dropped = node.machine.channels.dropped_bytes if runs else 0
    waiting, waiting_bytes = outboxes.waiting()
    figures: tuple[tuple[str, Literal["counter", "gauge"], str, int], ...] = (
        ("cluster_bytes_sent", "counter", "Bytes sent to other nodes.", node.link.sent_bytes),
        (
            "cluster_bytes_received",
            "counter",
            "Bytes received from other nodes.",
            node.link.received_bytes,
        ),
        (
            "cluster_bytes_dropped",
            "counter",
            "Bytes for other nodes that were dropped.",
            dropped + outboxes.dropped.bytes,
        ),
        (
            "cluster_messages_dropped",
            "counter",
            "Messages of QoS 1 and 2 for other nodes that were dropped: too many waited, or the node is no more.",
            outboxes.dropped.messages,
        ),
        (
            "cluster_nodes",
            "gauge",
            "Members, this node included.",
            len(node.members) if runs else 0,
        ),
        (
            "cluster_nodes_up",
            "gauge",
            "Members that can be reached, this node included.",
            len(node.up) + 1 if runs else 0,
        ),
        (
            "cluster_messages_waiting",
            "gauge",
            "Messages of QoS 1 and 2 that other nodes have not confirmed.",
            waiting,
        ),
        ("cluster_bytes_waiting", "gauge", "The same in bytes.", waiting_bytes),
    )
    for name, kind, text, value in figures:
        yield Family(name, kind, text, (Sample((), value),))
