"""How the state of a log is written down. Apart from what works with it, which is compiled: no `Struct` can be."""

from msgspec import Struct

from vmq_cluster.raft.members import Members


class StateForm(Struct, array_like=True):
    """The body of a batch of kind `STATE`."""

    terms: list[tuple[int, int]]
    members: Members
    next: list[tuple[str, str, int]]
    #: Not used: logs that are there have an empty list here.
    free: list[None]
    uncertain: list[tuple[int, int, int]]
    compaction: tuple[int, int] = (0, 0)
    #: Dots of rows: store, boot, runs.
    dots: list[tuple[str, str, list[int]]] = []
    #: Who was a member when somebody went last.
    former: tuple[str, ...] = ()
    #: What was given up: first, end.
    holes: list[tuple[int, int]] = []
