"""Which of what is on an outbox was for which session: what the marks on it tell (`hinted_handoff.redirect`)."""

from typing import Final

from vmq.clustering.delivery.peers import KnownPeer
from vmq.clustering.directory.records import Record
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.takeover import RouteMarker, Who
from vmq.clustering.routing.remotes import RemoteSubscriptions

#: A batch's key, and the place of a message in it.
Place = tuple[bytes, int]
_START: Final[Place] = (b"", 0)


class RouteIntervals:
    """Which stretches of an outbox were for which sessions."""

    def __init__(self, peer: str) -> None:
        self._peer = peer
        #: Whose each is, and from where to where.
        self._all: list[tuple[Who, Place, Place]] = []
        #: Their filters by mountpoint: each stretch is a node there.
        self._trees: dict[str, RemoteSubscriptions] = {}
        #: Where those begin that are not at the outbox's.
        self._since: dict[Who, Place] = {}
        self._over: set[Who] = set()

    def on_mark(self, mark: RouteMarker, place: Place) -> None:
        """From here on a session is routed to the peer, or from there to another node."""
        if mark.node == self._peer:
            # What says again that it is the peer's may be the first one that is left.
            if mark.who in self._over or not mark.again:
                self._since.setdefault(mark.who, place)
                self._over.discard(mark.who)
        elif mark.source == self._peer and mark.who not in self._over:
            self._over.add(mark.who)
            self.end(mark.who, mark.subscriptions, place)

    def end(self, who: Who, subscriptions: dict[str, int], place: Place) -> None:
        """A session was the peer's up to here."""
        number = str(len(self._all))
        self._all.append((who, self._since.pop(who, _START), place))
        tree = self._trees.setdefault(who[0], RemoteSubscriptions(""))
        tree.change(None, Record(number, 0, False, subscriptions))

    def rest(self) -> "RouteIntervals":
        """One for sessions that are the peer's still, as far as marks have said until now where they begin."""
        found = RouteIntervals(self._peer)
        found._since = dict(self._since)
        return found

    def __bool__(self) -> bool:
        return bool(self._all)

    def find(self, publish: RemotePublish, place: Place, known: KnownPeer) -> dict[int, list[str]]:
        """The clients that a message was for, by the QoS at which they get it."""
        tree = self._trees.get(publish.mountpoint)
        found: dict[int, list[str]] = {}
        if tree is None:
            return found
        for number, wish in tree.find(publish.topic.decode()).nodes.items():
            who, begin, end = self._all[int(number)]
            qos = min(wish, publish.qos)
            if begin <= place < end and qos and not (place < known.done and end[0] <= known.end):
                found.setdefault(qos, []).append(who[1])
        return found
