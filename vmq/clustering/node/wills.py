"""Wills of clients whose node ends before it could publish them: another node keeps them, and publishes them then.

Each will is with one other node that is up, on another host: the owner of its client's slot or a follower, if there is
one. That one publishes it when the node of the client's connection has been away for `cluster.heartbeat_timeout`, or
was away and came back in another life, and the client has not come back anywhere meanwhile: with the rights that it has
then, as any will (`vmq.protocol.will_publish`).

A node that is cut off looks like one that has ended: after that time wills of its clients are published on the other
side. When it is back, it says again which of its clients are there.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.rendezvous import ranked
from vmq.clustering.messages.clients import Who
from vmq.clustering.messages.publishes import flags_of
from vmq.clustering.messages.wills import ForgetWill, KeepWill, WillsBegin, WillsEnd
from vmq.core.context import Core
from vmq.core.ports import Wills
from vmq.core.registry import Registry
from vmq.mqtt.message import Message, Sourced
from vmq.persistence.wills import publish_left
from vmq.protocol.publish import Publisher
from vmq.runtime.metrics import Family, Sample
from vmq.store.entries import scope_of
from vmq_cluster.effects import MembersChanged, PeerDown, PeerUp
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

#: Wills that are sent, or published, in one go.
_STEP: Final = 500


class OwnWill:
    """The will of a client of this node, and who keeps it ("": nobody)."""

    __slots__ = ("client", "keeper", "will")

    def __init__(self, client: Publisher, will: KeepWill) -> None:
        self.client = client
        self.will = will
        self.keeper = ""


class ClusterWills(Wills):
    """The wills of one node's clients, and those that it keeps.

    Args:
        node: which runs.
        core: the broker's.
        outboxes: to the other nodes.
        directory: which node has which session.
        find: the topic tree of a mountpoint.
        patience: seconds for which a node may be away before its clients are taken for gone.
        rank: of a client, the nodes that are to keep its will before others, best first.
    """

    def __init__(
        self,
        node: ClusterNode,
        core: Core,
        outboxes: Outboxes,
        directory: Directory,
        find: Callable[[str], Registry],
        patience: float,
        rank: Callable[[str], list[str]] | None = None,
    ) -> None:
        super().__init__()
        self._node = node
        self._core = core
        self._outboxes = outboxes
        self._directory = directory
        self._find = find
        self._patience = patience
        self._rank = rank
        self._own: dict[Who, OwnWill] = {}
        self._number = 0
        self._kept: dict[str, dict[Who, KeepWill]] = {}
        #: The lives of nodes of which this one knows that they have begun, until they are down.
        self._lives: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._is_running = False
        #: Wills of other nodes' clients that were published here since the start.
        self.published = 0

    def families(self) -> Iterator[Family]:
        """The figures of it."""
        kept = sum(map(len, self._kept.values()))
        text = "Wills of clients of other nodes that are kept here."
        yield Family("cluster_wills_kept", "gauge", text, (Sample((), kept),))
        text = "Wills published here of clients whose node was away for too long, or came back without them."
        yield Family("cluster_wills_published", "counter", text, (Sample((), self.published),))

    # --- its life

    def start(self) -> None:
        """Wills are kept from now on. No client is here yet."""
        self._is_running = True
        outboxes, node = self._outboxes, self._node
        outboxes.on(WillsBegin, self._on_begin)
        outboxes.on(KeepWill, self._on_keep)
        outboxes.on(ForgetWill, self._on_forget)
        outboxes.on(WillsEnd, self._on_end)
        node.on(PeerUp, lambda effect: self._on_up(effect.peer))
        node.on(PeerDown, lambda effect: self._on_down(effect.peer))
        node.on(MembersChanged, lambda effect: self._on_members(set(effect.members)))
        self._core.wills = self
        for peer in node.up:
            self._on_up(peer)

    def stop(self) -> None:
        """The clients' connections have ended: nobody is to publish their wills."""
        self._core.wills = Wills()
        self._is_running = False
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        for peer in self._node.up if self._node.is_running else ():
            self._outboxes.send_quick(peer, WillsEnd(self._outboxes.life))
        self._node.flush()

    # --- clients of this node

    def left(self, client: Publisher) -> None:
        """A client has connected with a will."""
        will = client.will
        if will is None:
            return
        self._number += 1
        who = (client.registry.mountpoint, client.client_id)
        kept = KeepWill(
            *who,
            self._outboxes.life,
            self._number,
            will.topic,
            will.payload,
            flags_of(will.qos, will.retain),
            client.username,
        )
        self._own[who] = own = OwnWill(client, kept)
        self._entrust(own)

    def over(self, client: Publisher) -> None:
        """Its connection is over, and the will with it."""
        who = (client.registry.mountpoint, client.client_id)
        own = self._own.get(who)
        if own is None or own.client is not client:
            return  # it has a newer one
        del self._own[who]
        if own.keeper:
            will = own.will
            self._outboxes.send(own.keeper, ForgetWill(*will.who, will.life, will.number))

    def _entrust(self, own: OwnWill) -> None:
        will = own.will
        client, up = scope_of(will.mountpoint) + will.client_id, self._node.up
        order = [each for each in self._rank(client) if each in up] if self._rank else []
        order = order or ranked(client, up)
        own.keeper = order[0] if order and self._outboxes.send(order[0], will) else ""

    def _entrust_again(self, keepers: tuple[str, ...]) -> None:
        """What these kept is to be kept by somebody; with "": what nobody did."""
        found = [each for each in self._own.values() if each.keeper in keepers]
        if found:
            self._spawn(self._entrust_all(found))

    async def _entrust_all(self, found: list[OwnWill]) -> None:
        for at in range(0, len(found), _STEP):
            for own in found[at : at + _STEP]:
                if self._own.get(own.will.who) is own:
                    self._entrust(own)
            self._outboxes.flush()
            await asyncio.sleep(0)

    # --- clients of others

    def _on_begin(self, peer: str, message: WillsBegin) -> None:
        before, self._lives[peer] = self._lives.get(peer), message.life
        kept = self._kept.get(peer, {})
        for who in [who for who, will in kept.items() if will.life == message.life]:
            del kept[who]
        if kept:  # of an earlier life, with which their connections have ended
            self._wait_for(peer)
        if before not in (None, message.life):  # it was back before it was missed
            self._on_up(peer)

    def _on_keep(self, peer: str, will: KeepWill) -> None:
        for other, kept in self._kept.items():
            if other != peer:
                kept.pop(will.who, None)  # the client has come back
        self._kept.setdefault(peer, {})[will.who] = will
        known = self._lives.get(peer, 0)
        if will.life != known:  # its WillsBegin may have come before it was up here
            self._lives[peer] = max(will.life, known)
            self._wait_for(peer)

    def _on_forget(self, peer: str, message: ForgetWill) -> None:
        kept = self._kept.get(peer, {})
        will = kept.get(message.who)
        if will is not None and (will.life, will.number) <= (message.life, message.number):
            del kept[message.who]

    def _on_end(self, peer: str, message: WillsEnd) -> None:
        kept = self._kept.get(peer, {})
        for who in [who for who, will in kept.items() if will.life <= message.life]:
            del kept[who]

    # --- other nodes

    def _on_up(self, peer: str) -> None:
        if self._is_running:
            # In front of all that is sent from now on: that waits for the store.
            self._outboxes.send_quick(peer, WillsBegin(self._outboxes.life))
            self._entrust_again(("", peer))
            self._outboxes.flush()

    def _on_down(self, peer: str) -> None:
        if not self._is_running:
            return
        self._entrust_again((peer,))
        self._lives.pop(peer, None)
        if self._kept.get(peer):
            self._wait_for(peer)

    def _on_members(self, members: set[str]) -> None:
        for peer in self._kept.keys() - members:
            if self._is_running and self._kept[peer]:
                self._wait_for(peer)

    def _wait_for(self, peer: str) -> None:
        if peer not in self._timers:
            self._timers[peer] = self._loop.call_later(self._patience, self._when_over, peer)

    def _when_over(self, peer: str) -> None:
        del self._timers[peer]
        if not self._node.machine.membership.belongs:
            self._kept.clear()  # it is this node that is out: the others look after each other
        kept = self._kept.get(peer, {})
        is_up = peer in self._node.up
        found = [
            will for will in kept.values() if not (is_up and will.life == self._lives.get(peer))
        ]
        for will in found:
            del kept[will.who]
        if found:
            self._spawn(self._publish_all(peer, found))

    async def _publish_all(self, peer: str, found: list[KeepWill]) -> None:
        for at in range(0, len(found), _STEP):
            for will in found[at : at + _STEP]:
                if not self._is_back(peer, will.who):
                    self._publish(will)
            self._outboxes.flush()
            await asyncio.sleep(0)
        log.info("published wills of clients of node=%s, which was away: %d", peer, len(found))

    def _is_back(self, peer: str, who: Who) -> bool:
        """Whether a client has connected elsewhere since, as far as it is known."""
        if who in self._own or any(who in kept for kept in self._kept.values()):
            return True
        subscriber = self._find(who[0]).subscribers.get(who[1])
        if subscriber is not None and subscriber.queue.online:
            return True
        record = self._directory.record(*who)
        return record is not None and record.node != peer

    def _publish(self, will: KeepWill) -> None:
        parts = (will.topic, will.payload, will.qos, will.retain)
        message = Message(*parts)
        if will.retain:
            message = Sourced(*parts, will.client_id, will.username)
        self.published += 1
        publish_left(self._find(will.mountpoint), will.client_id, will.username, message)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
