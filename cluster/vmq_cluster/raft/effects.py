"""What a node's groups ask of the world, in the order in which it is to be done."""

from msgspec import Struct

from vmq_cluster.raft.members import Members
from vmq_cluster.raft.messages import Envelope, Mark


class Ballot(Struct, array_like=True, frozen=True):
    """What a replica must never forget, whatever becomes of its log: one small record a group, always synced."""

    term: int = 0
    #: Whom it voted for in this term.
    vote: str = ""
    #: It may have forgotten: it neither votes nor counts.
    abstains: bool = False
    #: Who the members are, as the log says, and where the batch that says so ends.
    members: Members = Members()
    members_end: int = 0
    #: The last epoch of its log (`vmq_cluster.raft.replica.epoch_of`).
    epoch: int = 0


class Save(Struct, frozen=True):
    """This is on disk, synced, before anything that follows leaves the node."""

    group: str
    ballot: Ballot


class Send(Struct, frozen=True):
    """Hand this to the link to a node; it may get lost, come twice or late."""

    peer: str
    envelope: Envelope


class Committed(Struct, frozen=True):
    """Everything before `end` is committed here: readers may see it.

    `own`: rows of this node's producers among it that another leader took, all of each mark.
    """

    group: str
    end: int
    own: tuple[Mark, ...] = ()


class Answered(Struct, frozen=True):
    """What became of an append or a question.

    `done`: it is committed, and was before `end`. Else nobody knows, or it was not taken: ask the leader.
    """

    group: str
    ticket: int
    done: bool
    end: int


class Led(Struct, frozen=True):
    """The group's leader is another one now, "" if none is known."""

    group: str
    leader: str
    term: int


class Uncertain(Struct, frozen=True):
    """Rows from `first` to before `end` may be lost: a group went on though a majority may have forgotten.

    `given_up`: an operator has given up what nobody had whole.
    """

    group: str
    first: int
    end: int
    given_up: bool = False


class Removed(Struct, frozen=True):
    """This replica is no member any more; its files may go when the meta group says so."""

    group: str


class Failed(Struct, frozen=True):
    """A group raised an error (`OSError`: its disk's): it is closed here, and the others go on."""

    group: str
    error: Exception


Effect = Save | Send | Committed | Answered | Led | Uncertain | Removed | Failed
