"""Jobs that are added by the clock.

A tick is a job with a key of its own, so that it is added once however often it is tried; the key is in the log with
the job. Which tick was the last one of each schedule is kept beside the log: it tells what was missed.
"""

import json
import logging
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from vmq.config.cron import Cron
from vmq.config.jobs import ScheduleOptions
from vmq.core.context import Core
from vmq.jobs.commit import JobCommit
from vmq.jobs.queues import JobRefusedError

log = logging.getLogger("vmq.jobs")

#: Seconds between two looks at the clock at most: it may be set.
LONGEST: Final = 30.0
#: Missed times of one schedule that are made up for.
_MOST_MISSED: Final = 1000
#: Seconds after which a time counts as missed.
_LATE: Final = 60.0
_FILE: Final = "schedules.json"


class CronSchedule:
    """One schedule, and the last of its times that was dealt with."""

    def __init__(self, name: str, options: ScheduleOptions, last: float) -> None:
        self.name = name
        self.options = options
        self.cron = Cron(options.cron)
        self.zone = ZoneInfo(options.timezone)
        self.last = last

    def due(self, now: float) -> tuple[list[float], float]:
        """Its times up to now that get a job, the oldest first, and the last of all of them."""
        oldest = now - self.options.misfire_window
        tick = self.cron.next_after(max(self.last, oldest - 1), self.zone)
        found: list[float] = []
        while tick <= now:
            found.append(tick)
            if len(found) > _MOST_MISSED:
                del found[0]
            tick = self.cron.next_after(tick, self.zone)
        last = found[-1] if found else self.last
        if self.options.misfire != "all":
            found = found[-1:]
        if self.options.misfire == "skip":
            found = [each for each in found if now - each <= _LATE]
        return found, last

    def next(self) -> float:
        """Its next time, in seconds since 1970."""
        return self.cron.next_after(self.last, self.zone)


class Schedules:
    """The schedules of a broker.

    Args:
        core: for the clock.
        commit: the jobs.
        folder: where the last times are kept.
        options: by name.
    """

    def __init__(
        self, core: Core, commit: JobCommit, folder: Path, options: dict[str, ScheduleOptions]
    ) -> None:
        self.core = core
        self.commit = commit
        self.path = folder / _FILE
        now = core.wall_clock()
        known = self._read() if options else {}
        #: What is there from now on begins now; and no clock that was wrong once holds it up.
        self.all = [
            CronSchedule(name, each, min(known.get(name, now), now))
            for name, each in options.items()
        ]

    def _read(self) -> dict[str, float]:
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=dict[str, float])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError, RecursionError) as error:
            log.warning("the last times of schedules cannot be read: %s", error)
            return {}

    def _write(self) -> None:
        text = json.dumps({each.name: each.last for each in self.all})
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.replace(self.path)

    def look(self) -> float:
        """Adds what is due; seconds until the next look."""
        now = self.core.wall_clock()
        changed = False
        for schedule in self.all:
            ticks, last = schedule.due(now)
            if all(self._add(schedule, tick) for tick in ticks) and last != schedule.last:
                schedule.last = last
                changed = True
        if changed:
            self.commit.end_pass(self.commit.clock())
            try:
                self._write()
            except OSError as error:
                log.error("the last times of schedules cannot be kept: %s", error)
        soonest = min((each.next() for each in self.all), default=now + LONGEST)
        return min(max(soonest - now, 0.05), LONGEST)

    def _add(self, schedule: CronSchedule, tick: float) -> bool:
        """Adds the job of a tick; False: it is tried again."""
        options = schedule.options
        machine, now = self.commit.machine, self.commit.clock()
        prefix = options.mountpoint.encode() + b"\0" if options.mountpoint else b""
        key = b"\0cron %d " % int(tick) + schedule.name.encode()
        try:
            machine.add(
                machine.queue(prefix + options.queue.encode(), now),
                options.body.encode(),
                now,
                -1 if options.ttl is None else options.ttl,
                -1 if options.retry is None else options.retry,
                0,
                -1 if options.priority is None else options.priority,
                -1,
                key,
            )
        except JobRefusedError as refusal:
            log.warning("schedule %s: %s", schedule.name, refusal)
            return False
        return True
