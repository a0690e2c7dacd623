"""Which hosts have a slot: rendezvous hashing with bounded loads.

Every node ranks all hosts for a slot alike (Thaler, Ravishankar 1998); a host that has its share already, and a
twentieth more, is passed over (Mirrokni, Thorup, Zadimoghaddam, "Consistent Hashing with Bounded Loads", 2018). When
a host comes or goes, little more than its own share moves. Copies count hosts: of the nodes of one host only one has
a slot.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b
from math import ceil
from typing import Final

from vmq.clustering.slots.here import LocalNode

#: Slots of one node that change followers at a time: each new one is sent the whole state.
MOVES_AT_ONCE: Final = 16
#: A host has at most so many times its share.
BOUND: Final = 1.05


def weight(slot: int, name: str) -> int:
    """The rank of a host, or of a node, for a slot."""
    raw = slot.to_bytes(2, "big") + name.encode()
    return int.from_bytes(blake2b(raw, digest_size=8).digest(), "big")


def ranked(slot: int, names: Iterable[str]) -> list[str]:
    """The best first."""
    return sorted(names, key=lambda name: (weight(slot, name), name), reverse=True)


def choose(slot: int, hosts: Mapping[int, str], count: int, keep: list[int]) -> list[int]:
    """So many nodes of different hosts, those to `keep` first; `hosts` has each node's."""
    chosen: list[int] = []
    taken: set[str] = set()
    ranks = {store: (weight(slot, host), weight(slot, str(store))) for store, host in hosts.items()}
    for store in [*keep, *sorted(hosts, key=lambda store: ranks[store], reverse=True)]:
        if len(chosen) == count:
            break
        if hosts[store] not in taken:
            chosen.append(store)
            taken.add(hosts[store])
    return chosen


def spread(slots: int, hosts: Mapping[int, str], replicas: int) -> list[tuple[int, ...]]:
    """The nodes that each slot is to have, the owner first.

    Owners are bounded by themselves, so that work is spread as well as copies are.
    """
    nodes: dict[str, list[int]] = {}
    for store, host in sorted(hosts.items()):
        nodes.setdefault(host, []).append(store)
    replicas = min(replicas, len(nodes))
    if not replicas:
        return [()] * slots
    most_owned = ceil(BOUND * slots / len(nodes))
    most_held = ceil(BOUND * slots * replicas / len(nodes))
    owned: Counter[str] = Counter()
    held: Counter[str] = Counter()
    found = []
    for slot in range(slots):
        order = ranked(slot, nodes)
        owner = next(
            (host for host in order if owned[host] < most_owned and held[host] < most_held),
            min(order, key=lambda host: owned[host]),
        )
        rest = [host for host in order if host != owner]
        free = [host for host in rest if held[host] < most_held]
        chosen = [owner, *[*free, *[host for host in rest if host not in free]][: replicas - 1]]
        owned[owner] += 1
        held.update(chosen)
        found.append(
            tuple(max(nodes[host], key=lambda store: weight(slot, str(store))) for host in chosen)
        )
    return found


class SlotPlaces:
    """Where the slots of a cluster are to be, when all is well, as one node sees it.

    Args:
        slots: how many there are.
    """

    def __init__(self, here: LocalNode, slots: int) -> None:
        self._here = here
        self._slots = slots
        #: Where each slot would be, and for which nodes that was calculated.
        self._wanted: list[tuple[int, ...]] = []
        self._nodes: tuple[int, ...] = ()
        #: Slots of this node that change followers.
        self._moving: set[int] = set()

    def wanted(self, slot: int) -> tuple[int, ...]:
        """The nodes that are to have a slot; none while not all are known to be there."""
        reach = self._here.reach
        if not reach.is_whole():
            return ()
        nodes = {store: reach.host_of(store) for store in reach.peers}
        nodes[self._here.store] = reach.host
        if self._nodes != tuple(sorted(nodes)):
            self._nodes = tuple(sorted(nodes))
            self._wanted = spread(self._slots, nodes, self._here.replicas)
        return self._wanted[slot]

    def followers(self, slot: int, now: Collection[int]) -> tuple[int, ...]:
        """Who is to follow a slot of this node instead of those who do; none if it may stay, or has to wait.

        A node that was missed for a moment follows nobody when it is back, and the others follow all.
        """
        wanted = self.wanted(slot)
        is_odd = wanted[:1] == (self._here.store,) and set(wanted[1:]) != set(now)
        if not is_odd:
            self.stay(slot)
        elif slot in self._moving or len(self._moving) < MOVES_AT_ONCE:
            self._moving.add(slot)
            return wanted[1:]
        return ()

    def stay(self, slot: int) -> None:
        """Its followers are those that are to be, or this node is not its owner any more."""
        self._moving.discard(slot)
