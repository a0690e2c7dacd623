"""The failure detector: who is in reach, by heartbeats and by links that break.

In reach is who is heard and says that it hears this node: so a link that lost one direction counts on neither side. A
peer is **up**, **gone**, or not known yet: just after a start or on a new link, for the detector's time at most. Time
is the node's own running time: a node that was held up has missed nothing that it could have heard. But others may have
missed it: what they had said to it counts no more.
"""

from vmq.clustering.messages.slots import Beat
from vmq.clustering.slots.words import Incarnation


class Peer:
    """Another member, as this node sees it."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.incarnation: Incarnation = 0
        #: Running milliseconds since it was heard, and since it was up.
        self.silence: int = 0
        self.away: int = 0
        self.hears: frozenset[int] = frozenset()
        #: What its own clock said last.
        self.now: int = 0
        self.is_leaving = False
        self.is_up = False
        #: Since it is up, this node had everybody in reach whom it hears, or missed them for the detector's time.
        self.is_caught_up = False
        self.missed: int = 0
        #: The life of the link to it; 0: there is none.
        self.link: int = 0
        #: Its process has ended: its address refuses, or it said goodbye.
        self.is_dead = False


class Reach:
    """The members and who of them is in reach.

    Args:
        store: this node's.
        host: copies count hosts; see design of placement.
        timeout: milliseconds after which a silent peer is gone.
        interval: between heartbeats, in milliseconds.
    """

    def __init__(self, store: int, host: str, timeout: int, interval: int) -> None:
        self.store = store
        self.host = host
        self.timeout = timeout
        self.interval = interval
        self.peers: dict[int, Peer] = {}
        #: Milliseconds that may pass between two ticks without that others miss this node.
        self._longest = max(2 * interval, timeout - 2 * interval)
        #: How often it was held up for longer.
        self.holds: int = 0
        self._last: int | None = None
        #: Milliseconds for which it has run, whatever its clock says.
        self.running: int = 0
        self._beaten: int = -interval
        #: Answers that hold until something happens: each slot asks for them in each look.
        self._up: list[int] | None = None
        self._fit: list[int] | None = None
        self._heirs: list[int] | None = None
        self._other_hosts = 0
        self._is_settled: bool | None = None
        #: How often they became others, perhaps: now and at the last tick.
        self._changes: int = 0
        self._seen: int = -1

    def _forget_answers(self, is_change: bool = True) -> None:
        self._changes += is_change
        self._up = self._fit = self._heirs = self._is_settled = None

    def set_members(self, hosts: dict[int, str]) -> None:
        """The other members, by store, with their hosts."""
        self._forget_answers()
        for store in [each for each in self.peers if each not in hosts]:
            del self.peers[store]
        for store, host in sorted(hosts.items()):
            if store != self.store and store not in self.peers:
                self.peers[store] = Peer(host)

    # Events

    def on_beat(self, store: int, beat: Beat) -> None:
        self._forget_answers(False)
        peer = self.peers.get(store)
        if peer is None or beat.incarnation < peer.incarnation:
            return
        before = self._said_of_all()
        if not peer.is_up or beat.incarnation > peer.incarnation:
            peer.is_caught_up = False
            peer.missed = 0
        peer.incarnation = beat.incarnation
        peer.silence = 0
        peer.hears = frozenset(beat.hears)
        peer.now = beat.now
        peer.is_leaving = beat.is_leaving
        peer.is_dead = False
        peer.is_up = self.store in peer.hears
        if peer.is_up:
            peer.away = 0
        self._catch_up(0)
        self._changes += self._said_of_all() != before

    def _said_of_all(self) -> list[tuple[int, frozenset[int], bool, bool, bool, bool]]:
        """What answers go by, but time."""
        return [
            (p.incarnation, p.hears, p.is_leaving, p.is_dead, p.is_up, p.is_caught_up)
            for p in self.peers.values()
        ]

    def on_message(self, store: int) -> None:
        """Whatever comes of a peer, it is there: heartbeats may be behind much else."""
        peer = self.peers.get(store)
        if peer is not None and peer.silence:
            peer.silence = 0
            self._forget_answers(not peer.is_up)

    def on_link(self, store: int, life: int) -> None:
        """There is a new link to a peer; both ends call it by the same number."""
        self._forget_answers()
        peer = self.peers.get(store)
        if peer is not None:
            peer.link = life
            peer.is_dead = False

    def on_break(self, store: int, is_dead: bool) -> None:
        """The link broke; `is_dead`: the peer's process has ended."""
        self._forget_answers()
        peer = self.peers.get(store)
        if peer is not None:
            peer.link = 0
            if is_dead:
                peer.is_dead = True
                peer.is_up = False

    def is_held_up(self, now: int) -> bool:
        """Whether others may have missed this node since the last tick, by its clock."""
        return self._last is not None and now - self._last > self._longest

    def tick(self, now: int) -> bool:
        """Time passes, by this node's clock; whether a heartbeat is due."""
        self._forget_answers()
        self._seen = self._changes
        self.holds += self.is_held_up(now)
        last = now if self._last is None else self._last
        passed = max(0, min(now - last, 2 * self.interval))
        self._last = now
        self.running += passed
        for peer in self.peers.values():
            peer.silence += passed
            peer.away += passed
            if peer.silence > self.timeout:
                peer.is_up = False
            elif peer.is_up:
                peer.away = 0
        self._catch_up(passed)
        if self.running - self._beaten < self.interval:
            return False
        self._beaten = self.running
        return True

    def rests(self, now: int) -> bool:
        """Time passes in which nothing changes, as nearly always; False: it may, and `tick` is to be told."""
        if self._changes != self._seen or self._last is None:
            return False  # somebody has said something
        passed = now - self._last
        if (
            not 0 <= passed <= self.interval
            or self.running + passed - self._beaten >= self.interval
        ):
            return False
        for peer in self.peers.values():
            if not (peer.is_up and peer.is_caught_up) or peer.silence > 2 * self.interval:
                return False
        self._last = now
        self.running += passed
        for peer in self.peers.values():
            peer.silence += passed
        return True

    def _catch_up(self, passed: int) -> None:
        """Finds whom peers hear that this node does not have in reach yet."""
        for peer in self.peers.values():
            if peer.is_up and not peer.is_caught_up:
                peer.missed += passed
                missed = peer.hears.intersection(self.peers).difference(self.up())
                peer.is_caught_up = not missed or peer.missed > self.timeout

    # Answers

    def heard(self) -> list[int]:
        """Whom this node hears: what its heartbeats say."""
        return [
            store
            for store, peer in self.peers.items()
            if peer.incarnation and not peer.is_dead and peer.silence <= self.timeout
        ]

    def up(self) -> list[int]:
        """Who is in reach."""
        if self._up is None:
            self._up = [store for store, peer in self.peers.items() if peer.is_up]
        return self._up

    def clocks(self) -> dict[int, int]:
        """What the clocks of those in reach said last, by store."""
        return {store: peer.now for store, peer in self.peers.items() if peer.is_up and peer.now}

    def fit(self) -> list[int]:
        """Who could follow an owner here: in reach, of another host, and not about to leave."""
        if self._fit is None:
            self._fit = [each for each in self.heirs() if self.peers[each].host != self.host]
            self._other_hosts = len({self.peers[each].host for each in self._fit})
        return self._fit

    def other_hosts(self) -> int:
        """How many hosts these are."""
        self.fit()
        return self._other_hosts

    def heirs(self) -> list[int]:
        """Who could own a slot in place of this node: in reach, and not about to leave."""
        if self._heirs is None:
            self._heirs = [
                store for store, peer in self.peers.items() if peer.is_up and not peer.is_leaving
            ]
        return self._heirs

    def wider(self) -> list[int]:
        """Heirs that have whom this node has in reach, and somebody whom it misses for long.

        Of who has just died another one may not know yet, or not have said so.
        """
        long = self.timeout + 4 * self.interval
        missed = {
            store
            for store, peer in self.peers.items()
            if not (peer.is_up or peer.is_dead) and peer.away > long
        }
        if not missed:
            return []
        own = {self.store, *self.up()}
        return [
            store
            for store in self.heirs()
            if own - {store} <= self.peers[store].hears and missed & self.peers[store].hears
        ]

    def is_whole(self) -> bool:
        """Whether everybody hears everybody, and nobody is about to leave."""
        everybody = {self.store, *self.peers}
        return all(
            peer.is_up and not peer.is_leaving and everybody - {store} <= peer.hears
            for store, peer in self.peers.items()
        )

    def is_up(self, store: int) -> bool:
        peer = self.peers.get(store)
        return peer is not None and peer.is_up

    def is_caught_up(self, store: int) -> bool:
        """Whether all whom a peer in reach hears were here too since it is back: links heal in any order."""
        peer = self.peers.get(store)
        return peer is not None and peer.is_up and peer.is_caught_up

    def is_gone(self, store: int) -> bool:
        """Whether a store is out of reach for certain: no member, dead, or silent or deaf for the detector's time."""
        peer = self.peers.get(store)
        if peer is None or peer.is_up:
            return peer is None
        return peer.is_dead or peer.silence > self.timeout or peer.away > self.timeout

    def dead(self) -> list[Incarnation]:
        """The lives that have ended, of those who are not back."""
        return [
            each.incarnation for each in self.peers.values() if each.is_dead and each.incarnation
        ]

    def is_settled(self) -> bool:
        """Whether of every member it is known."""
        if self._is_settled is None:
            self._is_settled = all(
                peer.is_up or self.is_gone(store) for store, peer in self.peers.items()
            )
        return self._is_settled

    def is_heard_by_another(self, store: int) -> bool:
        """Whether somebody in reach hears a store."""
        return any(peer.is_up and store in peer.hears for peer in self.peers.values())

    def hears(self, store: int) -> frozenset[int]:
        """Whom a peer hears, as it said last."""
        peer = self.peers.get(store)
        return frozenset() if peer is None else peer.hears

    def incarnation(self, store: int) -> Incarnation:
        """The last that was heard of a store; 0: nothing."""
        peer = self.peers.get(store)
        return 0 if peer is None else peer.incarnation

    def link(self, store: int) -> int:
        """The life of the link to a store; that to this node itself never ends."""
        if store == self.store:
            return 1
        peer = self.peers.get(store)
        return 0 if peer is None else peer.link

    def is_here(self, store: int) -> bool:
        """Whether a store is of this node's host."""
        return self.host_of(store) == self.host

    def host_of(self, store: int) -> str:
        if store == self.store:
            return self.host
        peer = self.peers.get(store)
        return "" if peer is None else peer.host
