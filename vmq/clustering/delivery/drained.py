"""Which nodes are drained (`vmq cluster drain`): each node shows it, and has them lead nothing. A start ends it."""

from typing import Final

from vmq_cluster.node import ClusterNode

_PREFIX: Final = "vmq.drained"


def say_drained(node: ClusterNode, is_drained: bool) -> None:
    """Tells the others of this node."""
    key = node.name.encode()
    if is_drained:
        node.put(_PREFIX, key, b"1")
    elif node.get(_PREFIX, key) is not None:
        node.delete(_PREFIX, key)


def drained_nodes(node: ClusterNode) -> set[str]:
    """Those that have said so."""
    return {key.decode(errors="replace") for key, _ in node.items(_PREFIX)}
