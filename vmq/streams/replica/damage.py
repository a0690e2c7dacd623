"""What of a replica's committed segments cannot be read, as ranges of offsets, and the pieces that mend it."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from vmq.streams.log.errors import DamagedError
from vmq.streams.log.index import Index
from vmq.streams.log.segment import SUFFIX, Header, Sealed
from vmq.streams.replica.aside import Mend
from vmq.streams.replica.segment import LooseSegment


class DamagedRanges:
    """The damage of one replica.

    Args:
        folder: the partition's.
        header: the partition's.
        flaws: what readers met, by file.
        ranges: what was found when the segments were opened, as (first, end).
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
        self.ranges = ranges
        self._mend: Mend | None = None

    def meets(self, base: int, end: int) -> bool:
        """Whether something is damaged between two offsets."""
        return any(first < end and base < behind for first, behind in self.ranges)

    def find(
        self, files: Iterable[Sealed | LooseSegment], last: Path, committed: int, end: int
    ) -> int | None:
        """Looks which segments damage was met in; returns where the log is to be cut, if that is the last one.

        Args:
            files: the segments.
            last: the path of the last one, which is written on.
            committed: how far the log is committed.
            end: where it ends.
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
                self.ranges.append((int(path.stem), behind))
        self.ranges.sort()
        return cut

    def forget(self, end: int) -> None:
        """What was wrong with files that are gone, or behind the log's end, is wrong no more."""
        for path, flaw in list(self._flaws.items()):
            if flaw.offset >= end or not path.exists():
                self._flaws.pop(path, None)

    def cut(self, end: int, last: int) -> int | None:
        """The log ends here now, and its last segment begins at `last`: returns where it is damaged, if it is."""
        self._mend = None
        self.ranges = [each for each in self.ranges if each[0] < end]
        return next((first for first, behind in self.ranges if behind > last), None)

    def trim(self, first: int) -> None:
        """The log begins here now."""
        self.ranges = [each for each in self.ranges if each[1] > first]

    def clear(self) -> None:
        """There is nothing any more."""
        self.ranges = []
        self._mend = None

    def mend(
        self, first: int, behind: int, messages: Sequence[bytes], base_of: Callable[[int], int]
    ) -> tuple[Path, Path, Index] | None:
        """Takes pieces of a range; the damaged segment and the file to have its place, once that is whole.

        Args:
            first: where they begin.
            behind: where they end.
            messages: batches as they lie in segments.
            base_of: where the segment begins that ends at an offset.
        """
        meeting = (at for at, (one, end) in enumerate(self.ranges) if one < behind and first < end)
        at = next(meeting, None)
        if at is None:
            return None
        end = self.ranges[at][1]
        if self._mend is None or self._mend.end != end:
            # From the segment's beginning on: another one may have come first in the middle of it.
            self._mend = Mend(self._folder, base_of(end), end, self._header)
        mend = self._mend
        mend.add(messages)
        target = self._folder / f"{mend.first:020}{SUFFIX}"
        made = mend.finish()
        if made is None:
            self.ranges[at] = (mend.index.end, end)
            return None
        self._mend = None
        self.ranges.pop(at)
        return target, made, mend.index
