"""How two nodes agree on the life of a link between them, and what goes over it: see `vmq.clustering.front.links`."""

from typing import Annotated

from msgspec import Meta

from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.fronts import SessionMessage
from vmq.clustering.messages.slots import Number


class LinkHello(NodeMessage, frozen=True, tag=86):
    """This side's number of the link, and the other side's as it was heard last (0: not yet)."""

    number: Number
    answers: Number
    #: The sender's store, and its host: copies count hosts.
    store: Number
    host: Annotated[str, Meta(max_length=1000)]


class LinkBatch(NodeMessage, frozen=True, tag=87):
    """Messages about durable sessions: number `index` of those over the link in this life of it, from 0."""

    life: Number
    index: Number
    messages: Annotated[list[SessionMessage], Meta(max_length=100_000)]
