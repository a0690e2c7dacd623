"""Jobs that only were added: at a start they are pages at once, and those that are gone are not even looked at."""

from array import array
from itertools import compress
from operator import lt
from struct import iter_unpack
from typing import Any, Final

from mypy_extensions import i64

from vmq.jobs import record
from vmq.jobs.machine import JobMachine
from vmq.jobs.paging.columns import (
    CREATED,
    ID,
    RETRY,
    SERIAL,
    SHARE,
    SIZE,
    JobColumns,
    at_place,
    is_rising,
    long_ids,
    whole,
)
from vmq.jobs.queue import AWAY, DEAD, GONE, Job, JobPage, LanePages
from vmq.jobs.queues import window_of
from vmq.jobs.storage.frames import (
    ALIKE_SIZE,
    IS_DELAYED,
    IS_QUEUED,
    JOB_SIZE,
    ends,
    is_close,
    later,
    nodes_of,
)
from vmq.jobs.storage.indexes import IndexedJobs
from vmq.jobs.storage.segments import JobSegment

#: What becomes of a job: nothing, or a worker or operator did something with it, or it is gone.
_PLAIN: Final = 1
_TOUCHED: Final = 2
_GONE: Final = 3
#: Its key was released, and it is gone, too.
_RELEASED: Final = 4
_OVER: Final = 5
_IS_PLAIN: Final = bytes([each == _PLAIN for each in range(256)])
#: Numbers of jobs in one log; in one with more every job is looked at.
_MOST_FATES: Final = 1 << 28
_KEY_SIZE: Final = 11
#: Of a header: id, when the job was added, when its time ends.
_TIMES_END: Final = 56
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
        #: Pages of what other nodes may have; the numbers of who may.
        self.copies: list[JobPage] = []
        self.shares: dict[bytes, int] = {}
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
        added: i64 = -1
        for each in words:
            word: i64 = each
            place: i64 = (word >> 4) - least
            event: i64 = word & 15
            fate: i64 = fates[place]
            if not fate and is_adding(event):
                fates[place] = _PLAIN
            elif event == record.SHARED and place == added:
                pass  # that others may have it was said when it was added
            elif event == record.GONE:
                fates[place] = _OVER if fate >= _RELEASED else _GONE
            elif event == record.RELEASED:
                fates[place] = _OVER if fate in {_GONE, _OVER} else _RELEASED
            elif fate < _GONE:
                fates[place] = _TOUCHED
            added = place if is_adding(event) else -1
        self.words = array("Q")
        return int(most) + 1

    def is_over(self, serial: i64, head: tuple[Any, ...]) -> bool:
        """Whether a job is gone, and so is its key."""
        place: i64 = serial - self.least
        if place >= len(self.fates):
            return False
        fate: i64 = self.fates[place]
        return fate == _OVER or (fate == _GONE and not head[_KEY_SIZE])

    def keep(
        self,
        head: tuple[Any, ...],
        name: bytes,
        serial: i64,
        segment: JobSegment,
        offset: int,
        shared: bytes,
        key: bytes,
    ) -> bool:
        """Keeps a job that only was added, of a long queue in a page, or of which only the key is left; False: it is
        none of these.
        """
        place: i64 = serial - self.least
        if place >= len(self.fates) or key[:1] == b"\0":
            return False
        if key and self.fates[place] == _GONE:
            return self.keep_key(head, name, serial, segment, offset, key)
        if self.fates[place] != _PLAIN:
            return False
        if not is_plain(head, len(shared) > 0):
            return False
        job_id, created, expires, retry, ttl, delay, size = head[:7]
        columns = self.columns_of(name, head[13], shared, job_id)
        if not shared and created <= newest_of(columns):
            return False
        if not self.is_in_time(columns, retry, expires):
            return False
        after = later(created, delay, ttl, expires)
        if not is_close(created, delay, ttl, expires, after):
            return False
        if key:
            columns.keys[len(columns.created)] = key
        columns.due = min(columns.due, (expires - self.machine.wall) / _SECOND)
        number, share = segment.number, self.share_of(shared)
        columns.add(job_id, serial, created, number, offset, size, ttl, retry, delay, after, share)
        self.kept(columns, segment, 1, size)
        return True

    def keep_key(
        self,
        head: tuple[Any, ...],
        name: bytes,
        serial: int,
        segment: JobSegment,
        offset: int,
        key: bytes,
    ) -> bool:
        """Keeps the key of a job that is gone, unless it keeps nobody out any more; whether that was seen to."""
        name = name.removesuffix(DEAD)
        columns = self.columns_of(name, 0, b"", head[0], is_gone=True)
        lane = columns.lane
        assert lane is not None
        added = min((head[1] - self.machine.wall) / _SECOND, self.now)
        until = added + window_of(key, lane.queue.rules)
        if until <= self.now:
            return True
        columns.due = until if columns.due == float("inf") else max(columns.due, until)
        columns.keys[len(columns.created)] = key
        columns.add(head[0], serial, head[1], segment.number, offset, head[6], 0, 0, 0, 0, 0)
        self.kept(columns, segment, 1, head[6])
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
        shared: bytes,
    ) -> int:
        """Keeps jobs that are as one that was kept before them, from a number on; returns how many."""
        columns = self.columns_of(name, head[13], shared, head[0])
        most: i64 = min(len(events), self.machine.pager.size - len(columns.created))
        count: i64 = 0
        wanted: int = serial << 4 | (record.SHARED_ALIKE if shared else record.ADDED_ALIKE)
        while count < most and events[count] == wanted:
            wanted += 16
            count += 1
        place: i64 = serial - self.least
        if count < _MANY or self.fates.count(_PLAIN, place, place + count) != count:
            return 0
        retry, ttl, delay, size = head[3:7]
        after = later(head[1], delay, ttl, head[2])
        words = array("q")
        words.frombytes(data[at : at + count * ALIKE_SIZE])
        width: i64 = ALIKE_SIZE // 8
        created = words[width - 1 :: width]
        if not shared and (created[0] <= head[1] or not all(map(lt, created, created[1:]))):
            return 0
        first = ends(min(created), delay, ttl) + after * _SECOND
        if not self.is_in_time(columns, retry, first):
            return 0
        columns.due = min(columns.due, (first - self.machine.wall) / _SECOND)
        ids = array("q", bytes(8 * (width - 1) * count))
        for word in range(width - 1):
            ids[word :: width - 1] = words[word::width]
        share = self.share_of(shared)
        columns.add_alike(
            ids.tobytes(), serial, created, segment.number, offset, head, after, share
        )
        self.kept(columns, segment, count, size)
        return count

    def keep_keyed(
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
        """Keeps jobs with keys whose headers are as that of one that was kept before them; returns how many."""
        place: i64 = serial - self.least
        if events[0] != serial << 4 | record.ADDED or self.fates[place - 1] != _PLAIN:
            return 0
        columns = self.columns_of(name, head[13], b"", head[0])
        room: i64 = self.machine.pager.size - len(columns.created)
        found = self.same_headers(head, name, serial, events, data, at, newest_of(columns), room)
        count = len(found)
        if count < _MANY:
            return 0
        ttl, delay, size = head[4:7]
        after = later(head[1], delay, ttl, head[2])
        columns.due = min(columns.due, (found[0][2] - self.machine.wall) / _SECOND)
        ids = b"".join([each[0] for each in found])
        created = array("q", [each[1] for each in found])
        first = len(columns.created)
        columns.keys.update(
            zip(range(first, first + count), [each[4] for each in found], strict=True)
        )
        columns.add_alike(ids, serial, created, segment.number, offset, head, after, 0)
        self.kept(columns, segment, count, size)
        return count

    def same_headers(
        self,
        head: tuple[Any, ...],
        name: bytes,
        serial: int,
        events: "memoryview[int]",
        data: bytes,
        at: i64,
        newest: int,
        room: i64,
    ) -> list[tuple[bytes, int, int, bytes, bytes]]:
        """Id, when it was added and ends, the rest of the header and the key of each job, as long as they follow."""
        key_size: i64 = head[_KEY_SIZE]
        size: i64 = JOB_SIZE + len(name) + key_size
        same = data[at - size + _TIMES_END : at - key_size]
        room = min(room, len(events), (len(data) - at) // size)
        after = later(head[1], head[5], head[4], head[2])
        place: i64 = serial - self.least
        wanted: int = serial << 4 | record.ADDED
        ending: int = head[2]
        found: list[tuple[bytes, int, int, bytes, bytes]] = []
        count: i64 = 0
        view = memoryview(data)[at : at + room * size]
        for each in iter_unpack(f"<40sqq{len(same)}s{key_size}s", view):
            _, created, expires, rest, key = each
            if events[count] != wanted or self.fates[place + count] != _PLAIN or rest != same:
                break
            if created <= newest or expires < ending or key[:1] == b"\0":
                break
            if not is_close(created, head[5], head[4], expires, after):
                break
            found.append(each)
            newest, ending = created, expires
            wanted += 16
            count += 1
        if (
            found
            and count < len(events)
            and events[count] == wanted - 16 - record.ADDED + record.SHARED
        ):
            found.pop()  # others may have the last one
        return found

    def keep_indexed(self, jobs: IndexedJobs, segment: JobSegment) -> list[Job]:
        """Keeps those of an index to which nothing happened, in pages; returns the others that there still are."""
        pager = self.machine.pager
        count = jobs.count
        columns = self.columns_of(
            jobs.queue, jobs.priority, jobs.shared, long_ids(jobs.ids, count)[:ID]
        )
        lane = columns.lane
        assert lane is not None
        numbers = [array(code, data) for code, data in jobs.columns]
        numbers[SHARE] = array("q", [self.share_of(jobs.shared)])
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
        page = JobPage(lane, jobs.ids, numbers, count)
        if plain == count and 2 * count >= pager.size:
            self.keep_page(columns)
            self.enter(columns, page, due)
            return []
        ids = long_ids(jobs.ids, count)
        if plain:
            columns.due = min(columns.due, due)
            columns.add_some(ids, numbers, fates.translate(_IS_PLAIN))
            if len(columns.created) >= pager.size:
                self.keep_page(columns)
        others = {place for place, fate in enumerate(fates) if fate != _TOUCHED}
        return pager.unpack(page, ids, others) if len(others) < count else []

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
        if columns.is_away:
            first = 1 << 62
        if first <= newest_of(columns):
            return False
        retries = set(whole(numbers[RETRY], count))
        return all(self.is_in_time(columns, retry, ends) for retry in retries)

    def columns_of(
        self, name: bytes, priority: int, shared: bytes, job_id: bytes, *, is_gone: bool = False
    ) -> JobColumns:
        """Those of one queue and priority; of jobs that others may have those of ids which begin alike."""
        key = lane_key(name, priority)
        if shared:
            key = job_id[:11] + key
        elif is_gone:
            key = b"gone " + key
        columns = self.plain.get(key)
        if columns is None:
            machine = self.machine
            queue = machine.queues.get(name) or machine.make_queue(name, self.now)
            columns = self.plain[key] = JobColumns()
            columns.lane = queue.lane(priority)
            columns.is_away = len(shared) > 0
            columns.is_gone = is_gone
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
        """The jobs that were kept are a page."""
        lane = columns.lane
        if lane is None or not columns.created:
            return
        self.enter(columns, self.machine.pager.page_of(lane, columns), columns.due)
        following = self.plain[self.key_of(columns)] = JobColumns()
        following.lane = lane
        following.is_away = columns.is_away
        following.is_gone = columns.is_gone

    def key_of(self, columns: JobColumns) -> bytes:
        """By which columns are kept."""
        lane = columns.lane
        assert lane is not None
        key = lane_key(lane.queue.name, lane.priority)
        if columns.is_gone:
            return b"gone " + key
        return bytes(columns.ids[:11]) + key if columns.is_away else key

    def enter(self, columns: JobColumns, page: JobPage, ends: float) -> None:
        """There is a page."""
        machine = self.machine
        lane = page.lane
        created = page.columns[CREATED]
        newest = max(whole(created, page.size))
        machine.last_created = max(machine.last_created, newest)
        page.ends = ends
        if columns.is_gone:
            page.kind = GONE
            machine.pager.put_page(page, ends)
            return
        lane.queue.jobs += page.size
        if columns.is_away:
            page.kind = AWAY
            self.copies.append(page)
        else:
            lane.queue.depth += page.size
            if lane.more is None:
                lane.more = LanePages(machine.pager)
        machine.pager.put_page(page, ends)

    def share_of(self, shared: bytes) -> int:
        """The number of which nodes may have a job."""
        if not shared:
            return 0
        found = self.shares.get(shared)
        if found is None:
            found = self.shares[shared] = self.machine.pager.share(*nodes_of(shared))
        return found

    def rest(self) -> list[Job]:
        """Jobs that make no page."""
        found: list[Job] = []
        pager = self.machine.pager
        for columns in self.plain.values():
            lane = columns.lane
            if lane is not None and columns.created:
                page = pager.page_of(lane, columns)
                if columns.is_gone:
                    page.kind = GONE
                found.extend(pager.unpack(page, bytes(columns.ids), None))
        return found


def newest_of(columns: JobColumns) -> int:
    """When the last of the jobs was added that were kept of a lane."""
    if columns.created:
        return columns.created[-1]
    lane = columns.lane
    return 0 if lane is None or lane.more is None else lane.more.newest


def is_adding(event: i64) -> bool:
    """Whether a job is added by an event."""
    return event == record.ADDED or event == record.ADDED_ALIKE or event == record.SHARED_ALIKE


def lane_key(name: bytes, priority: int) -> bytes:
    """By which the columns of a lane are kept."""
    return b"%d " % priority + name


def is_plain(head: tuple[Any, ...], is_shared: bool) -> bool:
    """Whether a job was queued when it was added, to no purpose but that: without reason and deliveries.

    One that others may have was not delayed then; who serves it is asked after a start.
    """
    is_new = not (head[7] or head[8] or head[9])
    flags: int = head[14]
    is_queued = not flags & IS_DELAYED if is_shared else flags == IS_QUEUED
    return is_new and not head[12] and is_queued
