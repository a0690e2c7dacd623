"""Two nodes settle what of a session each of them has: its owner before, which is back, and who made it of a copy.

What is settled, and why in this order, stands in `vmq.clustering.replication.reconcile`. Here is the talk about it,
which the owner before begins: whence is your session (`AskProvenance`)? Of what the copy had, this is left (`Undone`).
Each answer leaves when what was done for it is stored.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

import plyvel

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.replication import (
    AskProvenance,
    Provenance,
    ProvenanceIs,
    TakenOut,
    Undone,
)
from vmq.clustering.replication.lag import EVERYTHING
from vmq.clustering.replication.leader import Leader
from vmq.clustering.replication.promotion import WHENCE, close, whence
from vmq.clustering.replication.reconcile import (
    count_waiting,
    done_inflight,
    done_waiting,
    guard,
    strip,
    take_out,
    undone,
)
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.persistence.group_commit import Committer
from vmq.store.entries import scope_of, split_scope
from vmq.store.opening import text_of
from vmq.store.store import Store, StoreError

log = logging.getLogger("vmq.cluster")

Answer = ProvenanceIs | TakenOut

#: Seconds after which a question is repeated, how often it is asked, and how often if the answer is work.
_AGAIN: Final = 0.5
_TRIES: Final = 4
_LONG_TRIES: Final = 20


class ReconcileTalk:
    """One node's side of all such talks.

    Args:
        node: the name of this one.
        core: the broker's.
        committer: writes the core's store.
        outboxes: to the others; of them only what arrives at most once.
        registries: the topic trees that there are.
        replicas: copies of this node's sessions, if there are any.
        search: by which a client's session is being made of a copy, or given one; None: it is not.
    """

    def __init__(
        self,
        node: str,
        core: Core,
        committer: Committer,
        outboxes: Outboxes,
        registries: Mapping[str, Registry],
        replicas: Leader | None,
        search: Callable[[str], asyncio.Future[None] | None],
    ) -> None:
        assert core.store is not None, "a node has a store"
        self._node = node
        self._core = core
        self._store: Store = core.store
        self._committer = committer
        self._outboxes = outboxes
        self._registries = registries
        self._replicas = replicas
        self._search = search
        self._tasks: set[asyncio.Task[None]] = set()
        self._ticket = 0
        self._asked: dict[int, asyncio.Future[Answer]] = {}

    def start(self) -> None:
        """Talks from now on."""
        self._outboxes.on(AskProvenance, self._on_ask)
        self._outboxes.on(Undone, self._on_undone)
        self._outboxes.on(ProvenanceIs, self._on_answer)
        self._outboxes.on(TakenOut, self._on_answer)

    def guard_places(self, is_sure: bool) -> None:
        """Sessions from before this life keep the places of their copies apart.

        `is_sure`: since this broker was a node last, no session has got anything.
        """
        for registry in self._registries.values():
            for subscriber in registry.subscribers.values():
                origin = self.origin(subscriber)
                if origin is not None and is_sure:
                    guard(subscriber.queue, origin)
                elif origin is not None:
                    close(self._store, subscriber.queue.session)

    def stop(self) -> list[asyncio.Task[None]]:
        """Ends; returns what is to be waited for."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        return tasks

    def _subscriber(self, client: str) -> Subscriber | None:
        mountpoint, client_id = split_scope(client.encode())
        registry = self._registries.get(mountpoint)
        found = None if registry is None else registry.subscribers.get(client_id.decode())
        return found if found is not None and found.queue.durable else None

    # --- the owner before

    async def settle(
        self, who: tuple[str, str], owner: str, ghost: Callable[[], Subscriber | None]
    ) -> ProvenanceIs | None:
        """Asks the new owner of a session of which copy that is made, and has it take out of that what is done here.

        Args:
            who: the session.
            owner: the new one.
            ghost: what is here of it still, if anything is.

        Returns:
            What it has answered; None: nothing.
        """
        client = scope_of(who[0]) + who[1]
        self._ticket += 1
        subscriber = ghost()
        mine = None if subscriber is None else self.origin(subscriber)
        found = await self._ask(owner, AskProvenance(self._ticket, client, True, mine), ghost)
        if not isinstance(found, ProvenanceIs):
            return None
        subscriber, origin = ghost(), found.whence
        if subscriber is None or origin is None or not self._may_tell(subscriber, origin):
            return found
        session = subscriber.queue.session
        received = subscriber.known_ids(self._core)
        self._ticket += 1
        said = Undone(
            self._ticket, client, found.session, *undone(self._store, session, origin), received
        )
        return None if await self._ask(owner, said, ghost) is None else found

    def _may_tell(self, subscriber: Subscriber, origin: Provenance) -> bool:
        """Whether what the session here lacks of the copy is done."""
        return origin.is_open and self._had_all(subscriber, origin)

    def _had_all(self, subscriber: Subscriber, origin: Provenance) -> bool:
        """Whether what was in a copy is of this session, and here still if it is not done."""
        if self._replicas is None or not self._is_of(subscriber, origin):
            return False
        return self._replicas.has_all(origin)

    def _is_of(self, subscriber: Subscriber, origin: Provenance) -> bool:
        return (origin.owner, origin.session) == (self._node, subscriber.queue.session)

    async def _ask(
        self, peer: str, message: AskProvenance | Undone, ghost: Callable[[], Subscriber | None]
    ) -> Answer | None:
        """The answer, as long as there is the ghost that it is about; None: there is none."""
        about = ghost()
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._asked[message.ticket] = answer
        try:
            for _ in range(_TRIES if isinstance(message, AskProvenance) else _LONG_TRIES):
                self._outboxes.send_quick(peer, message)
                await asyncio.wait([answer], timeout=_AGAIN)
                if answer.done():
                    return answer.result()
                if ghost() is not about:
                    break
            return None
        finally:
            del self._asked[message.ticket]

    def _on_answer(self, _peer: str, message: Answer) -> None:
        answer = self._asked.get(message.ticket)
        if answer is not None and not answer.done():
            answer.set_result(message)

    def leave_out_known(self, subscriber: Subscriber, answer: ProvenanceIs) -> None:
        """Takes out of a session, which has gone to another owner, what that one has, by its answer.

        What is left is to be handed over.
        """
        session, theirs, mine = subscriber.queue.session, answer.whence, self.origin(subscriber)
        if theirs is not None and self._is_of(subscriber, theirs):
            lacks = EVERYTHING if self._replicas is None else self._replicas.lacks(session, theirs)
        elif answer.has_all and mine is not None:
            # It is the owner before, which its client came back to.
            lacks = (mine.waiting, mine.inflight)
        else:
            return
        strip(self._core, subscriber, lacks)
        if self._replicas is not None:
            self._replicas.note_stripped(session)

    # --- who made it of a copy

    def origin(self, subscriber: Subscriber) -> Provenance | None:
        """The copy of which a session is, if its owner before has not said what of that is done."""
        queue = subscriber.queue
        if not queue.durable:
            return None
        if self._replicas is not None and queue.session not in self._replicas.made:
            return None
        origin = whence(self._store, queue.session)
        return origin if origin is not None and origin.is_open else None

    def opened(self, subscriber: Subscriber) -> None:
        """A copy has become this session."""
        origin = self.origin(subscriber)
        if origin is not None:
            guard(subscriber.queue, origin)

    def forget(self, subscriber: Subscriber) -> None:
        """What was sent on of a session and came back is not where it was."""
        if self.origin(subscriber) is not None:
            close(self._store, subscriber.queue.session)

    def close_for(self, who: tuple[str, str], owner: str) -> None:
        """The owner before says nothing any more of what of a session is done."""
        subscriber = self._subscriber(scope_of(who[0]) + who[1])
        if subscriber is None:
            return
        origin = self.origin(subscriber)
        if origin is not None and origin.owner == owner:
            close(self._store, subscriber.queue.session)

    def _on_ask(self, peer: str, message: AskProvenance) -> None:
        self._spawn(self._answer(peer, message))

    async def _answer(self, peer: str, message: AskProvenance) -> None:
        search = self._search(message.client)
        if search is not None:  # whence the session is, is being settled just now
            await asyncio.wait([search])
        subscriber = self._subscriber(message.client)
        found, session, has_all = None, b"", False
        if subscriber is not None:
            session = subscriber.queue.session
            has_all = message.mine is not None and self._had_all(subscriber, message.mine)
            found = whence(self._store, session)
            if found is not None and found.owner == peer and not message.tells:
                # It takes out of its own what is here, and says nothing.
                close(self._store, session)
        await self._reply(peer, ProvenanceIs(message.ticket, found, session, has_all), session)

    def _on_undone(self, peer: str, message: Undone) -> None:
        self._spawn(self._take_out(peer, message))

    async def _take_out(self, peer: str, message: Undone) -> None:
        subscriber = self._subscriber(message.client)
        if subscriber is None or subscriber.queue.session != message.session:
            return
        origin = self.origin(subscriber)
        if origin is not None and origin.owner == peer:
            self._take_out_inflight(message, subscriber, origin)
            waiting = done_waiting(self._store, message.session, origin, message.waiting)
            take_out(self._store, list(waiting))
            count_waiting(self._store, subscriber.queue)
            close(self._store, message.session)
        await self._reply(peer, TakenOut(message.ticket), message.session)

    def _take_out_inflight(
        self, message: Undone, subscriber: Subscriber, origin: Provenance
    ) -> None:
        """What the client has, or may have, of this node stays: it may answer it."""
        registry = self._registries[split_scope(message.client.encode())[0]]
        if registry.offline.get(subscriber.client_id) != origin.away_since:
            return
        queue = subscriber.queue
        queue.load_inflight()
        keys = list(done_inflight(self._store, queue.session, origin, message.inflight))
        take_out(self._store, keys)
        orders = {int.from_bytes(key[9:], "big") for key in keys}
        for delivery in queue.inflight.values():
            if delivery.order in orders:
                queue.inflight.remove(delivery)
        received = subscriber.received_ids(self._core)
        for packet_id in set(received).difference(message.received):
            self._store.remove_received(queue.session, packet_id)
        for packet_id in message.received:
            self._store.put_received(queue.session, packet_id)
        received.clear()
        received.update(message.received)

    async def _reply(self, peer: str, message: Answer, session: bytes) -> None:
        """Answers when what was noted of a session is stored, if it can be."""
        store, note = self._store, WHENCE + session
        if note in store.dirty or note in store.writing:
            await self._committer.finish_all()
        if not store.failing:
            self._outboxes.send_quick(peer, message)

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(self._contained(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _contained(self, work: Any) -> None:
        try:
            await work
        except (plyvel.Error, StoreError, RuntimeError) as error:
            log.error("cannot settle what of a session is done: %s", text_of(error))
