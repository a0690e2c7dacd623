"""Where jobs that are paged out are found by 32 bits of a hash: open addressing in arrays of numbers, 8 bytes an entry.

A page that is no more leaves its entries where they are; they go when their table grows, or is made anew.
"""

from array import array
from collections.abc import Container
from typing import Final

from mypy_extensions import i64

#: Tables: each is made anew by itself, and is full at another part of its size, so that nobody waits for all of them:
#: they fill alike.
_TABLES: Final = 1024
_SMALLEST: Final = 16


class PageMarks:
    """The numbers of pages by marks.

    Args:
        alive: the numbers of the pages that there are.
    """

    def __init__(self, alive: Container[int]) -> None:
        self.alive = alive
        self.tables = [array("Q", bytes(8 * _SMALLEST)) for _ in range(_TABLES)]
        self.used = [0] * _TABLES

    def add(self, mark: int, page: int) -> None:
        """A page, whose number is above 0, has something with this mark."""
        place = mark % _TABLES
        if self.used[place] >= most_of(place, len(self.tables[place])):
            self._make_anew(place)
        self.used[place] += 1
        put(self.tables[place], page << 32 | mark)

    def _make_anew(self, place: int) -> None:
        """Leaves out what is of no page any more."""
        alive = self.alive
        left = [each for each in self.tables[place] if each and each >> 32 in alive]
        size = _SMALLEST
        while most_of(place, size) < 2 * len(left) + 2:
            size *= 2
        table = array("Q", bytes(8 * size))
        for each in left:
            put(table, each)
        self.tables[place] = table
        self.used[place] = len(left)

    def pages(self, mark: int) -> list[int]:
        """The numbers of pages that may have it; some may be no more."""
        table = self.tables[mark % _TABLES]
        mask: i64 = len(table) - 1
        at: i64 = (mark // _TABLES) & mask
        found: list[int] = []
        while True:
            entry = table[at]
            if not entry:
                return found
            if entry & 0xFFFF_FFFF == mark:
                found.append(entry >> 32)
            at = (at + 1) & mask

    def memory(self) -> int:
        """Bytes of it."""
        return sum([8 * len(each) for each in self.tables])


def most_of(place: int, size: int) -> int:
    """Entries at which a table of some size is made anew: between a half and three quarters of it."""
    return size * (2 * _TABLES + place) // (4 * _TABLES)


def put(table: "array[int]", entry: int) -> None:
    """Into the first free place from its own on."""
    mask: i64 = len(table) - 1
    at: i64 = ((entry & 0xFFFF_FFFF) // _TABLES) & mask
    while table[at]:
        at = (at + 1) & mask
    table[at] = entry
