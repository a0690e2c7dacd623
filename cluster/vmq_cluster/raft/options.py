"""What can be tuned, with its defaults. Times are in seconds, sizes in bytes."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class RaftOptions:
    """The options of a node's groups."""

    #: A leader that was silent for so long, up to twice that, is stood against.
    election_timeout: float = 1.0
    #: How often the leader of a group that is awake speaks, and sends again what nobody confirmed.
    heartbeat: float = 0.25
    #: How often a node says that its groups live, and after how long a silence they are taken to be dead.
    word: float = 1.0
    silence: float = 10.0
    #: When a node is down, the replicas of its groups stand one after another, in the order of the group's members.
    stagger: float = 0.1
    #: For every so many groups that lose their leader at once, that time is as long once more: the first of each group
    #: is to be done before the next one begins.
    crowd: int = 100
    #: How many groups one tick wakes: a node that had thousands of leaders is replaced in batches.
    wakes: int = 200
    #: What is committed is told with the rows that come next, or so much after the last ones: else a batch would take
    #: eight messages instead of four. Rows for which nobody waits go so much after the last ones, and so long a replica
    #: keeps to itself that it has rows of its own node's producers, and that they are committed.
    tell_within: float = 0.005
    #: Rows go at once to as many voters as make a majority, and to the others so much after the last ones: to take many
    #: batches in one message, and to answer that once, costs a node, and the leader, little more than for one batch.
    spare_within: float = 0.02
    #: What one message carries of a log, of a file, and how many messages are under way to a replica.
    append_bytes: int = 1 << 20
    piece_bytes: int = 256 * 1024
    window: int = 8
    #: And how many to one that lacks more than these hold.
    catch_up_window: int = 2
    #: What all groups of a node fetch in files, a second.
    catch_up_rate: float = 64 * 1024 * 1024
    #: A learner whose log ends where the leader's ended so long ago may become a voter.
    promote_lag: float = 1.0
    #: How long a group of which a majority may have forgotten waits for a better copy.
    unclean_wait: float = 60.0
