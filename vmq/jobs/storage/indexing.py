"""Makes the index of a segment, some frames at a time, so that nobody waits for it.

Of a segment that is not written any more, and not at once: most go as soon as they are full.
"""

import logging
import mmap
import struct
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from crc32c import crc32c
from mypy_extensions import i64

from vmq.jobs import record
from vmq.jobs.paging.columns import JobColumns, short_ids
from vmq.jobs.paging.pages import PAGE
from vmq.jobs.storage.frames import HEAD, HEAD_SIZE, JOB, is_close, later
from vmq.jobs.storage.indexes import IndexedJobs, SegmentIndex, write_index
from vmq.jobs.storage.plain import is_plain
from vmq.jobs.storage.segments import JobSegment, JobSegments
from vmq.jobs.storage.walking import FrameWalk

log = logging.getLogger("vmq.jobs")

#: Events that are looked at in one step, and seconds between two steps.
_STEP: Final = 200
_PAUSE: Final = 0.01
_ID_HEAD: Final = 11


class IndexMaker(FrameWalk):
    """Makes the index of one segment.

    Raises:
        OSError: the segment cannot be read.
    """

    def __init__(self, segment: JobSegment) -> None:
        self.segment = segment
        self.place: i64 = 0
        #: Events of the whole segment; those that are in no column, and what is said of them.
        self.words = array("Q")
        self.rest = array("Q")
        self.details: list[bytes] = []
        #: By queue and priority; of those that others may have by these, and how their ids begin.
        self.columns: dict[tuple[bytes, int, bytes, bytes], JobColumns] = {}
        self.runs: list[IndexedJobs] = []
        #: The highest number of a job until now: one that is not above it was added elsewhere, and moved.
        self.highest: int = 0
        with Path(segment.path).open("rb") as file:
            self.view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def step(self) -> bool:
        """Looks at some frames; whether there are more.

        Raises:
            OSError: one of them is not what was written.
        """
        frames = self.segment.frames
        left: i64 = _STEP
        while self.place < len(frames) and left > 0:
            at: i64 = frames[self.place]
            self.place += 1
            _, told_crc, _, told, _, count = HEAD.unpack_from(self.view, at)
            middle: i64 = at + HEAD_SIZE + int(told)
            data: bytes = self.view[at + HEAD_SIZE : middle]
            if crc32c(data) != told_crc:
                raise OSError(f"{self.segment.path} is damaged at {int(at)}")
            self.words.frombytes(data[: int(count) * 8])
            self.walk(data, count, middle)
            left -= 1 + int(count)
        return self.place < len(frames)

    def added(
        self,
        head: tuple[Any, ...],
        name: bytes,
        data: bytes,
        at: i64,
        serial: int,
        offset: int,
        shared: bytes,
    ) -> bool:
        job_id, created, expires, retry, ttl, delay, size = head[:7]
        lane = name, head[13], shared, job_id[:_ID_HEAD] if shared else b""
        columns = self.columns.get(lane)
        if columns is None:
            columns = self.columns[lane] = JobColumns()
        is_new = serial > self.highest
        after = later(created, delay, ttl, expires)
        self.highest = max(self.highest, serial)
        if (
            is_new
            and not head[11]
            and is_plain(head, len(shared) > 0)
            and is_close(created, delay, ttl, expires, after)
            and (shared or not columns.created or created > columns.created[-1])
        ):
            segment = self.segment.number
            columns.due = min(columns.due, expires)
            columns.add(job_id, serial, created, segment, offset, size, ttl, retry, delay, after, 0)
            if len(columns.created) >= PAGE:
                self.end_run(lane, columns)
        else:
            self.rest.append(offset << 4 | record.PLACED)
            self.rest.append(serial << 4 | record.ADDED)
            more = data[at : at + int(head[11]) + int(head[12])]
            self.details.append(JOB.pack(*head) + name + more)
            if shared:
                self.rest.append(serial << 4 | record.SHARED)
                self.details.append(shared)
        return False

    def told(self, serial: int, event: int, data: bytes, start: i64, end: i64) -> None:
        self.highest = max(self.highest, serial)
        self.rest.append(serial << 4 | event)
        if end > start:
            self.details.append(data[start:end])

    def end_run(self, lane: tuple[bytes, int, bytes, bytes], columns: JobColumns) -> None:
        """The jobs of a lane until now are a run."""
        if columns.created:
            numbers: list[tuple[str, bytes]] = [
                (each.typecode, each.tobytes()) for each in columns.columns()
            ]
            ids, count = short_ids(bytes(columns.ids)), len(columns.created)
            name, priority, shared, _ = lane
            due = int(columns.due)
            run = IndexedJobs(name, priority, count, due, ids, numbers, shared)
            self.runs.append(run)
            self.columns[lane] = JobColumns()

    def write(self) -> None:
        """Writes the index, whole or not at all.

        Raises:
            OSError: the disk.
        """
        segment = self.segment
        for lane, columns in list(self.columns.items()):
            self.end_run(lane, columns)
        last = segment.frames[-1]
        found = SegmentIndex(
            segment.size,
            self.view[last : last + HEAD_SIZE],
            segment.frames.tobytes(),
            self.words.tobytes(),
            self.runs,
            len(self.rest),
            self.rest.tobytes() + b"".join(self.details),
        )
        write_index(segment.path, found)
        segment.has_index = True

    def close(self) -> None:
        self.view.close()


class JobIndexing:
    """Makes indexes of the segments of one log.

    Args:
        segments: the files.
        later: has something called after so many seconds.
    """

    def __init__(
        self, segments: JobSegments, later: Callable[[float, Callable[[], None]], object]
    ) -> None:
        self.segments = segments
        self.later = later
        self.is_going = False
        self.is_over = False
        self.maker: IndexMaker | None = None
        #: The last segments at the last two looks: those before the first are full for a while.
        self.before = 0
        self.last = 0
        #: Those that are not what was written.
        self.damaged: set[int] = set()

    def look(self) -> None:
        """To be called now and then: begins with what was full at the last look."""
        last = self.segments.last
        self.before, self.last = self.last, 0 if last is None else last.number
        if self.begin() and not self.is_going:
            self.is_going = True
            self.later(_PAUSE, self.go_on)

    def go_on(self) -> None:
        self.is_going = self.step()
        if self.is_going:
            self.later(_PAUSE, self.go_on)

    def begin(self) -> bool:
        """Begins with a segment, unless one is begun; whether there is one."""
        if self.maker is not None or self.is_over:
            return not self.is_over
        for segment in self.segments.all.values():
            if segment.number >= self.before:
                break
            is_wanted = segment.live > 0 and len(segment.frames) > 0
            if is_wanted and not segment.has_index and segment.number not in self.damaged:
                try:
                    self.maker = IndexMaker(segment)
                except OSError as error:
                    self.fail(segment, error)
                    continue
                return True
        return False

    def step(self) -> bool:
        """Goes on; whether there is more to do."""
        maker = self.maker
        if maker is None:
            return False
        segment = maker.segment
        try:
            if segment.live and maker.step():
                return True
            if segment.live:
                maker.write()
        except (OSError, struct.error, IndexError) as error:
            self.fail(segment, error)
        maker.close()
        self.maker = None
        return self.begin()

    def fail(self, segment: JobSegment, error: Exception) -> None:
        """A segment has no index: a start reads the segment itself."""
        self.damaged.add(segment.number)
        log.warning("jobs: no index of %s: %s", segment.path, error)

    def close(self) -> None:
        """Leaves off."""
        self.is_over = True
        if self.maker is not None:
            self.maker.close()
            self.maker = None
