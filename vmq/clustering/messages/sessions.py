"""What a node asks another about sessions that the other has, for whoever looks at them, or ends what they have."""

from typing import Annotated, Final

from msgspec import Meta, Struct

from vmq.clustering.messages.base import NodeAnswer, NodeMessage, Question
from vmq.clustering.messages.clients import ClientId
from vmq.clustering.messages.publishes import Mountpoint
from vmq.runtime.own_sessions import SessionFigures

#: What the node that has the session does once it has looked at it.
NOTHING: Final = 0
DISCONNECT: Final = 1
UNSUBSCRIBE: Final = 2
#: Sessions that one answer has at most.
MOST_AWAY: Final = 500


class AskSession(NodeMessage, frozen=True, tag=65):
    """How is this session?"""

    question: Question
    mountpoint: Mountpoint
    client_id: ClientId
    #: Of a session in a slot: as its owner has it, not its client's connection.
    of_owner: bool = False
    #: Then its client's connection is closed, or the subscription to this filter ends.
    does: Annotated[int, Meta(ge=0, le=2)] = NOTHING
    topic_filter: Annotated[str, Meta(max_length=65_535)] = ""


class SessionFound(NodeAnswer, frozen=True, tag=66):
    """So it was; None: it is not here."""

    figures: SessionFigures | None


class AskAway(NodeMessage, frozen=True, tag=68):
    """Which sessions do you own whose clients are away, from this slot on, and in it after this client?"""

    question: Question
    slot: Annotated[int, Meta(ge=0, le=2047)]
    after: str


class AwaySession(Struct, array_like=True, frozen=True):
    """One of them."""

    client_id: ClientId
    user: str | None
    queue_size: Annotated[int, Meta(ge=0)]
    waiting_acks: Annotated[int, Meta(ge=0)]
    offline_since: float
    subscriptions: Annotated[int, Meta(ge=0)]


class AwayFound(NodeAnswer, frozen=True, tag=69):
    """These; `slot` and `after` say from where to ask on, -1 that there are no more."""

    sessions: Annotated[list[AwaySession], Meta(max_length=MOST_AWAY)]
    slot: Annotated[int, Meta(ge=-1, le=2047)]
    after: str


SessionQuestion = AskSession | SessionFound | AskAway | AwayFound
