"""What has to be found out before a replay can begin: its stream, its expression, where it starts. In threads."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor, Future

import pyarrow as pa

from vmq.core.context import Core
from vmq.core.queue import Queue
from vmq.mqtt.special import STREAM, is_group
from vmq.streams.catalog import Catalog, Stream
from vmq.streams.log.errors import StreamError
from vmq.streams.logs import LogsAnywhere
from vmq.streams.reader_places import CursorError, CursorKey, FoundCursor, Place
from vmq.streams.replay.cursors import too_many
from vmq.streams.replay.group_request import GroupRequest
from vmq.streams.replay.keeping import Keeping
from vmq.streams.replay.reading import ReplayReader
from vmq.streams.replay.replay import ReplayStart
from vmq.streams.replay.request import ReplayRequest
from vmq.streams.replay.where import Expressions

log = logging.getLogger("vmq.streams")


def request_of(topic_filter: str, now: float) -> ReplayRequest | GroupRequest:
    """What a client asks for.

    Raises:
        SpecialTopicError: it means nothing; the text says what is accepted.
    """
    if is_group(topic_filter) or topic_filter.startswith(STREAM):
        return GroupRequest(topic_filter, now)
    return ReplayRequest(topic_filter, now)


class ReplayStarter:
    """Finds out.

    Args:
        core: that of the broker.
        catalog: the streams.
        threads: those that it is done in.
        keeping: where cursors are.
    """

    def __init__(self, core: Core, catalog: Catalog, threads: Executor, keeping: Keeping) -> None:
        self.core = core
        self.catalog = catalog
        self.threads = threads
        self.keeping = keeping
        self.loop = asyncio.get_running_loop()
        self.expressions = Expressions()

    def find(
        self, queue: Queue, topic_filter: str, then: Callable[[ReplayStart], None], is_new: bool
    ) -> None:
        """Looks into what a client asks for; `then` is told in the event loop, later.

        `is_new`: its session had no such subscription. Another session of the client may have had one, and a cursor.

        Raises:
            SpecialTopicError: it means nothing, or no stream has it.
        """
        request = request_of(topic_filter, self.core.wall_clock())
        stream = request.stream_of(self.catalog.streams)
        start = ReplayStart(request, stream)
        start.who = f' client={queue.client_id} filter="{topic_filter[:200]}"'
        if isinstance(request, GroupRequest):
            start.key = request.key()
        else:
            start.key = self.keeping.key_of(queue, topic_filter, request, stream.name)
            start.is_new = is_new and not request.name
            self.ask_cluster(start)

        def done(finding: "Future[None]") -> None:
            try:
                self.loop.call_soon_threadsafe(then, start)
            except RuntimeError:
                pass  # the loop has ended

        try:
            self.threads.submit(self.look, start, stream).add_done_callback(done)
        except RuntimeError:
            start.error = "the broker stops"
            self.core.call_soon(lambda: then(start))

    def ask_cluster(self, start: ReplayStart) -> None:
        """Finds the cursor of a replay as the cluster has it."""
        if start.key is None or start.is_new:
            return
        start.shared = self.keeping.found_in_cluster(start.key, start.stream.ref)
        if not self.keeping.may_have(start.key):
            start.error = too_many()

    def place(self, key: CursorKey, shared: FoundCursor | None, stream: Stream) -> Place | None:
        """Where a cursor is: as the cluster has it, unless this node has it newer; in a thread."""
        if shared is not None and not shared.is_own:
            return shared.place
        # A node that has lost its disk has what it had told the others.
        return self.keeping.find(key, stream.ref) or (shared.place if shared else None)

    def look(self, start: ReplayStart, stream: Stream) -> None:
        """Finds what a replay needs, in a thread."""
        request = start.request
        if start.error:
            return
        try:
            where: Callable[[int, pa.RecordBatch], pa.BooleanArray] | None = None
            if request.where:
                self.expressions.check(request.where)
                text, expressions = request.where, self.expressions

                def where(number: int, rows: pa.RecordBatch) -> pa.BooleanArray:
                    return expressions.mask(text, number, rows)

            if start.key is not None and not start.is_new:
                start.place = self.place(start.key, start.shared, stream)
            known = None if start.place is None else start.place.positions
            logs = LogsAnywhere(stream, self.catalog.places)
            start.reader = ReplayReader(logs, stream.name, request.filter, where)
            start.reader.who = start.who
            start.starts = start.reader.begin(request.start, known)
        except (StreamError, CursorError) as error:
            start.error = str(error)
        except Exception:
            log.exception("a replay of stream %s cannot begin", stream.name)
            start.error = "it cannot be read now"

    def stop(self) -> None:
        """Evaluates nothing more."""
        self.expressions.close()
