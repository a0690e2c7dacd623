"""Where replicas go: rendezvous over nodes, so that few move when one comes or goes, and leaders are spread evenly.

Nodes of one host share a disk or a machine: no two of them have replicas of the same group.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b


def order(group: str, hosts: Iterable[str]) -> list[str]:
    """The nodes in a group's order of preference (Thaler and Ravishankar, 1996)."""
    return sorted(hosts, key=lambda host: (_weight(group, host), host), reverse=True)


def _weight(group: str, host: str) -> bytes:
    return blake2b(f"{group}\0{host}".encode(), digest_size=8).digest()


def apart(nodes: Iterable[str], hosts: Mapping[str, str]) -> list[str]:
    """The first node of each host, in order; one that is not in `hosts` is a host of its own."""
    found: dict[str, str] = {}
    for node in nodes:
        found.setdefault(hosts.get(node, node), node)
    return list(found.values())


def place(
    group: str,
    nodes: Iterable[str],
    replicas: int,
    leads: Mapping[str, int],
    cap: int,
    hosts: Mapping[str, str] = {},
    full: Collection[str] = (),
) -> tuple[str, ...]:
    """A group's replicas, the one that is to lead first: the first that leads fewer than `cap`, or who leads fewest.

    Nodes that are `full` get none; so there may be fewer than are wanted.
    """
    free = (each for each in order(group, nodes) if each not in full)
    chosen = apart(free, hosts)[:replicas]
    under = [host for host in chosen if leads.get(host, 0) < cap]
    first = under[:1] or sorted(chosen, key=lambda host: leads.get(host, 0))[:1]
    return (*first, *(host for host in chosen if host not in first))


def place_all(
    groups: Iterable[str],
    nodes: Iterable[str],
    replicas: int,
    hosts: Mapping[str, str] = {},
    room: Mapping[str, int] = {},
) -> dict[str, tuple[str, ...]]:
    """The replicas of many groups; none leads more than its share, rounded up, as far as the sets of replicas let.

    `room`: how many each node may have yet, if that is bounded.
    """
    names, there, left = list(groups), list(nodes), dict(room)
    cap = -(-len(names) // len(there)) if there else 0
    leads: dict[str, int] = {}
    found = {}
    for group in names:
        full = {node for node, count in left.items() if count <= 0}
        found[group] = place(group, there, replicas, leads, cap, hosts, full)
        for node in left.keys() & {*found[group]}:
            left[node] -= 1
        for node in found[group][:1]:
            leads[node] = leads.get(node, 0) + 1
    return found


def leaders(replicas: Mapping[int, Sequence[str]]) -> dict[int, str]:
    """Who is to lead each group: of its replicas, by preference, the first that does not lead its share yet.

    Where all groups have the replicas that they were placed with, those are the first of each.
    """
    cap = -(-len(replicas) // max(1, len({each for names in replicas.values() for each in names})))
    leads: Counter[str] = Counter()
    found = {}
    for group, names in replicas.items():
        under = [name for name in names if leads[name] < cap]
        found[group] = under[0] if under else min(names, key=leads.__getitem__)
        leads[found[group]] += 1
    return found
