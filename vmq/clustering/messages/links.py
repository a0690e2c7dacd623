"""How two nodes agree on a life of the link between them, in which nothing is lost and all comes in order."""

from typing import Annotated

from msgspec import Meta

from vmq.clustering.messages.base import NodeMessage

Nonce = Annotated[int, Meta(ge=0, lt=1 << 62)]


class LinkHello(NodeMessage, frozen=True, tag=116):
    """I call this end of the link `mine`, and yours `theirs` (0: I do not know); what I know makes it whole or not."""

    mine: Nonce
    theirs: Nonce
    is_whole: bool
    #: Frames that I have sent in this life.
    sent: Nonce = 0


class LinkFrame(NodeMessage, frozen=True, tag=117):
    """What one pass has for the peer: frame `number` of this life, an array of `vmq.clustering.messages.fronts`."""

    life: Nonce
    number: Nonce
    payload: bytes
