"""Which peers know which streams: what comes before its stream finds none there."""

import asyncio
from collections.abc import Callable, Container, Iterable
from functools import partial
from typing import Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.streams import Define
from vmq.clustering.streams.records import StreamRecords

#: Seconds between two looks whether all have answered.
_SOON: Final = 0.02


class Introductions:
    """What this node has told others of streams, since they are up.

    Args:
        records: the cluster's.
        outboxes: to the other nodes.
        up: the peers that can be reached.
    """

    def __init__(
        self, records: StreamRecords, outboxes: Outboxes, up: Callable[[], Iterable[str]]
    ) -> None:
        self._records = records
        self._outboxes = outboxes
        self._up = up
        self._told: set[tuple[str, str]] = set()

    def tell(self, peer: str, stream: str) -> bool:
        """Makes sure that a peer knows a stream before what is sent to it next; False if there is no room."""
        if (peer, stream) in self._told:
            return True
        definition = self._records.get("stream", stream)
        if definition and not self._outboxes.send(peer, Define(stream, definition)):
            return False
        self._told.add((peer, stream))
        return True

    def keep(self, peers: Container[str]) -> None:
        """Others than these may have forgotten when they are back."""
        self._told = {each for each in self._told if each[0] in peers}

    def forget(self, peer: str) -> None:
        """A peer is down: likewise."""
        self._told = {each for each in self._told if each[0] != peer}

    async def tell_all(self, stream: str, patience: float) -> None:
        """Returns when all peers in reach have a stream open, or cannot; after `patience` seconds in any case."""
        definition = self._records.get("stream", stream)
        if not definition:
            return
        now = asyncio.get_running_loop().time
        until, waited = now() + patience, set(self._up())

        def answered(peer: str, _has: bool) -> None:
            waited.discard(peer)

        for peer in sorted(waited):
            self._outboxes.send(peer, Define(stream, definition), partial(answered, peer))
        self._outboxes.flush()
        while waited & set(self._up()) and now() < until:  # noqa: ASYNC110 - who goes down does not tell
            await asyncio.sleep(_SOON)
