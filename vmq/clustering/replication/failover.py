"""Sessions of a node that stays away go on at who has the best copy, so that messages for them are kept on.

Whoever has copies asks all others which they have, and goes on with those sessions of which it has the best copy
itself: everybody that asks sees the same, so each session falls to one. Where two are wrong about who is up, two adopt
one, and the newer record wins as after any split.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from vmq.clustering.directory.rendezvous import ranked
from vmq.clustering.messages.replication import OfferCopy
from vmq.clustering.replication.discovery import CopySearch, Offers
from vmq.clustering.replication.follower import Follower, SessionCopy, rank

log = logging.getLogger("vmq.cluster")

#: Clients that one question names, or that one step looks at.
_STEP: Final = 200

#: Seconds between two looks at all copies, and for which one of no use is kept.
_SWEEP: Final = 60.0
_KEEP: Final = 600.0


class Failover:
    """Watches for how long other nodes are away.

    Args:
        node: the name of this one.
        copies: those that are here.
        searcher: asks the others.
        after: seconds that an owner is waited for.
        up: the other members that can be reached.
        owner_of: the owner of a session by the id of its client.
        adopt: makes a copy a session of this node, which owns it from now on.
    """

    def __init__(
        self,
        node: str,
        copies: Follower,
        searcher: CopySearch,
        after: float,
        up: Callable[[], Iterable[str]],
        owner_of: Callable[[str], str | None],
        adopt: Callable[[SessionCopy], None],
    ) -> None:
        self._node = node
        self._copies = copies
        self._searcher = searcher
        self._after = after
        self._up = up
        self._owner_of = owner_of
        self._adopt = adopt
        #: When the sessions of nodes that are away are looked at.
        self._due: dict[str, float] = {}
        self._waiting: dict[str, deque[str]] = {}
        #: Owners that others are being asked about.
        self._asking: set[str] = set()

    def set_away(self, owners: Iterable[str], now: float) -> None:
        """These owners cannot be reached, or are no members any more; all others can."""
        away = set(owners)
        for owner in [owner for owner in self._due if owner not in away]:
            del self._due[owner]
            self._waiting.pop(owner, None)
        for owner in away - self._due.keys():
            self._due[owner] = now + self._after

    def tick(self, now: float) -> None:
        """To be called a few times a second: does a step for each owner whose time is over."""
        for owner, due in list(self._due.items()):
            if now < due or owner in self._asking:
                continue
            waiting = self._waiting.get(owner)
            if waiting is None:
                self._waiting[owner] = waiting = deque(self._copies.of(owner))
                if waiting:
                    text = "node=%s stays away: its sessions go on where the best copies are, of which %d are here"
                    log.warning(text, owner, len(waiting))
            clients: list[str] = []
            while waiting and len(clients) < _STEP:
                client = waiting.popleft()
                if self._owner_of(client) == owner:
                    clients.append(client)
            if clients:
                self._asking.add(owner)
                self._searcher.ask(clients, owner, self._up(), now, self._deciding(owner, clients))
            elif not waiting:
                # Once more later: an answer may have been lost, or a copy be gone that was better.
                del self._waiting[owner]
                self._due[owner] = now + self._after

    def _deciding(self, owner: str, clients: list[str]) -> Callable[[Offers], None]:
        def decide(offers: Offers) -> None:
            self._asking.discard(owner)
            if owner not in self._due:
                return  # it is back
            for client, found in zip(clients, offers, strict=True):
                if self._owner_of(client) == owner:
                    self._maybe_adopt(client, owner, found)

        return decide

    def _maybe_adopt(self, client: str, owner: str, found: list[tuple[str, OfferCopy]]) -> None:
        offers = [(node, offer) for node, offer in found if offer.owner == owner]
        if not offers:
            return
        best = max(rank(offer) for _, offer in offers)
        equal = {node: offer for node, offer in offers if rank(offer) == best}
        if ranked(client, equal)[0] == self._node:
            copy = self._copies.find(equal[self._node].copy, client)
            if copy is not None:
                self._adopt(copy)


class StaleCopySweep:
    """Deletes copies of sessions that have another owner now, whose old one is not there to say so.

    Not at once: until the new owner has copies of its own, they are the only ones.
    """

    def __init__(self, copies: Follower, owner_of: Callable[[str], str | None]) -> None:
        self._copies = copies
        self._owner_of = owner_of
        self._waiting: deque[SessionCopy] = deque()
        #: Since when they are of no use, by their numbers here.
        self._since: dict[bytes, float] = {}
        self._again_at = 0.0

    def step(self, now: float) -> None:
        """Looks at some."""
        if not self._waiting:
            if now < self._again_at:
                return
            self._again_at = now + _SWEEP
            self._waiting = deque(self._copies)
            there = {copy.number for copy in self._waiting}
            self._since = {each: since for each, since in self._since.items() if each in there}
        for _ in range(min(_STEP, len(self._waiting))):
            copy = self._waiting.popleft()
            if self._owner_of(copy.head.scoped_id) == copy.head.owner:
                self._since.pop(copy.number, None)
            elif not self._copies.has(copy):
                continue
            elif now >= self._since.setdefault(copy.number, now) + _KEEP:
                del self._since[copy.number]
                self._copies.drop(copy)
