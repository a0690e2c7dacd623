"""What a node asks of the world around it, and tells it.

State machines put effects into an `Outbox`; whoever drives them takes them out at the end of a pass and carries
them out in order. Storage comes first: what was written in a pass is committed before its effects leave.

Nobody changes an effect. Those that every frame brings are not frozen, which would make them three times as dear.
"""

from dataclasses import dataclass, field
from typing import Any

from vmq_cluster.messages import AnyMessage, Frame


@dataclass(slots=True)
class Transmit:
    """Hand this frame to the link to a peer; it may get lost."""

    peer: str
    frame: Frame


@dataclass(slots=True, frozen=True)
class Contact:
    """Hand this frame to whoever listens at an address; it may get lost."""

    address: str
    frame: Frame


@dataclass(slots=True, frozen=True)
class PeerUp:
    """A member that was not heard of can be reached."""

    peer: str


@dataclass(slots=True, frozen=True)
class PeerDown:
    """A member has not been heard of for too long, or its link broke."""

    peer: str
    reason: str


@dataclass(slots=True, frozen=True)
class Resumed:
    """The node takes part again: its storage has taken what it could not write."""


@dataclass(slots=True, frozen=True)
class Unreadable:
    """This node takes no part any more: it could not read its storage, and what it had under way may be half done."""


@dataclass(slots=True, frozen=True)
class MembersChanged:
    """Members came, left, or moved to another address: names and addresses, this node's own included."""

    members: dict[str, str]


@dataclass(slots=True, frozen=True)
class Excluded:
    """The others have taken this node out of the cluster; by itself it does not come back."""

    by: str


@dataclass(slots=True, frozen=True)
class NameTaken:
    """The node at an address says that it has this node's name; if it lives, one of the two has to have another.

    With `is_lost` the name is that one's for good: it came with a later store while this node was away.
    """

    address: str
    is_lost: bool = False


@dataclass(slots=True, frozen=True)
class NameRefused:
    """Another node does not listen to this one: it hears a node of the same name, which is at an address."""

    address: str


@dataclass(slots=True, frozen=True)
class Left:
    """This node has left the cluster as it was asked to; `complete`: nothing it had was lost."""

    complete: bool


@dataclass(slots=True, frozen=True)
class Renewed:
    """This node goes on under a new incarnation."""

    incarnation: int


@dataclass(slots=True, frozen=True)
class Changed:
    """A watched key has another value than before; no value: it was deleted."""

    prefix: str
    key: bytes
    value: bytes | None
    before: bytes | None
    local: bool


@dataclass(slots=True)
class Arrived:
    """Payloads came over a channel, in the order they were sent.

    Those of the reliable lane have a `receipt`, for whoever confirms them.
    """

    peer: str
    reliable: bool
    payloads: list[bytes]
    receipt: tuple[int, int] = field(default=(0, 0), compare=False)


@dataclass(slots=True)
class Acknowledged:
    """The peer has taken over what these tickets stand for."""

    peer: str
    tickets: list[Any]


@dataclass(slots=True, frozen=True)
class Refused:
    """Nothing counts that a node says, for a reason that it cannot mend; told once in each of its lives."""

    peer: str
    reason: str


@dataclass(slots=True, frozen=True)
class Misbehaved:
    """A peer sent what no peer sends: its link is to be dropped."""

    peer: str
    reason: str


Effect = (
    Transmit
    | Contact
    | PeerUp
    | PeerDown
    | MembersChanged
    | Excluded
    | NameTaken
    | NameRefused
    | Left
    | Renewed
    | Changed
    | Arrived
    | Acknowledged
    | Refused
    | Misbehaved
    | Resumed
    | Unreadable
)


@dataclass(slots=True)
class Outbox:
    """What the machines of one node have to send and to tell, in order."""

    messages: dict[str, list[AnyMessage]] = field(default_factory=dict)
    effects: list[Effect] = field(default_factory=list)
    #: Messages to addresses whose nodes are not known, or are no members.
    knocks: list[tuple[str, AnyMessage]] = field(default_factory=list)

    def send(self, peer: str, message: AnyMessage) -> None:
        """Puts a message into the next frame to a peer."""
        waiting = self.messages.get(peer)
        if waiting is None:
            self.messages[peer] = [message]
        else:
            waiting.append(message)

    def knock(self, address: str, message: AnyMessage) -> None:
        self.knocks.append((address, message))

    def emit(self, effect: Effect) -> None:
        self.effects.append(effect)
