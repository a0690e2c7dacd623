"""Has packets made of rows in a process beside the broker (`packet_process`), for replays that have much to read."""

import logging
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
import pyarrow as pa

from vmq.core.window import LAST_ID
from vmq.mqtt.message import Message
from vmq.runtime.backoff import Backoff
from vmq.streams.far import Located
from vmq.streams.helper import HelperProcess
from vmq.streams.log.errors import StreamError
from vmq.streams.logs import RowLogs
from vmq.streams.places import PageQuery
from vmq.streams.replay.duty_cycle import LiveTraffic
from vmq.streams.replay.packet_process import (
    ANSWER,
    LARGE,
    LENGTH,
    PACKETS,
    READY,
    SLOT,
    SLOTS,
    PacketOrder,
)
from vmq.streams.replay.sending import Frames

log = logging.getLogger("vmq.streams")

COMMAND: Final = (sys.executable, "-P", "-m", "vmq.streams.replay.packet_process")
#: Seconds for a page, and without one until the process ends.
PATIENCE: Final = 10.0
IDLE: Final = 60.0
#: Offsets for which it is asked; fewer are read sooner than it is asked.
LEAST: Final = 2048
#: Pages of a partition for which it is not, after a large message.
_REST: Final = 16


class Packets:
    """Rows of a partition as packets.

    Args:
        frames: the packets.
        times: when the rows were taken, in microseconds.
        qos: that of the packets.
    """

    def __init__(self, frames: Frames, times: pa.Int64Array, qos: int) -> None:
        self.frames = frames
        self.times = times
        self.qos = qos

    @property
    def num_rows(self) -> int:
        return self.frames.count

    @property
    def nbytes(self) -> int:
        """Bytes of the packets."""
        frames = self.frames
        return int(frames.ends[frames.count] - frames.ends[0])

    def slice(self, at: int, count: int) -> "Packets":
        """Some of them."""
        whole = self.frames
        frames = Frames(
            whole.data,
            whole.ends[at : at + count + 1],
            whole.ids[at : at + count],
            whole.offsets[at : at + count],
            whole.packet_id(at),
            whole.least,
        )
        return Packets(frames, self.times.slice(at, count), self.qos)

    def messages(self) -> list[Message]:
        """What they say."""
        return [self.frames.message(at) for at in range(self.num_rows)]


class PageSlot:
    """A part of a memory that is in use as long as this is there.

    Args:
        memory: the memory.
        number: of the slot.
    """

    def __init__(self, memory: "SharedMemory", number: int) -> None:
        self.memory = memory
        self.number = number

    def __del__(self) -> None:
        self.memory.free.append(self.number)


class SharedMemory:
    """What the process and the broker share: slots that hold a page each, until nobody has any of it any more."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("vmq-packets", os.MFD_CLOEXEC)
        os.ftruncate(self.fd, SLOT * SLOTS)
        self.map = mmap.mmap(self.fd, SLOT * SLOTS, prot=mmap.PROT_READ)
        self._address: int = pa.py_buffer(self.map).address
        #: Who used the last one takes it again: it is in memory, others may not be.
        self.free = list(range(SLOTS))

    def take(self) -> PageSlot | None:
        """A slot that is free."""
        try:
            return PageSlot(self, self.free.pop())
        except IndexError:
            return None

    def view(self, slot: PageSlot, size: int) -> memoryview:
        """The first bytes of a slot, which is in use as long as somebody has some of them."""
        return memoryview(pa.foreign_buffer(self._address + slot.number * SLOT, size, base=slot))

    def close(self) -> None:
        """The memory goes with what is in use of it."""
        os.close(self.fd)


class PacketPage(NamedTuple):
    """Packets of one partition in order, perhaps none; the next page begins at offset `next`."""

    rows: Packets
    next: int


class PacketProcess:
    """The process: started when it is first wanted, anew when it has died, ended when nobody has asked for long.

    It is asked in any thread. Whoever has no answer is to read by himself.

    Args:
        live: while there is none threads read: that costs less, and keeps nobody waiting.
        command: what is run; a descriptor follows.
        idle: seconds.
        patience: seconds for an answer.
    """

    def __init__(
        self,
        live: LiveTraffic,
        command: Sequence[str] = COMMAND,
        idle: float = IDLE,
        patience: float = PATIENCE,
    ) -> None:
        self.live = live
        self.command = command
        self.idle = idle
        self.patience = patience
        self.process: HelperProcess | None = None
        self.is_ready = False
        #: Pages that it has made.
        self.pages = 0
        self.memory: SharedMemory | None = None
        self._began = self._used = self._not_before = 0.0
        self._backoff = Backoff()
        self._timer: threading.Timer | None = None
        self._is_closed = False
        self._lock = threading.Lock()

    def can_answer(self) -> bool:
        """Whether it can be asked; if not, and it is wanted, it is started."""
        if not self.live.is_on(time.monotonic()):
            return False
        if self.is_ready:
            return True
        with self._lock:
            try:
                return self._start()
            except (OSError, EOFError, TimeoutError) as error:
                self._fail(error)
                return False

    def ask(self, order: PacketOrder) -> PacketPage | bytes | None:
        """A page; `LARGE` if a message of it is; None if it cannot be had."""
        with self._lock:
            process, memory = self.process, self.memory
            slot = None if memory is None else memory.take()
            if process is None or memory is None or slot is None or not self.is_ready:
                return None
            asked = msgspec.msgpack.encode(msgspec.structs.replace(order, slot=slot.number))
            self._used = time.monotonic()
            until = self._used + self.patience
            try:
                process.write(LENGTH.pack(len(asked)) + asked, until)
                kind, count, following, size = ANSWER.unpack(process.read(ANSWER.size, until))
                if kind != PACKETS:
                    return LARGE if kind == LARGE else None
            except (OSError, EOFError, TimeoutError) as error:
                self._fail(error)
                return None
            self.pages += 1
        length = size + count * (24 if order.first else 20) + 4
        return page_of(memory.view(slot, length), count, following, order)

    def close(self) -> None:
        """Ends it; who waits for an answer has none."""
        self._is_closed = True
        process = self.process
        if process is not None:
            process.kill()
        with self._lock:
            self._end()

    def _start(self) -> bool:
        now = time.monotonic()
        if self._is_closed or now < self._not_before:
            return False
        process = self.process
        if process is None:
            self._began = self._used = now
            self.memory = SharedMemory()
            fd = self.memory.fd
            self.process = HelperProcess((*self.command, str(fd)), (fd,))
            self._wait_for_idleness(self.idle)
            return False
        if not process.has_said():
            if now - self._began > 5 * self.patience:
                raise TimeoutError("it does not begin")
            return False
        if ANSWER.unpack(process.read(ANSWER.size, now + self.patience))[0] != READY:
            raise EOFError("it says something else")
        self.is_ready = True
        self._used = now
        return True

    def _wait_for_idleness(self, seconds: float) -> None:
        self._timer = threading.Timer(seconds, self._look)
        self._timer.daemon = True
        self._timer.start()

    def _look(self) -> None:
        """Ends it, if nobody has asked for long."""
        with self._lock:
            if self.process is None or self._timer is not threading.current_thread():
                return
            # One that is only beginning is waited for: else a slow machine would end it again and again.
            longest = self.idle if self.is_ready else max(self.idle, 5 * self.patience)
            left = self._used + longest - time.monotonic()
            if left > 0:
                self._wait_for_idleness(min(left, self.idle))
            else:
                self._end()

    def _fail(self, error: Exception) -> None:
        now = time.monotonic()
        wait = self._backoff.after(now - self._began)
        self._not_before = now + wait
        if self._is_closed:
            return
        reason = str(error) or "it does not answer"
        text = 'the process that reads history ended reason="%s" again_in=%.1f: replays go on here'
        log.warning(text, reason, wait)
        self._end()

    def _end(self) -> None:
        self.is_ready = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        process, self.process = self.process, None
        if process is not None:
            process.end()
        memory, self.memory = self.memory, None
        if memory is not None:
            memory.close()


def page_of(view: memoryview, count: int, following: int, order: PacketOrder) -> PacketPage:
    """What the process has made, without a copy."""
    qos = 1 if order.first else 0
    ends_at = 16 * count
    ids_at = ends_at + 4 * (count + 1)
    data_at = ids_at + 4 * count * qos
    times = pa.Array.from_buffers(
        pa.int64(), count, [None, pa.py_buffer(view[8 * count : 16 * count])]
    )
    ends = view[ends_at:ids_at].cast("i") if count else memoryview(bytes(4)).cast("i")
    frames = Frames(
        view[data_at:],
        ends,
        view[ids_at:data_at].cast("i"),
        view[: 8 * count].cast("q"),
        order.first,
        order.least,
    )
    return PacketPage(Packets(frames, times, qos), following)


class PacketSource:
    """Where one replay has its packets from.

    Args:
        process: makes them.
        stream: what is read.
        prefix: what stands before each topic.
        as_published: RETAIN is as it was published; else 0.
        ids: the packet id of the next row that is read, and the first one after the last that there is.
        reserve: so many are taken.
    """

    def __init__(
        self,
        process: PacketProcess,
        stream: str,
        prefix: bytes,
        as_published: bool,
        ids: Callable[[], tuple[int, int]],
        reserve: Callable[[int], object],
    ) -> None:
        self.process = process
        self.stream = stream
        self.prefix = prefix
        self.as_published = as_published
        self.ids = ids
        self.reserve = reserve
        self.qos = 0
        #: Of partitions with a large message, for how many pages nobody is asked.
        self.resting: dict[int, int] = {}

    def page(self, logs: RowLogs, number: int, wanted: PageQuery) -> PacketPage | None:
        """A page of a partition; None: it is to be read here, which says why if it cannot be."""
        if wanted.end - wanted.start < LEAST or not self.process.can_answer():
            return None
        resting = self.resting.get(number, 0)
        if resting:
            self.resting[number] = resting - 1
            return None
        try:
            found = logs.locate(number, wanted.start, wanted.end)
        except (StreamError, OSError):
            return None
        if found is None or found.spot is None:
            return None
        page = self.process.ask(self.order(number, wanted, found))
        if isinstance(page, bytes):
            self.resting[number] = _REST
            return None
        if page is None or logs.owner(number):
            return None  # what another node owns is deleted here
        if self.qos:
            self.reserve(page.rows.num_rows)
        return page

    def order(self, number: int, wanted: PageQuery, found: Located) -> PacketOrder:
        first, least = self.ids() if self.qos else (0, 1)
        assert 0 <= first <= LAST_ID
        return PacketOrder(
            stream=self.stream,
            partition=number,
            wanted=wanted,
            found=found,
            slot=0,
            prefix=self.prefix,
            as_published=self.as_published,
            first=first,
            least=least,
        )
