"""Which nodes something falls to, without asking anybody: rendezvous hashing (Thaler, Ravishankar 1998).

Every node ranks all nodes for a key alike. When one goes, only what it had falls to others, spread over all of them;
when one comes, it takes its share of each and nothing else moves.
"""

from collections.abc import Iterable
from hashlib import blake2b


def ranked(key: str, nodes: Iterable[str]) -> list[str]:
    """The nodes in the order of their rank for a key, the first in front."""
    raw = key.encode()
    return sorted(nodes, key=lambda node: (_weight(raw, node), node), reverse=True)


def _weight(key: bytes, node: str) -> bytes:
    return blake2b(key, digest_size=8, key=blake2b(node.encode(), digest_size=32).digest()).digest()
