"""Which streams this node has told peers of, or they it: what comes before its stream finds none."""

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.streams import Define
from vmq.clustering.streams.metadata import comes_after, stream_id_of
from vmq.clustering.streams.records import StreamRecords

if TYPE_CHECKING:
    from vmq.streams.catalog import Stream

#: Seconds after which what a peer said is taken for old: three rounds of anti-entropy.
PATIENCE: Final = 30.0


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


class AnnouncedStreams:
    """Streams that were made anew under their names, which peers know sooner than this node does.

    As long as the metadata tell here of the one before, or of no more than its end, what comes for them would go into
    a log that is to be deleted, or nowhere. So that waits until they are open here. In the event loop.
    """

    def __init__(self, records: StreamRecords) -> None:
        self._records = records
        self._waiting: dict[str, tuple[str, list[Callable[[], None]]]] = {}

    def hear(self, name: str, definition: bytes) -> None:
        """A peer says what a stream is."""
        known = self._records.get("stream", name)
        if known is None or not comes_after(definition, known) or name in self._waiting:
            return
        stream_id = stream_id_of(definition)
        self._waiting[name] = stream_id, []
        asyncio.get_running_loop().call_later(PATIENCE, self._end, name, stream_id)

    def __contains__(self, name: str) -> bool:
        return name in self._waiting

    def then(self, name: str, call: Callable[[], None]) -> bool:
        """Whether a stream is waited for; `call` is called after that."""
        if name not in self._waiting:
            return False
        self._waiting[name][1].append(call)
        return True

    def look(self, streams: "Mapping[str, Stream]") -> None:
        """These are the streams of this node now."""
        for name, (stream_id, _) in list(self._waiting.items()):
            if name in streams and streams[name].stream_id >= stream_id:
                self._end(name, stream_id)

    def _end(self, name: str, stream_id: str) -> None:
        if name in self._waiting and self._waiting[name][0] == stream_id:
            for call in self._waiting.pop(name)[1]:
                call()
