"""Group commit of all streams: one number for what gathered in every few milliseconds.

The numbers are one sequence for all streams. Whoever waits, waits for a number of the partition that
has the rows (`vmq.disk.durable`), and for no other partition. They are closed in order and committed in
order. One commit is on its way to the disk at a time; while it is, the next one gathers, so that a
slow disk makes larger commits, not more of them.

What gathers is bounded. From half the limit on, publishers are to be read no more (`on_pressure`); at
the limit messages are not taken: those of QoS 0 are lost to the stream and counted, the others stay
unacknowledged, so their publishers send them again.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, Protocol

from vmq.disk.durable import Durable
from vmq.streams.log.writer import Commit, Item, PartitionWriter

#: Seconds that a commit gathers.
FLUSH_INTERVAL: Final = 0.005

#: Bytes of messages that may wait for the disk. Writing them takes about as much again.
LIMIT: Final = 64 << 20

#: Bytes that an appender takes before it asks for room, and that it gets more of then.
STEP: Final = 64 << 10

#: Bytes at which a commit is closed out of turn.
EARLY: Final = 1 << 20


class Taking:
    """What is handed to the streams, if it is to be known again after a crash (`vmq.streams.serving.receipts`)."""

    def __init__(self) -> None:
        #: Its receipt; "": it has none.
        self.receipt = ""
        #: The streams that have it in memory, and the numbers of their partitions.
        self.places: list[tuple[str, int]] = []
        #: The streams in front of which it waits for their partition's next owner.
        self.held: list[str] = []


class Gatherer(Protocol):
    """An appender, as the commits see it."""

    size: int
    room: int

    def take(self) -> Iterator[Item]:
        """Hands over what is gathered."""


class Commits:
    """The commits of one broker, in its event loop.

    `on_committed(number)` says that this commit and all before it are as durable as their streams
    ask; `on_pressure(bool)` that publishers should (not) be held up; `on_failure(text | None)`
    that the disk fails, or is well again. All are called in the loop.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit: int = LIMIT, interval: float = FLUSH_INTERVAL
    ) -> None:
        self.loop = loop
        self.limit = limit
        self.interval = interval
        self.writer = PartitionWriter(failed=self._failed)
        self.on_committed: Callable[[int], None] = lambda _number: None
        self.on_pressure: Callable[[bool], None] = lambda _on: None
        self.on_failure: Callable[[str | None], None] = lambda _text: None
        #: Calls what it is given, which hands a commit to the writer, as soon as the commit may be written.
        self.when_known: Callable[[Callable[[], None]], None] = lambda submit: submit()
        self.taking = Taking()
        #: The commit that gathers now; the last one that is done.
        self.number = 1
        self.committed = 0
        #: Why the disk fails; None = it does not.
        self.failure: str | None = None
        self.touched: list[Gatherer] = []
        #: Rows that come whole, and their bytes; they are written in front of what gathers.
        self.whole: list[Item] = []
        self.whole_size = 0
        self.handle: asyncio.Handle | None = None
        self.due = False
        self.in_flight: int = 0
        self.is_writing = False
        #: The partitions that the commit is for which is on its way.
        self.writing: list[Durable] = []
        self.pressing = False
        self.waiters: list[tuple[int, asyncio.Future[None]]] = []

    def start(self) -> None:
        """Starts the writer."""
        self.writer.start()

    def touch(self, appender: Gatherer) -> None:
        """An appender has its first message since it was taken from."""
        self.touched.append(appender)
        if self.handle is None:
            self.handle = self.loop.call_later(self.interval, self.flush)

    def add(self, item: Item, size: int) -> int:
        """Has rows written with the commit that gathers, whatever waits already; returns its number."""
        self.whole.append(item)
        self.whole_size += size
        if self.handle is None:
            self.handle = self.loop.call_later(self.interval, self.flush)
        self.press()
        return self.number

    def flush(self) -> None:
        """Closes the gathering commit and hands it to the writer; later, if that is at one."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None
        if self.is_writing:
            self.due = True
            return
        self.due = False
        if not self.touched and not self.whole:
            return
        touched, self.touched = self.touched, []
        whole, self.whole = self.whole, []
        self.in_flight = self.whole_size + sum(appender.size for appender in touched)
        self.whole_size = 0
        items = [*whole, *(item for appender in touched for item in appender.take())]
        number = self.number
        self.number = number + 1
        self.is_writing = True
        self.writing = [item.safe for item in items if item.safe is not None]
        commit = Commit(items, partial(self._in_loop, self.finish, number))
        self.when_known(partial(self.writer.submit, commit))

    def finish(self, number: int) -> None:
        """A commit is durable."""
        self.committed = number
        self.in_flight = 0
        self.is_writing = False
        writing, self.writing = self.writing, []
        for safe in writing:
            safe.advance(number)
        self.press()
        self.on_committed(number)
        while self.waiters and self.waiters[0][0] <= number:
            waiter = self.waiters.pop(0)[1]
            if not waiter.done():
                waiter.set_result(None)
        if self.due:
            self.flush()

    def pending(self) -> int:
        """Bytes of messages that are not durable yet."""
        return self.in_flight + self.whole_size + sum(appender.size for appender in self.touched)

    def make_room(self, appender: Gatherer, size: int) -> bool:
        """Whether an appender may take `size` more bytes; it asks when its room is used up."""
        pending = self.pending()
        if pending >= EARLY and not self.is_writing:
            self.flush()
            pending = self.in_flight
        if pending and pending + size > self.limit:
            self.press()
            return False
        appender.room = appender.size + max(size, min(STEP, self.limit - pending))
        self.press()
        return True

    def press(self) -> None:
        """Says when publishers should be held up, and when no more."""
        pending = self.pending()
        if not self.pressing and pending * 2 > self.limit:
            self.pressing = True
            self.on_pressure(True)
        elif self.pressing and pending * 4 < self.limit:
            self.pressing = False
            self.on_pressure(False)

    async def wait(self) -> None:
        """Waits until everything that was appended before is durable."""
        wanted = self.number if self.touched or self.whole else self.number - 1
        if wanted <= self.committed:
            return
        waiter: asyncio.Future[None] = self.loop.create_future()
        self.waiters.append((wanted, waiter))
        self.flush()
        await waiter

    async def close(self, patience: float = 5.0) -> bool:
        """Writes what is gathered and ends the thread; False if that took longer than `patience` seconds."""
        written = True
        try:
            async with asyncio.timeout(patience):
                await self.wait()
        except TimeoutError:
            written = False
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None
        await self.loop.run_in_executor(None, self.writer.stop)
        return written

    def _failed(self, text: str | None) -> None:
        self._in_loop(self._note_failure, text)

    def _note_failure(self, text: str | None) -> None:
        self.failure = text
        self.on_failure(text)

    def _in_loop(self, function: Callable[..., None], *arguments: object) -> None:
        """Has a function called in the loop; called in the writer's thread."""
        try:
            self.loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            pass  # the loop has ended: nobody waits for an acknowledgement any more
