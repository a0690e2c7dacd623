"""Frames of a peer count once, and in order: the link may repeat and reorder them, the machines never see it.

A frame that comes after a later one counts as lost, which the machines can bear anyway.
"""

from typing import Final

from vmq_cluster.messages import MAX_MEMBERS, Frame

#: Peers of which the last frame is known: members, past ones, and strangers.
MAX_PEERS: Final = 2 * MAX_MEMBERS


class FrameOrder:
    """The last frame that came from each peer."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}

    def accepts(self, frame: Frame) -> bool:
        """Whether the frame is later than all before it; then it is the last one."""
        last = self._last.get(frame.sender)
        if last is not None and (frame.epoch, frame.number) <= last:
            return False
        if last is None and len(self._last) >= MAX_PEERS:
            del self._last[next(iter(self._last))]
        self._last[frame.sender] = (frame.epoch, frame.number)
        return True

    def epoch(self, peer: str) -> int:
        """The life of the peer that was met last; 0: none."""
        return self._last.get(peer, (0, 0))[0]
