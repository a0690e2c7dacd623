"""Times of a crontab: fields, days of both kinds, daylight saving time; against a look at every minute."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmq.config.cron import Cron, CronError
from vmq.config.cron import _instant as instant

ZAGREB = ZoneInfo("Europe/Zagreb")


def times(text: str, start: str, count: int, zone: ZoneInfo | None = None) -> list[str]:
    """The next times in UTC after a time in UTC."""
    moment = datetime.fromisoformat(start + "+00:00").timestamp()
    found = []
    for _ in range(count):
        moment = Cron(text).next_after(moment, zone or UTC)
        found.append(datetime.fromtimestamp(moment, UTC).strftime("%m-%d %H:%M"))
    return found


@pytest.mark.parametrize(
    ("text", "start", "expected"),
    [
        ("0 3 * * *", "2026-01-31T02:59:59", ["01-31 03:00", "02-01 03:00"]),
        ("0 3 * * *", "2026-01-31T03:00:00", ["02-01 03:00", "02-02 03:00"]),
        ("*/20 8-9 * * *", "2026-01-01T08:30:00", ["01-01 08:40", "01-01 09:00"]),
        ("5,3 0 * * *", "2026-01-01T00:00:00", ["01-01 00:03", "01-01 00:05"]),
        ("0 0 29 feb *", "2026-01-01T00:00:00", ["02-29 00:00", "02-29 00:00"]),
        ("0 0 * * mon-fri", "2026-01-02T12:00:00", ["01-05 00:00", "01-06 00:00"]),
        ("0 0 * * 7", "2026-01-01T00:00:00", ["01-04 00:00", "01-11 00:00"]),
        # Both days restricted: either.
        ("0 0 13 * fri", "2026-01-01T00:00:00", ["01-02 00:00", "01-09 00:00"]),
        ("0 0 13 * fri", "2026-01-10T00:00:00", ["01-13 00:00", "01-16 00:00"]),
        ("50/5 0 1 1 *", "2026-01-01T00:00:00", ["01-01 00:50", "01-01 00:55"]),
        ("@hourly", "2026-01-01T00:10:00", ["01-01 01:00", "01-01 02:00"]),
        ("@weekly", "2026-01-01T00:00:00", ["01-04 00:00", "01-11 00:00"]),
    ],
)
def test_the_next_times(text: str, start: str, expected: list[str]) -> None:
    assert times(text, start, 2) == expected


def test_what_daylight_saving_time_leaves_out_is_its_end() -> None:
    # 2026-03-29 in Zagreb: 02:00 to 03:00 is not there; it ends at 01:00 UTC.
    assert times("30 2 * * *", "2026-03-28T00:00:00", 3, ZAGREB) == [
        *("03-28 01:30", "03-29 01:00", "03-30 00:30")
    ]
    assert times("*/15 2 * * *", "2026-03-29T00:00:00", 2, ZAGREB) == ["03-29 01:00", "03-30 00:00"]


def test_what_comes_twice_is_once() -> None:
    # 2026-10-25 in Zagreb: 02:00 to 03:00 comes at 00:00 and at 01:00 UTC.
    assert times("30 2 * * *", "2026-10-24T12:00:00", 2, ZAGREB) == ["10-25 00:30", "10-26 01:30"]
    assert times("30 2 * * *", "2026-10-25T00:45:00", 1, ZAGREB) == ["10-26 01:30"]
    assert times("*/30 * * * *", "2026-10-25T00:00:00", 3, ZAGREB) == [
        *("10-25 00:30", "10-25 02:00", "10-25 02:30")
    ]


@settings(max_examples=60, deadline=None)
@given(
    st.tuples(
        st.sampled_from(["*", "0", "*/7", "10-20/3", "59"]),
        st.sampled_from(["*", "3", "*/5", "22-23"]),
        st.sampled_from(["*", "1", "31", "*/10"]),
        st.sampled_from(["*", "2", "jun-aug"]),
        st.sampled_from(["*", "sun", "1-5"]),
    ),
    st.integers(1_672_531_200, 1_767_225_600),
)
def test_the_next_time_is_the_next_minute_that_matches(
    fields: tuple[str, ...], moment: int
) -> None:
    start = datetime.fromtimestamp(moment, UTC).replace(tzinfo=None)
    try:
        cron = Cron(" ".join(fields))
    except CronError:
        assert fields[2:4] == ("31", "2")  # the only one that never comes
        return
    found = datetime.fromtimestamp(cron.next_after(moment, UTC), UTC).replace(tzinfo=None)
    assert found > start
    minute = start.replace(second=0, microsecond=0) + timedelta(minutes=1)
    for _ in range(60 * 24 * 3):
        if minute == found:
            return
        assert not cron.matches(minute)
        minute += timedelta(minutes=1)


def walked(cron: Cron, moment: float, zone: ZoneInfo) -> float:
    """The first time later than a moment, by a walk through all minutes from the day before on."""
    local = datetime.fromtimestamp(moment, zone).replace(tzinfo=None)
    naive = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0) - timedelta(days=1)
    while not cron.matches(naive) or instant(naive, zone) <= moment:
        naive += timedelta(minutes=1)
    return instant(naive, zone)


#: Where clocks change by an hour, by half of one, at midnight, twice a year around a month, and once left out a day.
ZONES = ["Europe/Zagreb", "Australia/Lord_Howe", "Asia/Beirut", "Africa/Casablanca", "Pacific/Apia"]


def changes(zone: ZoneInfo) -> list[float]:
    """When its clocks changed, by the hour."""
    hours = [1_293_840_000.0 + 3600 * each for each in range(24 * 365 * 3)]  # from 2011 on
    offsets = [datetime.fromtimestamp(each, zone).utcoffset() for each in hours]
    return [hours[at] for at in range(1, len(hours)) if offsets[at] != offsets[at - 1]]


CHANGES = [(name, each) for name in ZONES for each in changes(ZoneInfo(name))]


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(CHANGES),
    st.floats(-90_000, 90_000) | st.integers(-180, 180).map(lambda each: each * 60.0),
    st.sampled_from(["* * * * *", "*/7 * * * *", "30 2 * * *", "0,59 0-4 * * *", "15 */5 * * *"]),
    st.sampled_from([60, 3600, 7200]),
)
def test_where_clocks_change_it_is_what_a_walk_through_all_minutes_finds(
    change: tuple[str, float], later: float, text: str, window: int
) -> None:
    name, moment = change
    moment += later
    zone, cron = ZoneInfo(name), Cron(text)
    assert cron.next_after(moment, zone) == walked(cron, moment, zone)
    last, tick = None, cron.next_after(moment - window, zone)
    while tick <= moment:
        last, tick = tick, cron.next_after(tick, zone)
    assert cron.last_until(moment, moment - window, zone) == last


def test_a_time_is_found_without_a_look_at_those_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some milliseconds a look, for each minute that a broker was off, are a minute in which it does nothing else."""
    looked: list[datetime] = []

    def counted(naive: datetime, zone: ZoneInfo) -> float:
        looked.append(naive)
        return instant(naive, zone)

    monkeypatch.setattr("vmq.config.cron._instant", counted)
    moment = datetime(2026, 3, 10, 23, 58, 30, tzinfo=ZAGREB).timestamp()
    cron = Cron("* * * * *")
    assert cron.next_after(moment, ZAGREB) == moment + 30
    assert cron.last_until(moment, moment - 86_400, ZAGREB) == moment - 30
    assert len(looked) <= 4


def test_the_last_one_may_be_none() -> None:
    moment = datetime(2026, 3, 10, 12, tzinfo=UTC).timestamp()
    assert Cron("0 12 * * *").last_until(moment, moment - 1, UTC) == moment
    assert Cron("0 12 * * *").last_until(moment, moment, UTC) is None
    assert Cron("0 13 * * *").last_until(moment, moment - 3600, UTC) is None
    found = Cron("0 0 29 feb *").last_until(moment, 0, UTC)
    assert found == datetime(2024, 2, 29, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has 0 fields"),
        ("* * * *", "has 4 fields"),
        ("60 * * * *", "minute: '60'"),
        ("* 24 * * *", "hour: '24'"),
        ("* * 0 * *", "day: '0'"),
        ("* * * 13 *", "month: '13'"),
        ("* * * * 8", "weekday: '8'"),
        ("* * * foo *", "month: 'foo'"),
        ("5-3 * * * *", "ends before it begins"),
        ("*/0 * * * *", "minute: '0'"),
        ("1,,2 * * * *", "minute: ''"),
        ("-1 * * * *", "minute: ''"),
        ("0 0 31 2 *", "never comes"),
        ("@often", "has 1 fields"),
    ],
)
def test_what_is_no_cron(text: str, reason: str) -> None:
    with pytest.raises(CronError, match=reason):
        Cron(text)
