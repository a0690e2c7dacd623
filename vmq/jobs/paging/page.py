"""What is said of one page: of its jobs in groups, of its columns, and what it costs."""

from typing import Final
from zlib import crc32

from vmq.jobs.paging.columns import whole
from vmq.jobs.queue import GONE, JobCopies, JobPage

#: Bytes of a page beside its columns, and of what one of its jobs is found by.
_PAGE_BYTES: Final = 1500
_MARK_BYTES: Final = 14


class PagedGroup:
    """Jobs of a page of which the same nodes may have copies, and to which the same happened."""

    def __init__(self, copies: JobCopies | None, deliveries: int, nacks: int, repeats: int) -> None:
        self.copies = copies
        self.deliveries = deliveries
        self.nacks = nacks
        self.repeats = repeats
        self.ids: list[bytes] = []


def numbers_of(page: JobPage, column: int) -> set[int]:
    """The numbers of one of its columns."""
    numbers = page.columns[column]
    return set(numbers) if len(numbers) == 1 else set(whole(numbers, page.size))


def first_of(page: JobPage) -> int:
    """When the first job of a page was added."""
    return page.first


def cost(page: JobPage) -> int:
    """Bytes of a page in memory."""
    columns = sum([len(each) * each.itemsize for each in page.columns])
    marks = 2 if page.keys and page.kind != GONE else 1
    return _PAGE_BYTES + len(page.ids) + columns + len(page.keys) + marks * _MARK_BYTES * page.size


def key_mark(queue: bytes, key: bytes) -> int:
    """By which a key is found."""
    return crc32(key, crc32(queue))
