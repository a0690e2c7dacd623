"""Sessions of this node of which a part is in another node's store, and cannot be read there.

Their clients are refused as they would be at that node: else they would take what has come for all that there was.
"""

from vmq.clustering.messages.takeover import Who
from vmq.clustering.takeover.port import SessionKind, TakeoverPort


class DamagedElsewhere:
    """Those of one node. They are told anew by whoever has the part, in each life of this node or of that one."""

    def __init__(self, here: TakeoverPort) -> None:
        self._here = here
        #: The nodes that have the parts.
        self.nodes: dict[Who, str] = {}

    def met(self, who: Who, node: str) -> None:
        """A node cannot read the rest of a session that it hands over."""
        self.nodes[who] = node
        self.tick()

    def tick(self) -> None:
        """Cuts off who is connected, also who was just being let in when it was met."""
        for who, node in self.nodes.items():
            if self._here.kind(who) is SessionKind.DURABLE:
                self._here.cut_off(who, node)

    def forget(self, who: Who) -> None:
        """The session is over, or elsewhere."""
        self.nodes.pop(who, None)

    def peer_down(self, peer: str) -> None:
        """A node is down, to be repaired or for good: sessions go on without it, and get the rest when it is back."""
        self.nodes = {who: node for who, node in self.nodes.items() if node != peer}
