"""When an operator may have one replica of a group go on alone.

He gives up what the others have, so he is refused while they might go on by themselves, or one in reach has more. But
that is no state to stay in: replicas that died in the middle of changes of members may each wait for others, some of
them lost with their disks, and each see most of its own voters in reach. So what they might do is waited for as long as
a group waits for better copies (`RaftOptions.unclean_wait`), and for the elections before and behind that. Who
has most can always be recovered then.
"""

from collections.abc import Mapping
from typing import Final

from vmq_cluster.raft.replica import Replica

#: In election timeouts: others wait since they have asked each other, and are elected at the next attempt. A leader of
#: theirs beside the one that goes on by the operator's word would take back what that one has acknowledged.
_ELECTIONS: Final = 6


def objection(
    replica: Replica, answered: Mapping[str, tuple[int, int]], led_at: float, now: float
) -> str:
    """What speaks against it where nobody leads, "" if nothing does.

    Args:
        replica: the one that is to go on.
        answered: how the logs of others end, as these said lately.
        led_at: when a leader was known last.
        now: the time.
    """
    members, own = replica.members, (replica.last_term, replica.log.end)
    if replica.log.first == replica.log.end:
        return "this node has nothing of it"
    others = [name for name in {*members.all, *answered} if replica.outlet.is_up(name)]
    for name in sorted(others):
        if answered.get(name, own) > own:
            return f"{name} has more of it, up to offset {answered[name][1]}: recover it there"
    since = max([led_at, *map(replica.outlet.up_since, others)])  # when it could begin to go on
    options = replica.options
    left = since + options.unclean_wait + _ELECTIONS * options.election_timeout - now
    if left <= 0:
        return ""
    again = f"try again in {left:.0f} s"
    up = [name for name in members.voters if name == replica.name or name in others]
    if members.has_majority(up):
        return f"most of its replicas are in reach, and may elect a leader yet: {', '.join(up)}; {again}"
    if up and replica.name not in members.voters:
        return f"this node's replica does not count, and {', '.join(up)} may go on yet: {again}"
    for name in up:
        if name != replica.name and name not in answered:
            return f"{name} is in reach and has not said yet how much it has: {again}"
    return ""


def can_lead(replica: Replica, others: Mapping[str, int]) -> bool:
    """Whether a leader's log serves a majority: what is damaged in it nobody else may have.

    Args:
        replica: the leader's.
        others: how much of it each has that can be reached and counts.
    """
    behind = max((end for _, end in replica.log.damage), default=0)
    names = {name for name, end in others.items() if end >= behind}
    return replica.members.has_majority(names | {replica.name})
