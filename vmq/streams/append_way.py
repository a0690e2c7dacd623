"""Where a message for a stream goes: apart from what appends, which needs the libraries of vmq[streams]."""

from enum import Enum, auto


class AppendWay(Enum):
    """Where a message for a stream goes at the moment."""

    #: Into a log of this broker.
    HERE = auto()
    #: To the node of the cluster that owns its partition.
    AWAY = auto()
    #: It waits in memory until its partition has another owner.
    HELD = auto()
