"""What other nodes of the cluster have to do with a publish, for `vmq.admin.why`."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from vmq.registry import Registry
from vmq.trie import Route

if TYPE_CHECKING:
    from vmq.broker import Broker


def home_of(broker: "Broker", mountpoint: str, client_id: str) -> str:
    """The other node that has a client's session; "" if none is known."""
    clustering = broker.clustering
    if clustering is None:
        return ""
    record = clustering.directory.record(mountpoint, client_id)
    own = clustering.node.name
    return "" if record is None or record.node == own else record.node


def targets(
    broker: "Broker", registry: Registry, topic: str, qos: int
) -> Iterator[tuple[bool, str]]:
    """Where else a message goes: whether it arrives there, now or later, and the words for it."""
    find = registry.trie.find_remote
    clustering = broker.clustering
    if find is None or clustering is None:
        return
    route = Route(topic.encode(), topic)
    find(route)
    up = set(clustering.node.up)
    for target in route.nodes:
        name: str = target.node
        granted = min(qos, target.qos)
        if name in up:
            yield True, f"node {name} gets it at QoS {granted} at most, for its subscribers"
        elif granted:
            yield True, f"node {name} cannot be reached: it waits here until that is up again"
        else:
            yield False, f"node {name} cannot be reached, and at QoS 0 nothing waits for it"
    for shared in route.shared:
        names = ", ".join(sorted(shared.members))
        yield True, f"one member of {shared.name} gets it, among those on {names}"
