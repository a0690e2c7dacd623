"""Wills of clients whose node ends before it could publish them: another node keeps them, and publishes them then.

Each will is with one other node that is up, on another host: the owner of its client's slot or a follower, if there is
one. That one publishes it when the node of the client's connection has been away for `cluster.heartbeat_timeout`, or
was away and came back in another life, and the client has not come back anywhere meanwhile: with the rights that it has
then, as any will (`vmq.protocol.will_publish`).

A node that is cut off looks like one that has ended: after that time wills of its clients are published on the other
side. When it is back, it says again which of its clients are there.

A node that comes back in another life has the wills of those before on its disk: `vmq.clustering.node.left_wills`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.directory.directory import Directory
from vmq.clustering.directory.records import Record
from vmq.clustering.directory.rendezvous import ranked
from vmq.clustering.messages.clients import Who
from vmq.clustering.messages.publishes import flags_of
from vmq.clustering.messages.wills import ForgetWill, KeepWill, WillsBegin, WillsEnd
from vmq.clustering.node.left_wills import LeftWills
from vmq.core.context import Core
from vmq.core.ports import Wills
from vmq.core.registry import Registry
from vmq.persistence.group_commit import Committer
from vmq.persistence.wills import absent_client, publish_left
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
        left: those of earlier lives of this node, with the disk that keeps them for the next.
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
        left: LeftWills,
        find: Callable[[str], Registry],
        patience: float,
        rank: Callable[[str], list[str]] | None = None,
    ) -> None:
        super().__init__()
        self._node = node
        self._core = core
        self._outboxes = outboxes
        self._directory = directory
        self._left_before = left
        self._disk = left.disk
        self._find = find
        self._patience = patience
        self._rank = rank
        self._own: dict[Who, OwnWill] = {}
        self._kept: dict[str, dict[Who, KeepWill]] = {}
        #: The lives that nodes have told in answer to the last question to each, and the numbers of those questions.
        self._lives: dict[str, int] = {}
        self._questions: dict[str, int] = {}
        self._question = outboxes.life << 16  # greater than in the lives before
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
        self._directory.on_owner(self._on_owner)
        self._core.wills = self
        for peer in node.up:
            self._on_up(peer)

    def publish_from_before(self, committer: Committer) -> None:
        """Wills of this node's earlier lives are published, once their clients have had time to come back."""
        self._spawn(self._left_before.run(committer, self._patience, self._is_back))

    def stop(self) -> None:
        """The clients' connections have ended: nobody is to publish their wills."""
        self._core.wills = Wills()
        self._is_running = False
        for timer in self._timers.values():
            timer.cancel()
        for task in self._tasks:
            task.cancel()
        is_told = self._node.is_running and not self._left_before.count
        for peer in self._node.up if is_told else ():
            self._outboxes.send_quick(peer, WillsEnd(self._outboxes.life))
        self._node.flush()
        self._disk.close()

    # --- clients of this node

    def left(self, client: Publisher) -> None:
        """A client has connected with a will."""
        will = client.will
        if will is None:
            return
        self._disk.left(client)
        who = (client.registry.mountpoint, client.client_id)
        kept = KeepWill(
            *who,
            self._outboxes.life,
            self._disk.number(client),
            will.topic,
            will.payload,
            flags_of(will.qos, will.retain),
            client.username,
        )
        self._own[who] = own = OwnWill(client, kept)
        self._entrust(own)

    def over(self, client: Publisher) -> None:
        """Its connection is over, and the will with it."""
        self._disk.over(client)
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
        if message.is_asking:
            self._begin(peer, message.question)
            if message.life != self._lives.get(peer, message.life):
                self._ask(peer)  # it has begun a life, and was not missed
        elif message.question in (0, self._questions.get(peer)):
            self._lives[peer] = message.life
        if message.life == self._lives.get(peer):
            kept = self._kept.get(peer, {})
            for who in [who for who, will in kept.items() if will.life == message.life]:
                del kept[who]
            if kept:  # of an earlier life, with which their connections have ended
                self._wait_for(peer)
            else:
                self._answer(peer)
        # What it kept in an earlier life, or until it lost sight of this node, it keeps no more.
        self._entrust_again(("", peer) if message.is_asking else ("",))

    def _on_keep(self, peer: str, will: KeepWill) -> None:
        if will.life != self._lives.get(peer):
            return  # it was under way for longer than that life, or than this node was away: it comes again
        self._came(will.who, peer)
        self._kept.setdefault(peer, {})[will.who] = will
        if peer not in self._node.up:  # it waited here
            self._wait_for(peer)

    def _on_owner(
        self, mountpoint: str, client_id: str, _before: Record | None, after: Record | None
    ) -> None:
        if after is None or not self._is_running:
            return
        # Another node may tell of a connection of an earlier life of this one.
        is_there = after.node != self._node.name or client_id in self._find(mountpoint).subscribers
        if is_there:
            self._came((mountpoint, client_id), after.node)

    def _came(self, who: Who, node: str) -> None:
        """A client has connected to a node: nobody is to publish its will of a connection before."""
        self._left_before.drop(who)
        for other, kept in self._kept.items():
            if other != node and (before := kept.pop(who, None)) is not None:
                self._settle(other, before)

    def _on_forget(self, peer: str, message: ForgetWill) -> None:
        self._left_before.drop(message.who, message.number)
        kept = self._kept.get(peer, {})
        will = kept.get(message.who)
        if will is not None and (will.life, will.number) <= (message.life, message.number):
            del kept[message.who]

    def _on_end(self, peer: str, message: WillsEnd) -> None:
        if message.is_yours:
            self._left_before.on_answer(peer, message.life)
            return
        kept = self._kept.get(peer, {})
        for who in [who for who, will in kept.items() if will.life <= message.life]:
            del kept[who]

    def _answer(self, peer: str) -> None:
        """Tells a node that no will of its earlier lives is kept here, if that is so."""
        life, kept = self._lives.get(peer), self._kept.get(peer, {})
        if life and all(will.life == life for will in kept.values()):
            self._outboxes.send(peer, WillsEnd(life, is_yours=True))

    def _settle(self, peer: str, will: KeepWill) -> None:
        """Tells a node that may have the will on its disk that it is published, or is not to be."""
        if not self._is_current(peer, will) and peer in self._node.members:
            self._outboxes.send(peer, ForgetWill(*will.who, will.life, will.number))

    # --- other nodes

    def _on_up(self, peer: str) -> None:
        if self._is_running:
            self._left_before.on_up(peer)
            self._ask(peer)
            self._outboxes.flush()

    def _ask(self, peer: str) -> None:
        """None of its wills is kept here but those that follow its answer."""
        self._lives.pop(peer, None)
        self._question += 1
        self._questions[peer] = self._question
        self._begin(peer, self._question, is_asking=True)

    def _begin(self, peer: str, question: int, is_asking: bool = False) -> None:
        """In order with the wills, behind those of earlier lives that are still on their way."""
        self._outboxes.move(peer, WillsBegin(self._outboxes.life, is_asking, question))

    def _on_down(self, peer: str) -> None:
        if not self._is_running:
            return
        self._entrust_again((peer,))
        self._left_before.on_down(peer)
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
        if kept and peer in self._node.up and peer not in self._lives:
            self._wait_for(peer)  # it is yet to say whether that life has ended
        elif found := [will for will in kept.values() if not self._is_current(peer, will)]:
            self._spawn(self._publish_all(peer, found))
        else:
            self._answer(peer)

    def _is_current(self, peer: str, will: KeepWill) -> bool:
        """Whether the life in which its client connected is not over."""
        return peer in self._node.up and will.life == self._lives.get(peer)

    async def _publish_all(self, peer: str, found: list[KeepWill]) -> None:
        for at in range(0, len(found), _STEP):
            for will in found[at : at + _STEP]:
                kept = self._kept.get(peer, {})
                if kept.get(will.who) is not will:
                    continue
                del kept[will.who]
                if not self._is_back(peer, will.who):
                    self._publish(will)
                self._settle(peer, will)
            self._outboxes.flush()
            await asyncio.sleep(0)
        self._answer(peer)
        self._outboxes.flush()
        log.info("settled wills of clients of node=%s, which was away: %d", peer, len(found))

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
        self.published += 1
        registry = self._find(will.mountpoint)
        publish_left(absent_client(registry, will.client_id, will.username, parts))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
