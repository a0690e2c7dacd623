"""Which peers know which streams: what comes before its stream finds none there."""

import asyncio
from collections.abc import Callable, Container, Iterable
from functools import partial

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.streams import Define
from vmq.clustering.streams.records import StreamRecords


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
        self._told: set[tuple[str, str]] = set()  # peer and stream
        #: Who is to say that it has a stream open.
        self._asked: set[tuple[str, asyncio.Future[bool]]] = set()

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
        self._forget(lambda peer: peer not in peers)

    def forget(self, peer: str) -> None:
        """A peer is down: likewise."""
        self._forget(lambda each: each == peer)

    def end(self, stream: str) -> None:
        """A stream was deleted: another one may get its name."""
        self._told = {each for each in self._told if each[1] != stream}

    def _forget(self, is_gone: Callable[[str], bool]) -> None:
        self._told = {each for each in self._told if not is_gone(each[0])}
        for peer, answer in self._asked:
            if is_gone(peer):
                answer.cancel()

    async def tell_all(self, stream: str, patience: float) -> None:
        """Returns when all peers in reach have a stream open, or cannot; after `patience` seconds in any case."""
        definition = self._records.get("stream", stream)
        peers = sorted(self._up()) if definition else []
        if not definition or not peers:
            return
        loop = asyncio.get_running_loop()
        asked = {(peer, loop.create_future()) for peer in peers}
        self._asked |= asked
        for peer, answer in asked:
            self._outboxes.send(peer, Define(stream, definition), partial(_answered, answer))
        self._outboxes.flush()
        await asyncio.wait([answer for _, answer in asked], timeout=patience)
        self._asked -= asked


def _answered(answer: "asyncio.Future[bool]", has: bool) -> None:
    if not answer.done():
        answer.set_result(has)
