"""What the sessions of one node ask for, batch by batch of the outbox to it: marks say whose a session was where.

A node is down, and others take its sessions. What this node has published before it heard of that is on the outbox in
front of its mark (`vmq.clustering.takeover.machine`), and for the session; what is behind it is not, whoever else gets
it there. So the sessions at the beginning of an outbox are those that are the node's now and do not come to it on the
way, and those that the marks lead away from it: that takes a look at all marks before the first message is asked about.
"""

import re
from collections.abc import Iterable
from typing import Final

from vmq.clustering.directory.records import Record
from vmq.clustering.messages.codec import decode_parcel
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.takeover import RouteMarker, Who
from vmq.clustering.routing.remotes import RemoteSubscriptions

#: Bytes of batches that are looked at in one go.
STEP: Final = 16 * 1024 * 1024

#: How a mark begins, of this version or another: a short array, its tag, a mountpoint. Most batches have nothing that
#: looks like it, and need not be decoded.
_MARK: Final = re.compile(rb"[\x90-\x9f]\x10[\xa0-\xbf\xd9]")


class WantedRoutes:
    """What the durable sessions of one node ask for.

    Args:
        peer: the node.
        sessions: those that are its own now.
        last: the key of the last batch that nobody will ask about.
        end: the key of the last batch that there is by now, of which the marks count.
    """

    def __init__(
        self, peer: str, sessions: Iterable[tuple[Who, Record]], last: bytes, end: bytes
    ) -> None:
        self._peer = peer
        #: The batch up to which marks have been looked at, and the one up to which they are to be.
        self.looked = last
        self._end = end
        #: Sessions of which a mark has said where they were at the beginning.
        self._begun: set[Who] = set()
        self._clients: list[str] = []
        #: Filters by mountpoint, where each session is a node.
        self._trees: dict[str, RemoteSubscriptions] = {}
        self._present: dict[Who, Record] = {}
        for who, record in sessions:
            self.add(who, record.subscriptions)

    # --- where sessions are at the beginning

    @property
    def is_ready(self) -> bool:
        """Whether all marks have been looked at, and messages can be asked about, in their order."""
        return self.looked >= self._end

    def look(self, parcels: Iterable[tuple[bytes, bytes]], ignored: bytes = b"") -> None:
        """Looks at some of the batches that are next; of those up to `ignored` what the peer saw to itself is none."""
        size = 0
        for key, raw in parcels:
            self.looked = key
            for mark in marks_of(raw):
                if mark.source != self._peer or key > ignored:
                    self._begin(mark)
            size += len(raw)
            if self.is_ready or size >= STEP:
                return

    def _begin(self, mark: RouteMarker) -> None:
        who = mark.who
        if who in self._begun:
            return
        if mark.node == self._peer:
            if not mark.again:  # one that says it again says nothing of what is in front of it
                self._begun.add(who)
                self.remove(who)
        elif mark.source == self._peer:
            self._begun.add(who)
            self.add(who, mark.subscriptions)

    # --- and from there on

    def add(self, who: Who, subscriptions: dict[str, int]) -> None:
        """A session is the node's, and subscribes to this by now."""
        before = self._present.get(who)
        if before is None:
            self._clients.append(who[1])
        number = str(len(self._clients) - 1) if before is None else before.node
        self._present[who] = after = Record(number, 0, False, subscriptions)
        self._trees.setdefault(who[0], RemoteSubscriptions("")).change(before, after)

    def remove(self, who: Who) -> None:
        """A session is the node's no more."""
        before = self._present.pop(who, None)
        if before is not None:
            self._trees[who[0]].change(before, None)

    def on_mark(self, mark: RouteMarker, record: Record | None) -> None:
        """Behind this a session is the node's, or is not; `record` is the present one."""
        if mark.node == self._peer:
            is_owner = record is not None and record.node == self._peer and not record.clean
            self.add(mark.who, record.subscriptions if is_owner and record else mark.subscriptions)
        elif mark.source == self._peer:
            self.remove(mark.who)

    def find(self, publish: RemotePublish) -> Iterable[tuple[int, list[str]]]:
        """The clients that a message is for, by the QoS at which they get it."""
        tree = self._trees.get(publish.mountpoint)
        found: dict[int, list[str]] = {}
        if tree is not None:
            for number, wish in tree.find(publish.topic.decode()).nodes.items():
                qos = min(wish, publish.qos)
                if qos:
                    found.setdefault(qos, []).append(self._clients[int(number)])
        return found.items()


def may_have_marks(raw: bytes) -> bool:
    """Whether it is worth while to decode a batch for its marks."""
    return _MARK.search(raw) is not None


def marks_of(raw: bytes) -> list[RouteMarker]:
    """The marks in a batch of this broker's own."""
    if not may_have_marks(raw):
        return []
    return [each for each in decode_parcel(raw)[0].messages if isinstance(each, RouteMarker)]
