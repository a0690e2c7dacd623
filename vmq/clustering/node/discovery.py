"""A plugin's word on where other nodes are, for a node that is alone or misses some: DNS, Kubernetes, Consul know."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from vmq_cluster.errors import ClusterError

log = logging.getLogger("vmq.cluster")

#: Seconds between two questions.
INTERVAL: Final = 10.0

Ask = Callable[[], Awaitable[Sequence[str] | None]]


class LoneNode(Protocol):
    """The node, as far as it matters here."""

    @property
    def may_join(self) -> bool: ...

    def join_nowait(self, address: str) -> None: ...


class Discovery:
    """Asks, as long as the node may join; what is found is asked to take it in.

    Args:
        node: that may join.
        ask: gives addresses, or None.
    """

    def __init__(self, node: LoneNode, ask: Ask) -> None:
        self._node = node
        self._ask = ask
        self._complaint = ""

    async def run(self) -> None:
        """Looks, for ever."""
        while True:
            await self.look()
            await asyncio.sleep(INTERVAL)

    async def look(self) -> None:
        """Asks once, if there is need."""
        if not self._node.may_join:
            return
        for address in await self._ask() or ():
            try:
                self._node.join_nowait(address)
            except ClusterError as error:
                if str(error) != self._complaint:
                    self._complaint = str(error)
                    log.warning("discovered address not joined: %s", error)
