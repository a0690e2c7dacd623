"""The schedules of a running broker."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

from msgspec import Meta, Struct

from vmq.admin.trees import Mountpoint

if TYPE_CHECKING:
    from vmq.ports import BrokerView


class ScheduleRow(Struct, frozen=True, kw_only=True):
    """One schedule."""

    schedule: str
    cron: str
    timezone: str
    queue: str
    mountpoint: Mountpoint
    last: Annotated[str, Meta(description="Its last time that was dealt with, or when it began")]
    next: Annotated[str, Meta(description="Its next time")]
    body: str


def list_schedules(broker: "BrokerView") -> list[ScheduleRow]:
    """Those of the configuration."""
    service = broker.jobs.service
    if service is None:
        return []
    return [
        ScheduleRow(
            schedule=each.name,
            cron=each.options.cron,
            timezone=each.options.timezone,
            queue=each.options.queue,
            mountpoint=each.options.mountpoint,
            last=iso_time(each.last),
            next=iso_time(each.next()),
            body=each.options.body,
        )
        for each in service.schedules.all
    ]


def iso_time(moment: float) -> str:
    """Seconds since 1970, for people."""
    return datetime.fromtimestamp(int(moment), UTC).isoformat().replace("+00:00", "Z")


def iso_nanoseconds(moment: int) -> str:
    """Nanoseconds since 1970, for people; of two moments the later one is the greater text."""
    seconds, rest = divmod(moment, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"
