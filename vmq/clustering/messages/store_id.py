"""Which store a node has: what waits for one is nothing for the store that the same node has after it lost its disk."""

from typing import Annotated

from msgspec import Meta

from vmq.clustering.messages.base import NodeMessage


class StoreName(NodeMessage, frozen=True, tag=5):
    """My store has this name. To be said to each node that comes up, and to who asks or sends to another store."""

    name: Annotated[int, Meta(ge=1, lt=1 << 62)]
    #: Tell me yours.
    asks: bool = False
