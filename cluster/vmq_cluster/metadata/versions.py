"""Which versions of the protocol nodes speak, and who can talk to whom.

Each frame says the version that its sender speaks, and the oldest one that it can talk with. Two nodes talk if each
speaks at least what the other asks for. What a newer version has to say besides, an older one **passes over**: so a
message that others can do without raises what a node speaks, and one that they cannot raises what it asks for too.
Then a cluster is upgraded node by node, over a version that knows the message and asks for nothing yet.

Nodes that cannot talk **refuse** each other, and say so once in each life of the other: it is down until one of the
two is another version. So do those that differ in what all nodes of a cluster must have **alike**, a number.
"""

from typing import Final, NamedTuple, TypeVar

from vmq_cluster.effects import Outbox, Refused
from vmq_cluster.messages import MAX_MEMBERS, Frame

V = TypeVar("V")


class Versions(NamedTuple):
    """What a node speaks, and the oldest version that it can talk with."""

    speaks: int = 1
    reads: int = 1
    #: What else could be done about nodes that it cannot talk with.
    hint: str = ""
    #: What the nodes of a cluster must have alike, and what operators call it; 0: nothing.
    alike: int = 0
    what: str = ""


class Dialects:
    """The versions of the others, as seen by one node."""

    def __init__(self, own: Versions, outbox: Outbox) -> None:
        self.own: Final = own
        self._outbox = outbox
        #: Those that speak another version than this node.
        self._others: dict[str, int] = {}
        #: Those that it cannot talk with: the life and the reason that were told of.
        self._refused: dict[str, tuple[int, str]] = {}

    def spoken_by(self, peer: str) -> int:
        """The version that a peer speaks; this node's own as long as none was heard."""
        return self._others.get(peer, self.own.speaks)

    def accepts(self, frame: Frame) -> bool:
        """Whether the sender of a frame can be talked with; who cannot is told of, once."""
        own = self.own
        reason = ""
        if frame.speaks < own.reads or own.speaks < frame.reads:
            reason = self._why_not(frame)
        elif frame.alike != own.alike and frame.alike and own.alike:
            reason = (
                f"its {own.what} is {frame.alike}, this node's is {own.alike}, and a cluster has one: give the node "
                f"that is to join the cluster's {own.what} and an empty data directory"
            )
        if reason:
            self._refuse(frame, reason)
            return False
        if frame.speaks != own.speaks:
            _put(self._others, frame.sender, frame.speaks)
        elif self._others:
            self._others.pop(frame.sender, None)
        if self._refused:
            self._refused.pop(frame.sender, None)
        return True

    def _refuse(self, frame: Frame, reason: str) -> None:
        said = (frame.epoch, reason)
        if self._refused.get(frame.sender) != said:
            _put(self._refused, frame.sender, said)
            self._outbox.emit(Refused(frame.sender, reason))

    def _why_not(self, frame: Frame) -> str:
        own = self.own
        where = "this node" if own.speaks < frame.reads else "that one"
        advice = f"upgrade vmq on {where}" + (f", or {own.hint}" if own.hint else "")
        return (
            f"it speaks version {frame.speaks} of the cluster's protocol and talks with {frame.reads} and later, "
            f"this node speaks {own.speaks} and talks with {own.reads} and later; {advice}"
        )


def _put(known: dict[str, V], name: str, value: V) -> None:
    """Strangers have names, too: there are not to be any number of them."""
    if name not in known and len(known) >= MAX_MEMBERS:
        del known[next(iter(known))]
    known[name] = value
