"""How long the answers of peers take: measured by their heartbeats, as RTCP does by its reports (RFC 3550, 6.4.1).

A heartbeat says when it was sent, when the last one of the other side was sent by that side's clock, and how long ago
that one came. So each side knows how long a frame takes there and back, with what both have to do before they read it,
and without the time between two heartbeats. What is expected of the next answer is the smoothed time and four
deviations from it, as TCP has it (RFC 6298): few answers come later, and a peer that becomes slow is waited for.

The clocks may be any, and peers may say anything: an answer to what was never asked, or from before this life, counts
for nothing.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass

from vmq_cluster.clocks import MAX_NUMBER
from vmq_cluster.messages import Heartbeat


@dataclass(slots=True)
class _Heard:
    """The last heartbeat of a peer: what its clock said then, what this node's; both in milliseconds."""

    sent: int
    came: int
    #: Seconds, and how far single answers are from that; nothing was measured as long as both are 0.
    smoothed: float = 0.0
    deviation: float = 0.0


class RoundTrips:
    """What one node knows of the others."""

    def __init__(self) -> None:
        self._peers: dict[str, _Heard] = {}
        #: When this node's first heartbeat of this life was sent.
        self._first: int | None = None

    def keep(self, peers: Set[str]) -> None:
        """There are no others any more."""
        for peer in self._peers.keys() - peers:
            del self._peers[peer]

    def heartbeat(self, peer: str, digest: int, now: float) -> Heartbeat:
        """The next one to a peer."""
        sent = _milliseconds(now)
        if self._first is None:
            self._first = sent
        heard = self._peers.get(peer)
        if heard is None:
            return Heartbeat(digest, sent)
        return Heartbeat(digest, sent, heard.sent, min(sent - heard.came, MAX_NUMBER))

    def heard(
        self,
        peer: str,
        heartbeat: Heartbeat,
        now: float,
        held_up_since: Callable[[float, float], float],
    ) -> None:
        """A heartbeat came; `held_up_since` says for how long this node itself did nothing, from a time to now."""
        came = _milliseconds(now)
        heard = self._peers.get(peer)
        if heard is None:
            heard = self._peers[peer] = _Heard(0, 0)
        is_new = heartbeat.sent != heard.sent
        heard.sent, heard.came = heartbeat.sent, came
        if not is_new or self._first is None or not self._first <= heartbeat.echo <= came:
            return
        away = (came - heartbeat.echo - heartbeat.held) / 1000
        seconds = away - held_up_since(heartbeat.echo / 1000, now)
        if away >= 0:
            _take(heard, max(seconds, 0.0))

    def smoothed(self, peer: str) -> float:
        """Seconds that an answer of a peer takes; 0: nothing was measured."""
        heard = self._peers.get(peer)
        return 0.0 if heard is None else heard.smoothed

    def longest(self, peer: str) -> float:
        """Seconds after which nearly all answers of a peer are there; 0: nothing was measured."""
        heard = self._peers.get(peer)
        return 0.0 if heard is None else heard.smoothed + 4 * heard.deviation


def _take(heard: _Heard, seconds: float) -> None:
    if heard.smoothed == heard.deviation == 0:
        heard.smoothed, heard.deviation = seconds, seconds / 2
        return
    heard.deviation += (abs(seconds - heard.smoothed) - heard.deviation) / 4
    heard.smoothed += (seconds - heard.smoothed) / 8


def _milliseconds(now: float) -> int:
    return int(now * 1000) + 1
