"""The figures of copies: those of one follower carry its name."""

from collections.abc import Iterator, Mapping
from typing import Final

from vmq.clustering.replication.leader import Leader
from vmq.runtime.metrics import Family, Sample

#: By name, which is behind `replicas_` that of the leader's attribute.
_COUNTERS: Final[Mapping[str, str]] = {
    "replicas_left_out": "Times that acknowledgements went on without a node with copies: it was down, or too slow.",
    "replicas_filled": "Copies of sessions that were made whole in the background.",
    "replicas_filled_records": "Records of sessions that were sent in the background to make copies whole.",
    "replicas_moved": "Copies of sessions that went to nodes where they belong, as after one has joined.",
    "replicas_too_long": "Messages too long to be copied.",
}


def replica_families(leader: Leader | None, kept: int, adopted: int) -> Iterator[Family]:
    """Of the copies of this node's sessions (nothing without any), and of those that are here."""
    for name, text in _COUNTERS.items():
        value = 0 if leader is None else getattr(leader, name.removeprefix("replicas_"))
        yield Family(name, "counter", text, (Sample((), value),))
    text = "Sessions taken over from nodes that stayed away."
    yield Family("replicas_adopted", "counter", text, (Sample((), adopted),))
    yield Family("replicas_kept", "gauge", "Copies of other nodes' sessions.", (Sample((), kept),))
    lagging = {} if leader is None else leader.lagging_by_peer()
    followers = [] if leader is None else leader.peers()
    yield Family(
        "replicas_lagging",
        "gauge",
        "Copies of this node's sessions that are missing or lack something, by the node that is to have them; without "
        "a node: it is not chosen yet.",
        tuple(
            Sample((("peer", name),), lagging.get(name, 0))
            for name in [*(each.name for each in followers), ""]
        ),
    )
    yield Family(
        "replicas_bytes_waiting",
        "gauge",
        "Bytes for copies that a node has not confirmed.",
        tuple(Sample((("peer", each.name),), each.size) for each in followers),
    )
