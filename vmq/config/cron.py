"""Times of a crontab: which minute is next, in a time zone.

`MINUTE HOUR DAY MONTH WEEKDAY`, each `*`, numbers, ranges, lists and steps (`*/15`, `1-5`, `mon-fri`), or `@hourly`,
`@daily`, `@weekly`, `@monthly`, `@yearly`. If both days are restricted either will do, as in cron(8). A time that
daylight saving leaves out is that at which it ends; one that comes twice is the first of both.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Final

_SHORT: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS: Final = [
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
]
_DAYS: Final = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"]
#: The fields with the numbers that they may have, and names for them.
_FIELDS: Final[tuple[tuple[str, int, int, dict[str, int]], ...]] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, 1)}),
    ("weekday", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
#: Days in which some 29th of February comes, also across 2100.
_FARTHEST: Final = 366 * 9
_MINUTE: Final = timedelta(minutes=1)
_DAY: Final = timedelta(days=1)


class CronError(ValueError):
    """A text that means no times."""


class Cron:
    """The times of one line.

    Args:
        text: five fields.

    Raises:
        CronError: it is wrong, or such a day never comes.
    """

    def __init__(self, text: str) -> None:
        words = _SHORT.get(text.strip().lower(), text).split()
        if len(words) != len(_FIELDS):
            raise CronError(
                f"{text!r} has {len(words)} fields; accepted: minute hour day month weekday"
            )
        found = [_numbers(word.lower(), *field) for word, field in zip(words, _FIELDS, strict=True)]
        minutes, hours, self._days, self._months, weekdays = found
        self._minutes, self._hours = sorted(minutes), sorted(hours)
        self._weekdays = {each % 7 for each in weekdays}
        self._either = not words[2].startswith("*") and not words[4].startswith("*")
        if not any(
            self._is_on(date(2000, 1, 1) + timedelta(days=each)) for each in range(_FARTHEST)
        ):
            raise CronError(f"{text!r} never comes")

    def _is_on(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        is_day = day.day in self._days
        is_weekday = day.isoweekday() % 7 in self._weekdays
        return is_day or is_weekday if self._either else is_day and is_weekday

    def _times_from(self, local: datetime) -> Iterator[datetime]:
        """Those of its day, from a local time on."""
        hours, minutes = self._hours, self._minutes
        for at in range(bisect_left(hours, local.hour), len(hours)):
            hour = hours[at]
            first = bisect_left(minutes, local.minute) if hour == local.hour else 0
            for minute in minutes[first:]:
                yield local.replace(hour=hour, minute=minute)

    def _times_until(self, local: datetime) -> Iterator[datetime]:
        """Those of its day, back from a local time."""
        hours, minutes = self._hours, self._minutes
        for at in reversed(range(bisect_right(hours, local.hour))):
            hour = hours[at]
            end = bisect_right(minutes, local.minute) if hour == local.hour else len(minutes)
            for minute in reversed(minutes[:end]):
                yield local.replace(hour=hour, minute=minute)

    def matches(self, local: datetime) -> bool:
        """Whether a local time is one of them."""
        return (
            local.minute in self._minutes
            and local.hour in self._hours
            and self._is_on(local.date())
        )

    def next_after(self, moment: float, zone: tzinfo) -> float:
        """The first time later than a moment; both in seconds since 1970."""
        # No earlier local time is a later moment: one that is left out, or comes twice, is told as early as can be.
        local = _local(moment, zone).replace(second=0, microsecond=0, fold=0)
        for _ in range(_FARTHEST + 2):
            if self._is_on(local.date()):
                for naive in self._times_from(local):
                    found = _instant(naive, zone)
                    if found > moment:
                        return found
            local = local.replace(hour=0, minute=0) + _DAY
        raise CronError("no such time comes")  # what __init__ has ruled out

    def last_until(self, moment: float, least: float, zone: tzinfo) -> float | None:
        """The last time that is no later than a moment; None if it is no later than the least one, either."""
        local = _local(moment, zone)
        if local.fold:
            # It is here for the second time: what comes behind it by the clock was before.
            first = local.replace(tzinfo=zone, fold=0).utcoffset()
            second = local.replace(tzinfo=zone).utcoffset()
            assert first is not None
            assert second is not None
            local += first - second
        local = local.replace(second=0, microsecond=0, fold=0)
        first_day = _local(least, zone).date() - _DAY
        for _ in range(_FARTHEST + 2):
            if local.date() < first_day:
                break
            if self._is_on(local.date()):
                for naive in self._times_until(local):
                    found = _instant(naive, zone)
                    if found <= moment:
                        return found if found > least else None
            local = local.replace(hour=23, minute=59) - _DAY
        return None


def _local(moment: float, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(moment, UTC).astimezone(zone).replace(tzinfo=None)


def _instant(naive: datetime, zone: tzinfo) -> float:
    """A local time in seconds since 1970: the first of two, and the end of a gap."""
    local = naive.replace(tzinfo=zone, fold=0)
    moment = local.astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == naive:
        return moment.timestamp()
    after = moment.astimezone(zone).utcoffset()
    while (moment - _MINUTE).astimezone(zone).utcoffset() == after:
        moment -= _MINUTE
    return moment.timestamp()


def _numbers(word: str, name: str, least: int, most: int, names: dict[str, int]) -> set[int]:
    """The numbers of one field.

    Raises:
        CronError: it has others, or none.
    """
    found: set[int] = set()
    for part in word.split(","):
        span, slash, step_text = part.partition("/")
        step = _number(step_text, name, 1, most, {}) if slash else 1
        first, dash, last = span.partition("-")
        if first == "*" and not dash:
            start, end = least, most
        else:
            start = _number(first, name, least, most, names)
            end = _number(last, name, least, most, names) if dash else most if slash else start
        if end < start:
            raise CronError(f"{name}: {part!r} ends before it begins")
        found.update(range(start, end + 1, step))
    return found


def _number(text: str, name: str, least: int, most: int, names: dict[str, int]) -> int:
    value = names.get(
        text, int(text) if text.isascii() and text.isdigit() and len(text) < 5 else -1
    )
    if not least <= value <= most:
        raise CronError(f"{name}: {text!r}; accepted: {least} to {most}")
    return value
