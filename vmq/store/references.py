"""How often each message of a store is named, counted in bounded memory."""

import tempfile
from collections.abc import Iterator
from typing import Any, Final

import plyvel

#: Message numbers counted in memory before they go to the disk as a sorted run.
COUNTED_IN_MEMORY: Final = 200_000


class References:
    """Counts how often each message number is named, in bounded memory.

    Beyond so many different numbers the counts go to a temporary database, as one sorted run after
    another; reading it merges them.
    """

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.runs: int = 0
        self.folder: tempfile.TemporaryDirectory[str] | None = None
        self.db: Any = None

    def add(self, number: int, times: int = 1) -> None:
        """It is named so many times more; below 0: less."""
        counts = self.counts
        counts[number] = counts.get(number, 0) + times
        if len(counts) > COUNTED_IN_MEMORY:
            self.spill()

    def spill(self) -> None:
        if self.folder is None:
            self.folder = tempfile.TemporaryDirectory(prefix="vmq-store-")
            self.db = plyvel.DB(self.folder.name, create_if_missing=True)
        run = self.runs.to_bytes(4, "big")
        self.runs += 1
        with self.db.write_batch() as batch:
            for number in sorted(self.counts):
                count = self.counts[number].to_bytes(8, "big", signed=True)
                batch.put(number.to_bytes(8, "big") + run, count)
        self.counts.clear()

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Every number with its count, in order."""
        if self.folder is None:
            for number in sorted(self.counts):
                if self.counts[number]:
                    yield number, self.counts[number]
            return
        self.spill()
        current = total = 0
        for key, value in self.db.iterator(fill_cache=False):
            number = int.from_bytes(key[:8], "big")
            if number != current and total:
                yield current, total
                total = 0
            current = number
            total += int.from_bytes(value, "big", signed=True)
        if total:
            yield current, total

    def close(self) -> None:
        if self.folder is not None:
            self.db.close()
            self.folder.cleanup()


class Numbered:
    """Pairs in the order of their numbers, taken up to a number."""

    def __init__(self, pairs: Iterator[tuple[int, int]]) -> None:
        self.pairs = pairs
        self.next = next(pairs, None)

    def skip_to(self, number: int) -> Iterator[tuple[int, int]]:
        """The pairs below a number."""
        while self.next is not None and self.next[0] < number:
            yield self.next
            self.next = next(self.pairs, None)

    def take(self, number: int) -> int:
        """What belongs to a number; 0 if nothing does. The pairs below it are gone."""
        if self.next is None or self.next[0] != number:
            return 0
        value = self.next[1]
        self.next = next(self.pairs, None)
        return value
