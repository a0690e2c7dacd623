"""Wills that a node keeps for another: of clients that are connected there, should it end before them."""

from typing import Annotated

from msgspec import Meta

from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.clients import AboutClient
from vmq.clustering.messages.publishes import QOS, RETAIN, Topic, check_topic

Life = Annotated[int, Meta(ge=1, lt=1 << 62)]
#: Numbers the connections with a will of one life.
Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
_User = Annotated[str, Meta(max_length=65_535)]


class WillsBegin(NodeMessage, frozen=True, tag=61):
    """This life has begun, or begins anew with you: none of its wills is yours to keep but those that follow.

    You say with a `WillsEnd` when you keep none of the lives before. Who is asking has come up, or sees you again, and
    keeps none of yours but those that follow your answer, which has the number of its last question: what comes behind
    another one was under way since before. (0 is of a version without numbers, and answers any.)
    """

    life: Life
    is_asking: bool = False
    question: Count = 0


class KeepWill(AboutClient, frozen=True, tag=62):
    """The will of a client that is connected here."""

    life: Life
    number: Count
    topic: Topic
    payload: bytes
    flags: Annotated[int, Meta(ge=0, le=RETAIN | 2)]
    username: _User | None = None

    @property
    def qos(self) -> int:
        return self.flags & QOS

    @property
    def retain(self) -> bool:
        return self.flags & RETAIN != 0

    def check(self) -> None:
        """Refuses what no client could have left."""
        check_topic(self.topic)
        if self.qos == QOS:
            raise ValueError("QoS 3")


class ForgetWill(AboutClient, frozen=True, tag=63):
    """A will has been published, or is not to be: to who keeps it, as its connection is over, or from there."""

    life: Life
    number: Count


class WillsEnd(NodeMessage, frozen=True, tag=64):
    """This life has ended in order, or what it has left is seen to: no will of it, nor of one before, is left.

    Or it answers the `WillsBegin` of that life (`is_yours`): none of the lives before is kept here any more.
    """

    life: Life
    is_yours: bool = False


WillMessage = WillsBegin | KeepWill | ForgetWill | WillsEnd
