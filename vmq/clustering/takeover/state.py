"""What is under way between nodes, as one of them remembers it: clients that wait, sessions that come and that go."""

from collections import deque
from enum import Enum, auto
from typing import Any

from vmq.clustering.messages.takeover import ClaimSession


class WaitingClaim:
    """A CONNECT that waits here."""

    def __init__(self, ticket: Any, clean: bool, deadline: float) -> None:
        self.ticket = ticket
        self.clean = clean
        self.deadline = deadline
        #: The owner that was asked.
        self.asked = ""


class IncomingTakeover:
    """A session on its way to this node."""

    def __init__(self, source: str, since: int, deadline: float) -> None:
        self.source = source
        self.since = since
        self.deadline = deadline
        self.has_state = False
        #: All that was in flight is here.
        self.is_ready = False
        #: The source has sent all.
        self.is_whole = False
        #: Origins whose messages are for this node, and those of which nothing comes by way of the source any more.
        self.marked: set[str] = set()
        self.echoed: set[str] = set()
        #: Origins that route here by an older record, and maybe never heard of the source.
        self.direct: set[str] = set()
        #: Who wants it next.
        self.next: ClaimSession | None = None


class SendingStep(Enum):
    """What of a session is sent next."""

    STATE = auto()
    INFLIGHT = auto()
    READY = auto()
    WAITING = auto()
    #: All but what nodes that are down may still send.
    DONE = auto()


class OutgoingTakeover:
    """A session on its way to another node: its ghost."""

    def __init__(self) -> None:
        #: The new owner, and since when it is that.
        self.target = ""
        self.since = 0
        #: The record by which the session left, its `since` and its owner: by a later one nothing comes here.
        self.left = (0, "")
        #: When marks of nodes that are up are no longer waited for.
        self.deadline = 0.0
        self.step = SendingStep.STATE
        #: Nothing is sent before it is clear what the new owner has.
        self.is_held = False
        #: Something of it cannot be read: nothing more is sent in this life, and the new owner was told.
        self.is_damaged = False
        self.is_told = False
        #: Batches under way.
        self.open: int = 0
        #: Nodes that are up, and those that are down, whose mark has not come.
        self.awaited: set[str] = set()
        self.missed: set[str] = set()
        #: All whose mark was ever waited for.
        self.known: set[str] = set()
        #: Those of them who were asked for it, once `ask_at` has come.
        self.asked: set[str] = set()
        self.ask_at = 0.0
        #: Who has marked, and the place in the queue behind the last of its messages.
        self.echoes: deque[tuple[str, int]] = deque()

    @property
    def is_under_way(self) -> bool:
        """Whether its new owner has not confirmed all that it can get."""
        return self.open > 0 or (self.step is not SendingStep.DONE and not self.is_damaged)
