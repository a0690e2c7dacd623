"""What nodes tell each other about MQTT: the common form of their messages."""

from typing import Annotated

from msgspec import Meta, Struct

#: Numbers the questions of a node; the answer comes with the same.
Question = Annotated[int, Meta(ge=0, lt=1 << 62)]


class NodeMessage(Struct, array_like=True, frozen=True):
    """One message between nodes. Subclasses have a `tag`, a number, and stand in the list of `messages.codec`.

    Those that come for each publish, and hold bytes, text and numbers alone, say `gc=False`: they cannot be part of a
    cycle, and the collector of garbage needs not know of them.
    """

    def check(self) -> None:
        """Refuses what no node sends and the types of the fields do not rule out.

        Raises:
            ValueError: the fault is remote.
        """


class NodeAnswer(NodeMessage, frozen=True):
    """The answer to a question."""

    question: Question
