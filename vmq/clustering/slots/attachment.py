"""A connection that its owner serves, and how far what its client has acknowledged is safe."""

from collections import deque
from hashlib import blake2b

from vmq.clustering.messages.fronts import SessionStep
from vmq.clustering.slots.queued import Sending
from vmq.clustering.slots.words import PUBACK, PUBCOMP, Lineage


def is_for_later(steps: list[SessionStep]) -> bool:
    """Whether nobody waits for what follows from it to be written: a client has messages, which else it gets again."""
    for each in steps:
        kind: int = each.kind
        if kind not in {PUBACK, PUBCOMP}:
            return False
    return True


def another_place(last: int, packets: int, lineage: Lineage, client: str) -> int:
    """A packet id a quarter of the ring away from the last, or further."""
    drawn = blake2b(repr((lineage, client)).encode(), digest_size=8).digest()
    return (last + packets // 4 + int.from_bytes(drawn, "big") % (packets // 2)) % packets


class Attachment:
    """A connection that is served."""

    def __init__(self, client: str, connection: int, front: int, link: int) -> None:
        self.client = client
        self.connection = connection
        self.front = front
        self.link = link
        #: For its front, at the end of the turn; whether there is anything but messages.
        self.steps: list[SessionStep | Sending] = []
        self.has_others = False
        #: Messages at QoS 1 that its client has, as its front counts them; how many of them each version has that is
        #: not safe, and how many are.
        self.done = 0
        self._done_in: deque[tuple[int, int]] = deque()
        self._safe_done = 0

    def is_of(self, connection: int, front: int, link: int) -> bool:
        """Whether it is this connection, attached by this link."""
        return self.connection == connection and self.front == front and self.link == link

    def are_done(self, count: int, version: int) -> None:
        """So many more, which a version has."""
        self.done += count
        self._done_in.append((version, self.done))

    def safe_done(self, safe: int) -> int:
        """How many of them are safe, of which versions up to `safe` are."""
        while self._done_in and self._done_in[0][0] <= safe:
            self._safe_done = self._done_in.popleft()[1]
        return self._safe_done

    def has_unsafe(self) -> bool:
        """Whether some of them are not, as far as its front knows."""
        return bool(self._done_in)

    def is_some_safe(self, safe: int) -> bool:
        """Whether more are than its front knows."""
        return bool(self._done_in) and self._done_in[0][0] <= safe
