"""Which node gets a message for a shared subscription: pure, chosen where the message was published.

The node chooses the member. Members of a node that is down are the last resort: what is sent there waits until it is
up again, or is lost with it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final

#: In front of a node's name: its clients whose sessions are in slots; as its own it has what is of QoS 0 for them.
QUICK: Final = "\0"
PREFER_LOCAL: Final = "prefer_local"
LOCAL_ONLY: Final = "local_only"
PREFER_ONLINE: Final = "prefer_online_before_local"
#: Any member, each with the same chance.
RANDOM: Final = "random"


class ShareMembers:
    """The subscribers of one filter on one node: how many asked for what.

    A wish is a QoS, plus `DURABLE` for a session that outlives its node's end, plus `AWAY` for one whose client is not
    connected.
    """

    __slots__ = ("by_wish",)

    DURABLE: Final = 3
    AWAY: Final = 3

    def __init__(self) -> None:
        self.by_wish = [0] * 9

    def with_those(self, others: "ShareMembers") -> "ShareMembers":
        """These and others."""
        both = ShareMembers()
        pairs = zip(self.by_wish, others.by_wish, strict=True)
        both.by_wish = [one + other for one, other in pairs]
        return both

    @property
    def total(self) -> int:
        return sum(self.by_wish)

    @property
    def online(self) -> int:
        return sum(self.by_wish[:6])

    @property
    def away(self) -> int:
        return sum(self.by_wish[6:])

    @property
    def durable(self) -> int:
        return sum(self.by_wish[3:])

    @property
    def keeps(self) -> bool:
        """Whether some have sessions that outlive their node's end, and keep what is published for them."""
        counts = self.by_wish
        return bool(counts[4] or counts[5] or counts[7] or counts[8])

    @property
    def highest(self) -> int:
        """The highest QoS that anybody asked for; nobody: -1."""
        return max((wish % 3 for wish, count in enumerate(self.by_wish) if count), default=-1)


def members_at(qos: int, members: Mapping[str, ShareMembers]) -> Mapping[str, ShareMembers]:
    """The members of a group to choose among for a message: at QoS 0 also those whose sessions are in slots."""
    if not any(name.startswith(QUICK) for name in members):
        return members
    found: dict[str, ShareMembers] = {}
    for name, each in members.items():
        if not name.startswith(QUICK):
            found[name] = each if name not in found else found[name].with_those(each)
        elif qos == 0:
            node = name[len(QUICK) :]
            found[node] = each if node not in found else found[node].with_those(each)
    return found


def choose(
    policy: str,
    qos: int,
    own: str,
    members: Mapping[str, ShareMembers],
    up: Collection[str],
    draw: Callable[[int], int],
) -> str | None:
    """The node of which a member gets a message; None: nobody is to get it.

    Args:
        policy: of shared subscriptions.
        qos: the message's. At QoS 0 a member that is away is none, so no policy prefers it.
        own: this node.
        members: of the group, by node.
        up: the other nodes that can be reached.
        draw: draw(n) is a random number from 0 to n - 1.
    """
    here = members.get(own)
    if policy == LOCAL_ONLY:
        return None if here is None or not here.total else own
    if policy == PREFER_LOCAL and qos and here is not None and here.total:
        return own  # at QoS 0 it is as with `PREFER_ONLINE`
    for tier in _tiers(policy, own, members, up):
        total = sum(tier.values())
        if total:
            number = draw(total) if total > 1 else 0
            for node, weight in tier.items():
                number -= weight
                if number < 0:
                    return node
    return None


def _tiers(
    policy: str, own: str, members: Mapping[str, ShareMembers], up: Collection[str]
) -> Iterator[dict[str, int]]:
    """Members by node, the best first: a later tier counts only where those before it have none."""
    near = {node: each for node, each in members.items() if node == own or node in up}
    here = {own: members[own]} if own in members else {}
    prefers_here = policy in (PREFER_ONLINE, PREFER_LOCAL)
    if prefers_here:
        yield {node: each.online for node, each in here.items()}
    yield {node: each.online for node, each in near.items()}
    if prefers_here:
        yield {node: each.away for node, each in here.items()}
    yield {node: each.away for node, each in near.items()}
    far = {node: each for node, each in members.items() if node not in near}
    yield {node: each.durable for node, each in far.items()}
    yield {node: each.total for node, each in far.items()}
