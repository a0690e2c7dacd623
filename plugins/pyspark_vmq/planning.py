"""Which messages a batch takes, and which task reads which of them. Pure arithmetic.

Spark asks again for the same plan after a failure, so everything here is a function of its
arguments alone.
"""

from typing import NamedTuple

from pyspark_vmq.offsets import Ids, Offsets


class Range(NamedTuple):
    """A run of messages of one partition: from `start` up to, not including, `end`."""

    stream: str
    partition: int
    start: int
    end: int
    #: Of the stream, if it is known.
    stream_id: str = ""

    @property
    def size(self) -> int:
        return self.end - self.start


def ranges_between(start: Offsets, end: Offsets, ids: Ids | None = None) -> list[Range]:
    """What lies between two positions, ordered. A partition without a start begins at 0."""
    return [
        Range(stream, number, begin, finish, (ids or {}).get(stream, ""))
        for stream, partitions in sorted(end.items())
        for number, finish in sorted(partitions.items())
        if (begin := start.get(stream, {}).get(number, 0)) < finish
    ]


def falling_back(start: Offsets, end: Offsets) -> Offsets:
    """Where partitions start that end before: what was there is gone, and the stream was made anew.

    A stream that has no end is not read any more.
    """
    found: Offsets = {}
    for stream, partitions in start.items():
        for number, begin in partitions.items():
            if stream in end and end[stream].get(number, 0) < begin:
                found.setdefault(stream, {})[number] = begin
    return found


def no_earlier(start: Offsets, end: Offsets) -> Offsets:
    """The end, or the start of a partition that ends before: nothing of it is to be read twice."""
    return {
        stream: {
            number: max(finish, start.get(stream, {}).get(number, 0))
            for number, finish in partitions.items()
        }
        for stream, partitions in end.items()
    }


def limited(start: Offsets, end: Offsets, most: int) -> Offsets:
    """The position that takes at most `most` messages beyond `start`, shared in proportion.

    Every partition that has messages gets at least one, as long as there are any to give, so that
    a small partition is not starved by a large one.
    """
    waiting = ranges_between(start, end)
    total = sum(each.size for each in waiting)
    if total <= most:
        return end
    taken = [most * each.size // total for each in waiting]
    left = most - sum(taken)
    # Those that got nothing first, then the largest.
    for index in sorted(range(len(waiting)), key=lambda at: (taken[at] > 0, -waiting[at].size)):
        if not left:
            break
        if taken[index] < waiting[index].size:
            taken[index] += 1
            left -= 1
    limit = {stream: dict(partitions) for stream, partitions in end.items()}
    for each, count in zip(waiting, taken, strict=True):
        limit[each.stream][each.partition] = each.start + count
    return limit


def tasks_of(ranges: list[Range], wanted: int) -> list[list[Range]]:
    """Deals ranges out to about `wanted` tasks of equal size.

    A task costs Spark some 50 ms, so small ranges share one; a range that is larger than an even
    share is cut. Order within a partition holds inside a task, and tasks are ordered, too.
    """
    total = sum(each.size for each in ranges)
    if not total:
        return []
    wanted = max(1, min(wanted, total))
    share = -(-total // wanted)
    tasks: list[list[Range]] = []
    room = 0
    for each in ranges:
        start = each.start
        while start < each.end:
            if not room:
                tasks.append([])
                room = share
            count = min(room, each.end - start)
            tasks[-1].append(each._replace(start=start, end=start + count))
            start += count
            room -= count
    return tasks
