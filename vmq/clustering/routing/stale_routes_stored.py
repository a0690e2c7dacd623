"""Nodes that route sessions of this broker elsewhere: what they send here is for other sessions, and passes these by.

Kept in the store (`f`, a session's number -> the names), so that a restart forgets none of it. What a node said last is
in the same commit as what came behind it.
"""

from collections.abc import Iterator, Mapping, Set
from typing import Final

from vmq.clustering.messages.takeover import Who
from vmq.core.trie import Route
from vmq.store.lines import scan
from vmq.store.store import Store

ELSEWHERE: Final = b"f"

_NONE: Final[frozenset[str]] = frozenset()


class StoredStaleRoutes:
    """All sessions of one broker of which there are such nodes."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._found: dict[Who, tuple[bytes, frozenset[str]]] = {}
        #: The numbers of the sessions that a node routes elsewhere; only what comes from such nodes is looked at.
        self.passed: dict[str, set[bytes]] = {}

    def load(self, sessions: Mapping[bytes, Who]) -> None:
        """Reads what an earlier life has left of these sessions, by their numbers; there are no others."""
        for key, value in list(scan(self._store.db, ELSEWHERE)):
            who = sessions.get(key[1:])
            if who is None:
                self._store.delete(key)
            else:
                self._put(who, key[1:], frozenset(value.decode().split("\0")))

    def __iter__(self) -> Iterator[Who]:
        return iter(self._found)

    def nodes(self, who: Who) -> Set[str]:
        """Who routes a session elsewhere."""
        found = self._found.get(who)
        return _NONE if found is None else found[1]

    def set(self, who: Who, session: bytes, nodes: Set[str]) -> None:
        """These nodes, and no others, route a session, which has a number here, elsewhere."""
        if nodes == self.nodes(who):
            return
        self.remove(who)
        if nodes:
            self._put(who, session, frozenset(nodes))
            self._store.put(ELSEWHERE + session, "\0".join(sorted(nodes)).encode())

    def remove(self, who: Who) -> None:
        """A session is over, or everybody routes it here."""
        session, nodes = self._found.pop(who, (b"", _NONE))
        for node in nodes:
            self.passed[node].discard(session)
            if not self.passed[node]:
                del self.passed[node]
        if nodes:
            self._store.delete(ELSEWHERE + session)

    def _put(self, who: Who, session: bytes, nodes: frozenset[str]) -> None:
        self._found[who] = (session, nodes)
        for node in nodes:
            self.passed.setdefault(node, set()).add(session)


def without(route: Route, sessions: Set[bytes]) -> Route:
    """A route that passes some sessions by, given their numbers."""
    targets = [each for each in route.targets if each.queue.session not in sessions]
    if len(targets) == len(route.targets):
        return route
    rest = Route(route.topic, route.text)
    rest.targets = targets
    rest.stored_copies = route.stored_copies
    return rest
