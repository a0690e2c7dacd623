"""What waits on a node for leaders of streams, in bytes."""

from typing import Final

#: Bytes that wait for all partitions of a node, if nobody says another number.
NODE_LIMIT: Final = 128 << 20


class Backlog:
    """The bytes that wait for leaders, of all partitions of a node.

    A partition may have as much of the memory as is free still (dynamic thresholds, as switches share their buffers):
    one without a leader takes half of it at most, of `n` each a part of n + 1, and those that are led always have room.
    """

    def __init__(self, limit: int = NODE_LIMIT) -> None:
        self.limit = limit
        self.size = 0
