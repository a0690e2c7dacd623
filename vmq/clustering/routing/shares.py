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
    """The subscribers of one filter on one node that are in no slot, all connected: how many asked for which QoS."""

    __slots__ = ("by_qos",)

    def __init__(self) -> None:
        self.by_qos = [0, 0, 0]

    def with_those(self, others: "ShareMembers") -> "ShareMembers":
        """These and others."""
        both = ShareMembers()
        both.by_qos = [one + other for one, other in zip(self.by_qos, others.by_qos, strict=True)]
        return both

    @property
    def total(self) -> int:
        return sum(self.by_qos)

    @property
    def highest(self) -> int:
        """The highest QoS that anybody asked for; nobody: -1."""
        return max((qos for qos, count in enumerate(self.by_qos) if count), default=-1)


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
    own: str,
    members: Mapping[str, ShareMembers],
    up: Collection[str],
    draw: Callable[[int], int],
) -> str | None:
    """The node of which a member gets a message; None: nobody is to get it.

    Args:
        policy: of shared subscriptions.
        own: this node.
        members: of the group, by node.
        up: the other nodes that can be reached.
        draw: draw(n) is a random number from 0 to n - 1.
    """
    here = members.get(own)
    if policy == LOCAL_ONLY:
        return None if here is None or not here.total else own
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
    near = {node: each.total for node, each in members.items() if node == own or node in up}
    if policy in (PREFER_ONLINE, PREFER_LOCAL) and own in members:
        yield {own: members[own].total}
    yield near
    yield {node: each.total for node, each in members.items() if node not in near}
