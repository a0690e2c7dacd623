"""Jobs that are added by the clock.

A tick is a job with a key and an id of its own, so that it is added once however often it is tried; the key is in the
log with the job. Which tick was the last one of each schedule is kept beside the log: it tells what was missed.

In a cluster the nodes that reach each other agree on the order in which they see to a schedule: the first adds the job
and tells the others, the second does so when it heard nothing for a while. Two sides of a split add the same id each.
"""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from zoneinfo import ZoneInfo

import msgspec
from vmq_hooks.replacing import replace_file

from vmq.config.cron import Cron
from vmq.config.jobs import ScheduleOptions
from vmq.core.context import Core
from vmq.jobs.commit import JobCommit
from vmq.jobs.ids import named
from vmq.jobs.queues import JobRefusedError

log = logging.getLogger("vmq.jobs")

#: Seconds between two looks at the clock at most: it may be set.
LONGEST: Final = 30.0
#: Missed times of one schedule that are made up for; so many of all in one look: others have turns in between.
_MOST_MISSED: Final = 1000
_SLICE: Final = 100
#: Seconds until a job that is refused is tried again; doubled each time, up to the last.
_FIRST_PAUSE: Final = 1.0
_LAST_PAUSE: Final = 60.0
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
        #: Its next time, and the one that it is next to.
        self._next: tuple[float, float] | None = None
        #: While missed times are added by and by: behind which one they are not too many.
        self._made_up_for = 0.0
        #: Why its job was refused last, when it is tried again, and how long that is put off.
        self.refusal = ""
        self.again = 0.0
        self.pause = 0.0

    def due(self, now: float, most: int) -> tuple[list[float], float]:
        """Its times up to now that get a job, the oldest first, so many of them; and the last of all of them."""
        last = None if self.next() > now else self.cron.last_until(now, self.last, self.zone)
        if last is None:
            return [], self.last
        least = max(self.last, now - self.options.misfire_window - 1)
        if self.options.misfire != "all":
            is_over = last <= least or (self.options.misfire == "skip" and now - last > _LATE)
            return [] if is_over else [last], last
        found = self._from(max(least, self._made_up_for), now, most)
        if len(found) == most and not self._made_up_for:
            self._made_up_for = self._bound(least, last)
            found = self._from(self._made_up_for, now, most)
        if len(found) < most:
            self._made_up_for = 0.0
        return found, last

    def _from(self, tick: float, now: float, most: int) -> list[float]:
        found: list[float] = []
        while len(found) < most and (tick := self.cron.next_after(tick, self.zone)) <= now:
            found.append(tick)
        return found

    def _bound(self, least: float, last: float) -> float:
        """The time behind which those that were missed are not too many."""
        for _ in range(_MOST_MISSED):
            before = self.cron.last_until(last - 1, least, self.zone)
            if before is None:
                return least
            last = before
        return last

    def next(self) -> float:
        """Its next time, in seconds since 1970."""
        if self._next is None or self._next[0] != self.last:
            self._next = self.last, self.cron.next_after(self.last, self.zone)
        return self._next[1]

    def is_put_off(self, now: float) -> bool:
        """Whether its job was refused a short while ago; not by a clock that was set back meanwhile."""
        return 0 < self.again - now <= self.pause

    def put_off(self, reason: str, now: float) -> None:
        """Its job is refused: it is tried again by and by, and said once."""
        if reason != self.refusal:
            log.warning("schedule %s: %s", self.name, reason)
        self.refusal = reason
        self.pause = min(max(_FIRST_PAUSE, 2 * self.pause), _LAST_PAUSE)
        self.again = now + self.pause
        self._made_up_for = 0.0

    def goes_on(self) -> None:
        """Its job is there."""
        if self.refusal:
            log.info("schedule %s: its job is added again", self.name)
        self.refusal = ""
        self.again = self.pause = 0.0


class Schedules:
    """The schedules of a broker.

    Args:
        core: for the clock.
        commit: the jobs.
        folder: where the last times are kept.
        options: by name.
        safe: returns when all jobs that were added are as safe as they are to be; raises OSError.
    """

    def __init__(
        self,
        core: Core,
        commit: JobCommit,
        folder: Path,
        options: dict[str, ScheduleOptions],
        safe: Callable[[], Awaitable[None]],
    ) -> None:
        self.core = core
        self.commit = commit
        self.safe = safe
        self.path = folder / _FILE
        self.all: list[CronSchedule] = []
        if options:
            self._set(options, self._read())
        #: How many nodes in reach are to see to a schedule before this one; 0: no other.
        self.rank: Callable[[str], int] = lambda name: 0
        #: Told which time of a schedule has its job.
        self.tell: Callable[[str, float], None] = lambda name, tick: None
        #: There are last times that the file does not have, nor a `_keep` that is under way.
        self._is_unkept = False
        #: No job is added before.
        self.begins = 0.0
        self._ticker: asyncio.TimerHandle | None = None
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Looks at the clock from now on, if there are any."""
        # In the next turn of the event loop: by then other nodes may be known.
        if self.all and self._ticker is None:
            self._ticker = asyncio.get_running_loop().call_later(0, self._tick)

    def _tick(self) -> None:
        loop = asyncio.get_running_loop()
        self._ticker = loop.call_later(self.look(), self._tick)
        if self._is_unkept and (self._keeping is None or self._keeping.done()):
            self._keeping = loop.create_task(self._keep())

    async def stop(self) -> None:
        """Adds no more jobs; the last times are kept when it returns."""
        if self._ticker is not None:
            self._ticker.cancel()
        if self._keeping is not None:
            await self._keeping
        await self._keep()

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

    async def _keep(self) -> None:
        """Keeps the last times: behind their jobs, which are in the log by then. One call at a time."""
        while self._is_unkept:
            self._is_unkept = False
            last = {each.name: each.last for each in self.all}
            try:
                await self.safe()
                await asyncio.to_thread(replace_file, self.path, json.dumps(last).encode())
            except OSError as error:
                log.error("the last times of schedules cannot be kept: %s", error)

    def look(self) -> float:
        """Adds what is due; seconds until the next look."""
        now = self.core.wall_clock()
        changed = False
        soonest = now + LONGEST
        left = _SLICE
        for schedule in self.all:
            if schedule.last > now + _LATE:
                # The clock was ahead. What was added by it keeps out what would be added again.
                schedule.last = schedule.fired = now
            if schedule.is_put_off(now):
                soonest = min(soonest, schedule.again)
                continue
            if left <= 0:
                soonest = min(soonest, schedule.next())
                continue
            ticks, last = schedule.due(now, left)
            wait = self._wait(schedule, last, now)
            if wait > 0:
                soonest = min(soonest, now + wait)
                continue
            left -= max(len(ticks), int(last != schedule.last))
            done = self._add_all(schedule, ticks, last, now)
            if done != schedule.last:
                schedule.last = schedule.fired = done
                self.tell(schedule.name, done)
                changed = True
            soonest = min(soonest, max(schedule.next(), schedule.again))
        if changed:
            self._is_unkept = True
            self.commit.end_pass(self.commit.clock())
        return min(max(soonest - now, 0.05), LONGEST)

    def _add_all(
        self, schedule: CronSchedule, ticks: list[float], last: float, now: float
    ) -> float:
        """Adds the jobs of some times; up to which time all have theirs."""
        done = schedule.last
        for tick in ticks:
            refusal = self._add(schedule, tick)
            if refusal:
                schedule.put_off(refusal, now)
                return done
            schedule.goes_on()
            done = tick
        # Without any, those that were missed are over.
        return done if ticks else last

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
                schedule.goes_on()
                self._is_unkept = True

    def _add(self, schedule: CronSchedule, tick: float) -> str:
        """Adds the job of a tick; why it is refused, if it is."""
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
                return ""
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
            return str(refusal)
        return ""
