"""The other nodes as jobs see them: which host each is on, and whether it can be reached.

A node's number is that of its jobs: a node that lost its disk comes back with another one. Members whose numbers were
not heard yet since the start count as hosts that cannot be reached.
"""

from collections.abc import Callable, Iterable
from typing import Final

#: Hexadecimal digits of a node's id that make its number.
_DIGITS: Final = 15
#: Nodes that lost their disks: the last ones, of which something may be left.
_MOST_LOST: Final = 64


def number_of(node_id: bytes) -> int:
    """The number of a node by its 40 hexadecimal digits; never 0."""
    return int(node_id[:_DIGITS], 16) or 1


class JobPeer:
    """One node."""

    def __init__(self, number: int, host: str, node_id: bytes = b"") -> None:
        self.number = number
        self.host = host
        #: Forty hexadecimal digits, and where its clients reach it.
        self.node_id = node_id
        self.address = ""
        self.port = 0
        self.boot = 0
        self.is_leaving = False
        #: It has little memory left.
        self.is_short = False


class JobPeers:
    """This node, and those that it knows.

    Args:
        me: this node.
        shuffle: puts those that are alike into any order.
    """

    def __init__(self, me: JobPeer, shuffle: Callable[[list[int]], None]) -> None:
        self.me = me
        self.shuffle = shuffle
        self.all: dict[int, JobPeer] = {me.number: me}
        #: The numbers of members by their names in the cluster.
        self.numbers: dict[str, int] = {}
        self.members: frozenset[str] = frozenset()
        self.up: set[int] = set()
        #: Nodes that are no more: members came back without their disks, which had other numbers on them.
        self.lost: dict[int, None] = {}
        #: What follows from all that: asked for each job, counted when it changes.
        self._hosts = 1
        self._reachable = 1
        self._taking: list[int] = []
        #: Those that take copies are each on a host of its own, and none on this one's.
        self._is_spread = True

    def set_members(self, names: Iterable[str]) -> None:
        """These are the other members."""
        self.members = frozenset(names)
        for name in self.numbers.keys() - self.members:
            self._forget(self.numbers.pop(name))
        self._count()

    def check(self, name: str, number: int) -> None:
        """Looks at the number that a member says is its own.

        Raises:
            ValueError: it is that of this node, or of another that can be reached.
        """
        is_taken = number in self.up and self.numbers.get(name) != number
        if is_taken or number == self.me.number:
            raise ValueError("it says that it is another node")

    def learn(self, name: str, peer: JobPeer) -> bool:
        """A member has told of itself; whether it is another node, or its broker another life, than before."""
        before = self.numbers.get(name)
        known = self.all.get(peer.number)
        if before is not None and before != peer.number:
            self._forget(before)
            self.lose_disks([before])
        self.lost.pop(peer.number, None)
        self.numbers[name] = peer.number
        self.all[peer.number] = peer
        self.up.add(peer.number)
        self._count()
        return known is None or known.boot != peer.boot

    def lose_disks(self, numbers: Iterable[int]) -> bool:
        """These nodes are no more; whether that is new of some."""
        new = [each for each in numbers if each not in self.all and each not in self.lost]
        self.lost.update(dict.fromkeys(new))
        for each in list(self.lost)[:-_MOST_LOST]:
            del self.lost[each]
        return bool(new)

    def lose(self, name: str) -> int:
        """A member cannot be reached any more; its number, or 0."""
        number = self.numbers.get(name, 0)
        self.up.discard(number)
        self._count()
        return number

    def _forget(self, number: int) -> None:
        self.up.discard(number)
        self.all.pop(number, None)

    def host_of(self, number: int) -> str:
        """The host of a node; of one that is not known a name that no other has."""
        peer = self.all.get(number)
        return f"?{number}" if peer is None else peer.host

    def hosts(self) -> int:
        """On how many hosts the cluster is, without nodes that take no part for now: those are there, and leave."""
        return self._hosts

    def reachable_hosts(self) -> int:
        """Hosts that take copies, this one included."""
        return self._reachable

    def taking(self) -> list[int]:
        """Nodes of any host that take copies."""
        return list(self._taking)

    def _count(self) -> None:
        leaving = {each for each in self.up if self.all[each].is_leaving}
        known = {each.host for each in self.all.values() if each.number not in leaving}
        self._hosts = len(known) + len(self.members.difference(self.numbers))
        self._taking = sorted(self.up - leaving)
        hosts = {self.me.host} | {self.all[each].host for each in self._taking}
        self._reachable = len(hosts)
        self._is_spread = len(hosts) == 1 + len(self._taking)

    def _is_short(self, number: int) -> bool:
        return self.all[number].is_short

    def is_up(self, name: str) -> bool:
        """Whether a member can be reached, and has said who it is."""
        return self.numbers.get(name, 0) in self.up

    def are_all_up(self) -> bool:
        """Whether each member can be reached."""
        numbers = self.numbers
        return all(numbers.get(each) in self.up for each in self.members)

    def awaits_takers(self, any_host: bool) -> bool:
        """Whether some member may take copies, once it can be reached: none that leaves, and of this host if of any."""
        for name in self.members:
            peer = self.all.get(self.numbers.get(name, 0))
            if peer is None:
                return True
            if not peer.is_leaving and (any_host or peer.host != self.me.host):
                return True
        return False

    def unreached(self) -> list[int]:
        """Members that are known and cannot be reached."""
        return [each for each in self.numbers.values() if each not in self.up]

    def is_gone(self, number: int) -> bool:
        """Whether a node is known to be a member no more, or to have lost its disk."""
        return number not in self.all and self.members <= self.numbers.keys()

    def spread(self, numbers: Iterable[int]) -> int:
        """On how many hosts these nodes are."""
        return len({self.host_of(each) for each in numbers})

    def choose(self, count: int, has: list[int]) -> list[int]:
        """So many nodes that can be reached, each on a host of its own where none of `has` is; fewer if there are.

        Those that are short of memory come last.
        """
        if self._is_spread and count >= len(self._taking) and has == [self.me.number]:
            return self.taking()
        hosts = {self.host_of(each) for each in has}
        candidates = self.taking()
        self.shuffle(candidates)
        candidates.sort(key=self._is_short)
        found: list[int] = []
        for each in candidates:
            if len(found) >= count:
                break
            host = self.all[each].host
            if host not in hosts:
                hosts.add(host)
                found.append(each)
        return found
