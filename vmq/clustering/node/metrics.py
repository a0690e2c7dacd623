"""The figures of a node's links and outboxes: those of one link carry the other node's name."""

from collections.abc import Iterator, Mapping
from typing import Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.runtime.metrics import Family, Kind, Sample
from vmq_cluster.node import ClusterNode
from vmq_cluster.transport.traffic import STRANGERS

#: By name: kind and meaning.
_LINKS: Final[Mapping[str, tuple[Kind, str]]] = {
    "cluster_bytes_sent": ("counter", "Bytes sent to another node."),
    "cluster_bytes_received": ("counter", "Bytes received from another node."),
    "cluster_messages_waiting": (
        "gauge",
        "Messages of QoS 1 and 2 that another node has not confirmed.",
    ),
    "cluster_bytes_waiting": ("gauge", "The same in bytes."),
    "cluster_node_up": ("gauge", "1 while another node can be reached, else 0."),
    "cluster_round_trip_seconds": (
        "gauge",
        "Seconds that another node takes to answer, smoothed; 0 = not measured yet.",
    ),
}

#: By name: what is counted since the start.
_COUNTERS: Final[Mapping[str, str]] = {
    "netsplit_detected": "Times that a member could not be reached any more.",
    "netsplit_resolved": "Times that all could be reached again.",
    "cluster_subacks_early": "SUBACKs sent before every node that is up had the subscription (suback_timeout).",
    "cluster_shared_lost": "Messages for share groups of which no node had a member any more.",
}


def counter_families(values: Mapping[str, int]) -> Iterator[Family]:
    """What the parts of a node have counted."""
    for name, text in _COUNTERS.items():
        yield Family(name, "counter", text, (Sample((), values[name]),))


def peer_samples(values: Mapping[str, float]) -> tuple[Sample, ...]:
    """A figure of each of several nodes."""
    return tuple(Sample((("peer", name),), value) for name, value in values.items())


def link_families(node: ClusterNode, outboxes: Outboxes) -> Iterator[Family]:
    """What goes to other nodes and comes from them, and how many there are."""
    runs = node.is_running
    dropped = node.machine.channels.dropped_bytes if runs else 0
    figures: tuple[tuple[str, Kind, str, int], ...] = (
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
    )
    for name, kind, text, value in figures:
        yield Family(name, kind, text, (Sample((), value),))
    values = _of_links(node, outboxes)
    for name, (kind, text) in _LINKS.items():
        yield Family(name, kind, text, peer_samples(values[name]))


def _of_links(node: ClusterNode, outboxes: Outboxes) -> dict[str, Mapping[str, float]]:
    """By figure and other node; what is of those that are no members, any more or yet, is together."""
    runs = node.is_running
    others = [name for name in node.members if name != node.name] if runs else []
    up = set(node.up) if runs else set()
    round_trips = node.machine.detector.round_trips if runs else None
    traffic = node.link.traffic
    waiting = {name: outboxes.waiting_for(name) for name in others}
    gone = [
        total - sum(each[which] for each in waiting.values())
        for which, total in enumerate(outboxes.waiting())
    ]
    waiting[STRANGERS] = (gone[0], gone[1])
    return {
        "cluster_bytes_sent": traffic.sent,
        "cluster_bytes_received": traffic.received,
        "cluster_messages_waiting": {name: each[0] for name, each in waiting.items()},
        "cluster_bytes_waiting": {name: each[1] for name, each in waiting.items()},
        "cluster_node_up": {name: int(name in up) for name in others},
        "cluster_round_trip_seconds": {
            name: round_trips.smoothed(name) for name in others if round_trips is not None
        },
    }
