"""A client that comes to this node and has a connection to another: that one ends first [MQTT-3.1.4-2].

The directory says which node has a client's connection. A CONNECT waits until that node has closed it, for as long as
the node can be reached, and for `PATIENCE` at most. When both sides of a split have the same client, the record that is
newer stays when they meet (`vmq.clustering.directory.records.merge`), and the other node closes its connection.

Sessions that outlive their connections are in slots (`vmq.clustering.slots`): their connections are taken over as those
of clean sessions are, and the sessions stay where they are.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Final

from vmq_hooks.verdicts import Refuse

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.records import Record
from vmq.clustering.directory.rendezvous import ranked
from vmq.clustering.messages.clients import ClaimSession, SessionFree, Who
from vmq.core.context import Core
from vmq.core.hook_sites import Pending
from vmq.core.ports import Claims
from vmq.core.registry import Registry
from vmq.core.subscriber import Subscriber
from vmq.store.entries import scope_of
from vmq_cluster.effects import MembersChanged, PeerDown
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

#: Seconds that a CONNECT waits for a node that can be reached and says nothing.
PATIENCE: Final = 10.0
#: How often a claim is sent on.
MAX_HOPS: Final = 8
#: Records that are looked at in one go.
AT_ONCE: Final = 200

_TAKEN_OVER: Final = "taken over by a new connection of the client id [MQTT-3.1.4-2]"
_ELSEWHERE: Final = "taken over by a connection to another node [MQTT-3.1.4-2]"


class WaitingClaim:
    """A CONNECT that waits, whom its node has asked, and when it waits no longer."""

    __slots__ = ("asked", "deadline", "pending")

    def __init__(self, pending: Pending) -> None:
        self.pending = pending
        self.asked = ""
        self.deadline: asyncio.TimerHandle | None = None


class ClientTakeover(Claims):
    """The clients of one node.

    Args:
        core: the broker's.
        registries: the topic trees that there are.
        node: which runs.
        outboxes: to the other nodes.
        directory: which node has which client.
    """

    def __init__(
        self,
        core: Core,
        registries: Mapping[str, Registry],
        node: ClusterNode,
        outboxes: Outboxes,
        directory: Directory,
    ) -> None:
        super().__init__()
        self._core = core
        self._registries = registries
        self._node = node
        self._outboxes = outboxes
        self._directory = directory
        self._waiting: dict[Who, WaitingClaim] = {}
        self._loop = asyncio.get_running_loop()
        self._is_running = False
        self._members: set[str] = set()
        self._forgetting: asyncio.Task[None] | None = None

    # --- its life

    def start(self) -> None:
        """To be called before other nodes and clients are heard."""
        self._is_running = True
        self._outboxes.on(ClaimSession, self._on_claim)
        self._outboxes.on(SessionFree, lambda _, message: self._go_on(message.who))
        self._directory.on_owner(self._on_owner)
        self._node.on(PeerDown, lambda _: self._look_again())
        self._node.on(MembersChanged, lambda _: self._on_members())
        self._core.claims = self
        self._members = set(self._node.members)
        self._forget_soon()  # who was removed while this node was about to forget, or away

    def stop(self) -> None:
        """Nobody waits any more."""
        self._is_running = False
        self._core.claims = Claims()
        for who in list(self._waiting):
            self._end_wait(who)
        if self._forgetting is not None:
            self._forgetting.cancel()

    # --- clients of this node

    def claim(
        self, registry: Registry, client_id: str, clean: bool, user: str = "", options: Any = None
    ) -> Pending | None:
        """A client has come: `Claims.claim`."""
        who = (registry.mountpoint, client_id)
        before = self._end_wait(who)
        if before is not None:
            self._loop.call_soon(before.finish, Refuse(_TAKEN_OVER))
        if not self.elsewhere(*who):
            return None
        pending = Pending(lambda: self._cancel(who, pending))
        self._waiting[who] = waiting = WaitingClaim(pending)
        waiting.deadline = self._loop.call_later(PATIENCE, self._go_on, who)
        self._ask(who, waiting)
        return pending

    def elsewhere(self, mountpoint: str, client_id: str) -> str:
        record = self._directory.record(mountpoint, client_id)
        if record is None or record.node == self._node.name or record.node not in self._up():
            return ""
        return record.node

    def _up(self) -> list[str]:
        return list(self._node.up) if self._node.is_running else []

    def _ask(self, who: Who, waiting: WaitingClaim) -> None:
        record = self._directory.record(*who)
        if record is not None and record.node != waiting.asked:
            if self._outboxes.send(record.node, ClaimSession(*who, self._node.name)):
                waiting.asked = record.node

    def _look_again(self) -> None:
        for who, waiting in list(self._waiting.items()):
            self._look_at(who, waiting)
        if self._is_running:
            self._core.outbox.flush()

    def _look_at(self, who: Who, waiting: WaitingClaim) -> None:
        if not self.elsewhere(*who):
            self._go_on(who)
        else:
            self._ask(who, waiting)

    def _go_on(self, who: Who) -> None:
        """Its CONNECT need not wait any longer."""
        pending = self._end_wait(who)
        if pending is not None:
            self._loop.call_soon(pending.finish, None)

    def _cancel(self, who: Who, pending: Pending) -> None:
        waiting = self._waiting.get(who)
        if waiting is not None and waiting.pending is pending:
            self._end_wait(who)

    def _end_wait(self, who: Who) -> Pending | None:
        waiting = self._waiting.pop(who, None)
        if waiting is None:
            return None
        if waiting.deadline is not None:
            waiting.deadline.cancel()
        return waiting.pending

    # --- clients who come to another

    def _on_claim(self, _peer: str, claim: ClaimSession) -> None:
        record = self._directory.record(*claim.who)
        if record is not None and record.node != self._node.name:
            if record.node != claim.node and claim.hops < MAX_HOPS:
                sent_on = ClaimSession(*claim.who, claim.node, hops=claim.hops + 1)
                self._outboxes.send(record.node, sent_on)
            return
        self._end(claim.who)
        self._outboxes.send(claim.node, SessionFree(*claim.who))

    def _on_owner(
        self, mountpoint: str, client_id: str, _before: Record | None, after: Record | None
    ) -> None:
        if not self._is_running:
            return
        if after is not None and after.node != self._node.name:
            self._end((mountpoint, client_id))
            # A connection may have been closed, outside of any pass of its own.
            self._loop.call_soon(self._core.outbox.flush)
        waiting = self._waiting.get((mountpoint, client_id))
        if waiting is not None:
            self._look_at((mountpoint, client_id), waiting)
            self._loop.call_soon(self._core.outbox.flush)

    def _end(self, who: Who) -> None:
        """Ends the connection that a client has here, and what ends with it."""
        registry = self._registries.get(who[0])
        subscriber = self._subscriber(who)
        if registry is not None and subscriber is not None:
            if subscriber.output is not None:
                self._core.counters.takeovers += 1
                subscriber.output.close(_ELSEWHERE)
            if self._subscriber(who) is subscriber:
                registry.end_session(subscriber)
        self._directory.forget(*who)

    def _subscriber(self, who: Who) -> Subscriber | None:
        registry = self._registries.get(who[0])
        return None if registry is None else registry.subscribers.get(who[1])

    # --- nodes that are no members any more

    def _on_members(self) -> None:
        gone, self._members = self._members - set(self._node.members), set(self._node.members)
        if gone:
            self._forget_soon()
        self._look_again()

    def _forget_soon(self) -> None:
        # Who was taken out itself sees all others go, and is not the one to forget their clients.
        if not self._node.machine.membership.belongs:
            return
        if self._forgetting is not None:
            self._forgetting.cancel()  # it has passed over some of who is gone now
        self._forgetting = self._loop.create_task(self._forget_gone())

    async def _forget_gone(self) -> None:
        """Their clients' records go: one of the nodes that are left sees to each."""
        count = 0
        for number, found in enumerate(self._directory.records_while_written()):
            mountpoint, client_id, record = found
            if record.node not in self._members:
                count += 1
                order = ranked(scope_of(mountpoint) + client_id, (*self._up(), self._node.name))
                if order[0] == self._node.name:
                    self._directory.drop(mountpoint, client_id)
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
        if count:
            log.info("clients of nodes that are no members any more: %d", count)
