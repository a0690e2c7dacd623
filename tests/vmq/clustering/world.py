"""A cluster of machines of `takeover.machine`, driven by one seed: outboxes, records, one session, one client.

Every outbox from a node to another keeps its order and survives crashes; different outboxes run at different speeds.
Records go round by themselves, slower or faster than any outbox, and the latest wins. A node publishes to the node that
its own view of the record names; with `others` it publishes to every node, as if each had other subscribers, so that
only gates and ghosts keep the session from getting a message twice.
"""

import random
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from tests.vmq.clustering.world_node import (
    FILTERS,
    NOTHING,
    WHO,
    Client,
    Mid,
    Node,
    Published,
    Session,
    Stamped,
    entry_of,
    mid_of,
)
from vmq.clustering.delivery.peers import KnownPeer
from vmq.clustering.directory.records import Record, taken_over
from vmq.clustering.hinted_handoff.route_intervals import RouteIntervals
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.takeover import RedirectedPublish, RouteMarker, SessionBatch
from vmq.clustering.takeover.machine import TakeoverMachine


class World:
    """Some nodes, one session, one client."""

    def __init__(self, seed: int, *, nodes: int, others: bool, tight: bool = False) -> None:
        self.random = random.Random(seed)
        self.others = others
        self.is_tight = tight
        self.now = 0.0
        self.stamp = 100
        self.sessions = 0
        names = [chr(ord("a") + index) for index in range(nodes)]
        self.nodes: dict[str, Node] = {}
        for name in names:
            self.nodes[name] = Node(self, name)
        self.outboxes: dict[tuple[str, str], deque[tuple[Any, Any]]] = {
            (one, other): deque() for one in names for other in names if one != other
        }
        #: What the sender of a message that has come is to be told, as soon as it hears of that.
        self.confirmations: dict[tuple[str, str], deque[Callable[[bool], None]]] = {
            outbox: deque() for outbox in self.outboxes
        }
        self.gossip: list[tuple[str, str, Stamped]] = []
        self.cuts: set[frozenset[str]] = set()
        self.mids: list[Mid] = []
        #: What was published where nothing was known of the session: it may come or not.
        self.unrouted: set[Mid] = set()
        #: What was on disks that are lost.
        self.lost: set[Mid] = set()
        #: Nodes that are no members any more, for which something may still wait.
        self.gone: list[str] = []
        self.client = Client()
        first = Stamped((self.stamp, "a"), Record("a", self.stamp, False, FILTERS))
        for node in self.nodes.values():
            node.view = first
            node.reachable = set(names) - {node.name}
        self.nodes["a"].sessions[WHO] = self.new_session()

    def new_session(self) -> Session:
        self.sessions += 1
        return Session(self.sessions * 1000)

    # --- what goes on by itself

    def change(self, node: Node, stamped: Stamped) -> None:
        if stamped.stamp > node.view.stamp:
            before, node.view = node.view, stamped
            if node.is_restoring and stamped.stamp[1] == node.name:
                return
            node.moving.on_owner(WHO, before.record, stamped.record, self.now)

    def is_open(self, one: str, other: str) -> bool:
        return (
            one in self.nodes
            and other in self.nodes
            and self.nodes[one].is_alive
            and self.nodes[other].is_alive
            and frozenset((one, other)) not in self.cuts
        )

    def run_lane(self, origin: str, target: str) -> None:
        message, done = self.outboxes[origin, target].popleft()
        node = self.nodes[target]
        if isinstance(message, Published):
            node.take(origin, message.mid)
        else:
            node.moving.receive(origin, message, self.now)
        if done is not None:
            self.confirmations[origin, target].append(done)

    def confirm(self, origin: str, target: str) -> None:
        self.confirmations[origin, target].popleft()(True)

    def run_gossip(self, index: int) -> None:
        _, target, stamped = self.gossip.pop(index)
        self.change(self.nodes[target], stamped)

    def notice(self, one: str, other: str) -> None:
        """One node finds out whether it reaches another."""
        node = self.nodes[one]
        if self.is_open(one, other) and other not in node.reachable:
            node.reachable.add(other)
            node.moving.peer_up(other, self.now)
        elif not self.is_open(one, other) and other in node.reachable:
            node.reachable.discard(other)
            node.moving.peer_down(other, self.now)

    # --- the client

    def hand(self, session: Session, packet_id: int, mid: Mid) -> None:
        """A message of QoS 2 goes out; the client owns it unless it has the packet id already [MQTT-4.3.3-2]."""
        if session.client is None or session.client is not self.client.current:
            return
        if packet_id not in self.client.pending:
            self.client.pending[packet_id] = mid
            self.client.log.append(mid)
        else:
            assert self.client.pending[packet_id] == mid

    def at(self) -> Session | None:
        """The session that the client is connected to."""
        for node in self.nodes.values():
            session = node.sessions.get(WHO)
            if node.is_alive and session is not None and session.client is not None:
                if session.client is self.client.current:
                    return session
        return None

    def connect(self, name: str) -> None:
        node = self.nodes[name]
        old = self.client.current
        if old is not None and self.random.random() < 0.5:
            there = self.nodes[old[0]]
            if there.is_alive:
                there.moving.cancel(WHO, old)
        ticket = (name, object())
        self.client.current = ticket
        if node.moving.connect(WHO, clean=False, ticket=ticket, now=self.now):
            node.accept(ticket)

    def connect_somewhere(self) -> None:
        """The same at some node that knows of a session, or has found out whom it cannot ask."""
        names = [
            name
            for name, node in self.nodes.items()
            if node.is_alive and (node.view is not NOTHING or self.is_aware(name))
        ]
        if not names:
            return
        name = self.random.choice(names)
        is_new = self.nodes[name].view is NOTHING
        self.connect(name)
        if is_new:  # all that can be reached hear at once
            heard = [each for each in self.gossip if self.is_open(*each[:2])]
            for each in heard:
                self.run_gossip(self.gossip.index(each))

    def is_aware(self, name: str) -> bool:
        """Whether nothing is on its way to a node that it could hear, and it knows from whom it can."""
        node = self.nodes[name]
        others = (each for each in self.nodes if each != name)
        return all(self.is_open(name, each) == (each in node.reachable) for each in others) and (
            not any(target == name and self.is_open(one, name) for one, target, _ in self.gossip)
        )

    def at_all(self) -> list[Session]:
        """Whatever is somewhere of the session."""
        return [
            each
            for node in self.nodes.values()
            for each in (*node.sessions.values(), *node.ghosts.values())
        ]

    def forget_all(self) -> None:
        """There was no session yet."""
        for node in self.nodes.values():
            node.view = NOTHING
            node.sessions.clear()

    def work(self) -> None:
        """The client gets a message, finishes an exchange, or begins or ends one of its own."""
        session = self.at()
        if session is None:
            return
        choice = self.random.random()
        if choice < 0.5 and session.waiting and len(session.inflight) < 5:
            packet_id = session.last_packet_id + 1
            while packet_id in session.inflight:
                packet_id += 1
            session.last_packet_id = packet_id
            session.inflight[packet_id] = session.waiting.popleft()
            session.taken += 1
            self.hand(session, packet_id, session.inflight[packet_id])
        elif choice < 0.8 and session.inflight:
            packet_id = self.random.choice(sorted(session.inflight))
            if self.client.pending.pop(packet_id, None) is not None:
                del session.inflight[packet_id]
        elif choice < 0.9:
            packet_id = self.random.randint(1, 5)
            session.received.add(packet_id)
            self.client.received.add(packet_id)
        elif session.received:
            packet_id = self.random.choice(sorted(session.received))
            session.received.discard(packet_id)
            self.client.received.discard(packet_id)

    # --- faults

    def crash(self, name: str) -> None:
        node = self.nodes[name]
        node.is_alive = False
        if self.client.current is not None and self.client.current[0] == name:
            self.client.current = None
        for (origin, _), outbox in self.outboxes.items():
            if origin == name:
                for index, (message, _done) in enumerate(outbox):
                    outbox[index] = (message, None)
        for (origin, _), confirmations in self.confirmations.items():
            if origin == name:
                confirmations.clear()

    def revive(self, name: str) -> None:
        node = self.nodes[name]
        if not node.is_alive:
            node.is_alive = True
            node.reachable = set()
            node.restart()

    def forget(self, name: str) -> None:
        """What a disk had is lost: what waited there and what was to go from there."""
        node = self.nodes[name]
        for session in (*node.sessions.values(), *node.ghosts.values()):
            kept = [*session.inflight.values(), *session.waiting, *(mid for _, mid in session.held)]
            self.lost.update(kept)
        for (origin, _), outbox in self.outboxes.items():
            if origin == name:
                for message, _ in outbox:
                    if isinstance(message, Published):
                        self.lost.add(message.mid)
                    elif isinstance(message, SessionBatch):
                        self.lost.update(map(mid_of, message.entries))
                    elif isinstance(message, RedirectedPublish):
                        self.lost.add(mid_of(message.entry))
                outbox.clear()
        for (origin, _), confirmations in self.confirmations.items():
            if origin == name:
                confirmations.clear()
        self.gossip = [each for each in self.gossip if each[0] != name]
        node.sessions.clear()
        node.ghosts.clear()

    def wipe(self, name: str) -> None:
        """A dead node comes back without its disk, and with the sessions that the others know to be its own.

        Those are alive, and each looks through what waits when it knows as much.
        """
        self.forget(name)
        node = self.nodes[name]
        others = [each for each in self.nodes.values() if each is not node]
        latest = max((each.view for each in others), key=lambda view: view.stamp)
        node.view = NOTHING
        node.is_alive = True
        node.reachable = set()
        node.moving = TakeoverMachine(node)
        node.is_restoring = True
        for each in self.nodes.values():
            self.change(each, latest)
        node.is_restoring = False
        record = node.view.record
        if record is not None and record.node == name:
            node.build(WHO, record.subscriptions)
            node.write(taken_over(record, name, 0, False, record.subscriptions))
        for other in others:
            self.inherit(other.name, name, [], keeps=True)

    def remove(self, name: str) -> None:
        """A dead node is taken out for good: somebody adopts its session, and then all give what waits for it."""
        self.forget(name)
        del self.nodes[name]
        self.gossip = [each for each in self.gossip if each[1] != name]
        for (origin, target), outbox in self.outboxes.items():
            if target == name:
                for message, done in list(outbox):
                    if done is not None:
                        outbox.remove((message, done))
                        done(False)
                for done in list(self.confirmations[origin, target]):
                    done(False)
                self.confirmations[origin, target].clear()
        for node in self.nodes.values():
            if name in node.reachable:
                node.reachable.discard(name)
                node.moving.peer_down(name, self.now)
            node.moving.peer_gone(name, self.now)
        self.outboxes = {key: outbox for key, outbox in self.outboxes.items() if key[0] != name}
        self.gone.append(name)

    def adopt(self) -> None:
        """Sessions of nodes that are gone go on, and what waited for them there follows."""
        heir = self.nodes[self.random.choice(sorted(self.nodes))]
        record = heir.view.record
        if record is not None and record.node in self.gone:
            heir.moving.adopt(WHO, record)
            heir.write(taken_over(record, heir.name, 0, False, record.subscriptions))

    def settle_estates(self) -> None:
        """All know who has the session."""
        for name in self.gone:
            for origin in sorted(self.nodes):
                self.inherit(origin, name, self.outboxes.pop((origin, name)), keeps=False)
        self.gone.clear()

    def inherit(self, origin: str, peer: str, waits: Iterable[Any], *, keeps: bool) -> None:
        """A node looks through what waits for a peer."""
        outbox = list(self.outboxes[origin, peer] if keeps else waits)
        stretches = RouteIntervals(peer)
        for index, (message, _) in enumerate(outbox):
            if isinstance(message, RouteMarker):
                stretches.on_mark(message, (b"", index))
        moving = self.nodes[origin].moving
        for index, (message, _) in enumerate(outbox):
            if isinstance(message, Published):
                entry = entry_of(message.mid)
                publish = RemotePublish(b"t", entry.payload, 2)
                for clients in stretches.find(publish, (b"", index), KnownPeer(1)).values():
                    moving.receive(origin, RedirectedPublish(WHO[0], clients, entry), self.now)
            elif isinstance(message, SessionBatch | RedirectedPublish) and not keeps:
                moving.receive(origin, message, self.now)

    def join(self, name: str) -> None:
        """A node that was never there: it knows nothing, and learns what some other knows, the latest or not."""
        node = self.nodes[name] = Node(self, name)
        others = sorted(each for each in self.nodes if each != name)
        for other in others:
            for outbox in ((name, other), (other, name)):
                self.outboxes.setdefault(outbox, deque())
                self.confirmations.setdefault(outbox, deque())
            self.notice(name, other)
            self.notice(other, name)
        self.gossip += [(other, name, self.nodes[other].view) for other in others]
        assert node.view is NOTHING

    def split(self) -> None:
        names = sorted(self.nodes)
        side = set(self.random.sample(names, self.random.randint(1, len(names) - 1)))
        self.cuts = {
            frozenset((one, other))
            for one in names
            for other in names
            if (one in side) != (other in side)
        }

    # --- steps

    def events(self) -> list[Callable[[], None]]:
        """Everything that may happen next by itself."""
        found: list[Callable[[], None]] = []
        for (one, other), outbox in self.outboxes.items():
            if outbox and self.is_open(one, other):
                found.append(lambda one=one, other=other: self.run_lane(one, other))  # type: ignore[misc]
            if self.confirmations[one, other] and self.is_open(one, other):
                found.append(lambda one=one, other=other: self.confirm(one, other))  # type: ignore[misc]
            if one in self.nodes and other in self.nodes and self.nodes[one].is_alive:
                if self.is_open(one, other) != (other in self.nodes[one].reachable):
                    found.append(lambda one=one, other=other: self.notice(one, other))  # type: ignore[misc]
        for index, (origin, target, _) in enumerate(self.gossip):
            if self.is_open(origin, target):
                found.append(lambda index=index: self.run_gossip(index))  # type: ignore[misc]
        return found

    def step(self) -> None:
        """One event, or a moment of time in which nothing happens."""
        self.now += 0.01
        events = self.events()
        if events and self.random.random() < 0.9:
            self.random.choice(events)()
        elif self.random.random() < 0.3:
            self.tick()

    def tick(self) -> None:
        for node in self.nodes.values():
            if node.is_alive:
                node.moving.tick(self.now)

    def settle(self) -> None:
        """All are well again; runs until nothing is left to happen."""
        self.cuts = set()
        self.is_tight = False
        for name in self.nodes:
            self.revive(name)
        for _ in range(20):
            while events := self.events():
                self.random.choice(events)()
            self.now += 5
            self.tick()
        assert not self.events()

    def finish(self) -> None:
        """The client comes back, and takes all that is there."""
        self.settle()
        self.connect(self.random.choice(sorted(self.nodes)))
        self.settle()
        session = self.at()
        assert session is not None
        while session.waiting or session.inflight:
            self.work()
