"""Who can be reached: heartbeats to every member, and a limit on silence.

Whatever arrives from a peer shows that it lives; a heartbeat is what is sent when nothing else may be. One
direction is enough for "up": a peer that hears nothing of this node counts it as down by itself. A node that is
stopped says so, and one whose process ended is found out by its link (`lost`): silence is what is left.

**How long** a peer may be silent is `heartbeat_timeout`, or longer, up to three times as long, where its answers take
long (`vmq_cluster.round_trips`): a busy machine and a slow line are late, not dead.

**A node that was held up itself** (stopped, paused with its machine, waiting for a disk, for the processor) has not
listened: what the others said meanwhile lies unread in its sockets. It sees that by its own ticks, which came late: a
peer that was silent while this node was held up is given one more timeout to be heard, once. So what lies in the
sockets is read before anybody is judged, and links that others had given up come back; and who is dead is noticed one
timeout later at most, however often those who are to notice are held up.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final

from vmq_cluster.effects import Outbox, PeerDown, PeerUp
from vmq_cluster.messages import Heartbeat
from vmq_cluster.options import Options
from vmq_cluster.round_trips import RoundTrips

#: Timeouts for which a peer may be silent at most, however long its answers take.
_MOST: Final = 3


class Detector:
    """The members that this node watches, and whether they are up."""

    def __init__(self, options: Options, outbox: Outbox) -> None:
        self._options = options
        self._outbox = outbox
        #: Seconds that two ticks are apart where nothing is in their way, and as much again.
        self._on_time = min(options.lazy_interval, options.heartbeat_interval)
        #: Members that are up, and when they were last heard of.
        self._heard: dict[str, float] = {}
        #: Members that are down, and since when.
        self._down: dict[str, float] = {}
        #: How long the answers of members take.
        self.round_trips = RoundTrips()
        self._next_heartbeat = 0.0
        #: When this node last looked at the clock; when it was late lately, and by how much.
        self._ticked: float | None = None
        self._late: deque[tuple[float, float]] = deque()
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
        self.round_trips.keep(wanted)
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

    def answered(self, peer: str, heartbeat: Heartbeat, now: float) -> None:
        """A heartbeat came, which tells how long its sender takes to answer."""
        self.round_trips.heard(peer, heartbeat, now, self._held_up_since)

    def lost(self, peer: str, reason: str, now: float) -> None:
        """The link to a peer broke; the next frame from it shows that it is well again."""
        if self._heard.pop(peer, None) is not None:
            self._spared.pop(peer, None)
            self._down[peer] = now
            self.up = list(self._heard)
            self._outbox.emit(PeerDown(peer, reason))

    def patience(self, peer: str) -> float:
        """Seconds for which a peer may be silent."""
        timeout = self._options.heartbeat_timeout
        needed = self._options.heartbeat_interval + self.round_trips.longest(peer)
        return min(max(timeout, needed), _MOST * timeout)

    def tick(self, now: float) -> bool:
        """Returns whether heartbeats are due; then it also finds who has been silent for too long."""
        self._look_at_clock(now)
        if now < self._next_heartbeat:
            return False
        limit = now - self._options.heartbeat_timeout
        for peer, heard in [each for each in self._heard.items() if each[1] < limit]:
            patience = self.patience(peer)
            if heard < now - patience and not self._spares(peer, heard, now):
                self.lost(peer, f"silent for {patience:.3g} s", now)
        self._next_heartbeat = now + self._options.heartbeat_interval
        return True

    def _look_at_clock(self, now: float) -> None:
        """Whether this tick comes late."""
        interval, timeout = self._options.heartbeat_interval, self._options.heartbeat_timeout
        gap = 0.0 if self._ticked is None else now - self._ticked
        self._ticked = now
        while self._late and self._late[0][0] < now - _MOST * timeout:
            self._late.popleft()
        if gap > self._on_time:
            self._late.append((now, gap - self._on_time))
        # The last heartbeat may have left an interval before.
        if gap > timeout - interval:
            self.was_away = True

    def _held_up_since(self, begin: float, now: float) -> float:
        """Seconds for which this node did nothing since then, the tick that is late now included."""
        late = 0.0 if self._ticked is None else max(0.0, now - self._ticked - self._on_time)
        return late + sum(seconds for when, seconds in self._late if when > begin)

    def dead(self, now: float) -> list[str]:
        """Members that were down for so long that they are to be taken out."""
        limit, timeout = self._options.dead_node_timeout, self._options.heartbeat_timeout
        expired = [peer for peer, since in self._down.items() if 0 < limit < now - since]
        return [peer for peer in expired if not self._spares(peer, now - timeout, now)]

    def _spares(self, peer: str, since: float, now: float) -> bool:
        """Whether a peer that time has run out for is given some more, as this node was held up since then."""
        if peer not in self._spared:
            if self._held_up_since(since, now) <= self._options.heartbeat_interval / 2:
                return False
            self._spared[peer] = now + self._options.heartbeat_timeout
        return now < self._spared[peer]
