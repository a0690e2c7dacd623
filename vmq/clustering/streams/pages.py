"""Messages of a stream's partition, page by page, from the node that owns it (`vmq.streams.logs`).

Who reads asks in a thread of its own. The question goes to the owner in the event loop, at most once, and is asked
again until time is up: of whoever owns the partition then. The owner reads in threads of its own.
"""

import asyncio
import logging
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from vmq.clustering.delivery.outboxes import Outboxes
from vmq.clustering.messages.streams import AskPage, PageFound
from vmq.streams.log.cursor import LogReader, PartitionLog
from vmq.streams.log.errors import StreamError
from vmq.streams.log.message import StreamMessage
from vmq.streams.logs import COLUMNS, page_of
from vmq.streams.places import Page, PageQuery

if TYPE_CHECKING:
    from vmq.clustering.streams.view import StreamsView

log = logging.getLogger("vmq.cluster")

#: Seconds that an owner has to answer, and until it is asked again.
PATIENCE: Final = 10.0
_AGAIN: Final = 1.0
#: Seconds that the event loop may be late.
_GRACE: Final = 5.0
#: Pages that are read at a time for other nodes, and that may wait for that: more are asked for again.
_READERS: Final = 2
_MOST: Final = 64

_DECODER: Final = msgspec.msgpack.Decoder(list[StreamMessage])


class Pages:
    """The pages that this node asks for, and those that others ask of it. Made in the event loop."""

    def __init__(self, streams: "StreamsView", outboxes: Outboxes) -> None:
        self._streams = streams
        self._outboxes = outboxes
        self._loop = asyncio.get_running_loop()
        self._questions: dict[int, asyncio.Future[PageFound]] = {}
        self._last = streams.now()  # above those of an earlier life
        #: Questions of others that are being answered.
        self._reading: set[tuple[str, int]] = set()
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="vmq-pages")

    def close(self) -> None:
        """Reads nothing more."""
        self._readers.shutdown(wait=False, cancel_futures=True)

    # --- what this node asks

    def get(self, stream: str, number: int, wanted: PageQuery) -> Page | None:
        """Some messages; None if the owner does not answer, or is this node by now. In any thread but the loop's.

        Raises:
            StreamError: the owner cannot read them.
        """
        asking = self.ask(stream, number, wanted)
        try:
            answer = asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError:
            asking.close()
            return None  # the broker ends
        try:
            found = answer.result(PATIENCE + _GRACE)
        except (FutureTimeoutError, CancelledError):
            answer.cancel()
            return None
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
        self._last = question = self._last + 1
        answer: asyncio.Future[PageFound] = self._loop.create_future()
        self._questions[question] = answer
        asked = AskPage(question, stream, number, *wanted)
        try:
            async with asyncio.timeout(PATIENCE):
                while (node := self._streams.owner(stream, number)) is not None:
                    self._outboxes.send_quick(node, asked)
                    await asyncio.wait([answer], timeout=_AGAIN)
                    if answer.done():
                        return answer.result()
        except TimeoutError:
            pass
        finally:
            del self._questions[question]
        return None

    def on_answer(self, _peer: str, answer: PageFound) -> None:
        """A peer has read a page."""
        waiting = self._questions.get(answer.question)
        if waiting is not None and not waiting.done():
            waiting.set_result(answer)

    # --- what others ask

    def on_ask(self, peer: str, asked: AskPage) -> None:
        """A peer asks for a page. If the partition is another node's, the peer will hear of that, and ask there."""
        key = (peer, asked.question)
        partition = self._own(asked)
        if partition is None or key in self._reading or len(self._reading) >= _MOST:
            return
        self._reading.add(key)
        reading = self._readers.submit(read, partition, asked)
        reading.add_done_callback(partial(self._read, key, asked))

    def _own(self, asked: AskPage) -> PartitionLog | None:
        """The partition, if this node has it."""
        catalog = self._streams.catalog
        stream = None if catalog is None else catalog.streams.get(asked.stream)
        if stream is None or asked.partition >= len(stream.partitions):
            return None
        if self._streams.owner(asked.stream, asked.partition) is not None:
            return None
        return stream.partitions[asked.partition]

    def _read(self, key: tuple[str, int], asked: AskPage, done: "Future[PageFound]") -> None:
        """A page is read, in a thread; or will not be."""
        if not done.cancelled():
            try:
                self._loop.call_soon_threadsafe(self._answer, key, asked, done)
            except RuntimeError:
                pass  # the broker has ended

    def _answer(self, key: tuple[str, int], asked: AskPage, done: "Future[PageFound]") -> None:
        self._reading.discard(key)
        peer, _ = key
        error = done.exception()
        if error is not None:
            log.error("cannot read the stream %s for %s: %s", asked.stream, peer, error)
        elif self._own(asked) is not None:  # else it may have been deleted here while it was read
            self._outboxes.send_quick(peer, done.result())


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
