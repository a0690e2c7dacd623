"""Sessions of this broker on their way to other nodes, and theirs on the way here: `takeover.machine` at work.

The machine decides; the sessions are in `vmq.clustering.takeover.local_sessions`, the records in the directory, and
what nodes say to each other goes over the outboxes.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final, get_args

import plyvel
from vmq_hooks.verdicts import Refuse

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.heard import has_heard
from vmq.clustering.directory.records import Record
from vmq.clustering.directory.rendezvous import ranked
from vmq.clustering.messages.replication import ProvenanceIs
from vmq.clustering.messages.takeover import (
    ClaimSession,
    InflightSent,
    Move,
    RedirectedPublish,
    RouteMarker,
    SessionBatch,
    SessionState,
    Who,
)
from vmq.clustering.replication.service import Replication
from vmq.clustering.takeover.claim_queue import ClaimQueue
from vmq.clustering.takeover.local_sessions import LocalSessions
from vmq.clustering.takeover.machine import TakeoverMachine
from vmq.clustering.takeover.port import BufferVerdict, SessionKind
from vmq.core.context import Core
from vmq.core.hook_sites import Pending
from vmq.core.ports import Claims
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.runtime.metrics import Family, Sample
from vmq.store.entries import scope_of
from vmq.store.opening import text_of
from vmq.store.store import DAMAGED, StoreError
from vmq_cluster.effects import MembersChanged, PeerDown, PeerUp
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

#: Seconds between two looks at what waits for too long.
TICK: Final = 0.5
#: Sessions that are handed over at a time when this node leaves, and records that are looked at in one go.
AT_ONCE: Final = 200

_TAKEN_OVER: Final = "taken over by a new connection of the client id [MQTT-3.1.4-2]"


def key_of(who: Who) -> str:
    """What nodes are ranked by for a session: the same as for its copies."""
    return scope_of(who[0]) + who[1]


class Takeover(LocalSessions, Claims):
    """All moves of one node.

    Args:
        core, registries, find: as for `LocalSessions`.
        node: which runs.
        outboxes: to the other nodes.
        directory: which agrees with this node's sessions.
    """

    def __init__(
        self,
        core: Core,
        registries: Mapping[str, Registry],
        find: Callable[[str], Registry],
        node: ClusterNode,
        outboxes: Outboxes,
        directory: Directory,
    ) -> None:
        super().__init__(core, registries, find)
        self.name = node.name
        self._node = node
        self._outboxes = outboxes
        self._directory = directory
        #: Copies of sessions, where there are any; set before the start.
        self.replication: Replication | None = None
        #: Sessions of which a copy is looked for, and of which one was.
        self._seeking: set[Who] = set()
        self._sought: set[Who] = set()
        #: The durable sessions that CONNECTs wait for.
        self._waiting_for: dict[Pending, Who] = {}
        #: Who waits for owners before, which have to say something first.
        self._patience = ClaimQueue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self.moving = TakeoverMachine(self)
        self._timer: asyncio.TimerHandle | None = None
        #: Ghosts with something to send on at the end of the pass.
        self._took: set[Who] = set()
        self._is_running = False
        self._members: set[str] = set()
        self._adoption: asyncio.Task[None] | None = None
        #: This node lost its disk, and brings its sessions back.
        self.is_restoring = False

    # --- its life

    def start(self, made: Iterable[tuple[Who, Record]] = ()) -> None:
        """Sessions move from now on. To be called before other nodes and clients are heard.

        `made`: sessions of this node that its store lacked, made anew by their records.
        """
        self._is_running = True
        self._members = set(self._node.members)
        self.load()
        for kind in get_args(Move):
            self._outboxes.on(kind, self._on_move)
        self._directory.on_owner(self._on_owner)
        self._node.on(PeerUp, lambda effect: self._when_up(effect.peer))
        self._node.on(PeerDown, lambda effect: self._when_down(effect.peer))
        self._node.on(MembersChanged, lambda effect: self._on_members(set(effect.members)))
        self._core.claims = self
        self.moving.start(self._now())
        for who, own in made:
            self.moving.made_again(who, own, self._now())
        for who in self.durable():
            record = self.record(who)
            if record is not None and record.node != self.name:
                self.moving.on_owner(who, record, record, self._now())
        self._tick()

    def stop(self) -> None:
        """They stay where they are."""
        self._is_running = False
        self._core.claims = Claims()
        if self._timer is not None:
            self._timer.cancel()
        if self._adoption is not None:
            self._adoption.cancel()
        for task in self._tasks:
            task.cancel()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _now(self) -> float:
        return self._core.clock()

    def _tick(self) -> None:
        if self._is_running:
            self._timer = self._loop.call_at(self._node.next_tick(TICK), self._tick)
            self.moving.tick(self._now())
            self._patience.tick(self._now())
            self._core.outbox.flush()

    # --- what happens

    def find_owner(self, mountpoint: str, client_id: str) -> str:
        return self._directory.user(mountpoint, client_id)

    def claim(
        self, registry: Registry, client_id: str, clean: bool, user: str = "", options: Any = None
    ) -> Pending | None:
        """A client has come: `Claims.claim`."""
        who = (registry.mountpoint, client_id)

        def cancel() -> None:
            self._waiting_for.pop(pending, None)
            self.moving.cancel(who, pending)

        pending = Pending(cancel)
        if not clean:
            self._waiting_for[pending] = who

        def go_on() -> None:
            if pending.then is not None and self.moving.connect(who, clean, pending, self._now()):
                self.proceed(pending)

        if not clean and self._has_to_wait(who, go_on):
            return pending
        if self.moving.connect(who, clean, pending, self._now()):
            self._waiting_for.pop(pending, None)
            return None
        return pending

    def _has_to_wait(self, who: Who, then: Callable[[], None]) -> bool:
        """Whether the owner before of a session here is back, and has to say first what of it is done."""
        subscriber = self._subscriber(who)
        if subscriber is None or self.replication is None:
            return False
        try:
            origin = self.replication.settling.origin(subscriber)
        except StoreError as error:
            log.error("cannot tell of which copy the session of client=%s is: %s", who[1], error)
            return False
        if origin is None or origin.owner not in self.up():
            return False
        session = subscriber.queue.session
        return self._patience.wait(who, session, origin.owner, self._now(), then)

    def _on_move(self, peer: str, message: Any) -> None:
        if self._is_running:
            if isinstance(message, ClaimSession) and not message.clean:
                if self._has_to_wait(message.who, partial(self._receive, peer, message)):
                    return
            self._receive(peer, message)
        elif isinstance(message, SessionBatch):
            self.add(message.who, message.entries)  # nobody has them any more but this store
        elif isinstance(message, RedirectedPublish):
            for client_id in message.clients:
                self.add((message.mountpoint, client_id), [message.entry])

    def _receive(self, peer: str, message: Move) -> None:
        if isinstance(message, SessionState) and self.replication is not None:
            # It has said what it has to say: from now on it has less of the session than of the copy is left.
            self.replication.settling.close_for(message.who, peer)
        self.moving.receive(peer, message, self._now())
        if isinstance(message, InflightSent):
            self._patience.heard(message.who, peer)

    def take(self, message: Move) -> None:
        """Has this node take what another would have sent."""
        self._on_move(self.name, message)
        self._core.outbox.flush()

    def _on_owner(
        self, mountpoint: str, client_id: str, before: Record | None, after: Record | None
    ) -> None:
        if self.is_restoring and before is None and after is not None and after.node == self.name:
            return  # from before the disk was lost: `bring_back` has them all
        if self._is_running:
            self.moving.on_owner((mountpoint, client_id), before, after, self._now())
            self._learn_owner((mountpoint, client_id), after)
            # Connections may have been closed, outside of any pass of theirs.
            self._loop.call_soon(self._core.outbox.flush)

    def _learn_owner(self, who: Who, record: Record | None) -> None:
        """What a session brought along may have come before its record, which says whose it is."""
        subscriber = self._subscriber(who)
        if subscriber is None or record is None or record.node != self.name or not record.user:
            return
        if subscriber.queue.durable and subscriber.owner is None:
            self._find(who[0]).learn_owner(subscriber, record.user)

    def _when_up(self, peer: str) -> None:
        if self._is_running:
            self.moving.peer_up(peer, self._now())
            self._core.outbox.flush()

    def _when_down(self, peer: str) -> None:
        if self._is_running:
            self.moving.peer_down(peer, self._now())
            self._patience.peer_down(peer)
            self._core.outbox.flush()

    def _on_members(self, members: set[str]) -> None:
        gone, self._members = self._members - members, members
        if not self._is_running:
            return
        for peer in sorted(gone):
            self.moving.peer_gone(peer, self._now())
        # Who was taken out itself sees all others go, and is not the one to have their sessions.
        if gone and self._adoption is None and self._node.machine.membership.belongs:
            self._adoption = self._loop.create_task(self._adopt())
        self._core.outbox.flush()

    # --- what the machine asks

    def send(self, peer: str, message: Move, done: Callable[[bool], None] | None = None) -> bool:
        """Sends reliably and in order; False: there is no room now. To who is no member, nothing can be said."""
        if peer not in self._members:
            if isinstance(message, RouteMarker) and peer in self._outboxes.lost:
                self._outboxes.send(
                    peer, message
                )  # it tells what in front of it was for that session
            return done is None
        if isinstance(message, RouteMarker | RedirectedPublish):
            return self._outboxes.move(peer, message)  # it belongs where it is, or waited already
        if done is None and not isinstance(message, SessionBatch):
            return self._outboxes.send(peer, message)
        if done is not None and self._outboxes.is_filling(peer):
            return False  # publishes, which have nowhere else to wait, come first
        is_taken = False

        def later(arrived: bool) -> None:
            if not is_taken or not self._is_running:
                return
            if done is not None:
                done(arrived)
            elif (
                not arrived
            ):  # it was another node's, which has it no more: it looks for its session again
                self._loop.call_soon(self.take, message)

        is_taken = self._outboxes.send(peer, message, later)
        return is_taken

    def up(self) -> Iterable[str]:
        """The other members that can be reached."""
        return self._node.up if self._node.is_running else ()

    def down(self) -> Iterable[str]:
        """The other members that cannot."""
        return self._members.difference(self.up(), (self.name,))

    def has_heard(self) -> bool:
        """Whether this node has heard what those know that can be reached."""
        return self._node.is_running and has_heard(self._node, frozenset())

    def record(self, who: Who) -> Record | None:
        """The record of a session, as this node knows it."""
        return self._directory.record(*who)

    def user(self, who: Who) -> str:
        """The user whose session it is, by its record; "" if nobody knows."""
        return self._directory.user(*who)

    def is_of_another(self, who: Who, record: Record) -> bool:
        """Whether the durable session here is one user's, and that of the record another's."""
        subscriber = self._subscriber(who)
        if not self._core.options.sessions_are_users or subscriber is None or not record.user:
            return False
        return subscriber.is_of_another(record.user)

    def is_recent(self, record: Record) -> bool:
        """Whether the session of a record may still be on its way."""
        return record.is_recent(int(self._core.wall_clock() * 1000))

    def give(self, who: Who, node: str) -> int:
        """Makes another node the owner; returns since when."""
        self._directory.give(*who, node)
        record = self._directory.record(*who)
        assert record is not None, "what is given is there"
        return record.since

    def end(self, who: Who) -> None:
        """Ends the session, and its record if that is this node's."""
        subscriber = self._subscriber(who)
        if subscriber is not None:
            self._find(who[0]).end_session(subscriber)
        self._directory.forget(*who)

    def compare(self, who: Who) -> bool:
        """Takes out of a ghost what its new owner has had of a copy; False: there are no copies."""
        if self.replication is None:
            return False
        self._spawn(self._compare(who))
        return True

    async def _compare(self, who: Who) -> None:
        """Asks the new owner as soon as it can be reached, whoever that is then."""
        while (outgoing := self.moving.outgoing.get(who)) is not None and outgoing.is_held:
            target, ghost = outgoing.target, self._ghosts.get(who)
            if target in self.up() and self.replication is not None:
                find = partial(self._ghost_for, who, target)
                answer = await self._settle(who, target, find)
                is_same = self.moving.outgoing.get(who) is outgoing
                if is_same and outgoing.target == target and target in self.up():
                    if answer is not None and ghost is not None and find() is ghost:
                        self._leave_out_known(who, ghost, answer)
                    # Who is up and does not answer shall have all of it: better twice than never.
                    self.moving.compared(who, self._now())
                    self._core.outbox.flush()
                    return
            await asyncio.sleep(TICK)

    async def _settle(
        self, who: Who, target: str, find: Callable[[], Subscriber | None]
    ) -> ProvenanceIs | None:
        assert self.replication is not None, "there are copies"
        try:
            return await self.replication.settling.settle(who, target, find)
        except (plyvel.Error, StoreError, RuntimeError) as error:
            log.error("cannot tell what of client=%s is done: %s", who[1], text_of(error))
            return None

    def _leave_out_known(self, who: Who, ghost: Subscriber, answer: ProvenanceIs) -> None:
        assert self.replication is not None, "there are copies"
        try:
            self.replication.settling.leave_out_known(ghost, answer)
        except (plyvel.Error, StoreError) as error:
            log.error("cannot tell what is left of client=%s: %s", who[1], text_of(error))

    def _ghost_for(self, who: Who, target: str) -> Subscriber | None:
        """The ghost of a session, as long as it goes to a node that can be reached."""
        outgoing = self.moving.outgoing.get(who)
        if outgoing is None or outgoing.target != target or target not in self.up():
            return None
        return self._ghosts.get(who)

    def revive(self, who: Who) -> None:
        """Makes the ghost the session again."""
        super().revive(who)
        subscriber = self._subscriber(who)
        if subscriber is not None and self.replication is not None:
            self.replication.settling.forget(subscriber)

    def seek(self, who: Who, owner: str) -> bool:
        """Looks for a copy of the session of an owner that is down; False: there is none to be had."""
        if self.replication is None or not self._is_running or who in self._sought:
            return False
        if owner == self.name and not self.is_restoring:
            return False
        if who not in self._seeking:
            self._seeking.add(who)
            self._spawn(self._seek(who, owner))
        return True

    async def _seek(self, who: Who, owner: str) -> None:
        try:
            await self._find_copy(who, owner)
        finally:
            self._seeking.discard(who)
        self._sought.add(who)
        try:
            self.moving.sought(who, self._now())
        finally:
            self._sought.discard(who)
        self._core.outbox.flush()

    def take_back(self, who: Who) -> bool:
        """Makes the ghost of a session, whose owner is down, the session again; False: there is none."""
        is_here = who in self.moving.outgoing
        if is_here:
            self.moving.shipping.take_back(who)
        return is_here

    def made(self, who: Who) -> None:
        """A session was made here of a copy, and this node is about to be its owner."""
        self.moving.takings.made(who, self._now())

    def own(self, who: Who, since: int | None = None) -> None:
        """Writes that this node is the owner of a durable session that is here."""
        subscriber = self._subscriber(who)
        assert subscriber is not None, "only what is here has this owner"
        self._directory.claim(self._find(who[0]), subscriber, since)

    async def _find_copy(self, who: Who, owner: str) -> bool:
        if self.replication is None:
            return False
        try:
            return await self.replication.find_copy(*who, owner)
        except (plyvel.Error, StoreError, RuntimeError) as error:
            log.error("cannot take over the copy of client=%s: %s", who[1], text_of(error))
            return False

    def proceed(self, ticket: Any) -> None:
        """The CONNECT may go on."""
        self._loop.call_soon(self._enter, ticket)

    def _enter(self, ticket: Pending) -> None:
        """It does, unless its session has just gone on to another node: it would make a new one, and be the owner."""
        who = self._waiting_for.pop(ticket, None)
        if who is not None and who in self.moving.outgoing and ticket.then is not None:
            if who in self.moving.claims:
                self.refuse(ticket)
                return
            if not self.moving.connect(who, False, ticket, self._now()):
                self._waiting_for[ticket] = who
                return
        ticket.finish(None)

    def refuse(self, ticket: Any, damaged_at: str = "") -> None:
        """Another CONNECT of the session has come meanwhile, or a node has it whose store is damaged."""
        self._waiting_for.pop(ticket, None)
        verdict = Refuse(_TAKEN_OVER)
        if damaged_at:
            verdict = Refuse(f"node {damaged_at!r}: {DAMAGED}", unavailable=True)
        self._loop.call_soon(ticket.finish, verdict)

    def verdict(self, who: Who, origin: str) -> BufferVerdict:
        """What becomes of a message at a session's gate."""
        return self.moving.verdict(who, origin)

    def haunts(self, who: Who, origin: str) -> bool:
        """Whether a ghost takes a message."""
        return self.moving.shipping.haunts(who, origin)

    def ghost_took(self, who: Who) -> None:
        """It sends on, at the end of the pass, what it took in it."""
        if not self._took:
            self._loop.call_soon(self._send_on)
        self._took.add(who)

    def _send_on(self) -> None:
        took, self._took = self._took, set()
        for who in took:
            if self._is_running:
                self.moving.on_ghost(who, self._now())

    # --- what is shown

    def families(self) -> Iterator[Family]:
        """The figures of moves."""
        for name, text, value in (
            (
                "cluster_sessions_handed_over",
                "Durable sessions that began to go to another node.",
                self.handed_over,
            ),
            (
                "cluster_sessions_taken_in",
                "Durable sessions that came from another node, or of one that is down.",
                self.taken_in,
            ),
        ):
            yield Family(name, "counter", text, (Sample((), value),))
        text = "Durable sessions on their way to another node, or from one."
        moving = len(self.moving.outgoing) + len(self.moving.incoming)
        yield Family("cluster_sessions_moving", "gauge", text, (Sample((), moving),))

    # --- many at once

    async def leave(self, besides: Collection[str] = ()) -> bool:
        """Hands every durable session over to the nodes that are up; returns, when they have them, if it is all.

        A damaged one stays: nobody can read what they would have to have.
        """
        is_whole = True
        for who in self.durable():
            await self._room(AT_ONCE)
            order = ranked(key_of(who), [each for each in self.up() if each not in besides])
            record = self.record(who)
            is_own = record is not None and record.node == self.name
            if self.is_damaged(who):
                is_whole = False
                log.error("the session of client=%s stays: %s", who[1], DAMAGED)
            elif order and is_own and self.kind(who) is SessionKind.DURABLE:
                self.moving.hand_over(who, order[0], self._now())
        self._core.outbox.flush()
        await self._room(1)
        return is_whole and not any(each.is_damaged for each in self.moving.outgoing.values())

    async def _room(self, limit: int) -> None:
        """Waits until fewer than so many sessions are under way."""
        while self._under_way() >= limit:  # noqa: ASYNC110 - the machine has no loop that it could wake
            await asyncio.sleep(TICK / 10)

    def _under_way(self) -> int:
        """Sessions whose new owners have not confirmed all of them."""
        outgoing = self.moving.outgoing.values()
        return sum(each.is_under_way for each in outgoing)

    async def _adopt(self) -> None:
        """Sessions of nodes that are no members any more get new owners; clean ones are over."""
        try:
            lost = [each for each in self._directory.records() if each[2].node not in self._members]
            for number, (mountpoint, client_id, record) in enumerate(lost):
                who = (mountpoint, client_id)
                if ranked(key_of(who), (*self.up(), self.name))[0] == self.name:
                    await self._adopt_one(who, record)
                if number % AT_ONCE == AT_ONCE - 1:
                    await asyncio.sleep(0)
            if lost:
                log.info("sessions of nodes that are no members any more: %d", len(lost))
        finally:
            self._adoption = None

    async def bring_back(self) -> None:
        """Makes this node have again what its records say that it has, of copies where there are any."""
        own = [
            each
            for each in self._directory.records()
            if each[2].node == self.name and self.kind((each[0], each[1])) is SessionKind.NONE
        ]
        for at in range(0, len(own), AT_ONCE):
            step = own[at : at + AT_ONCE]
            await asyncio.gather(*(self._adopt_one((each[0], each[1]), each[2]) for each in step))
        if own:
            log.warning("sessions of this node from before its store was lost: %d", len(own))

    async def _adopt_one(self, who: Who, record: Record) -> None:
        if self.record(who) != record or self.kind(who) is not SessionKind.NONE:
            return
        if record.clean:
            if record.node == self.name:
                self._directory.forget(*who)
            else:
                self._directory.drop(*who)
            return
        if await self._find_copy(who, record.node):
            return
        if self.record(who) != record or self.kind(who) is not SessionKind.NONE:
            return
        self.moving.adopt(who, record)
