"""Who can be reached: heartbeats to every member, and a limit on silence.

Whatever arrives from a peer shows that it lives; a heartbeat is what is sent when nothing else may be. One
direction is enough for "up": a peer that hears nothing of this node counts it as down by itself.
"""

from collections.abc import Iterable

from vmq_cluster.effects import Outbox, PeerDown, PeerUp
from vmq_cluster.options import Options


class Detector:
    """The members that this node watches, and whether they are up."""

    def __init__(self, options: Options, outbox: Outbox) -> None:
        self._options = options
        self._outbox = outbox
        #: Members that are up, and when they were last heard of.
        self._heard: dict[str, float] = {}
        #: Members that are down, and since when.
        self._down: dict[str, float] = {}
        self._next_heartbeat = 0.0
        #: Members that can be reached; a new list whenever that changes.
        self.up: list[str] = []

    @property
    def down(self) -> dict[str, float]:
        """Members that cannot, and since when."""
        return self._down

    def is_up(self, peer: str) -> bool:
        return peer in self._heard

    def watch(self, peers: Iterable[str], now: float) -> None:
        """These are the other members now."""
        wanted = set(peers)
        for peer in [each for each in self._down if each not in wanted]:
            del self._down[peer]
        for peer in [each for each in self._heard if each not in wanted]:
            del self._heard[peer]
            self.up = list(self._heard)
            self._outbox.emit(PeerDown(peer, "no member any more"))
        for peer in sorted(wanted):
            if peer not in self._heard:
                self._down.setdefault(peer, now)

    def heard(self, peer: str, now: float) -> None:
        """A frame came from a peer, which may be no member."""
        if peer in self._heard:
            self._heard[peer] = now
        elif peer in self._down:
            del self._down[peer]
            self._heard[peer] = now
            self.up = list(self._heard)
            self._outbox.emit(PeerUp(peer))

    def lost(self, peer: str, reason: str, now: float) -> None:
        """The link to a peer broke; the next frame from it shows that it is well again."""
        if self._heard.pop(peer, None) is not None:
            self._down[peer] = now
            self.up = list(self._heard)
            self._outbox.emit(PeerDown(peer, reason))

    def tick(self, now: float) -> bool:
        """Returns whether heartbeats are due; then it also finds who has been silent for too long."""
        if now < self._next_heartbeat:
            return False
        limit = now - self._options.heartbeat_timeout
        for peer in [peer for peer, heard in self._heard.items() if heard < limit]:
            self.lost(peer, f"silent for {self._options.heartbeat_timeout:g} s", now)
        self._next_heartbeat = now + self._options.heartbeat_interval
        return True
