"""Wills that this node's earlier lives have left: what nobody has published while it was away, it publishes itself.

They are on its disk (`vmq.persistence.wills`). The nodes that kept them for it (`vmq.clustering.node.wills`) tell it of
each that they have published, or that is not to be, and at last that they keep no more: nobody decides on a will that
another is still to decide on. So all of them are published though all nodes have ended at once, the keeper with the
node, or the only node that was up.

Published twice is what a node has published that cannot be reached any more, or does not say so, or has died before.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.clients import Who
from vmq.clustering.messages.wills import WillsEnd
from vmq.core.context import Core
from vmq.core.registry import Registry
from vmq.persistence.group_commit import Committer
from vmq.persistence.wills import StoredWills, publish_all_left
from vmq.protocol.publish import Publisher
from vmq_cluster.errors import ClusterError
from vmq_cluster.node import ClusterNode

#: Wills that are published in one go.
_STEP: Final = 500
#: Rounds for which they wait for a node that says nothing; it takes few to decide on those that it keeps.
_MOST: Final = 10


class LeftWills:
    """The wills of one node's earlier lives.

    Args:
        data_dir: their folder, which has them until they are published, or not to be.
        node: which runs.
        core: the broker's.
        outboxes: to the other nodes.
        find: the topic tree of a mountpoint.

    Raises:
        ClusterError: their files cannot be used.
    """

    def __init__(
        self,
        data_dir: Path,
        node: ClusterNode,
        core: Core,
        outboxes: Outboxes,
        find: Callable[[str], Registry],
    ) -> None:
        #: Keeps those of this life, too.
        self.disk = StoredWills(data_dir)
        self._node = node
        self._core = core
        self._outboxes = outboxes
        self._left: dict[Who, Publisher] = {}
        #: Nodes in reach that may keep some of them yet.
        self._asked: set[str] = set()
        try:
            self._load(find)
        except OSError as error:
            raise ClusterError(f"the wills that were kept cannot be used: {error}") from error

    def _load(self, find: Callable[[str], Registry]) -> None:
        left = self.disk.left_over()
        found = {each.client(find(each.mountpoint)): each.number for each in left}
        self.disk.resume(found, self._outboxes.life << 16)  # greater than in the lives before
        for client in found:
            who = (client.registry.mountpoint, client.client_id)
            self.drop(who)  # it had come again, and the end of that connection was not written
            self._left[who] = client

    def drop(self, who: Who, number: int = 0) -> None:
        """A will is published, or is not to be: that of a connection, or whichever is left of a client."""
        client = self._left.get(who)
        if client is not None and number in (0, self.disk.number(client)):
            del self._left[who]
            self.disk.over(client)

    @property
    def count(self) -> int:
        """How many are left."""
        return len(self._left)

    # --- other nodes

    def on_up(self, peer: str) -> None:
        """A node is up, and is to say when it keeps none of them any more."""
        self._asked.add(peer)

    def on_answer(self, peer: str, life: int) -> None:
        """It keeps none of the lives before that one."""
        if life == self._outboxes.life:
            self._asked.discard(peer)

    def on_down(self, peer: str) -> None:
        """What it keeps it may publish, or has lost: nobody waits for it."""
        self._asked.discard(peer)

    # --- what is left

    async def run(
        self, committer: Committer, patience: float, is_back: Callable[[str, Who], bool]
    ) -> None:
        """Publishes them; returns when none is left.

        Args:
            committer: writes the broker's store.
            patience: seconds that clients have to come back, and other nodes to be in reach.
            is_back: whether a client of a node has connected since, as far as it is known.
        """
        if not self._left:
            return
        rounds = 0
        while self._left:
            await asyncio.sleep(patience)
            rounds += 1
            if not self._node.machine.membership.belongs:
                for who in list(self._left):
                    self.drop(who)  # the others have seen to them, as it was taken out
            elif (rounds > _MOST or not self._asked) and not self._is_cut_off():
                await self._publish(committer, is_back)
        for peer in self._node.members:
            if peer != self._node.name:  # for what they have kept out of reach, or are still to get
                self._outboxes.send(peer, WillsEnd(self._outboxes.life - 1))
        self._outboxes.flush()

    def _is_cut_off(self) -> bool:
        core = self._core
        return core.cluster_is_split and not core.options.allow_publish_during_netsplit

    async def _publish(self, committer: Committer, is_back: Callable[[str, Who], bool]) -> None:
        due = list(self._left)
        for at in range(0, len(due), _STEP):
            step = [who for who in due[at : at + _STEP] if who in self._left]
            gone = [who for who in step if not is_back(self._node.name, who)]
            clients = [self._left[who] for who in gone]
            if clients:
                await publish_all_left(clients, self._core, committer)
            for who in step:
                self.drop(who)
