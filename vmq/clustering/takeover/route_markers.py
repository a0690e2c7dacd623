"""Marks that this node makes in its outboxes: behind each it routes a session elsewhere than before it."""

from typing import Final

from vmq.clustering.directory.records import Record
from vmq.clustering.messages.takeover import RouteMarker, SessionMoved, Who
from vmq.clustering.takeover.port import TakeoverPort
from vmq.clustering.takeover.unsent import UnsentMessages

#: Seconds for which a mark is owed to who has asked for it.
PATIENCE: Final = 30.0


class RouteMarkers:
    """Those of one node. Times are those of `vmq.clustering.takeover.machine.TakeoverMachine`."""

    def __init__(self, here: TakeoverPort, unsaid: UnsentMessages) -> None:
        self._here = here
        self._unsaid = unsaid
        #: Marks that are owed until the record has come this far.
        self.owed: dict[Who, list[tuple[str, SessionMoved, float]]] = {}

    def changed(self, who: Who, before: Record | None, after: Record, now: float) -> None:
        """The record of a session has changed: old owner and new are told what is routed by it."""
        source, again = _source(before, after), False
        if after.clean:
            source = ""  # of a session that is new nothing is on its way
        elif before is None and source != after.node and not self._here.is_recent(after):
            source = ""
        elif before is not None and before.node == after.node:
            again = True
        if source:
            mark = RouteMarker(*who, after.since, after.node, source, after.subscriptions, again)
            for node in sorted({source, after.node} - {self._here.name}):
                self._unsaid.say(node, mark)
        for peer, moved, _ in self.owed.pop(who, ()):
            self.asked(peer, moved, now)

    def asked(self, peer: str, moved: SessionMoved, now: float) -> None:
        """A node wants a mark behind which a session is routed by this record, or by a later one."""
        record = self._here.record(moved.who)
        if record is None or (record.since, record.node) < (moved.since, moved.node):
            self.owed.setdefault(moved.who, []).append((peer, moved, now + PATIENCE))
        else:
            self._answer(peer, moved, record)

    def _answer(self, peer: str, moved: SessionMoved, route: Record) -> None:
        mark = RouteMarker(
            *moved.who, route.since, route.node, peer, route.subscriptions, again=True
        )
        for node in sorted({peer, moved.node} - {self._here.name}):
            self._unsaid.say(node, mark)

    def tick(self, now: float) -> None:
        """What has been owed for too long is owed no more."""
        for who, owed in list(self.owed.items()):
            left = [each for each in owed if now < each[2]]
            if left:
                self.owed[who] = left
            else:
                del self.owed[who]
            if self._here.record(who) is None:  # by no record nothing goes anywhere
                for peer, moved, deadline in owed:
                    if now >= deadline:
                        self._answer(peer, moved, Record(moved.node, moved.since, False, {}))


def _source(before: Record | None, after: Record) -> str:
    """Who is to be told of a record beside its owner, which is this one itself where nobody else is; "": nobody is."""
    if before is None:
        return after.source
    if before.node != after.node:
        return before.node
    # Its owner had it anew: it was elsewhere meanwhile, or maybe, which was not heard of here.
    return after.node if after.source not in ("", before.source) else ""
