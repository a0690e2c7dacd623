"""Sessions of this node of which a part is in another node's store, and cannot be read there.

Their clients are refused as they would be at that node: else they would take what has come for all that there was.
"""

from collections.abc import Iterator
from typing import Any

from vmq.clustering.messages.takeover import ClaimSession, SessionDamaged, Who
from vmq.clustering.takeover.port import SessionKind, TakeoverPort
from vmq.clustering.takeover.state import IncomingTakeover, WaitingClaim
from vmq.clustering.takeover.unsent import UnsentMessages
from vmq.persistence.damage import naming
from vmq.store.damage import ADVICE


class DamagedElsewhere:
    """Those of one node. They are told anew by whoever has the part, in each life of this node or of that one."""

    def __init__(self, here: TakeoverPort, unsaid: UnsentMessages) -> None:
        self._here = here
        self._unsaid = unsaid
        #: The nodes that have the parts.
        self.nodes: dict[Who, str] = {}

    def problems(self) -> Iterator[str]:
        """What an operator is told of them, node by node."""
        for node in sorted(set(self.nodes.values())):
            clients = sorted(client for (_, client), at in self.nodes.items() if at == node)
            yield (
                f"the store of node {node!r} is damaged: it has parts of {len(clients)} stored sessions, "
                f"which are refused ({naming(clients)}); on that node {ADVICE}"
            )

    def refuses(self, who: Who, clean: bool, ticket: Any) -> bool:
        """Whether a client that has come is refused; it is told."""
        node = "" if clean else self.nodes.get(who, "")
        if node:
            self._here.refuse(ticket, node)
        return bool(node)

    def refuses_claim(self, claim: ClaimSession) -> bool:
        """The same of one that has come to another node, which would have a part of the session and not know."""
        here, who = self._here, claim.who
        node = self.nodes.get(who, "")
        record = here.record(who)
        if not node and (record is None or record.node == here.name):
            if here.kind(who) is SessionKind.DURABLE and here.is_damaged(who):
                node = here.name
        if claim.clean or not node:
            return False
        self._unsaid.say(claim.node, SessionDamaged(*who, node, 0))
        return True

    def take(
        self,
        message: SessionDamaged,
        incoming: IncomingTakeover | None,
        claims: dict[Who, WaitingClaim],
    ) -> None:
        """A session, or the rest of what comes here, is where it cannot be read: whoever waits for it is refused."""
        here, who = self._here, message.who
        if message.since:
            record = here.record(who)
            if incoming is None and (record is None or record.node != here.name):
                return  # who has the session now is told as well
            self.nodes[who] = message.node
            self.tick()
            if incoming is not None and incoming.next is not None:
                if self.refuses_claim(incoming.next):
                    incoming.next = None
        claiming = claims.get(who)
        if claiming is not None and not claiming.clean:
            del claims[who]
            here.refuse(claiming.ticket, message.node)

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
