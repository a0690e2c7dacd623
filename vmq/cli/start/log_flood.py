"""Keeps a flood of one kind of event from filling the log: above a rate it is summed up.

A kind is a logger, a level and the text of an event without its values. Of each kind so many are
written in a span of time; what follows is counted, and said in one line when the span is over.
"""

import logging
import time
from collections.abc import Callable
from typing import Final

#: Seconds over which events of a kind are counted.
SPAN: Final = 10.0
#: Kinds that are remembered. There are as many as places that log; texts made by others add to it.
MAX_KINDS: Final = 1000

Kind = tuple[str, int, str]


#: What is counted together when too many kinds come at once.
OTHERS: Final[Kind] = ("vmq", logging.INFO, "other events")


class _Count:
    """What came of one kind since `since`."""

    __slots__ = ("seen", "since", "suppressed")

    def __init__(self, since: float) -> None:
        self.since = since
        self.seen = 0
        self.suppressed = 0


class FloodFilter(logging.Filter):
    """Lets `limit` events of a kind through in each span.

    Debug events pass: who asks for them wants all. So do critical ones, and those that say `is_whole`.

    Args:
        limit: events of one kind in a span; 0 is no limit.
        clock: monotonic seconds.
    """

    def __init__(self, limit: int, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self.limit = limit
        self._clock = clock
        self._counts: dict[Kind, _Count] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether an event is written."""
        level = record.levelno
        if self.limit <= 0 or level <= logging.DEBUG or level >= logging.CRITICAL:
            return True
        if getattr(record, "is_summary", False) or getattr(record, "is_whole", False):
            return True
        now = self._clock()
        kind = (record.name, level, str(record.msg))
        count = self._counts.get(kind)
        if count is None or (now - count.since >= SPAN and not count.suppressed):
            count = self._begin(kind, now)
        count.seen += 1
        if count.seen <= self.limit:
            return True
        count.suppressed += 1
        return False

    def _begin(self, kind: Kind, now: float) -> _Count:
        """Begins to count a kind anew; when there are too many, the rest counts as one."""
        if len(self._counts) >= MAX_KINDS and kind not in self._counts:
            self._counts = {
                known: count
                for known, count in self._counts.items()
                if count.suppressed or now - count.since < SPAN
            }
            if len(self._counts) >= MAX_KINDS:
                kind = OTHERS
        if kind is OTHERS and kind in self._counts:
            return self._counts[kind]
        self._counts[kind] = count = _Count(now)
        return count

    def summaries(self, *, everything: bool = False) -> list[logging.LogRecord]:
        """One record for each kind whose span is over and that had events suppressed.

        To be called about once a second, and at the end with `everything`.
        """
        now = self._clock()
        records: list[logging.LogRecord] = []
        for kind, count in list(self._counts.items()):
            if not (everything or now - count.since >= SPAN):
                continue
            del self._counts[kind]
            if count.suppressed:
                records.append(_summary(kind, count.suppressed))
        return records


def _summary(kind: Kind, suppressed: int) -> logging.LogRecord:
    name, level, template = kind
    what = template.split("=", 1)[0].split("%", 1)[0].split('"', 1)[0]
    text = 'suppressed count=%d of="%s" seconds=%d'
    event = what.rsplit(" ", 1)[0] if "=" in template else what
    values = (suppressed, event.strip(" :,") or template, int(SPAN))
    record = logging.LogRecord(name, level, __file__, 0, text, values, None)
    record.is_summary = True
    return record
