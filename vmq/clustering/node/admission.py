"""Whether a node serves clients: not without its place in the cluster, nor while it is drained or leaves.

A node that was removed or has left, whose name another node has, or that is to join a cluster and is not let in, would
be a broker of its own, and what clients say there would be lost on the others. So it answers each CONNECT with code 3,
says why in `/health` and once in its log, and goes on trying. `cluster.alone` has it serve all the same. Neither does a
node serve that cannot write to its storage, until it can.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from vmq.clustering.node.joining import Joining
from vmq.core.context import Core
from vmq_cluster.errors import ClusterError
from vmq_cluster.ticks import sleep_to_tick

log = logging.getLogger("vmq.cluster")

#: Seconds between two looks.
LOOK: Final = 0.2

DRAINED: Final = (
    "this node is drained: it serves clients again after `vmq cluster drain --undo` or a restart"
)
LEAVES: Final = "this node leaves its cluster"


class Admission:
    """The door of one node.

    Args:
        core: the broker's.
        joining: what the node asks of others, and hears of its place among them.
        find_node: the node; raises `ClusterError` unless it runs.
        is_alone: it serves whatever the others say.
        turn_away: closes all connections of clients, for a reason.
    """

    def __init__(
        self,
        core: Core,
        joining: Joining,
        find_node: Callable[[], object],
        is_alone: bool,
        turn_away: Callable[[str], None],
    ) -> None:
        self._core = core
        self._joining = joining
        self._find_node = find_node
        self._is_alone = is_alone
        self._turn_away = turn_away
        #: Why clients are to be served elsewhere, whatever place the node has.
        self._elsewhere = ""
        self._task: asyncio.Task[None] | None = None
        #: Who stays or goes is the broker's by now.
        self._is_over = False

    @property
    def reason(self) -> str:
        """Why no client is served; nothing if they are."""
        return self._core.shut_to_clients

    def start(self) -> None:
        """Looks from now on."""
        self._is_over = False
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Looks no more. Who stays is the broker's."""
        self._is_over = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])
        self._core.shut_to_clients = ""

    async def turn_elsewhere(self, reason: str) -> None:
        """Clients are to be served elsewhere for a reason; "": here again."""
        self._elsewhere = reason
        await self.look()

    async def look(self) -> None:
        """Finds out whether clients may be here; who is and may not be is turned away."""
        try:
            reason = self._elsewhere or await self._why_shut()
        except ClusterError as error:
            reason = str(error)
        if self._is_over:
            return
        reason = self._elsewhere or reason  # it may have been told so while it looked
        before = self._core.shut_to_clients
        self._core.shut_to_clients = reason
        if reason and not before:
            level = logging.INFO if self._elsewhere else logging.ERROR
            log.log(level, 'clients are not served reason="%s"', reason)
            self._turn_away(reason)
        elif before and not reason:
            log.info("clients are served")

    async def _why_shut(self) -> str:
        """Raises `ClusterError`: the node does not run, and who came would wait for nothing."""
        self._find_node()
        return "" if self._is_alone else await self._joining.why_shut()

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except Exception:  # a defect, which must not leave the door as it is for ever
                log.exception("internal error in a look whether clients are served")
            await sleep_to_tick(LOOK)
