"""The thread that reads sealed segments again, slowly and off the event loop: damage is found before a reader meets it.

What disks lose they lose silently, mostly in what nobody has read for long (Bairavasundaram et al., FAST 2008); file
systems and stores that keep checksums scrub for that reason. Here it is every batch's CRC-32C, in every sealed segment.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from vmq.streams.log.errors import DamagedError, PartitionFailures
from vmq.streams.log.partition import Partition
from vmq.streams.log.recovery import examine
from vmq.streams.log.segment import Sealed

log = logging.getLogger("vmq.streams")

#: Seconds between the beginnings of two rounds; one that takes longer is followed by the next at once.
EVERY: Final = 86_400.0
#: Bytes a second, unless the configuration says something else.
RATE: Final = 4 << 20
#: Seconds of reading between two pauses.
STEP: Final = 0.1


class _StoppedError(Exception):
    """The broker ends."""


class Scrubber:
    """Reads the sealed segments that there are, round after round.

    Args:
        partitions: those that there are.
        rate: bytes a second; 0: no rounds, only what is asked for.
        every: seconds between two rounds.
    """

    def __init__(
        self,
        partitions: Callable[[], Iterable[Partition]],
        rate: int = RATE,
        every: float = EVERY,
    ) -> None:
        self.partitions = partitions
        self.rate = rate
        self.every = every
        #: Partitions that somebody wants to have looked at now, as fast as that goes.
        self.asked: deque[Partition] = deque()
        self.failures = PartitionFailures("cannot be looked through for damage")
        self.news = threading.Event()
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.run, name="vmq-streams-scrub", daemon=True)
        self._read = 0

    def start(self) -> None:
        """Starts the thread."""
        self.thread.start()

    def stop(self) -> None:
        """Ends the thread after the batch that it is at."""
        self.stopping.set()
        self.news.set()
        if self.thread.ident is not None:
            self.thread.join()

    def ask(self, partition: Partition) -> None:
        """Has a partition looked at before all others."""
        self.asked.append(partition)
        self.news.set()

    def run(self) -> None:
        """The thread."""
        due = time.monotonic()
        try:
            while not self.stopping.is_set():
                self.news.clear()
                self._answer()
                if self.rate and time.monotonic() >= due:
                    due = time.monotonic() + self.every
                    self.round()
                self.news.wait(max(0.0, due - time.monotonic()) if self.rate else None)
        except _StoppedError:
            pass

    def round(self) -> None:
        """Reads all sealed segments that there are, at the rate."""
        for partition in list(self.partitions()):
            self._scrub(partition, self._pause)

    def _answer(self) -> None:
        while self.asked:
            self._scrub(self.asked.popleft(), self._go_on)

    def _scrub(self, partition: Partition, pace: Callable[[int], None]) -> None:
        with self.failures.watch(partition, (_StoppedError,)):
            self._scrub_segments(partition, pace)

    def _scrub_segments(self, partition: Partition, pace: Callable[[int], None]) -> None:
        for sealed in partition.sealed:
            if partition.gone or partition.closed:
                return
            if sealed.path in partition.flaws:
                continue
            try:
                scrub(partition, sealed, pace)
            except FileNotFoundError:
                continue  # the retention deleted it, or it was joined with its neighbours
            except DamagedError as damage:
                partition.note(damage)
            except OSError as error:
                why = f"it cannot be read: {error.strerror or error}"
                partition.note(DamagedError(sealed.path, 0, sealed.base, why))

    def _go_on(self, _size: int) -> None:
        if self.stopping.is_set():
            raise _StoppedError

    def _pause(self, size: int) -> None:
        """Bytes were read: takes the time that they may take."""
        self._read += size
        seconds = self._read / self.rate
        if seconds >= STEP:
            self._read = 0
            self._wait(seconds)
        self._go_on(size)

    def _wait(self, seconds: float) -> None:
        """Lets time pass, and does meanwhile what is asked for."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0 and not self.stopping.is_set():
            self.news.wait(left)
            self.news.clear()
            self._answer()


def scrub(partition: Partition, sealed: Sealed, pace: Callable[[int], None]) -> None:
    """Reads a sealed segment from end to end, from the disk and not from what the kernel has of it in memory.

    Args:
        partition: whose it is.
        sealed: the segment.
        pace: called behind each batch, with its bytes.

    Raises:
        DamagedError: it is not what was written.
        OSError: it is gone, or cannot be read.
    """
    with sealed.path.open("rb") as file:
        fd = file.fileno()
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        examine(fd, sealed.path, sealed.base, partition.header, pace)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
