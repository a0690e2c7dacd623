"""One node of `tests.vmq.clustering.world`: what is there of the session, and the side that its machine sees."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Set
from typing import TYPE_CHECKING, Any, NamedTuple

from vmq.clustering.directory.records import Record, taken_over
from vmq.clustering.messages.takeover import Move, RouteMarker, SessionMessage, Who
from vmq.clustering.takeover.machine import TakeoverMachine
from vmq.clustering.takeover.port import BufferVerdict, SessionKind

if TYPE_CHECKING:
    from tests.vmq.clustering.world import World

WHO: Who = ("", "c")
FILTERS = {"t": 2}

#: The node that it was published on, and its number there.
Mid = tuple[str, int]


class Published(NamedTuple):
    mid: Mid


class Stamped(NamedTuple):
    """A record as the metadata has it: the later owner wins."""

    stamp: tuple[int, str]
    record: Record | None


#: What a node knows that has no records yet.
NOTHING = Stamped((0, ""), None)


def entry_of(mid: Mid, packet_id: int = 0) -> SessionMessage:
    return SessionMessage(b"t", f"{mid[0]} {mid[1]}".encode(), 2, packet_id)


def mid_of(entry: SessionMessage) -> Mid:
    name, number = entry.payload.decode().split()
    return name, int(number)


class Session:
    """A durable session, as far as its messages go. What is in it survives a crash."""

    def __init__(self, first: int) -> None:
        #: Packet ids begin elsewhere each time: a client may have others from a session that is out of reach.
        self.last_packet_id = first
        self.inflight: dict[int, Mid] = {}
        self.waiting: deque[Mid] = deque()
        self.taken = 0
        self.received: set[int] = set()
        self.held: list[tuple[str, Mid]] = []
        self.elsewhere: Set[str] = frozenset()
        self.has_gate = False
        self.client: Any = None

    @property
    def place(self) -> int:
        return self.taken + len(self.waiting)


class Client:
    """One device. It reads only from the connection that it opened last, and never forgets a packet id by itself."""

    def __init__(self) -> None:
        self.current: Any = None
        self.log: list[Mid] = []
        self.pending: dict[int, Mid] = {}
        self.received: set[int] = set()


class Node:
    """One node: the side of `Here` that the machine sees, and what the world does to it."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self.is_alive = True
        self.is_restoring = False
        self.has_heard_all = True
        self.reachable: set[str] = set()
        self.view = NOTHING
        self.sessions: dict[Who, Session] = {}
        self.ghosts: dict[Who, Session] = {}
        self.published = 0
        self.refused: list[Any] = []
        #: Its store cannot read all of its session; which tickets were refused for that, and by whose damage.
        self.has_damage = False
        self.refused_at: list[tuple[Any, str]] = []
        self.moving = TakeoverMachine(self)

    # --- what the machine asks

    def send(self, peer: str, message: Move, done: Callable[[bool], None] | None = None) -> bool:
        if peer not in self.world.nodes:
            if isinstance(message, RouteMarker) and (self.name, peer) in self.world.outboxes:
                self.world.outboxes[self.name, peer].append((message, None))
            return done is None
        if self.world.is_tight and not isinstance(message, RouteMarker):
            if self.world.random.random() < 0.2:
                return False
        self.world.outboxes[self.name, peer].append((message, done))
        return True

    def up(self) -> Iterable[str]:
        return self.reachable

    def down(self) -> Iterable[str]:
        return set(self.world.nodes) - self.reachable - {self.name}

    def record(self, who: Who) -> Record | None:
        return self.view.record

    def is_recent(self, record: Record) -> bool:
        return True

    def own(self, who: Who, since: int | None = None) -> None:
        assert who in self.sessions
        now = self.world.stamp if since is None else since
        self.write(taken_over(self.view.record, self.name, now, False, FILTERS))

    def elsewhere(self, who: Who) -> Set[str]:
        session = self.sessions.get(who) or self.ghosts.get(who)
        return frozenset() if session is None else session.elsewhere

    def set_elsewhere(self, who: Who, nodes: Set[str]) -> None:
        session = self.sessions.get(who) or self.ghosts.get(who)
        if session is not None:
            session.elsewhere = frozenset(nodes)

    def all_elsewhere(self) -> Iterable[Who]:
        return [who for who in (*self.sessions, *self.ghosts) if self.elsewhere(who)]

    def has_heard(self) -> bool:
        return self.has_heard_all

    def give(self, who: Who, node: str) -> int:
        before = self.view.record
        assert before is not None
        assert before.node == self.name
        after = Record(node, before.since + 1, False, before.subscriptions, source=self.name)
        self.write(after)
        return after.since

    def is_of_another(self, _who: Who, _record: Record) -> bool:
        return False  # there is one user

    def kind(self, who: Who) -> SessionKind:
        return SessionKind.DURABLE if who in self.sessions else SessionKind.NONE

    def is_damaged(self, who: Who) -> bool:
        return self.has_damage and (who in self.sessions or who in self.ghosts)

    def cut_off(self, who: Who, node: str) -> None:
        self.sessions[who].client = None

    def close_client(self, who: Who) -> None:
        self.sessions[who].client = None

    def end(self, who: Who) -> None:
        raise AssertionError("nobody asks for that")

    def build(self, who: Who, subscriptions: dict[str, int]) -> None:
        assert who not in self.ghosts
        assert subscriptions == FILTERS
        self.sessions.setdefault(who, self.world.new_session())

    def compare(self, who: Who) -> bool:
        return False

    def seek(self, who: Who, owner: str) -> bool:
        return False  # there are no copies here

    def open_gate(self, who: Who) -> None:
        self.sessions[who].has_gate = True

    def release(self, who: Who, origin: str) -> None:
        session = self.sessions[who]
        session.waiting.extend(mid for name, mid in session.held if name == origin)
        session.held = [each for each in session.held if each[0] != origin]

    def close_gate(self, who: Who) -> None:
        session = self.sessions[who]
        session.waiting.extend(mid for _, mid in session.held)
        session.held.clear()
        session.has_gate = False

    def make_ghost(self, who: Who) -> None:
        assert who not in self.ghosts
        self.ghosts[who] = self.sessions.pop(who)

    def revive(self, who: Who) -> None:
        assert who not in self.sessions
        self.sessions[who] = self.ghosts.pop(who)

    def end_ghost(self, who: Who) -> None:
        ghost = self.ghosts.pop(who)
        assert not ghost.waiting
        assert not ghost.inflight
        assert not ghost.held

    def state(self, who: Who) -> tuple[dict[str, int], list[int]]:
        return FILTERS, sorted(self.ghosts[who].received)

    def forget_received(self, who: Who) -> None:
        self.ghosts[who].received.clear()

    def take_inflight(self, who: Who) -> list[SessionMessage]:
        inflight = self.ghosts[who].inflight
        return [entry_of(inflight.pop(key), key) for key in list(inflight)[:2]]

    def take_waiting(self, who: Who) -> list[SessionMessage]:
        ghost = self.ghosts[who]
        mids = [ghost.waiting.popleft() for _ in range(min(3, len(ghost.waiting)))]
        ghost.taken += len(mids)
        return [entry_of(mid) for mid in mids]

    def put_back(self, who: Who, entries: list[SessionMessage]) -> None:
        ghost = self.ghosts[who]
        inflight = {each.packet_id: mid_of(each) for each in entries if each.packet_id}
        ghost.inflight = {**inflight, **ghost.inflight}
        waiting = [mid_of(each) for each in entries if not each.packet_id]
        ghost.waiting.extendleft(reversed(waiting))
        ghost.taken -= len(waiting)

    def has_shipped(self, who: Who, place: int) -> bool:
        return self.ghosts[who].taken >= place

    def place(self, who: Who) -> int:
        return self.ghosts[who].place

    def receive(self, who: Who, packet_ids: list[int]) -> None:
        self.sessions[who].received.update(packet_ids)

    def add(self, who: Who, entries: list[SessionMessage]) -> None:
        session = self.sessions.get(who) or self.ghosts[who]
        for each in entries:
            if each.packet_id and each.packet_id not in session.inflight:
                session.inflight[each.packet_id] = mid_of(each)
            else:
                session.waiting.append(mid_of(each))

    def proceed(self, ticket: Any) -> None:
        self.accept(ticket)

    def refuse(self, ticket: Any, damaged_at: str = "") -> None:
        self.refused.append(ticket)
        if damaged_at:
            self.refused_at.append((ticket, damaged_at))

    # --- what the world does

    def write(self, record: Record) -> None:
        world = self.world
        world.stamp += 1
        world.change(self, Stamped((record.since, record.node), record))
        for peer in world.nodes:
            if peer != self.name:
                world.gossip.append((self.name, peer, self.view))

    def accept(self, ticket: Any) -> None:
        """The registry's part of CONNECT: a session for the connection, and this node is its owner."""
        session = self.sessions.setdefault(WHO, self.world.new_session())
        session.client = ticket
        before = self.view.record
        unsure = before is None
        self.has_heard_all = all(
            self.world.nodes[name].view.stamp <= self.view.stamp for name in self.reachable
        )
        self.write(taken_over(before, self.name, self.world.stamp, False, FILTERS, unsure=unsure))
        for packet_id, mid in session.inflight.items():
            self.world.hand(session, packet_id, mid)

    def publish(self) -> None:
        self.published += 1
        mid = (self.name, self.published)
        self.world.mids.append(mid)
        record = self.view.record
        targets = set(self.world.nodes) if self.world.others else set()
        if record is None:
            self.world.unrouted.add(mid)
        else:
            targets.add(record.node)  # as long as it has the record, also if it is gone
        for target in sorted(targets):
            if target == self.name:
                self.take("", mid)
            else:
                self.world.outboxes[self.name, target].append((Published(mid), None))
        if not self.world.others:
            return
        self.take("", mid) if self.name not in targets else None

    def take(self, origin: str, mid: Mid) -> None:
        """A message has come to this node: from a client, or from another node."""
        session = self.sessions.get(WHO)
        if session is not None:
            verdict = self.moving.verdict(WHO, origin) if session.has_gate else BufferVerdict.TAKE
            if origin in session.elsewhere:
                verdict = BufferVerdict.DROP
            if verdict in (BufferVerdict.TAKE, BufferVerdict.TAKE_FROM_LANE):
                session.waiting.append(mid)
            elif verdict is BufferVerdict.HOLD:
                session.held.append((origin, mid))
        ghost = self.ghosts.get(WHO)
        if ghost is not None and self.moving.shipping.haunts(WHO, origin):
            ghost.waiting.append(mid)
            self.moving.on_ghost(WHO, self.world.now)

    def restart(self) -> None:
        """Everything in memory is gone; what is stored comes back."""
        self.moving = TakeoverMachine(self)
        for who, ghost in list(self.ghosts.items()):
            assert who not in self.sessions
            self.sessions[who] = ghost
        self.ghosts.clear()
        for session in self.sessions.values():
            session.client = None
            session.has_gate = False
            session.waiting.extend(mid for _, mid in session.held)
            session.held.clear()
        self.moving.start(self.world.now)
        self.moving.on_owner(WHO, self.view.record, self.view.record, self.world.now)
