"""A clock that is set makes no job older or younger: what times in segments are behind by, or ahead.

A life of the broker writes times by the wall clock as that is at its start. What that was set by since is known at the
next start, from a clock that nobody sets (CLOCK_BOOTTIME): exactly if the machine has run on, else as it was seen last.
"""

import logging
from collections.abc import Callable
from typing import Final

import msgspec
from vmq_hooks.replacing import replace_file

from vmq.jobs.storage.segments import JobSegments

log = logging.getLogger("vmq.jobs")

_FILE: Final = "clock"
#: Nanoseconds: a clock that differs by less was not set.
_STEP: Final = 10**9


class _KeptClock(msgspec.Struct, array_like=True):
    boot: str
    #: `ahead` when that life of the broker began, and when it was looked at last.
    began: int
    seen: int
    #: Segments up to a number are by a clock that was set by so many nanoseconds after that.
    steps: list[tuple[int, int]]


class JobClock:
    """What the clock is set by, in the file of one node; tells segments what is to be added to their times.

    Args:
        segments: the files, of which nothing has been read.
        ahead: nanoseconds by which the wall clock is ahead of one that nobody sets.
        boot: names the time in which that other one goes on; empty: unknown.
    """

    def __init__(self, segments: JobSegments, ahead: Callable[[], int], boot: str) -> None:
        self.segments = segments
        self.path = segments.folder / _FILE
        self.ahead = ahead
        now = ahead()
        self.kept = _KeptClock(boot, now, now, [])
        before = self._read()
        if before is not None and segments.all:
            self._align(before)

    def _align(self, before: _KeptClock) -> None:
        now, steps = self.kept, before.steps
        runs_on = now.boot != "" and now.boot == before.boot
        step = (now.seen if runs_on else before.seen) - before.began
        if abs(step) >= _STEP:
            log.warning("the clock was set by %.0f s: jobs go by the time that passed", step / 1e9)
            steps.append((max(self.segments.all), step))
        for number, segment in self.segments.all.items():
            segment.shift = sum(each for last, each in steps if number <= last)
        now.steps = steps

    def begin(self) -> None:
        """What is written from now on is by the clock as it is; to be called once what is not wanted is gone.

        Raises:
            OSError: the disk.
        """
        # Numbers of segments that are gone may come again.
        oldest = min(self.segments.all, default=1 << 62)
        self.kept.steps = [each for each in self.kept.steps if each[0] >= oldest]
        self._write()

    def look(self) -> None:
        """Keeps what the clock was set by until now, if it was; to be called now and then."""
        now = self.ahead()
        if abs(now - self.kept.seen) < _STEP:
            return
        self.kept.seen = now
        try:
            self._write()
        except OSError as error:
            log.error("it cannot be kept that the clock was set: %s: %s", self.path, error)

    def _read(self) -> _KeptClock | None:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=_KeptClock)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            log.warning("the clock is taken for one that was not set: %s: %s", self.path, error)
            return None

    def _write(self) -> None:
        replace_file(self.path, msgspec.json.encode(self.kept) + b"\n")
