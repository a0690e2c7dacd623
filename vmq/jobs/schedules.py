"""Jobs that are added by the clock.

A tick is a job with a key and an id of its own, so that it is added once however often it is tried; the key is in the
log with the job. Which tick was the last one of each schedule is kept beside the log: it tells what was missed.

In a cluster the nodes that reach each other agree on the order in which they see to a schedule: the first adds the job
and tells the others, the second does so when it heard nothing for a while. Two sides of a split add the same id each.
"""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import msgspec

from vmq.config.cron import Cron
from vmq.config.jobs import ScheduleOptions
from vmq.core.context import Core
from vmq.jobs.commit import JobCommit
from vmq.jobs.ids import named
from vmq.jobs.queues import JobRefusedError

log = logging.getLogger("vmq.jobs")

#: Seconds between two looks at the clock at most: it may be set.
LONGEST: Final = 30.0
#: Missed times of one schedule that are made up for.
_MOST_MISSED: Final = 1000
#: Seconds after which a time counts as missed.
_LATE: Final = 60.0
#: Seconds that each node waits longer than the one before it, and all of them after a start.
_RANK: Final = 5.0
_FILE: Final = "schedules.json"


class CronSchedule:
    """One schedule, and the last of its times that was dealt with."""

    def __init__(self, name: str, options: ScheduleOptions, last: float) -> None:
        self.name = name
        self.options = options
        self.cron = Cron(options.cron)
        self.zone = ZoneInfo(options.timezone)
        self.last = last
        #: The last one that is known to have its job, since the start.
        self.fired = 0.0

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
        self.all: list[CronSchedule] = []
        if options:
            self._set(options, self._read())
        #: How many nodes in reach are to see to a schedule before this one; 0: no other.
        self.rank: Callable[[str], int] = lambda name: 0
        #: Told which time of a schedule has its job.
        self.tell: Callable[[str, float], None] = lambda name, tick: None
        #: Another node has told of a time, which is to be kept.
        self.has_news = False
        #: No job is added before.
        self.begins = 0.0

    def configure(self, options: dict[str, ScheduleOptions]) -> None:
        """These are in force from now on; one that was there before goes on from its last time."""
        self._set(options, {each.name: each.last for each in self.all})

    def _set(self, options: dict[str, ScheduleOptions], known: dict[str, float]) -> None:
        """What is there from now on begins now; and no clock that was wrong once holds it up."""
        now = self.core.wall_clock()
        fired = {each.name: each.fired for each in self.all}
        self.all = [
            CronSchedule(name, each, min(known.get(name, now), now))
            for name, each in options.items()
        ]
        for schedule in self.all:
            schedule.fired = fired.get(schedule.name, 0.0)

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
        changed, self.has_news = self.has_news, False
        soonest = now + LONGEST
        for schedule in self.all:
            ticks, last = schedule.due(now)
            wait = self._wait(schedule, last, now)
            if wait > 0:
                soonest = min(soonest, now + wait)
                continue
            if all(self._add(schedule, tick) for tick in ticks) and last != schedule.last:
                schedule.last = schedule.fired = last
                self.tell(schedule.name, last)
                changed = True
            soonest = min(soonest, schedule.next())
        if changed:
            self.commit.end_pass(self.commit.clock())
            try:
                self._write()
            except OSError as error:
                log.error("the last times of schedules cannot be kept: %s", error)
        return min(max(soonest - now, 0.05), LONGEST)

    def _wait(self, schedule: CronSchedule, last: float, now: float) -> float:
        """Seconds that others have to see to the last of the times that are due."""
        if last == schedule.last:
            return 0.0
        wait = max(0.0, self.begins - now)
        rank = self.rank(schedule.name)
        return max(wait, last + rank * _RANK - now) if rank else wait

    def tell_all(self) -> None:
        """Tells which times of all schedules were seen to, as far as is known."""
        for schedule in self.all:
            if schedule.fired:
                self.tell(schedule.name, schedule.fired)

    def on_fired(self, name: str, tick: float) -> None:
        """Another node has seen to a time of a schedule, and to all before it."""
        for schedule in self.all:
            if schedule.name == name and schedule.last < tick <= self.core.wall_clock() + LONGEST:
                schedule.last = schedule.fired = tick
                self.has_news = True

    def _add(self, schedule: CronSchedule, tick: float) -> bool:
        """Adds the job of a tick; False: it is tried again."""
        options = schedule.options
        machine, now = self.commit.machine, self.commit.clock()
        prefix = options.mountpoint.encode() + b"\0" if options.mountpoint else b""
        key = b"\0cron %d " % int(tick) + schedule.name.encode()
        try:
            queue = machine.queue(prefix + options.queue.encode(), now)
            self.commit.check_disk(queue.rules.persistence)
            ttl = queue.rules.ttl if options.ttl is None else options.ttl
            retry = queue.rules.retry_after(0) if options.retry is None else options.retry
            job_id = named(key + queue.name, ttl, retry > 0)
            if machine.find(job_id) is not None:
                machine.counts.deduplicated += 1
                return True
            machine.add(
                queue,
                options.body.encode(),
                now,
                -1 if options.ttl is None else options.ttl,
                -1 if options.retry is None else options.retry,
                0,
                -1 if options.priority is None else options.priority,
                -1,
                key,
                job_id=job_id,
            )
        except JobRefusedError as refusal:
            log.warning("schedule %s: %s", schedule.name, refusal)
            return False
        return True
