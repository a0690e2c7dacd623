"""What of a group is routine: rows, and what replicas say of them, where all goes its way.

No ballot is saved for it, nothing is taken back or read again from far behind, and no file begins or goes. So it takes
about as long as the rows are many.
"""

from vmq_cluster.raft.group import Group
from vmq_cluster.raft.messages import ROWS, Ack, AnyMessage, Append


def is_routine(group: Group, sender: str, message: AnyMessage) -> bool:
    """Whether a message is nothing but the next rows, or the word that a replica has them.

    What the log of the group does with its files is another question.
    """
    replica = group.replica
    state, commit = replica.state, replica.commit
    decides = state.members_end > commit or any(each[2] > commit for each in state.holes)
    if message.term != replica.term or replica.abstains or replica.log.damage or decides:
        return False
    if isinstance(message, Append):
        return _is_next(group, sender, message)
    return isinstance(message, Ack) and _is_plain(group, sender, message)


def _is_next(group: Group, sender: str, message: Append) -> bool:
    """Whether a leader's rows come right behind what is there, or it only speaks."""
    replica = group.replica
    log = replica.log
    is_there = message.prev == log.end if message.batches else message.prev <= log.end
    return (
        is_there
        and group.following is not None
        and replica.leader == sender
        and message.first <= log.first
        and message.unclean[1] <= replica.state.last_unclean[1]
        and all(each.kind == ROWS for each in message.batches)
    )


def _is_plain(group: Group, sender: str, message: Ack) -> bool:
    """Whether a replica that keeps up has more than before."""
    leading, replica = group.leading, group.replica
    progress = None if leading is None else leading.progress.get(sender)
    return (
        leading is not None
        and progress is not None
        and message.agreed
        and message.life == progress.life
        and not progress.lacks_more
        and leading.wanted is None
        and replica.name in replica.members.voters
        and leading.keep_from <= replica.log.first
    )
