"""Whom a node gossips with: a few neighbours on a ring, which every node works out for itself.

Plumtree wants a connected, symmetric overlay of small degree under its tree. All members of a cluster know all
others, so none has to be grown: order the nodes by name on a ring, and link each to those 1, 2, 4, 8 ... places
away, both ways. The degree is about twice the logarithm of the number of nodes, no two are more than a logarithm of
hops apart, and each of up to five nodes is a neighbour of all others. It is worked out over the nodes that are up,
so a dead node leaves no hole.
"""

from bisect import bisect_left
from collections.abc import Collection


def neighbours(name: str, others: Collection[str]) -> set[str]:
    """The neighbours of a node among the others."""
    ring = sorted(others)
    count = len(ring) + 1
    at = bisect_left(ring, name)
    ring.insert(at, name)
    found = set()
    distance = 1
    while distance <= count // 2:
        found.add(ring[(at + distance) % count])
        found.add(ring[at - distance])
        distance *= 2
    found.discard(name)
    return found
