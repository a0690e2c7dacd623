"""Frames of a peer count once, and in order: the link may repeat and reorder them, the machines never see it.

A frame that comes after a later one counts as lost, which the machines can bear anyway.
"""

from vmq_cluster.messages import Frame


class FrameOrder:
    """The last frame that came from each peer."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[int, int]] = {}

    def accepts(self, frame: Frame) -> bool:
        """Whether the frame is later than all before it; then it is the last one."""
        last = self._last.get(frame.sender)
        if last is not None and (frame.epoch, frame.number) <= last:
            return False
        self._last[frame.sender] = (frame.epoch, frame.number)
        return True

    def epoch(self, peer: str) -> int:
        """The life of the peer that was met last; 0: none."""
        return self._last.get(peer, (0, 0))[0]

    def forget(self, peer: str) -> None:
        self._last.pop(peer, None)
