"""Who can be reached: heartbeats to every member, and a limit on silence.

Whatever arrives from a peer shows that it lives; a heartbeat is what is sent when nothing else may be. One
direction is enough for "up": a peer that hears nothing of this node counts it as down by itself.

**A node that was held up itself** (stopped, paused with its machine, waiting for a disk) has not listened: what the
others said meanwhile lies unread in its sockets. It sees that by its own ticks, of which one came late, and for one
timeout from then on it is lenient: whom it would call silent it gives one more timeout to be heard, once. So what
lies in the sockets is read before anybody is judged, and links that others had given up come back; and who is dead is
noticed one timeout later at most, however often those who are to notice are held up.
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
        #: When this node last looked at the clock; until when it is lenient, and until when towards whom.
        self._ticked: float | None = None
        self._lenient_until = 0.0
        self._spared: dict[str, float] = {}
        #: Whether this node was held up for so long that others may have taken it for down; its owner takes note.
        self.was_away = False
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
        for peer in self._spared.keys() - wanted:
            del self._spared[peer]
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
        if self._spared:
            self._spared.pop(peer, None)
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
            self._spared.pop(peer, None)
            self._down[peer] = now
            self.up = list(self._heard)
            self._outbox.emit(PeerDown(peer, reason))

    def tick(self, now: float) -> bool:
        """Returns whether heartbeats are due; then it also finds who has been silent for too long."""
        self._look_at_clock(now)
        if now < self._next_heartbeat:
            return False
        limit = now - self._options.heartbeat_timeout
        for peer in [peer for peer, heard in self._heard.items() if heard < limit]:
            if not self._spares(peer, now):
                self.lost(peer, f"silent for {self._options.heartbeat_timeout:g} s", now)
        self._next_heartbeat = now + self._options.heartbeat_interval
        return True

    def _look_at_clock(self, now: float) -> None:
        """Whether this tick comes late."""
        interval, timeout = self._options.heartbeat_interval, self._options.heartbeat_timeout
        gap = 0.0 if self._ticked is None else now - self._ticked
        self._ticked = now
        if gap > interval:
            self._lenient_until = now + timeout
        # The last heartbeat may have left an interval before.
        if gap > timeout - interval:
            self.was_away = True

    def dead(self, now: float) -> list[str]:
        """Members that were down for so long that they are to be taken out."""
        limit = self._options.dead_node_timeout
        expired = [peer for peer, since in self._down.items() if 0 < limit < now - since]
        return [peer for peer in expired if not self._spares(peer, now)]

    def _spares(self, peer: str, now: float) -> bool:
        """Whether a peer that time has run out for is given some more, as this node was held up."""
        if peer not in self._spared and now < self._lenient_until:
            self._spared[peer] = now + self._options.heartbeat_timeout
        return now < self._spared.get(peer, 0.0)
