"""What a node says to each other one before it leaves or stops: how far it took what waits there for it."""

from typing import Annotated

from msgspec import Meta

from vmq.clustering.messages.base import NodeMessage

_Positive = Annotated[int, Meta(ge=1, lt=1 << 62)]


class Farewell(NodeMessage, frozen=True, tag=6):
    """I take nothing more from you in this life; this is the place of the last that I took.

    All of it is safe or has gone on.
    """

    #: The name of the store that has it.
    store: _Positive
    life: _Positive
    number: _Positive
