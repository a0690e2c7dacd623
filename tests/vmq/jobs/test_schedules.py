"""Jobs by the clock: once a tick, also after a restart; what was missed; a queue that is paused."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.until import until
from tests.vmq.jobs.serving import config_of, machine
from vmq.admin.jobs.schedules import list_schedules
from vmq.broker import Broker
from vmq.config.jobs import ScheduleOptions
from vmq.config.load import load
from vmq.config.options import Config
from vmq.config.sources import ConfigError

#: 2023-11-14 22:13:20 UTC
NOW = 1_700_000_000.0


def scheduled(folder: Path, **options: Any) -> Config:
    schedule = ScheduleOptions(**{"cron": "*/5 * * * *", "queue": "tick", "body": "x", **options})
    return msgspec.structs.replace(config_of(folder), schedules={"five": schedule})


def look(broker: Broker, wall: float) -> int:
    """The clock says this; the jobs that there are then."""
    service = broker.jobs.open()
    service.core.wall_clock = lambda: wall
    wait = service.schedules.look()
    assert 0 < wait <= 30
    found = service.machine.queues.get(b"tick")
    return 0 if found is None else int(found.depth)


def begins_at(broker: Broker, wall: float) -> None:
    """As if the schedule had been looked at then for the last time."""
    for each in broker.jobs.open().schedules.all:
        each.last = wall


async def test_one_job_a_tick_also_after_a_restart(tmp_path: Path, synced: list[str]) -> None:
    config = scheduled(tmp_path, priority=7, ttl=100_000, retry=9)
    async with Broker(config) as broker:
        begins_at(broker, NOW)
        assert look(broker, NOW + 90) == 0
        assert look(broker, NOW + 100) == 1  # 22:15
        assert (look(broker, NOW + 130), look(broker, NOW + 400)) == (1, 2)
        (row,) = list_schedules(broker)
        assert (row.schedule, row.last) == ("five", "2023-11-14T22:20:00Z")
        assert (row.next, row.queue) == ("2023-11-14T22:25:00Z", "tick")
        (job, _) = machine(broker).jobs.values()
        assert (job.body, job.priority, job.ttl, job.retry) == (b"x", 7, 100_000, 9)
    file = tmp_path / "data" / "jobs" / "schedules.json"
    assert json.loads(file.read_text()) == {"five": NOW + 400}
    assert "schedules.json.tmp" in synced, "a crash leaves one or the other"
    # As if the broker had ended between the log and this file: the key of the tick is in the log.
    file.write_text(json.dumps({"five": NOW + 100}))
    async with Broker(config) as broker:
        begins_at(broker, NOW + 100)
        before = machine(broker).queues[b"tick"].depth
        assert (look(broker, NOW + 410), machine(broker).counts.deduplicated) == (before, 1)
        assert look(broker, NOW + 700) == before + 1


async def test_schedules_change_live_and_go_on_from_their_last_time(tmp_path: Path) -> None:
    none = msgspec.structs.replace(scheduled(tmp_path), schedules={})
    async with Broker(none) as broker:
        broker.reload(scheduled(tmp_path))
        begins_at(broker, NOW)
        assert look(broker, NOW + 100) == 1
        broker.reload(scheduled(tmp_path, priority=3))
        assert (look(broker, NOW + 130), look(broker, NOW + 400)) == (1, 2)
        assert [int(each.priority) for each in machine(broker).jobs.values()] == [0, 3]
        broker.reload(none)
        assert look(broker, NOW + 7000) == 2


@pytest.mark.parametrize("text", ["", "[1]", '{"five": "x"}', '{"five": NaN}', "[" * 100_000])
async def test_last_times_that_cannot_be_read_are_told_and_the_broker_starts(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data" / "jobs"
    folder.mkdir(parents=True)
    (folder / "schedules.json").write_text(text)
    async with Broker(scheduled(tmp_path)) as broker:
        assert "the last times of schedules cannot be read" in caplog.text
        begins_at(broker, NOW)
        assert look(broker, NOW + 100) == 1


@pytest.mark.parametrize(("misfire", "count"), [("skip", 0), ("once", 1), ("all", 12)])
async def test_what_was_missed(tmp_path: Path, misfire: str, count: int) -> None:
    async with Broker(scheduled(tmp_path, misfire=misfire)) as broker:
        begins_at(broker, NOW - 86_400)
        assert look(broker, NOW) == count  # those of one hour
        assert look(broker, NOW + 30) == count
        assert look(broker, NOW + 100) == count + 1


async def test_those_of_a_day_come_by_and_by_the_last_thousand_of_them(tmp_path: Path) -> None:
    config = scheduled(tmp_path, cron="* * * * *", misfire="all", misfire_window=86_400)
    async with Broker(config) as broker:
        begins_at(broker, NOW - 86_400)
        counts = [look(broker, NOW) for _ in range(12)]
        assert [later - before for before, later in pairwise([0, *counts])] == [100] * 10 + [0] * 2
        (schedule,) = broker.jobs.open().schedules.all
        assert (schedule.last, schedule.next()) == (NOW - 20, NOW + 40)
        first = next(iter(machine(broker).jobs.values()))
        assert first.key == b"\0cron %d five" % (NOW - 20 - 999 * 60)
        assert look(broker, NOW + 40) == 1001


async def test_many_schedules_have_their_turns(tmp_path: Path) -> None:
    options = ScheduleOptions(cron="*/5 * * * *", queue="tick")
    config = msgspec.structs.replace(
        config_of(tmp_path), schedules={f"s{number}": options for number in range(250)}
    )
    async with Broker(config) as broker:
        begins_at(broker, NOW)
        assert [look(broker, NOW + 100) for _ in range(4)] == [100, 200, 250, 250]


@pytest.mark.parametrize("misfire", ["skip", "once", "all"])
async def test_what_was_missed_too_long_ago_is_over(tmp_path: Path, misfire: str) -> None:
    async with Broker(scheduled(tmp_path, cron="0 3 * * *", misfire=misfire)) as broker:
        begins_at(broker, NOW - 86_400)
        service = broker.jobs.open()
        assert look(broker, NOW) == 0
        assert service.schedules.look() == 30, "it is not looked at again and again"
        (schedule,) = service.schedules.all
        assert schedule.next() > NOW


async def test_what_is_refused_is_tried_less_and_less_often_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Broker(scheduled(tmp_path)) as broker:
        caplog.set_level("INFO")
        begins_at(broker, NOW)
        service = broker.jobs.open()
        now = NOW + 100
        service.core.wall_clock = lambda: now
        queue = service.machine.queue(b"tick", 0.0)
        service.machine.pause(queue, True, False)
        waits = []
        for _ in range(12):
            waits.append(service.schedules.look())
            now += waits[-1]
        # Of a minute it is looked at the clock in the middle, too.
        assert waits == [1, 2, 4, 8, 16, 30, 2, 30, 30, 30, 30, 30]
        assert service.machine.counts.refused == 9
        assert caplog.text.count("schedule five") == 1
        queue.rules.maxlen, queue.paused_in = 1, False
        service.machine.add(queue, b"x", service.core.clock())
        for _ in range(4):
            now += service.schedules.look()
        assert [
            each.message.partition(": ")[2][:6] for each in caplog.records if "five" in each.message
        ] == [*("PAUSED", "MAXLEN")]
        queue.rules.maxlen = 0
        for _ in range(4):
            now += service.schedules.look()
        assert (queue.depth, caplog.text.count("schedule five")) == (2, 3)
        assert service.schedules.look() > 1


async def test_times_that_have_their_job_are_done_though_a_later_one_is_refused(
    tmp_path: Path,
) -> None:
    """A paused queue is one for longer than a key is remembered, at times."""
    async with Broker(scheduled(tmp_path, misfire="all")) as broker:
        begins_at(broker, NOW - 1800)
        queue = machine(broker).queue(b"tick", 0.0)
        queue.rules.maxlen = 2
        assert look(broker, NOW) == 2
        (schedule,) = broker.jobs.open().schedules.all
        assert schedule.last == schedule.fired == NOW - 1800 + 400


async def test_a_paused_queue_gets_its_job_later(tmp_path: Path) -> None:
    async with Broker(scheduled(tmp_path)) as broker:
        begins_at(broker, NOW)
        queue = machine(broker).queue(b"tick", 0.0)
        machine(broker).pause(queue, True, False)
        assert look(broker, NOW + 100) == 0
        machine(broker).pause(queue, False, False)
        assert look(broker, NOW + 130) == 1


async def test_a_clock_that_is_set_back_repeats_nothing(tmp_path: Path) -> None:
    async with Broker(scheduled(tmp_path)) as broker:
        begins_at(broker, NOW)
        assert (look(broker, NOW + 100), look(broker, NOW - 7200)) == (1, 1)
        assert look(broker, NOW + 130) == 1


async def test_a_clock_that_was_ahead_holds_no_schedule_up(tmp_path: Path) -> None:
    async with Broker(scheduled(tmp_path)) as broker:
        begins_at(broker, NOW)
        assert (look(broker, NOW + 365 * 86_400), look(broker, NOW)) == (1, 1)
        assert look(broker, NOW + 130) == 2


async def test_the_broker_looks_by_itself(tmp_path: Path) -> None:
    async with Broker(scheduled(tmp_path, cron="* * * * *")) as broker:
        service = broker.jobs.open()
        for each in service.schedules.all:
            each.last -= 120
        assert service.schedules._ticker is not None
        service.schedules._ticker.cancel()
        service.schedules._tick()
        await until(lambda: service.machine.counts.added == 1)


def test_schedules_stand_below_jobs(tmp_path: Path) -> None:
    file = tmp_path / "vmq.toml"
    file.write_text(
        '[jobs."mail-*"]\nttl = 60\n[jobs.schedules.night]\ncron = "0 3 * * *"\n'
        'timezone = "Europe/Zagreb"\nqueue = "clean"\n'
    )
    config = load(file, {}, {}).config
    assert config.schedules["night"].timezone == "Europe/Zagreb"
    assert list(config.jobs) == ["mail-*"]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ('cron = "61 * * * *"', "jobs.schedules.night.cron"),
        ('timezone = "Mars/Base"', "jobs.schedules.night.timezone"),
        ('queue = "$delayed"', "jobs.schedules.night.queue"),
        ('quue = "x"', "unknown option"),
    ],
)
def test_what_is_wrong_with_a_schedule(tmp_path: Path, line: str, reason: str) -> None:
    file = tmp_path / "vmq.toml"
    others = {"cron": 'cron = "0 3 * * *"', "queue": 'queue = "q"'}
    others.pop(line.split(maxsplit=1)[0], None)
    file.write_text("\n".join(["[jobs.schedules.night]", line, *others.values()]) + "\n")
    with pytest.raises(ConfigError, match=reason):
        load(file, {}, {})
