"""What a node asks another about a session that the other has, for whoever looks at it."""

from typing import Annotated

from msgspec import Meta

from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.publishes import Mountpoint
from vmq.clustering.messages.takeover import ClientId
from vmq.runtime.session_figures import SessionFigures

Question = Annotated[int, Meta(ge=0, lt=1 << 62)]


class AskSession(NodeMessage, frozen=True, tag=65):
    """How is this session? `question` comes back with the answer."""

    question: Question
    mountpoint: Mountpoint
    client_id: ClientId
    #: Of a session in a slot: as its owner has it, not its client's connection.
    of_owner: bool = False


class SessionFound(NodeMessage, frozen=True, tag=66):
    """So; None: it is not here."""

    question: Question
    figures: SessionFigures | None


SessionQuestion = AskSession | SessionFound
