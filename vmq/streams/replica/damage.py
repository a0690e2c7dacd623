"""What of a replica's committed segments cannot be read, as ranges of offsets, and the pieces that mend it."""

import os
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

from vmq.streams.log.errors import DamagedError
from vmq.streams.log.frame import BadFrameError, check
from vmq.streams.log.index import Index
from vmq.streams.log.segment import SUFFIX, Header, PlacedFrame, Sealed
from vmq.streams.replica.aside import Mend
from vmq.streams.replica.batches import batch_of
from vmq.streams.replica.salvage import whole_batches
from vmq.streams.replica.segment import LooseSegment
from vmq_cluster.raft.messages import Batch

#: Batches that are read at a time, as of segments that are whole.
_MOST: Final = 256


class DamagedSegment:
    """One segment: what of it is whole, and what is still lacking.

    Args:
        path: its file.
        base: its first offset.
        end: the offset behind its last.
        header: the partition's.
    """

    def __init__(self, path: Path, base: int, end: int, header: Header) -> None:
        self.path = path
        self.base = base
        self.end = end
        self.whole = whole_batches(path, header, base)
        #: Up to here it can be read.
        self.good = self._first_gap()
        self.mend: Mend | None = None

    def _first_gap(self) -> int:
        at = self.base
        for placed in self.whole:
            if placed.frame.offset != at:
                break
            at = placed.frame.end
        return at

    @property
    def lacks(self) -> list[tuple[int, int]]:
        """What is to be fetched, the first first: the others can be used once that is there."""
        at = self.good if self.mend is None else self.mend.index.end
        found = []
        for placed in self.whole[max(0, bisect_right(self.whole, at, key=_offset) - 1) :]:
            if at < placed.frame.offset:
                found.append((at, placed.frame.offset))
            at = max(at, placed.frame.end)
        if at < self.end or not found:  # each batch is whole, and the file is not
            found.append((min(at, self.end - 1), self.end))
        return found

    def read(self, offset: int, limit: int) -> list[Batch]:
        """Batches from the one that holds an offset on, up to where some are missing. Raises `OSError`."""
        if self.mend is not None and offset < self.mend.index.end:
            return self.mend.read(offset, limit)
        found: list[Batch] = []
        at = bisect_right(self.whole, offset, key=_offset) - 1
        with self.path.open("rb") as file:
            for position, frame in self.whole[max(at, 0) : max(at, 0) + _MOST]:
                if frame.offset > offset or frame.end <= offset or (found and limit <= 0):
                    break
                raw = os.pread(file.fileno(), frame.size, position)
                try:
                    check(memoryview(raw), 0, frame)
                except BadFrameError:
                    break
                found.append(batch_of(frame, raw))
                offset = frame.end
                limit -= frame.size
        return found

    def gap(self, offset: int) -> int:
        """Up to where nothing of it can be read from an offset on."""
        if self.mend is not None and offset < self.mend.index.end:
            return offset
        at = bisect_right(self.whole, offset, key=_offset)
        if at and offset < self.whole[at - 1].frame.end:
            return offset
        return self.whole[at].frame.offset if at < len(self.whole) else self.end


def _offset(placed: PlacedFrame) -> int:
    return placed.frame.offset


class DamagedRanges:
    """The damage of one replica.

    Args:
        folder: the partition's.
        header: the partition's.
        flaws: what readers met, by file.
        ranges: the segments in which some was found when they were opened, as (first, end).
    """

    def __init__(
        self,
        folder: Path,
        header: Header,
        flaws: dict[Path, DamagedError],
        ranges: list[tuple[int, int]],
    ) -> None:
        self._folder = folder
        self._header = header
        self._flaws = flaws
        self._segments: list[DamagedSegment] = []
        for first, end in ranges:
            self._take(first, end)

    def _take(self, base: int, end: int) -> None:
        path = self._folder / f"{base:020}{SUFFIX}"
        self._segments.append(DamagedSegment(path, base, end, self._header))
        self._segments.sort(key=lambda each: each.base)

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """What cannot be read: first, end."""
        if not self._segments:  # each step of a group asks
            return []
        return [lacking for each in self._segments for lacking in each.lacks]

    def meets(self, base: int, end: int) -> bool:
        """Whether a segment is damaged between two offsets."""
        return any(each.base < end and base < each.end for each in self._segments)

    def read(self, offset: int, limit: int) -> list[Batch]:
        """What is whole of a damaged segment, from an offset on. Raises `OSError`."""
        for each in self._segments:
            if each.base <= offset < each.end:
                return each.read(offset, limit)
        return []

    def gap(self, offset: int) -> int:
        """Up to where nothing can be read from an offset on."""
        for each in self._segments:
            if each.base <= offset < each.end:
                return each.gap(offset)
        return offset

    def find(
        self, files: Iterable[Sealed | LooseSegment], last: Path, committed: int, end: int
    ) -> int | None:
        """Looks which segments damage was met in; returns where the log is to be cut, if that is the last one.

        Args:
            files: the segments.
            last: the path of the last one, which is written on.
            committed: how far the log is committed.
            end: where it ends.

        Raises:
            OSError: the disk.
        """
        cut = None
        self.forget(end)
        ends = {each.path: each.end for each in files}
        for path, flaw in list(self._flaws.items()):
            behind = ends.get(path)
            if behind is None:
                continue
            if behind > committed or path == last:
                cut = min(flaw.offset, end if cut is None else cut)
            elif not self.meets(int(path.stem), behind):
                self._take(int(path.stem), behind)
        return cut

    def forget(self, end: int) -> None:
        """What was wrong with files that are gone, or behind the log's end, is wrong no more."""
        for path, flaw in list(self._flaws.items()):
            if flaw.offset >= end or not path.exists():
                self._flaws.pop(path, None)

    def cut(self, end: int, last: int) -> int | None:
        """The log ends here now, and its last segment begins at `last`: returns where it is damaged, if it is."""
        self._keep(lambda each: each.good < end)
        return next((each.good for each in self._segments if each.end > last), None)

    def trim(self, first: int) -> None:
        """The log begins here now."""
        self._keep(lambda each: each.end > first)

    def clear(self) -> None:
        """There is nothing any more."""
        self._keep(lambda _: False)

    def _keep(self, stays: Callable[[DamagedSegment], bool]) -> None:
        for each in self._segments:
            if each.mend is not None and not stays(each):
                each.mend.drop()
        self._segments = [each for each in self._segments if stays(each)]

    def mend(
        self, first: int, behind: int, messages: Sequence[bytes]
    ) -> tuple[Path, Path, Index] | None:
        """Takes pieces of a range; the damaged segment and the file to have its place, once that is whole.

        Args:
            first: where they begin.
            behind: where they end.
            messages: batches as they lie in segments.

        Raises:
            OSError: the disk.
            BadFrameError: they are no batches.
        """
        for each in self._segments:
            if any(begin < behind and first < end for begin, end in each.lacks):
                if each.mend is None:
                    each.mend = Mend(each.path, each.whole, each.base, each.end, self._header)
                each.mend.add(messages)
                made = each.mend.finish()
                if made is None:
                    return None
                self._segments.remove(each)
                return each.path, made, each.mend.index
        return None
