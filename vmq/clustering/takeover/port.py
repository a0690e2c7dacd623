"""What `vmq.clustering.takeover.machine` asks of the node that it works for."""

from collections.abc import Callable, Iterable, Set
from enum import Enum, auto
from typing import Any, Protocol

from vmq.clustering.directory.records import Record
from vmq.clustering.messages.takeover import Move, SessionMessage, Who


class SessionKind(Enum):
    """What a node has of a session. A ghost is nothing."""

    NONE = auto()
    CLEAN = auto()
    DURABLE = auto()


class BufferVerdict(Enum):
    """What a session that is just being taken over does with a message."""

    #: The former owner takes it, and sends it on.
    DROP = auto()
    #: It is for the session, but what its publisher sent before it is still to come.
    HOLD = auto()
    TAKE = auto()
    #: Taken if it came on the outbox. What comes beside it may have overtaken the mark of its publisher's node,
    #: lowered to QoS 0 for somebody else here, while the session's own copy went to another node.
    TAKE_FROM_LANE = auto()


class SessionUnreadableError(Exception):
    """Something of a session, or of its ghost, cannot be read: `TakeoverPort.is_damaged` is true from now on."""


class TakeoverPort(Protocol):
    """The node that a machine works for."""

    name: str

    def send(self, peer: str, message: Move, done: Callable[[bool], None] | None = None) -> bool:
        """Sends reliably and in order; False: there is no room now."""

    def up(self) -> Iterable[str]:
        """The other members that can be reached."""

    def down(self) -> Iterable[str]:
        """The other members that cannot."""

    def has_heard(self) -> bool:
        """Whether this node has heard, since its start, what those know that can be reached."""

    def record(self, who: Who) -> Record | None:
        """The record of a session, as this node knows it."""

    def is_recent(self, record: Record) -> bool:
        """Whether a record is so new that its session may still be on its way to its owner."""

    def is_of_another(self, who: Who, record: Record) -> bool:
        """Whether the durable session here is one user's, and that of the record another's."""

    def give(self, who: Who, node: str) -> int:
        """Makes another node the owner; returns since when. This node's own publishes go by it from now on."""

    def own(self, who: Who, since: int | None = None) -> None:
        """Writes that this node is the owner of a durable session that is here, as of now or since."""

    def elsewhere(self, who: Who) -> Set[str]:
        """The nodes that route the session, or the ghost, which is here, elsewhere: it takes nothing from them."""

    def set_elsewhere(self, who: Who, nodes: Set[str]) -> None:
        """These are they from now on, in the next life too; nothing if there is no such session."""

    def all_elsewhere(self) -> Iterable[Who]:
        """The sessions of which there are such nodes."""

    def kind(self, who: Who) -> SessionKind:
        """What is here of a session."""

    def is_damaged(self, who: Who) -> bool:
        """Whether something of a durable session here, or of its ghost, cannot be read: it is refused as a whole."""

    def close_client(self, who: Who) -> None:
        """Ends the session's connection, if it has one. A clean session ends with it."""

    def cut_off(self, who: Who, node: str) -> None:
        """Ends the connection of a session of which another node's store has a part, damaged."""

    def end(self, who: Who) -> None:
        """Ends the session, and its record if that is this node's."""

    def build(self, who: Who, subscriptions: dict[str, int]) -> None:
        """Makes a durable session that another node had."""

    def compare(self, who: Who) -> bool:
        """Takes out of a ghost what its new owner has had of a copy; False: it can have had none.

        `Moving.compared` is told when it is done.
        """

    def seek(self, who: Who, owner: str) -> bool:
        """Looks for a copy of the session of an owner that is down; False: there is none to be had.

        What is found becomes the session here, or joins it; `Moving.sought` is told of the end.
        """

    def open_gate(self, who: Who) -> None:
        """Asks `Moving.verdict` about each message for the session from now on, and keeps what is to be held."""

    def release(self, who: Who, origin: str) -> None:
        """Gives the session what was held of an origin's messages."""

    def close_gate(self, who: Who) -> None:
        """Gives it all that was held, and asks no more."""

    def make_ghost(self, who: Who) -> None:
        """Keeps the session's subscriptions and messages apart: `Moving.haunts` says whose messages it still takes."""

    def revive(self, who: Who) -> None:
        """Makes the ghost, or the session here with what the ghost has, the session again."""

    def end_ghost(self, who: Who) -> None:
        """Forgets the ghost."""

    def state(self, who: Who) -> tuple[dict[str, int], list[int]]:
        """The ghost's subscriptions, and the QoS 2 packet ids that it received.

        This and what takes of the ghost raise SessionUnreadableError, which takes nothing.
        """

    def forget_received(self, who: Who) -> None:
        """These packet ids are another node's business now."""

    def take_inflight(self, who: Who) -> list[SessionMessage]:
        """Takes the next of what was in flight out of the ghost, some at a time; empty: that was all."""

    def take_waiting(self, who: Who) -> list[SessionMessage]:
        """The same with what waits."""

    def put_back(self, who: Who, entries: list[SessionMessage]) -> None:
        """What was taken last could not be sent."""

    def has_shipped(self, who: Who, place: int) -> bool:
        """Whether all that waited in the ghost up to a place has been taken."""

    def place(self, who: Who) -> int:
        """The place behind all that waits in the ghost now."""

    def receive(self, who: Who, packet_ids: list[int]) -> None:
        """Gives a session QoS 2 packet ids that it received elsewhere."""

    def add(self, who: Who, entries: list[SessionMessage]) -> None:
        """Gives a session, or its ghost, messages that it had elsewhere."""

    def proceed(self, ticket: Any) -> None:
        """The CONNECT may go on."""

    def refuse(self, ticket: Any, damaged_at: str = "") -> None:
        """Another CONNECT of the session has come meanwhile, or a node has it whose store is damaged."""
