"""Where replicas go: rendezvous over hosts, so that few move when one comes or goes, and leaders are spread evenly."""

from collections.abc import Iterable, Mapping
from hashlib import blake2b


def order(group: str, hosts: Iterable[str]) -> list[str]:
    """The hosts in a group's order of preference (Thaler and Ravishankar, 1996)."""
    return sorted(hosts, key=lambda host: (_weight(group, host), host), reverse=True)


def _weight(group: str, host: str) -> bytes:
    return blake2b(f"{group}\0{host}".encode(), digest_size=8).digest()


def place(
    group: str, hosts: Iterable[str], replicas: int, leads: Mapping[str, int], cap: int
) -> tuple[str, ...]:
    """A group's replicas, the one that is to lead first: the first that leads fewer than `cap`, or who leads fewest."""
    chosen = order(group, hosts)[:replicas]
    free = [host for host in chosen if leads.get(host, 0) < cap]
    first = free[:1] or sorted(chosen, key=lambda host: leads.get(host, 0))[:1]
    return (*first, *(host for host in chosen if host not in first))


def place_all(
    groups: Iterable[str], hosts: Iterable[str], replicas: int
) -> dict[str, tuple[str, ...]]:
    """The replicas of many groups; none leads more than its share, rounded up, as far as the sets of replicas let."""
    names, nodes = list(groups), list(hosts)
    cap = -(-len(names) // len(nodes)) if nodes else 0
    leads: dict[str, int] = {}
    found = {}
    for group in names:
        found[group] = place(group, nodes, replicas, leads, cap)
        for host in found[group][:1]:
            leads[host] = leads.get(host, 0) + 1
    return found
