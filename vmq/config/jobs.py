"""The options of job queues, by patterns of their names, and which rules follow from them."""

import re
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Annotated, Any, Final, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta, Struct

from vmq.config.cron import Cron, CronError

#: What a name of [jobs.NAME] may consist of.
_PATTERN: Final = re.compile(r"[A-Za-z0-9_*?-]{1,100}\Z")
_GROUP: Final = "^[A-Za-z0-9_-]{1,64}$"
_RETRY_FORMS: Final = "seconds, or a list of them, as in [5, 30, 300]"
_Seconds = Annotated[int, Meta(ge=1, le=0xFFFF_FFFF)]


class JobOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What holds for the queues whose names match; unset: what a wider pattern says, else the default."""

    retry: Annotated[
        Annotated[int, Meta(ge=0, le=0xFFFF_FFFF)]
        | Annotated[list[_Seconds], Meta(min_length=1, max_length=32)]
        | None,
        Meta(
            description="Seconds after which a job that a worker took and did not acknowledge is given again; a list: "
            "after its first, second, ... delivery, the last for all later ones, and also after a NACK. 0 = never: "
            "delivered at most once. Unset: 300.",
            extra={"accepts": _RETRY_FORMS},
        ),
    ] = None
    ttl: Annotated[
        _Seconds | None,
        Meta(description="Seconds that a job lives at most, from when it is due. Unset: 86400."),
    ] = None
    priority: Annotated[
        Annotated[int, Meta(ge=0, le=9)] | None,
        Meta(description="Of a job that has none: 9 goes first. Unset: 0."),
    ] = None
    maxlen: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="Jobs that may be queued; a further one is refused (MAXLEN). Unset: 0, no limit."
        ),
    ] = None
    max_deliveries: Annotated[
        Annotated[int, Meta(ge=0, le=60_000)] | None,
        Meta(
            description="Times that a job is given to workers; then it goes to the dead letters (QUEUE!dead). "
            "0 = no limit. Unset: 20."
        ),
    ] = None
    dead_ttl: Annotated[
        _Seconds | None,
        Meta(description="Seconds that dead letters are kept. Unset: 1209600 (14 days)."),
    ] = None
    dead_maxlen: Annotated[
        Annotated[int, Meta(ge=0)] | None,
        Meta(
            description="Dead letters of a queue; above it the oldest goes. 0 = no limit. Unset: 10000."
        ),
    ] = None
    key_window: Annotated[
        _Seconds | None,
        Meta(
            description="Seconds after a job with a key in which no second one with it is added. Unset: 3600."
        ),
    ] = None
    max_run: Annotated[
        _Seconds | None,
        Meta(
            description="Seconds that an MQTT client may be at a job while its connection lives; then that is given "
            "again after its retry. Unset: 43200 (12 h)."
        ),
    ] = None
    refuse_after: Annotated[
        _Seconds | None,
        Meta(
            description="Seconds that an MQTT client which publishes a job is kept waiting while queue or memory is "
            "full, or the queue paused; then its connection is closed, unacknowledged. Unset: 30."
        ),
    ] = None
    replicate: Annotated[
        Annotated[int, Meta(ge=1, le=65_535)] | None,
        Meta(
            description="Hosts that have a job before it is acknowledged, if it is added without REPLICATE and the "
            "cluster has so many. A job that is delivered at most once is on one. Unset: 3."
        ),
    ] = None
    when_split: Annotated[
        Literal["wait", "reach"] | None,
        Meta(
            description="While fewer hosts can be reached: a job is refused (NOREPL; an MQTT client waits), or it is "
            'acknowledged with those that can be, and gets its other copies later. Unset: "wait".'
        ),
    ] = None
    groups: Annotated[
        Annotated[list[Annotated[str, Meta(pattern=_GROUP)]], Meta(min_length=1, max_length=64)]
        | None,
        Meta(
            description="Each of these groups gets each job, in a queue of its own: QUEUE@GROUP. A new group gets jobs "
            "from then on. Unset: none, the queue itself has the jobs.",
            extra={"accepts": 'a list of names, as in ["mail", "audit"]'},
        ),
    ] = None
    persistence: Annotated[
        Literal["off", "os", "fsync"] | None,
        Meta(
            description="A job is acknowledged once it is in memory, with the operating system (survives a crash of "
            'the broker), or on disk (survives power loss). Unset: "os".'
        ),
    ] = None


def options_of(name: str, patterns: Mapping[str, JobOptions]) -> dict[str, Any]:
    """What holds for a queue: each option from the most specific pattern that sets it.

    A pattern is the more specific, the more of it is no wildcard; of two alike the later one in the file is. What holds
    for a queue holds for the queues of its groups, which have no groups themselves.
    """
    of_group, _, group = name.rpartition("@")
    if of_group and group in (options_of(of_group, patterns).get("groups") or ()):
        found = options_of(of_group, patterns)
        del found["groups"]
        return found
    matching = [each for each in patterns if fnmatchcase(name, each)]
    matching.sort(key=lambda each: len(each) - each.count("*") - each.count("?"))
    found = {}
    for pattern in matching:
        options = patterns[pattern]
        for field in options.__struct_fields__:
            value = getattr(options, field)
            if value is not None:
                found[field] = value
    return found


def pattern_problems(patterns: Mapping[str, JobOptions]) -> Iterator[tuple[str, str]]:
    """What is wrong with the names of sections: the section, and what."""
    for name in patterns:
        if not _PATTERN.match(name):
            what = "is no pattern; accepted: letters, digits, _ and -, with * for any text and ? for one sign"
            yield name, what


class ScheduleOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A job that is added again and again."""

    cron: Annotated[
        str,
        Meta(
            description='When: minute, hour, day, month and weekday, as in "0 3 * * *" or "*/15 8-17 * * mon-fri"; or '
            "@hourly, @daily, @weekly, @monthly, @yearly."
        ),
    ]
    queue: Annotated[
        str, Meta(min_length=1, max_length=512, description="The queue that gets the job.")
    ]
    timezone: Annotated[str, Meta(description='Whose clock that is, as in "Europe/Zagreb".')] = (
        "UTC"
    )
    body: Annotated[str, Meta(description="What is to be done.")] = ""
    mountpoint: Annotated[str, Meta(description="The topic tree of the queue.")] = ""
    retry: Annotated[
        Annotated[int, Meta(ge=0, le=0x7FFF_FFFF)] | None,
        Meta(description="Seconds after which the job is given again. Unset: as the queue says."),
    ] = None
    ttl: Annotated[
        _Seconds | None,
        Meta(description="Seconds that the job lives. Unset: as the queue says."),
    ] = None
    priority: Annotated[
        Annotated[int, Meta(ge=0, le=9)] | None,
        Meta(description="Of the job. Unset: as the queue says."),
    ] = None
    misfire: Annotated[
        Literal["skip", "once", "all"],
        Meta(
            description="What the times get that the broker missed: nothing, one job for the last of them, or one each."
        ),
    ] = "once"
    misfire_window: Annotated[
        int,
        Meta(ge=1, le=0xFFFF_FFFF, description="Seconds after which a missed time is over."),
    ] = 3600


def schedule_problems(schedules: Mapping[str, ScheduleOptions]) -> Iterator[tuple[str, str]]:
    """What is wrong with schedules: the key below the section, and what."""
    for name, options in schedules.items():
        try:
            Cron(options.cron)
        except CronError as error:
            yield f"{name}.cron", str(error)
        try:
            ZoneInfo(options.timezone)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            yield f"{name}.timezone", "no time zone of this machine; accepted: as in Europe/Zagreb"
        if (
            options.queue.startswith("$")
            or options.queue.endswith("!dead")
            or "\0" in options.queue
        ):
            yield f"{name}.queue", "accepted: a name that neither begins with $ nor ends in !dead"
