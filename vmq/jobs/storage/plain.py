"""Jobs that only were added: at a start they are pages at once, and those that are gone are not even looked at."""

from array import array
from itertools import compress
from operator import lt
from typing import Any, Final

from mypy_extensions import i64

from vmq.jobs import record
from vmq.jobs.columns import (
    CREATED,
    RETRY,
    SERIAL,
    SIZE,
    JobColumns,
    at_place,
    is_rising,
    long_ids,
    whole,
)
from vmq.jobs.machine import JobMachine
from vmq.jobs.queue import Job, JobLane, JobPage, LanePages
from vmq.jobs.storage.frames import ALIKE_SIZE, CLOSE, IS_QUEUED, ends
from vmq.jobs.storage.indexes import IndexedJobs
from vmq.jobs.storage.segments import JobSegment

#: What becomes of a job: nothing, or a worker or operator did something with it, or it is gone.
_PLAIN: Final = 1
_TOUCHED: Final = 2
_GONE: Final = 3
_IS_PLAIN: Final = bytes([each == _PLAIN for each in range(256)])
#: Numbers of jobs in one log; in one with more every job is looked at.
_MOST_FATES: Final = 1 << 28
_KEY_SIZE: Final = 11
_SECOND: Final = 1_000_000_000
#: Jobs that are alike and worth to be looked at together.
_MANY: Final = 4


class PlainJobs:
    """Those of one log.

    Args:
        machine: has no jobs yet.
        now: by its clock.
    """

    def __init__(self, machine: JobMachine, now: float) -> None:
        self.machine = machine
        self.now = now
        #: All events in their order, and what becomes of each job by them, from a number on.
        self.words: array[int] = array("Q")
        self.fates = bytearray()
        self.least: i64 = 0
        #: By queue and priority, as long as they make no page.
        self.plain: dict[bytes, JobColumns] = {}
        machine.pager.now = now

    def tell_fates(self) -> int:
        """What becomes of each job: that saves most of the work. Returns the number of the next job."""
        words = self.words
        if not words:
            return 1
        self.least = min(words) >> 4
        most: i64 = max(words) >> 4
        size: i64 = most - self.least + 1
        if size > _MOST_FATES:
            return int(most) + 1
        fates = self.fates = bytearray(size)
        least: i64 = self.least
        for each in words:
            word: i64 = each
            place: i64 = (word >> 4) - least
            event: i64 = word & 15
            fate: i64 = fates[place]
            if (event == record.ADDED or event == record.ADDED_ALIKE) and not fate:
                fates[place] = _PLAIN
            elif event == record.GONE:
                fates[place] = _GONE
            elif fate != _GONE:
                fates[place] = _TOUCHED
        self.words = array("Q")
        return int(most) + 1

    def is_over(self, serial: i64, head: tuple[Any, ...]) -> bool:
        """Whether a job is gone, and so is its key."""
        place: i64 = serial - self.least
        return place < len(self.fates) and self.fates[place] == _GONE and not head[_KEY_SIZE]

    def keep(
        self,
        head: tuple[Any, ...],
        name: bytes,
        serial: i64,
        segment: JobSegment,
        offset: int,
    ) -> bool:
        """Keeps a job that only was added, of a long queue in a page; False: it is none of these."""
        place: i64 = serial - self.least
        if place >= len(self.fates) or self.fates[place] != _PLAIN:
            return False
        if not is_plain(head):
            return False
        job_id, created, expires, retry, ttl, delay, size = head[:7]
        columns = self.columns_of(name, head[13])
        if columns.created and created <= columns.created[-1]:
            return False
        if not self.is_in_time(columns, retry, expires):
            return False
        if abs(expires - ends(created, delay, ttl)) > CLOSE:
            return False
        columns.due = min(columns.due, (expires - self.machine.wall) / _SECOND)
        columns.add(job_id, serial, created, segment.number, offset, size, ttl, retry, delay)
        self.kept(columns, segment, 1, size)
        return True

    def keep_alike(
        self,
        head: tuple[Any, ...],
        name: bytes,
        serial: int,
        events: "memoryview[int]",
        data: bytes,
        at: i64,
        segment: JobSegment,
        offset: int,
    ) -> int:
        """Keeps jobs that are as one that was kept before them, from a number on; returns how many."""
        columns = self.columns_of(name, head[13])
        most: i64 = min(len(events), self.machine.pager.size - len(columns.created))
        count: i64 = 0
        wanted: int = serial << 4 | record.ADDED_ALIKE
        while count < most and events[count] == wanted:
            wanted += 16
            count += 1
        place: i64 = serial - self.least
        if count < _MANY or self.fates.count(_PLAIN, place, place + count) != count:
            return 0
        retry, ttl, delay, size = head[3:7]
        words = array("q")
        words.frombytes(data[at : at + count * ALIKE_SIZE])
        width: i64 = ALIKE_SIZE // 8
        created = words[width - 1 :: width]
        if created[0] <= head[1] or not all(map(lt, created, created[1:])):
            return 0
        first = ends(created[0], delay, ttl)
        if not self.is_in_time(columns, retry, first):
            return 0
        columns.due = min(columns.due, (first - self.machine.wall) / _SECOND)
        ids = array("q", bytes(8 * (width - 1) * count))
        for word in range(width - 1):
            ids[word :: width - 1] = words[word::width]
        columns.add_alike(ids.tobytes(), serial, created, segment.number, offset, head)
        self.kept(columns, segment, count, size)
        return count

    def keep_indexed(self, jobs: IndexedJobs, segment: JobSegment) -> list[Job]:
        """Keeps those of an index to which nothing happened, in pages; returns the others that there still are."""
        pager = self.machine.pager
        count = jobs.count
        columns = self.columns_of(jobs.queue, jobs.priority)
        lane = columns.lane
        assert lane is not None
        numbers = [array(code, data) for code, data in jobs.columns]
        fates = self.fates_of(numbers[SERIAL], count)
        plain: i64 = fates.count(_PLAIN)
        if plain and not self.may_follow(columns, numbers, count, jobs.ends):
            fates = fates.replace(bytes([_PLAIN]), bytes([_TOUCHED]))
            plain = 0
        due = (jobs.ends - self.machine.wall) / _SECOND
        if plain:
            segment.live += plain
            sizes = compress(whole(numbers[SIZE], count), fates.translate(_IS_PLAIN))
            segment.live_bytes += sum(sizes)
        if plain == count and 2 * count >= pager.size:
            self.keep_page(columns)
            pager.put_page(
                self.enter(lane, numbers[CREATED], count),
                JobPage(lane, jobs.ids, numbers, count),
                due,
            )
            return []
        ids = long_ids(jobs.ids, count)
        if plain:
            columns.due = min(columns.due, due)
            columns.add_some(ids, numbers, fates.translate(_IS_PLAIN))
            if len(columns.created) >= pager.size:
                self.keep_page(columns)
        others = {place for place, fate in enumerate(fates) if fate != _TOUCHED}
        return pager.unpack(lane, ids, numbers, others) if len(others) < count else []

    def fates_of(self, serials: "array[int]", count: int) -> bytes:
        """What became of jobs whose numbers are in a column."""
        if not self.fates:
            return bytes([_TOUCHED]) * count
        least: int = self.least
        if is_rising(serials):
            first = serials[0] - least
            return bytes(self.fates[first : first + count])
        fates = self.fates
        return bytes([fates[each - least] for each in whole(serials, count)])

    def may_follow(
        self, columns: JobColumns, numbers: "list[array[int]]", count: int, ends: int
    ) -> bool:
        """Whether jobs of an index are younger than those that are kept, and their time ends late enough."""
        first = at_place(numbers[CREATED], 0)
        lane = columns.lane
        assert lane is not None
        newest = 0 if lane.more is None else lane.more.newest
        if columns.created:
            newest = columns.created[-1]
        if first <= newest:
            return False
        retries = set(whole(numbers[RETRY], count))
        return all(self.is_in_time(columns, retry, ends) for retry in retries)

    def columns_of(self, name: bytes, priority: int) -> JobColumns:
        """Those of one queue and priority."""
        key = lane_key(name, priority)
        columns = self.plain.get(key)
        if columns is None:
            machine = self.machine
            queue = machine.queues.get(name) or machine.make_queue(name, self.now)
            columns = self.plain[key] = JobColumns()
            columns.lane = queue.lane(priority)
        return columns

    def is_in_time(self, columns: JobColumns, retry: int, expires: int) -> bool:
        """Whether the time to live of a job ends late enough as it is: the clock may have been set."""
        lane = columns.lane
        assert lane is not None
        if retry < 0:
            retry = lane.queue.rules.retry_after(0)
        return (expires - self.machine.wall) / _SECOND >= self.now + retry

    def kept(self, columns: JobColumns, segment: JobSegment, count: int, size: int) -> None:
        """Jobs were kept in columns, which are a page when they are long enough."""
        segment.live += count
        segment.live_bytes += size * count
        lane = columns.lane
        if lane is not None and len(columns.created) >= self.machine.pager.size:
            self.keep_page(columns)

    def keep_page(self, columns: JobColumns) -> None:
        """Jobs of one lane are a page."""
        lane = columns.lane
        assert lane is not None
        if not columns.created:
            return
        more = self.enter(lane, columns.created, len(columns.created))
        self.machine.pager.add_page(lane, more, columns, columns.due)
        following = self.plain[lane_key(lane.queue.name, lane.priority)] = JobColumns()
        following.lane = lane

    def enter(self, lane: JobLane, created: "array[int]", count: int) -> LanePages:
        """So many jobs are queued in a lane."""
        machine = self.machine
        more = lane.more
        if more is None:
            more = lane.more = LanePages(machine.pager)
        machine.last_created = max(machine.last_created, at_place(created, count - 1))
        lane.queue.depth += count
        lane.queue.jobs += count
        return more

    def rest(self) -> list[Job]:
        """Jobs that make no page."""
        found: list[Job] = []
        for columns in self.plain.values():
            lane = columns.lane
            if lane is not None and columns.created:
                ids = bytes(columns.ids)
                found.extend(self.machine.pager.unpack(lane, ids, columns.columns(), None))
        return found


def lane_key(name: bytes, priority: int) -> bytes:
    """By which the columns of a lane are kept."""
    return b"%d " % priority + name


def is_plain(head: tuple[Any, ...]) -> bool:
    """Whether a job was queued when it was added, to no purpose but that: without key, reason and deliveries."""
    is_new = not (head[7] or head[8] or head[9])
    return is_new and not head[_KEY_SIZE] and not head[12] and head[14] == IS_QUEUED
