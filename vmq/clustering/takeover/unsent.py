"""What moves have to say to other nodes and had no room in an outbox for: it must come all the same."""

from collections import deque

from vmq.clustering.messages.takeover import Move, RouteMarker
from vmq.clustering.takeover.port import TakeoverPort


class UnsentMessages:
    """All of one node, in order for each peer."""

    def __init__(self, here: TakeoverPort) -> None:
        self._here = here
        self._waiting: dict[str, deque[Move]] = {}

    def say(self, peer: str, message: Move) -> None:
        """Sends now, or as soon as there is room, what nothing else makes good."""
        waiting = self._waiting.get(peer)
        # A mark belongs where it is made; nothing else of these needs to know what is before it.
        if waiting is None or isinstance(message, RouteMarker):
            if self._here.send(peer, message):
                return
        self._waiting.setdefault(peer, deque()).append(message)

    def say_rest(self) -> None:
        """Tries again."""
        for peer, waiting in list(self._waiting.items()):
            while waiting and self._here.send(peer, waiting[0]):
                waiting.popleft()
            if not waiting:
                del self._waiting[peer]

    def forget(self, peer: str) -> None:
        """A node is no member any more."""
        self._waiting.pop(peer, None)
