"""One replay: what its threads read goes to its client, in the event loop."""

import asyncio
import logging
import math
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Final, NamedTuple

import pyarrow as pa

from vmq.core.queue import Queue
from vmq.streams.catalog import Stream
from vmq.streams.log.errors import StreamError
from vmq.streams.reader_places import NOWHERE, CursorKey, FoundCursor, Place
from vmq.streams.replay.duty_cycle import GROWING, DutyCycle
from vmq.streams.replay.frames import cut, fits, frames_of, pieces_of
from vmq.streams.replay.group_request import GroupRequest
from vmq.streams.replay.packets import PacketProcess, Packets, PacketSource
from vmq.streams.replay.reading import AGAIN, AHEAD, ReplayReader, Slab
from vmq.streams.replay.request import ReplayRequest
from vmq.streams.replay.sending import ReadyRows, ReplaySender

log = logging.getLogger("vmq.streams")

#: What a row costs beside its bytes.
_ROW: Final = 40
#: Rows that are unpacked before others may have the interpreter.
_UNPACKED: Final = 256


class Readers(NamedTuple):
    """Those who read for replays: threads, and a process that does it for them where much is read; and when."""

    threads: Executor
    packets: PacketProcess
    duty: DutyCycle


class ReplayStart:
    """What was found out before a replay can begin."""

    def __init__(self, request: ReplayRequest | GroupRequest, stream: Stream) -> None:
        self.request = request
        self.stream = stream
        self.reader: ReplayReader | None = None
        self.starts: dict[int, int] = {}
        #: When that was begun to be found out, in monotonic seconds.
        self.since = time.monotonic()
        #: Where the cursor is that it has; None: it is new, or there is none.
        self.place: Place | None = None
        self.key: CursorKey | None = None
        #: Its session had no such subscription: there is no place to go on from.
        self.is_new = False
        #: Its cursor as the cluster has it.
        self.shared: FoundCursor | None = None
        #: Whose it is, for the log, behind a space.
        self.who = ""
        #: Why it cannot.
        self.error = ""


class Replay:
    """A replay under way.

    Args:
        start: what was found out.
        queue: of the client.
        topic_filter: which subscription it is.
        sender: its sending side.
        readers: those who read.
        on_ready: told when something can go out.
        on_over: told when it ends by itself, with the reason.
    """

    def __init__(
        self,
        start: ReplayStart,
        queue: Queue,
        topic_filter: str,
        sender: ReplaySender,
        readers: Readers,
        on_ready: "Callable[[Replay], None]",
        on_over: "Callable[[Replay, str], None]",
    ) -> None:
        assert start.reader is not None
        self.request = start.request
        self.stream = start.stream
        self.reader = start.reader
        self.key = start.key
        self.queue = queue
        self.topic_filter = topic_filter
        self.sender = sender
        self.threads = readers.threads
        self.duty = readers.duty
        self.source = PacketSource(
            readers.packets,
            start.stream.name,
            start.request.prefix,
            start.request.as_published,
            lambda: (sender.next_id, queue.least_id()),
            sender.reserve,
        )
        self.on_ready = on_ready
        self.on_over = on_over
        self.loop = asyncio.get_running_loop()
        self.is_over = False
        self.is_reading = False
        #: There was more than was read: it reads history. Others are given way to, and it reads on when they have been.
        self.is_behind = False
        self.rest: asyncio.TimerHandle | None = None
        #: It rested before it read the last time, and seconds that this took.
        self.has_rested = False
        self.took = 0.0
        #: Messages that it was behind when it looked last, and when.
        self.lag = math.inf
        self.lag_at = -math.inf
        #: It fell further behind because of rests, and has not caught up since.
        self.is_hasty = False
        #: It has read all that there is.
        self.waits = False
        #: It is in the line of those that send.
        self.is_due = False
        self.again: asyncio.TimerHandle | None = None
        #: The partitions that are looked at again then, and not before.
        self.blind: set[int] = set()
        #: The partitions that are read otherwise from the next time on, and from where; None: not any more.
        self.changes: list[tuple[int, int | None]] = []
        #: Where its cursor was kept last.
        self.kept = NOWHERE
        sender.begin(start.starts)

    # Reading

    def fill(self) -> None:
        """Reads ahead, if there is room and nobody does."""
        sender = self.sender
        if self.is_reading or self.is_over or self.waits or sender.size > AHEAD // 2:
            return
        if self.rest is not None or self.rests():
            return
        self.change()
        self.is_reading = True
        try:
            reading = self.threads.submit(self.read, AHEAD - sender.size)
        except RuntimeError:
            return  # the broker stops
        reading.add_done_callback(self._read)

    def rests(self) -> bool:
        """Whether it reads later, for the sake of others."""
        wait = self.duty.wait(self.queue.core.clock()) if self.is_behind else 0.0
        if wait:
            self.has_rested = True
            self.rest = self.loop.call_later(wait, self.go_on)
        return wait > 0.0

    def go_on(self) -> None:
        """It has rested."""
        self.rest = None
        self.fill()

    def read(self, room: int) -> tuple[list[ReadyRows], bool]:
        """Reads, in a thread."""
        began = time.monotonic()
        qos = self.sender.qos
        one_by_one = self.queue.core.hooks.on_deliver is not None
        self.source.qos = qos
        self.reader.source = None if one_by_one else self.source
        slabs, more = self.reader.read(room)
        found = [self.ready(slab, qos, one_by_one) for slab in slabs]
        self.took = time.monotonic() - began
        return found, more

    def ready(self, slab: Slab, qos: int, one_by_one: bool) -> ReadyRows:
        """Rows as they go out."""
        rows, prefix = slab.rows, self.request.prefix
        item = ReadyRows(slab.partition, slab.next, rows, rows.nbytes + _ROW * rows.num_rows)
        if not rows.num_rows:
            return item
        if isinstance(rows, Packets):
            if one_by_one or rows.qos != qos:
                unpack(item, rows, prefix, self.request.as_published)
            elif qos:
                item.frames = rows.frames
            else:
                item.pieces = [*cut(rows.frames)]
            return item
        if qos and not one_by_one:
            first, least = self.sender.reserve(rows.num_rows), self.queue.least_id()
            item.frames = frames_of(rows, prefix, self.request.as_published, first, least)
            one_by_one = item.frames is None
        if one_by_one:
            unpack(item, rows, prefix, self.request.as_published)
        elif not qos:
            item.pieces = [*pieces_of(rows, prefix, self.request.as_published)]
        return item

    def _read(self, reading: "Future[tuple[list[ReadyRows], bool]]") -> None:
        try:
            self.loop.call_soon_threadsafe(self.take, reading)
        except RuntimeError:
            pass  # the loop has ended

    def take(self, reading: "Future[tuple[list[ReadyRows], bool]]") -> None:
        """A thread has read."""
        self.is_reading = False
        if self.is_over or reading.cancelled():
            return
        try:
            found, more = reading.result()
        except StreamError as error:
            self.on_over(self, str(error))
            return
        except Exception:
            log.exception("a replay of stream %s cannot be read", self.stream.name)
            self.on_over(self, "it cannot be read")
            return
        self.is_behind = more
        self.duty.spend(self.took)
        self.measure_lag()
        # What was read of a partition that it has no more, or anew, is of before.
        changed = {partition for partition, _ in self.changes}
        self.change()
        for item in found:
            if item.partition not in changed:
                self.sender.put(item)
        if found:
            self.on_ready(self)
        if more and found:
            self.fill()
            return
        self.waits = True
        # Of the news of other nodes nobody tells.
        self.blind = self.reader.away() | self.far()
        if more or self.blind:
            self.again = self.loop.call_later(AGAIN, self.wake)
        self.look()

    def measure_lag(self) -> None:
        """Tells when it falls further behind because it gives way, not because its client is slow."""
        rested, self.has_rested = self.has_rested or self.is_due, False
        now = self.queue.core.clock()
        if now < self.lag_at + GROWING:
            return
        ends = self.reader.ends()
        lag = sum(max(0, end - ends.get(at, end)) for at, end in self.reader.seen.items())
        grows = rested and lag > self.lag
        self.is_hasty = self.is_behind and (self.is_hasty or grows)
        if self.is_hasty:
            self.duty.backlogs.tell(now, grows=grows)
        self.lag, self.lag_at = lag, now

    def change(self) -> None:
        """Reads other partitions from now on."""
        for partition, start in self.changes:
            self.reader.set_part(partition, start)
        self.changes.clear()

    def far(self) -> set[int]:
        """The partitions that other nodes have."""
        logs = self.reader.logs
        return {number for number in range(logs.count()) if logs.owner(number)}

    def look(self) -> None:
        """Looks whether a partition has more than was read."""
        if not self.waits:
            return
        ends, grows = self.reader.ends(), self.reader.grows
        for partition in self.stream.partitions:
            number = partition.number
            if number in self.blind or not (grows or number in ends):
                continue
            if partition.end > ends.get(number, 0):
                self.wake()
                return

    def wake(self) -> None:
        """There may be more."""
        if self.again is not None:
            self.again.cancel()
            self.again = None
        self.waits = False
        self.fill()

    # Sending

    def step(self, until: float) -> bool:
        """Sends for a while; True if more could go out now."""
        sender = self.sender
        if sender.items and self.queue.core.hooks.on_deliver is not None:
            item = sender.items[0]
            if (item.pieces or item.frames) and not item.at:  # a plugin came meanwhile
                item.pieces, item.frames = [], None
                unpack(item, item.rows, self.request.prefix, self.request.as_published)
        more = sender.step(until)
        self.fill()
        return more

    # How far it is

    def place(self) -> Place:
        return Place(self.sender.positions(), {})

    def moved(self) -> int:
        return 0 if self.key is None else self.sender.moved

    def settle(self) -> None:
        self.sender.moved = 0

    def stop(self) -> None:
        """Nothing more is read or sent."""
        self.is_over = True
        for timer in (self.again, self.rest):
            if timer is not None:
                timer.cancel()
        self.again = self.rest = None


def unpack(
    item: ReadyRows, rows: pa.RecordBatch | Packets, prefix: bytes, as_published: bool
) -> None:
    """Rows that go out one by one."""
    if isinstance(rows, Packets):
        messages = rows.messages()
        item.topics = [each.topic for each in messages]
        item.payloads = [each.payload for each in messages]
        item.offsets = [*rows.frames.offsets]
        item.retained = [each.retain for each in messages]
        return
    mask = fits(rows, prefix)
    if mask is not None:
        rows = rows.filter(mask)
    encoded = rows.column("topic").dictionary_encode()
    names = [prefix + each.encode() for each in encoded.dictionary.to_pylist()]
    for at in range(0, rows.num_rows, _UNPACKED):
        part = rows.slice(at, _UNPACKED)
        item.topics += [names[each] for each in encoded.indices.slice(at, _UNPACKED).to_pylist()]
        item.payloads += part.column("payload").to_pylist()
        item.offsets += part.column("offset").to_pylist()
        item.retained += [as_published and each for each in part.column("retain").to_pylist()]
        time.sleep(0)  # the event loop may wait for the interpreter
