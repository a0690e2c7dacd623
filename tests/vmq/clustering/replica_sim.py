"""Nodes that keep copies of each other's sessions, without a network, a disk or a clock of their own.

Stores are real, over a database in memory that survives its node; messages are late, lost and encoded; nodes die with
what they had not committed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec

from tests.simulator.disk import Database
from vmq.clustering.messages.base import NodeMessage
from vmq.clustering.messages.replication import (
    AskCopies,
    Changes,
    ConfirmChanges,
    CopiesFound,
    CopyDiffers,
    CopyLost,
    CopyPart,
    FetchCopy,
    FollowerPosition,
    GreetFollower,
    MissingChanges,
    Provenance,
    StillComparing,
    Undone,
    UnknownCopies,
)
from vmq.clustering.replication.discovery import CopySearch
from vmq.clustering.replication.follower import Follower, SessionCopy
from vmq.clustering.replication.leader import Leader
from vmq.clustering.replication.promotion import close, promote, whence
from vmq.clustering.replication.reconcile import done_inflight, done_waiting, take_out, undone
from vmq.mqtt.message import Delivery
from vmq.mqtt.message import Message as Published
from vmq.store.entries import StoredSession
from vmq.store.lines import is_end, scan_line
from vmq.store.opening import stored_sessions
from vmq.store.store import Store

_DECODER: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(
    AskCopies
    | Changes
    | ConfirmChanges
    | CopyDiffers
    | FetchCopy
    | GreetFollower
    | CopiesFound
    | CopyLost
    | MissingChanges
    | CopyPart
    | FollowerPosition
    | StillComparing
    | Undone
    | UnknownCopies
)


class Session:
    """A session as its owner has it in memory."""

    def __init__(self, number: bytes, next_seq: int = 1, next_order: int = 1) -> None:
        self.number = number
        self.next_seq = next_seq
        self.next_order = next_order
        #: Its client has been here.
        self.has_come = False


class Node:
    """One broker, alive; `World.start` makes another of its database."""

    def __init__(self, world: World, name: str, db: Database, life: int) -> None:
        self.world = world
        self.name = name
        self.db = db
        self.store = store = Store(db, "os", lambda: None)
        self.sessions: dict[str, Session] = {}
        highest = [int.from_bytes(key[1:9], "big") for key in db.records if key[:1] == b"m"]
        store.next_message = max(highest, default=0) + 1
        stored = stored_sessions(store)
        self.purging: list[bytes] = [key[1:] for key in db.records if key[:1] == b"g"]
        self.replicas = Leader(store, life, world.count, 2.0, 10.0, self.send, self.let_go)
        self.copies = Follower(store, self.send, self.purging.append)
        self.searcher = CopySearch(name, store, self.copies, self.send)
        self.released = 0
        self.committing = 0
        #: What waits for a commit to be released.
        self.waiting: list[tuple[int, Callable[[], None]]] = []
        for each in stored:
            self.restore(each)
            self.replicas.add(each.number, each.client_id, each.offline_at)

    def restore(self, stored: StoredSession) -> None:
        session = Session(stored.number, stored.last + 1, stored.last_order + 1)
        origin = whence(self.store, stored.number)
        if (
            origin is not None and origin.is_open
        ):  # as `vmq.clustering.replication.reconcile.guard` does
            session.next_seq = max(session.next_seq, origin.waiting)
            session.next_order = max(session.next_order, origin.inflight)
        self.sessions[stored.client_id] = session

    def send(self, peer: str, message: NodeMessage) -> bool:
        return self.world.send(self.name, peer, message)

    def let_go(self, number: int) -> None:
        assert self.released <= number <= self.store.number
        self.released = number
        while self.waiting and self.waiting[0][0] <= number:
            self.waiting.pop(0)[1]()

    def then(self, action: Callable[[], None]) -> None:
        self.waiting.append((self.store.barrier(), action))

    def commit(self) -> None:
        """Begins a commit, or ends the one that is under way; a disk may be slow, or fail."""
        if self.committing:
            self.end_commit()
        if not self.store.dirty:
            return
        self.replicas.before_commit(self.world.now)
        self.committing = self.store.begin_commit()
        if self.world.random.random() < 0.7:
            self.end_commit()

    def end_commit(self) -> None:
        number, self.committing = self.committing, 0
        if self.world.random.random() < self.world.write_failures:
            self.store.retry_commit()
            self.store.failing = True
            return
        self.store.write()
        self.store.end_commit()
        self.store.failing = False
        self.copies.stored(number)
        self.replicas.stored(number)

    def receive(self, peer: str, message: Any) -> None:
        now = self.world.now
        match message:
            case GreetFollower():
                self.copies.on_greet(peer, message)
            case Changes():
                self.copies.on_changes(peer, message)
            case FollowerPosition():
                self.replicas.on_position(peer, message, now)
            case ConfirmChanges():
                self.replicas.on_confirm(peer, message, now)
            case MissingChanges():
                self.replicas.on_missing(peer, message, now)
            case UnknownCopies():
                self.replicas.on_unknown(peer, message, now)
            case CopyDiffers():
                self.replicas.on_differ(peer, message, now)
            case StillComparing():
                self.copies.on_still_comparing(peer, message)
            case AskCopies():
                self.searcher.on_ask(peer, message)
            case CopiesFound():
                self.searcher.on_have(peer, message)
            case FetchCopy():
                self.searcher.on_fetch(peer, message)
            case CopyPart():
                self.searcher.on_part(peer, message, now)
            case CopyLost():
                self.searcher.on_lost(peer, message)

    # --- what a broker does with sessions

    def begin(self, client: str) -> None:
        self.sessions[client] = Session(self.store.create_session(client))

    def publish(self, clients: list[str], name: int, size: int) -> None:
        message = Published(b"t", str(name).encode() + b" " * size, 1, False)
        message.share = len(clients) > 1
        for client in clients:
            session = self.sessions[client]
            delivery = Delivery(message, 1, False, "")
            delivery.seq = session.next_seq
            session.next_seq += 1
            self.store.put_waiting(session.number, delivery)

    def deliver(self, client: str) -> int | None:
        """Sends the oldest that waits."""
        session = self.sessions[client]
        for seq in range(1, session.next_seq):
            found = self.store.load_waiting(session.number, seq)
            if found is None:
                continue
            found.order = session.next_order
            found.packet_id = session.next_order % 65535 + 1
            session.next_order += 1
            self.store.put_inflight(session.number, found)
            return found.order
        return None

    def acknowledge(self, client: str, order: int) -> None:
        delivery = self.in_flight(client, order)
        if delivery is not None:
            self.store.remove_inflight(self.sessions[client].number, delivery)

    def release(self, client: str, order: int) -> int | None:
        """PUBREC has come, if it was not there; its place now."""
        delivery = self.in_flight(client, order)
        if delivery is None or delivery.released:
            return None
        session = self.sessions[client]
        session.next_order += 1
        self.store.put_released(session.number, delivery, session.next_order - 1)
        return delivery.order

    def in_flight(self, client: str, order: int) -> Delivery | None:
        raw = self.store.get(b"i" + self.sessions[client].number + order.to_bytes(8, "big"))
        delivery = None if raw is None else self.store.read_entry(raw)
        if delivery is not None:
            delivery.order = order
        return delivery

    def names(self, client: str, behind: tuple[int, int] = (0, 0)) -> list[int]:
        """The messages of a session, those in flight first, from these places on."""
        session = self.sessions[client]
        found = []
        for kind, first in ((b"i", behind[1]), (b"q", behind[0])):
            prefix = kind + session.number
            keys = {key for key, _ in scan_line(self.db, prefix)}
            uncommitted = (*self.store.dirty, *self.store.writing)
            keys |= {key for key in uncommitted if key.startswith(prefix) and not is_end(key)}
            for key in sorted(keys):
                raw = self.store.get(key)
                if raw is None or int.from_bytes(key[9:], "big") < first:
                    continue
                delivery = self.store.read_entry(raw)
                assert delivery is not None, "its message is gone"
                if delivery.released:
                    continue  # the client has it
                found.append(int(delivery.message.payload))
        return found


class World:
    """The nodes, the network, and who owns which session."""

    def __init__(self, seed: int, names: list[str], count: int) -> None:
        self.random = random.Random(seed)
        self.names = names
        self.count = count
        self.now = 0.0
        self.write_failures = 0.0
        self.loss = 0.0
        self.lives = 0
        self.dbs = {name: Database() for name in names}
        self.nodes: dict[str, Node] = {}
        self.cut: set[frozenset[str]] = set()
        #: Nodes that do nothing in the background.
        self.idle: set[str] = set()
        self.mail: dict[tuple[str, str], list[tuple[float, bytes]]] = {}
        #: Bytes that were sent, by kind of message.
        self.sent: dict[str, int] = {}
        for name in names:
            self.start(name)

    def start(self, name: str) -> Node:
        self.lives += 1
        node = Node(self, name, self.dbs[name], self.lives)
        self.nodes[name] = node
        node.replicas.set_members([each for each in self.names if each != name], self.now)
        for other in self.nodes.values():
            if other is not node and frozenset((name, other.name)) not in self.cut:
                self.link(node, other)
        return node

    def join(self, name: str) -> None:
        """One more member."""
        self.names = [*self.names, name]
        self.dbs[name] = Database()
        for node in self.nodes.values():
            node.replicas.set_members([each for each in self.names if each != node.name], self.now)
        self.start(name)

    def link(self, one: Node, other: Node) -> None:
        one.replicas.peer_up(other.name, self.now)
        other.replicas.peer_up(one.name, self.now)

    def unlink(self, one: str, other: str) -> None:
        for pair in ((one, other), (other, one)):
            self.mail.pop(pair, None)
            node = self.nodes.get(pair[0])
            if node is not None:
                node.replicas.peer_down(pair[1], self.now)
                node.searcher.peer_down(pair[1])

    def kill(self, name: str) -> None:
        del self.nodes[name]
        for other in list(self.nodes):
            self.unlink(name, other)

    def split(self, one: str, other: str) -> None:
        self.cut.add(frozenset((one, other)))
        self.unlink(one, other)

    def heal(self) -> None:
        for pair in sorted(self.cut, key=sorted):
            self.mend(*sorted(pair))

    def mend(self, one: str, other: str) -> None:
        self.cut.discard(frozenset((one, other)))
        if one in self.nodes and other in self.nodes:
            self.link(self.nodes[one], self.nodes[other])

    def send(self, sender: str, receiver: str, message: NodeMessage) -> bool:
        if receiver not in self.nodes or frozenset((sender, receiver)) in self.cut:
            return False
        if self.random.random() >= self.loss:
            due = self.now + self.random.random() * 0.1
            raw = msgspec.msgpack.encode(message)
            kind = type(message).__name__
            self.sent[kind] = self.sent.get(kind, 0) + len(raw)
            self.mail.setdefault((sender, receiver), []).append((due, raw))
        return True

    def step(self) -> None:
        """A moment passes: messages arrive, some nodes commit, timers run."""
        self.now += 0.05
        pairs = sorted(self.mail)
        self.random.shuffle(pairs)
        for pair in pairs:
            letters = self.mail.get(pair, [])
            # Mostly in order; after a reconnect an old one may be late.
            while letters and letters[0][0] <= self.now and pair[1] in self.nodes:
                at = 1 if len(letters) > 1 and self.random.random() < self.loss / 2 else 0
                raw = letters.pop(at)[1]
                message = _DECODER.decode(raw)
                message.check()
                self.nodes[pair[1]].receive(pair[0], message)
        for node in list(self.nodes.values()):
            if self.random.random() < 0.7:
                node.commit()
            node.replicas.tick(self.now)
            node.searcher.tick(self.now)
            if node.name not in self.idle:
                node.replicas.work(self.now)
            node.copies.compare()

    def settle(self, condition: Callable[[], bool], steps: int = 4000) -> None:
        for _ in range(steps):
            if condition():
                return
            self.step()
        raise AssertionError("it does not settle")

    def is_safe(self) -> bool:
        """Whether every session has all its copies."""
        return all(
            not node.store.dirty
            and not node.committing
            and not node.replicas.lagging()
            and all(node.replicas.is_safe(each.number) for each in node.sessions.values())
            for node in self.nodes.values()
        )

    def is_quiet(self) -> bool:
        """The same, and nothing is under way."""
        return self.is_safe() and not any(
            peer.waiting for node in self.nodes.values() for peer in node.replicas.peers()
        )

    def take_over(self, client: str, owner: str, name: str) -> bool:
        """The client of a dead owner comes to another node; whether it finds a copy there."""
        node = self.nodes[name]
        answers: list[tuple[SessionCopy | None, str]] = []
        up = [
            each for each in self.nodes if each != name and frozenset((each, name)) not in self.cut
        ]
        node.searcher.find(client, owner, up, self.now, lambda *found: answers.append(found))
        self.settle(lambda: bool(answers))
        copy, source = answers[0]
        if copy is None:
            return False
        node.copies.take(copy)
        self.settle(lambda: not node.store.dirty and not node.committing)
        node.replicas.take_over(copy.number)
        node.restore(promote(node.store, node.copies, copy, source, 1))
        return True

    def origin(self, client: str, old: str, new: str) -> Provenance | None:
        """What the new owner of a session says of the old one's."""
        known = whence(self.nodes[new].store, self.nodes[new].sessions[client].number)
        mine = (old, self.nodes[old].sessions[client].number)
        return known if known is not None and (known.owner, known.session) == mine else None

    def tell(self, client: str, old: str, new: str) -> None:
        """An owner that is back says what of the copy is left; the one since takes the rest out."""
        origin = self.origin(client, old, new)
        before, node = self.nodes[old], self.nodes[new]
        session = node.sessions[client]
        if origin is None or not origin.is_open or not before.replicas.has_all(origin):
            return
        left = undone(before.store, origin.session, origin)
        said = _DECODER.decode(msgspec.msgpack.encode(Undone(1, client, session.number, *left, [])))
        said.check()
        if not session.has_come:
            done = done_inflight(node.store, session.number, origin, said.inflight)
            take_out(node.store, list(done))
        done = done_waiting(node.store, session.number, origin, said.waiting)
        take_out(node.store, list(done))
        close(node.store, session.number)

    def given_back(self, client: str, old: str, new: str) -> list[int]:
        """What the new owner of a session hands over to the one before, which has become the owner again."""
        node, origin = self.nodes[new], self.origin(client, old, new)
        if origin is not None and origin.is_open and self.nodes[old].replicas.has_all(origin):
            return node.names(client, (origin.waiting, origin.inflight))
        return node.names(client)

    def only_there(self, client: str, old: str, new: str) -> list[int]:
        """What an owner that is back hands over to the one that its session has now."""
        known = self.origin(client, old, new)
        if known is None:
            return self.nodes[old].names(client)
        lacks = self.nodes[old].replicas.lacks(known.session, known)
        return self.nodes[old].names(client, lacks)
