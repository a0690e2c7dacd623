"""A node leaves: whatever it has goes to others, who learn what it took of what they had for it.

Partitions of streams and durable sessions are handed over side by side. Then this node sends what still waits here,
what came until then included; what comes later it takes no more, and says so (`vmq.clustering.messages.farewell`). So
each other node knows what on its outbox to this one is to be given to somebody else, and what is not
(`vmq.clustering.delivery.redirect`).
"""

import asyncio
import logging
from typing import Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.codec import AnyMessage, decode_parcel, with_only
from vmq.clustering.messages.publishes import RemotePublish
from vmq.clustering.messages.streams import Append
from vmq.clustering.routing.routing import Routing
from vmq.clustering.streams.service import Streams
from vmq.persistence.group_commit import Committer
from vmq_cluster.node import ClusterNode

log = logging.getLogger("vmq.cluster")

#: Seconds that a node which stops has to find out what it has; a store may hang.
_FAREWELL: Final = 0.5
#: Seconds that what comes later has, when all were taken by what came before.
_LEAST: Final = 1.0


async def say_farewell(node: ClusterNode, outboxes: Outboxes, committer: Committer) -> None:
    """This node stops: the others learn what it has of what they sent it, and need not wait for it with the rest."""
    if not node.up:
        return
    try:
        async with asyncio.timeout(_FAREWELL):
            await outboxes.say_farewell()
            await committer.finish_all()
    except TimeoutError:
        log.warning(
            "other nodes do not know what this one has of what they sent: its store does not answer"
        )
    if node.is_running:
        node.flush()


class NodeLeaving:
    """How one node leaves. No client may be here any more."""

    def __init__(
        self,
        node: ClusterNode,
        outboxes: Outboxes,
        streams: Streams,
        routing: Routing,
    ) -> None:
        self._node = node
        self._outboxes = outboxes
        self._streams = streams
        self._routing = routing

    async def leave(self, timeout: float) -> bool:  # noqa: ASYNC109 - a limit, not an error
        """Leaves; returns whether the others have all that this node had.

        Raises:
            ClusterError: the node does not belong to the cluster.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        is_given = await self._streams.leave(timeout)
        if not is_given:
            log.warning("not all partitions of streams could be handed over in %g s", timeout)
        try:
            is_sent = await self.send_rest(max(deadline - loop.time(), _LEAST))
            has_left = await self._node.leave(max(deadline - loop.time(), _LEAST))
        finally:
            self._outboxes.arrivals.open()  # for when it joins again
        return is_given and is_sent and has_left

    async def send_rest(self, timeout: float) -> bool:  # noqa: ASYNC109 - a limit, not an error
        """Sends away what still waits here, takes nothing more, and says so; returns whether the others have it all.

        What is for a node that is down goes to one that is up, and waits there.
        """
        outboxes = self._outboxes
        try:
            async with asyncio.timeout(timeout):
                for peer in sorted(set(self._node.members) - {*self._node.up, self._node.name}):
                    await self._pass_on(peer)
                outboxes.flush()
                await outboxes.sent_all()
                await outboxes.say_farewell()
                await outboxes.sent_all()
        except TimeoutError:
            return False
        return True

    async def _pass_on(self, peer: str) -> None:
        """Sends to others what waits for a node that is down, where it need not be that one which gets it."""
        outbox = self._outboxes.close(peer)
        if outbox is None:
            return
        await self._outboxes.dispatch.on_disk()
        for key, raw in outbox.stored(b"", outbox.key):
            parcel, _ = decode_parcel(raw)
            rest = [each for each in parcel.messages if not self._passes_on(each)]
            if len(rest) < len(parcel.messages):
                outbox.cut(key, raw, with_only(parcel, rest))
                self._outboxes.dispatch.changed(outbox)
            await asyncio.sleep(0)

    def _passes_on(self, message: AnyMessage) -> bool:
        """Whether a message goes another way from here."""
        if isinstance(message, Append):
            return self._streams.take_back(message) is not None
        if not isinstance(message, RemotePublish) or not message.group:
            return False
        return self._routing.pass_on(message)
