"""Times of a crontab: fields, days of both kinds, daylight saving time; against a look at every minute."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vmq.config.cron import Cron, CronError

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
