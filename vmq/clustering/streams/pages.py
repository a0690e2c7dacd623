"""Messages of a stream's partition, page by page, from the node that owns it (`vmq.streams.logs`).

Who reads asks in a thread of its own. The question goes to the owner in the event loop, at most once, and is asked
again until time is up: of whoever owns the partition then. The owner reads in threads of its own.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.delivery.questions import Questions
from vmq.clustering.messages.streams import AskPage, PageFound
from vmq.clustering.streams.asking import Readings, asked_in_loop
from vmq.streams.log.cursor import LogReader, PartitionLog
from vmq.streams.log.errors import StreamError
from vmq.streams.log.message import StreamMessage
from vmq.streams.logs import COLUMNS, page_of
from vmq.streams.places import Page, PageQuery

if TYPE_CHECKING:
    from vmq.clustering.streams.view import StreamsView

#: Seconds that an owner has to answer, and until it is asked again.
PATIENCE: Final = 10.0
_AGAIN: Final = 1.0

_DECODER: Final = msgspec.msgpack.Decoder(list[StreamMessage])


class Pages:
    """The pages that this node asks for, and those that others ask of it. Made in the event loop."""

    def __init__(self, streams: "StreamsView", outboxes: Outboxes, readings: Readings) -> None:
        self._streams = streams
        self._outboxes = outboxes
        self._readings = readings
        self._loop = asyncio.get_running_loop()
        self._questions = Questions[PageFound](streams.now(), _AGAIN)
        self.on_answer = self._questions.on_answer

    # --- what this node asks

    def get(self, stream: str, number: int, wanted: PageQuery) -> Page | None:
        """Some messages; None if the owner does not answer, or is this node by now. In any thread but the loop's.

        Raises:
            StreamError: the owner cannot read them.
        """
        found = asked_in_loop(self._loop, self.ask(stream, number, wanted), PATIENCE)
        if found is None:
            return None
        if found.error:
            raise StreamError(found.error)
        try:
            return Page(_DECODER.decode(found.messages), found.next)
        except msgspec.MsgspecError as error:
            raise StreamError(f"stream {stream!r}, partition {number}: {error}") from None

    async def ask(self, stream: str, number: int, wanted: PageQuery) -> PageFound | None:
        """Asks the owner for a page; None: it did not answer."""

        def say(question: int) -> bool:
            node = self._streams.owner(stream, number)
            if node is not None:
                self._outboxes.send_quick(node, AskPage(question, stream, number, *wanted))
            return node is not None

        return await self._questions.first(say, PATIENCE)

    # --- what others ask

    def on_ask(self, peer: str, asked: AskPage) -> None:
        """A peer asks for a page. If the partition is another node's, the peer will hear of that, and ask there."""
        partition = self._own(asked)
        if partition is not None:
            reading = partial(read, partition, asked)
            self._readings.begin((peer, asked), reading, partial(self._answer, peer, asked))

    def _own(self, asked: AskPage) -> PartitionLog | None:
        """The partition, if this node has it."""
        catalog = self._streams.catalog
        stream = None if catalog is None else catalog.streams.get(asked.stream)
        if stream is None or asked.partition >= len(stream.partitions):
            return None
        if self._streams.owner(asked.stream, asked.partition) is not None:
            return None
        return stream.partitions[asked.partition]

    def _answer(self, peer: str, asked: AskPage, found: PageFound) -> None:
        if self._own(asked) is not None:  # else it may have been deleted here while it was read
            self._outboxes.send_quick(peer, found)


def read(partition: PartitionLog, asked: AskPage) -> PageFound:
    """The answer to a question; in any thread."""
    question = asked.question
    extent = asked.start, asked.end, asked.rows, asked.size
    wanted = PageQuery(*extent, asked.filter, asked.payload_bytes)
    try:
        found = page_of(LogReader(partition, COLUMNS, asked.filter), wanted)
    except StreamError as error:
        return PageFound(question, error=str(error)[:4096])
    return PageFound(question, found.next, msgspec.msgpack.encode(found.messages))
