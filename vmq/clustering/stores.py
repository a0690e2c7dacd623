"""Which store a node has: what waits for one is nothing for the store that the same node has after it lost its disk."""

from typing import Annotated

from msgspec import Meta

from vmq.clustering.message import Message


class Store(Message, frozen=True, tag=5):
    """My store has this name. To be said to each node that comes up, and to who sends to another store or to any."""

    name: Annotated[int, Meta(ge=1, lt=1 << 62)]
    #: Tell me yours.
    asks: bool = False
