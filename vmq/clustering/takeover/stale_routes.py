"""From whom a session of this node takes messages: part of `vmq.clustering.takeover.machine`.

A node may send here, for other sessions, what it routes for this one elsewhere: what waited on its outbox during a
split, while its node could not know that this session is here. There its message waits as well, and comes from there.
So a session takes from a node X what comes behind a mark of X that it routes the session here, and nothing that comes
behind another mark. The last mark on an outbox is what counts, whichever record it is by: it says how X routes what is
behind it.

A session that was elsewhere begins with no node that routes it here; so does one whose node could not know whether it
was somewhere. Whoever does not say is asked, as soon as it is up: X marks when it has heard of the record, and it is
asked again until then, since a mark may be lost with a node that was killed when it had just written it.

What is not marked passes the session by on its way in (`vmq.clustering.routing.stale_routes_stored`): publishes made
here, and those of nodes that have marked, are not looked at.
"""

from collections.abc import Set
from typing import Final

from vmq.clustering.messages.takeover import SessionMoved, Who
from vmq.clustering.takeover.port import SessionKind, TakeoverPort

#: Seconds until a mark that has not come is asked for, and until it is asked for again.
ASK_AFTER: Final = 1.0
ASK_AGAIN: Final = 30.0


class StaleRoutes:
    """All sessions of one node. Times are those of `Moving`."""

    def __init__(self, here: TakeoverPort) -> None:
        self._here = here
        #: When a node is to be asked for a session that it may route elsewhere; for all of which there is such a node.
        self._ask_at: dict[str, dict[Who, float]] = {}

    def start(self, now: float) -> None:
        """Goes on with what an earlier life knew."""
        here = self._here
        members = {*here.up(), *here.down()}
        for who in list(here.all_elsewhere()):
            self._set(who, here.elsewhere(who) & members, now)

    @property
    def waits(self) -> bool:
        """Whether there is a node that may be asked."""
        return bool(self._ask_at)

    # --- of one session

    def begin(self, who: Who, now: float) -> None:
        """The session here was elsewhere: nobody is known to route it here."""
        self._set(who, {*self._here.up(), *self._here.down()}, now)

    def made(self, who: Who, now: float) -> None:
        """The session here is new, and its record is still the one by which the others route it."""
        record = self._here.record(who)
        if record is not None and record.node != self._here.name:
            self.begin(who, now)

    def begin_unsure(self, who: Who, now: float) -> None:
        """It may have been, as far as nodes know that have not been heard."""
        here = self._here
        self._set(who, {*here.down(), *(() if here.has_heard() else here.up())}, now)

    def mark(self, who: Who, peer: str, node: str, now: float) -> None:
        """Behind this a node routes the session to a node."""
        elsewhere = self._here.elsewhere(who)
        if node == self._here.name:
            self._set(who, elsewhere - {peer}, now)
        elif peer not in elsewhere:
            self._set(who, elsewhere | {peer}, now)

    def end(self, who: Who) -> None:
        """The session is here no more."""
        self._set(who, frozenset(), 0.0)

    def _set(self, who: Who, nodes: Set[str], now: float) -> None:
        before = self._here.elsewhere(who)
        self._here.set_elsewhere(who, nodes)
        nodes = self._here.elsewhere(who)  # of what is not here nothing is known
        for node in before - nodes:
            waiting = self._ask_at.get(node, {})
            waiting.pop(who, None)
            if not waiting:
                self._ask_at.pop(node, None)
        for node in nodes:
            self._ask_at.setdefault(node, {}).setdefault(who, now + ASK_AFTER)

    # --- the other nodes, and time

    def peer_up(self, peer: str, now: float) -> None:
        """A member can be reached: it is about to hear of the sessions."""
        waiting = self._ask_at.get(peer)
        if waiting is not None:
            self._ask_at[peer] = dict.fromkeys(waiting, now + ASK_AFTER)

    def peer_gone(self, peer: str) -> None:
        """A node is no member any more: it sends nothing."""
        for who in list(self._ask_at.get(peer, ())):
            self._set(who, self._here.elsewhere(who) - {peer}, 0.0)

    def tick(self, now: float) -> None:
        """Asks for marks that have not come."""
        here = self._here
        for peer in self._ask_at.keys() & set(here.up()):
            waiting = self._ask_at[peer]
            for who, ask_at in list(waiting.items()):
                record = here.record(who)
                # Of sessions on their way others ask.
                if now < ask_at or record is None or here.kind(who) is not SessionKind.DURABLE:
                    continue
                if here.send(peer, SessionMoved(*who, record.since, record.node)):
                    waiting[who] = now + ASK_AGAIN
